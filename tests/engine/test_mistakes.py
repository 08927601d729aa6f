"""What a mistake in a stack file leads to under the real Pulumi engine: one message, no traceback, no resource."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine

Edit = Callable[[dict[str, Any]], None]

OTHER_REGION = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/gan/trainer@sha256:{'0' * 64}"
PURCHASE = {"kind": "capacity-block", "purchase": True, "offering_id": "cbo-0123456789abcdef0"}
SPOT_IN_TWO_ZONES = {"kind": "spot", "zones": ["us-east-2a", "us-east-2b"]}

Row = tuple[str, Any, list[str]]
AWS: list[Row] = [
    ("storage.capacity_gib", 9000, ["gangway:storage.capacity_gib", "got:     9000", "set capacity_gib: 9600"]),
    ("cluster.accelerator", "H100x9", ["gangway:cluster.accelerator", "'H100x9'", "H100x8"]),
    ("cluster.zone", "us-east-2z", ["gangway:cluster.zone", "'us-east-2z'", "us-east-2a"]),
    ("cluster.nodez", 3, ["gangway:cluster.nodez", "unknown key", "did you mean 'nodes'?"]),
    ("cluster.capacity", [SPOT_IN_TWO_ZONES], ["gangway:cluster.capacity[0].zones", "us-east-2b"]),
    ("cluster.capacity", [{"kind": "capacity-block"}], ["gangway:cluster.capacity[0]", "add id"]),
    ("cluster.capacity", [PURCHASE], ["gangway:cluster.capacity[0]", "add upfront_usd and starts_at and ends_at"]),
    ("budget.emails", [], ["gangway:budget.emails"]),
    ("budget.stop_at_percent", 0, ["gangway:budget.stop_at_percent", "got:     0"]),
    ("image", {"prebuilt": OTHER_REGION}, ["gangway:image.prebuilt", "eu-west-1", "us-east-2"]),
    ("network", {"cidr": "8.8.0.0/16"}, ["gangway:network.cidr", "'8.8.0.0/16'", "use 10.42.0.0/16"]),
    ("job.controller", {"bounds": {"watts": [300, 900]}}, ["job.controller.bounds.watts", "write watts: [300, 700]"]),
    ("job.controller", {"bounds": {"nodes": [1, 4]}}, ["job.controller.bounds.nodes", "write nodes: [2, 2]"]),
    ("job.autoscale", {"deadline": "2025-01-01T00:00:00Z"}, ["gangway:job.autoscale.deadline", "in the past"]),
    ("observe", {"log_days": 31}, ["gangway:observe.log_days", "got:     31", "30"]),
    ("region", "us-west-9", ["gangway:region", "'us-west-9'", "us-west-2"]),
    # Pulumi.yaml's own schema speaks first.
    ("cluster", "two nodes", ["configuration key 'cluster' must be of type 'object'"]),
    ("region", None, ["missing configuration value 'region'"]),
]
SUBSCRIPTION = "11111111-0000-0000-0000-111111111111"
RESERVED = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c"
# What is Azure's own; what all providers share is AWS's above.
AZURE: list[Row] = [
    ("azure", None, ["gangway:azure: missing", "subscription_id"]),
    ("azure.source_account_id", None, ["gangway:azure.source_account_id: missing", "az storage account show"]),
    ("azure.budget_starts_on", "2026-11-02", ["gangway:azure.budget_starts_on", "set budget_starts_on: '2026-11-01'"]),
    ("cluster.machine_type", "Standard_ND96isr_H101_v5", ["gangway:cluster.machine_type", "ND96isr_H100_v5'?"]),
    ("cluster.zone", "4", ["gangway:cluster.zone", "got:     '4'", "set zone: '1'"]),
    ("cluster.capacity", [{"kind": "reservation", "id": RESERVED}], ["gangway:cluster.capacity[0].kind", "on-demand"]),
    ("cluster.nodes", {"min": 2, "max": 400}, ["gangway:cluster.nodes.max", "got:     400", "at most 300"]),
    ("storage.capacity_gib", 9000, ["gangway:storage.capacity_gib", "got:     9000", "set capacity_gib: 8192"]),
    ("storage.source", "az://myaccount", ["gangway:storage.source", "az://ACCOUNT/CONTAINER"]),
    ("image", {"prebuilt": OTHER_REGION}, ["gangway:image.prebuilt", "<registry>.azurecr.io"]),
]


@pytest.mark.parametrize(
    ("stack", "path", "value", "said"),
    [*(("aws-demo", *row) for row in AWS), *(("azure-ndv5-spot", *row) for row in AZURE)],
)
def test_a_mistake_is_one_message_and_no_resource(
    make_engine: Any, set_value: Callable[..., Edit], stack: str, path: str, value: Any, said: list[str]
) -> None:
    engine = make_engine(stack)
    engine.change(set_value(path, value))
    # Without a preview before it, so that the first resource would have been made.
    outcome = engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    for words in said:
        assert words in outcome.text
    assert "Traceback" not in outcome.text
    assert 'File "' not in outcome.text
    assert engine.resources() == []


def test_a_mistake_fails_the_preview_too(make_engine: Any, set_value: Callable[..., Edit]) -> None:
    engine = make_engine("aws-demo")
    engine.change(set_value("storage.capacity_gib", 9000))
    preview = engine.run("preview")
    assert preview.status != 0
    assert "set capacity_gib: 9600" in preview.text
    assert "Traceback" not in preview.text
