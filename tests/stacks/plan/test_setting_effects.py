"""What `plan --against` states of one change of each kind on each cloud, and which of them are errors."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gangway.components.core.findings import Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.difference import Change, Difference, Effect, compare, refusals
from gangway.stacks.recording import Recording

Edited = Callable[..., StackConfig]
Recorded = Callable[[StackConfig], Recording]

STACKS = {"aws": "aws-demo", "azure": "azure-ndv5-spot", "gcp": "gcp-a3-spot", "openstack": "openstack-gpu"}
IN_PLACE, HEAD, RESTARTS, LOST = Effect.IN_PLACE, Effect.HEAD_REPLACED, Effect.NODES_RESTARTED, Effect.DATA_LOST
CHANGES: dict[str, dict[str, tuple[dict[str, Any], Effect]]] = {
    "capacity": {
        "aws": ({"storage": {"capacity_gib": 19200}}, IN_PLACE),
        "azure": ({"storage": {"capacity_gib": 16384}}, LOST),
        "gcp": ({"storage": {"capacity_gib": 36000}}, IN_PLACE),
        "openstack": ({"storage": {"capacity_gib": 8192}}, IN_PLACE),
    },
    "less capacity": {
        "aws": ({"storage": {"capacity_gib": 4800}}, LOST),
        "azure": ({"storage": {"capacity_gib": 4096}}, LOST),
    },
    "cidr": {
        "aws": ({"network": {"cidr": "10.44.0.0/16"}}, LOST),
        "azure": ({"network": {"cidr": "10.44.0.0/16"}}, IN_PLACE),
        "gcp": ({"network": {"cidr": "10.44.0.0/16"}}, HEAD),
        "openstack": ({"network": {"cidr": "10.44.0.0/16"}}, RESTARTS),
    },
    "region": {
        "aws": ({"region": "us-west-2"}, LOST),
        "azure": ({"region": "southcentralus"}, LOST),
        "gcp": ({"region": "us-east4"}, LOST),
        "openstack": ({"region": "RegionTwo"}, LOST),
    },
    "key": {
        "aws": ({"encryption": "customer-key"}, LOST),
        "azure": ({"encryption": "provider-key", "azure": {"tenant_id": None}}, LOST),
        "gcp": ({"encryption": "provider-key"}, LOST),
    },
    "machine type": {
        "aws": ({"cluster": {"accelerator": None, "machine_type": "p4d.24xlarge"}}, HEAD),
        "azure": ({"cluster": {"machine_type": "Standard_ND96amsr_A100_v4"}}, HEAD),
        "gcp": ({"cluster": {"machine_type": "a3-highgpu-8g"}}, HEAD),
        "openstack": ({"cluster": {"machine_type": "gpu.h100x8.large"}}, RESTARTS),
    },
    "kimg": {
        "aws": ({"job": {"kimg": 160}}, HEAD),
        "azure": ({"job": {"kimg": 24000}}, HEAD),
        "gcp": ({"job": {"kimg": 24000}}, HEAD),
        "openstack": ({"job": {"kimg": 24000}}, RESTARTS),
    },
    "tags": {provider: ({"tags": {"team": "other"}}, Effect.NEW_NODES) for provider in STACKS},
}
CASES = [(setting, provider) for setting, changes in CHANGES.items() for provider in changes]


def difference(before: StackConfig, now: StackConfig, recorded: Recorded) -> Difference:
    """Of what the programs declare, without prices."""

    def plan(config: StackConfig) -> dict[str, Any]:
        resources = [one.to_json() for one in recorded(config).resources]
        given = {"provider": config.provider, "region": config.region, "cost": {}}
        return {**given, "resources": resources, "findings": []}

    return compare(plan(before), plan(now), recorded(now).resources)


def effects(found: Difference) -> Iterator[tuple[Change, Effect]]:
    for one in (*found.changed, *found.tags_only, *found.removed):
        if one.effect is not None:
            yield one, one.effect


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "provider"), CASES)
def test_a_change_states_what_it_does(setting: str, provider: str, gcp_edited: Edited, recorded: Recorded) -> None:
    stack, (sections, gravest) = STACKS[provider], CHANGES[setting][provider]
    found = difference(gcp_edited(stack), gcp_edited(stack, **sections), recorded)
    stated = list(effects(found))
    assert {effect for _, effect in stated} - {Effect.UNKNOWN} == {effect for _, effect in stated}
    if setting == "tags":
        assert not found.changed, "folded"
        assert max(effect for _, effect in stated) <= gravest
    else:
        assert max(effect for _, effect in stated) is gravest
    lost = {one.name for one, effect in stated if effect is Effect.DATA_LOST}
    errors = found.data_losses(())
    assert {one.severity for one in errors} <= {Severity.ERROR}
    assert len(errors) == len(lost)
    assert bool(lost) is (gravest is LOST)
    assert not found.data_losses(sorted(lost)), "each may be allowed by its name"


@pytest.mark.parametrize(("provider", "refused"), [("aws", True), ("azure", True), ("gcp", True), ("openstack", False)])
def test_a_change_that_up_refuses_is_an_error(
    provider: str, refused: bool, gcp_edited: Edited, recorded: Recorded
) -> None:
    before = gcp_edited(STACKS[provider])
    resources = [one.to_json() for one in recorded(before).resources]
    now = gcp_edited(STACKS[provider], network={"cidr": "10.44.0.0/16"})
    found = refusals(now, {"resources": resources})
    assert [(one.severity, one.path) for one in found] == [(Severity.ERROR, "gangway:network.cidr")] * refused
    assert not refusals(before, {"resources": resources})
