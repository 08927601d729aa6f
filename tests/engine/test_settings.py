"""Settings that no shipped stack uses, under the real Pulumi engine: they come up, and go again as far as they may."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine

Edit = Callable[[dict[str, Any]], None]

BLOCK = "aws:ec2/capacityBlockReservation:CapacityBlockReservation"
TAG_ACTIVATION = "aws:costexplorer/costAllocationTag:CostAllocationTag"
PURCHASE = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "ends_at": "2035-07-02T11:30:00Z",
    "zone": "us-east-2a",
}
PREBUILT = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0' * 64}"
SCRATCH = {"kind": "lustre", "deployment": "scratch", "capacity_gib": 2400, "export_runs": True}
MIXED = {
    "machine_type": "g5.12xlarge",
    "nodes": {"min": 2, "max": 2},
    "capacity": [{"kind": "spot", "machine_types": ["g5.24xlarge"]}, {"kind": "on-demand"}],
}


@pytest.mark.parametrize(
    ("edits", "made"),
    [
        ({"network": {"egress": "endpoints", "flow_logs": False}}, "aws:ec2/vpcEndpoint:VpcEndpoint"),
        ({"storage": SCRATCH, "image": {"prebuilt": PREBUILT}}, "aws:fsx/lustreFileSystem:LustreFileSystem"),
        ({"cluster.capacity": [{"kind": "reservation", "id": "cr-0123456789abcdef0"}]}, "aws:ec2/instance:Instance"),
        ({"cluster": MIXED, "encryption": "customer-key"}, "aws:kms/key:Key"),
        ({"budget.activate_tag": True}, TAG_ACTIVATION),
    ],
    ids=["endpoints", "scratch-and-prebuilt", "reservation", "mixed-with-key", "tag-activation"],
)
def test_what_the_stack_files_do_not_use_comes_up_too(
    make_engine: Any, set_value: Callable[..., Edit], edits: dict[str, Any], made: str
) -> None:
    engine = make_engine("aws-demo")
    for path, value in edits.items():
        engine.change(set_value(path, value))
    engine.applied("up")
    assert made in {resource["type"] for resource in engine.resources()}
    engine.applied("destroy")
    # The account's tag may serve other stacks: it stays active.
    assert {resource["type"] for resource in engine.resources()} <= {TAG_ACTIVATION}


def test_a_bought_block_is_not_destroyed(make_engine: Any, set_value: Callable[..., Edit]) -> None:
    """The money is spent either way; what protects the block is lifted by a command of its own."""
    engine = make_engine("aws-demo")
    engine.change(set_value("cluster.capacity", [PURCHASE]))
    engine.applied("up")
    (block,) = [resource for resource in engine.resources() if resource["type"] == BLOCK]

    refused = engine.run("destroy", "--yes", "--skip-preview")
    assert refused.status != 0
    assert block["urn"] in refused.text
    assert "protect" in refused.text
    assert block in engine.resources()

    engine.change(set_value("cluster.capacity", [{**PURCHASE, "offering_id": "cbo-0fedcba9876543210"}]))
    other = engine.run("up", "--yes", "--skip-preview")
    assert other.status != 0, "a changed offering would buy a second block and drop the first"
    assert [resource for resource in engine.resources() if resource["type"] == BLOCK] == [block]

    engine.plain("state", "unprotect", block["urn"], "--yes", "--stack", engine.stack)
    engine.applied("destroy")
    assert engine.resources() == []
