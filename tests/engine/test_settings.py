"""Settings that no shipped stack uses, under the real Pulumi engine: they come up, and go again as far as they may."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], None]

BLOCK = "aws:ec2/capacityBlockReservation:CapacityBlockReservation"
GROUP = "aws:autoscaling/group:Group"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
SCHEDULE = "aws:autoscaling/schedule:Schedule"
TAG_ACTIVATION = "aws:costexplorer/costAllocationTag:CostAllocationTag"
PURCHASE = {
    "kind": "capacity-block",
    "purchase": True,
    "offering_id": "cbo-0123456789abcdef0",
    "upfront_usd": 16000,
    "starts_at": "2035-07-01T11:30:00Z",
    "ends_at": "2035-07-02T11:30:00Z",
    "zone": "us-east-2a",
}
PREBUILT = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0' * 64}"
CLOSED = {"egress": "endpoints", "flow_logs": False}
SCRATCH = {"kind": "lustre", "deployment": "scratch", "capacity_gib": 2400, "export_runs": True}
MIXED = {
    "machine_type": "g5.12xlarge",
    "nodes": {"min": 2, "max": 2},
    "capacity": [{"kind": "spot", "machine_types": ["g5.24xlarge"]}, {"kind": "on-demand"}],
}


def test_a_controller_is_in_what_the_nodes_run(make_engine: Any, set_value: Callable[..., Edit]) -> None:
    engine = make_engine("aws-demo")
    engine.change(set_value("job.controller", {"policy": "model", "bounds": {"batch_size": [16, 512]}}))
    engine.applied("up")
    job = json.loads(engine.plain("stack", "output", "--json", "--show-secrets"))["job"]
    assert job["training"]["controller"] == {"mode": "act", "policy": "model", "bounds": {"batch_size": [16, 512]}}
    engine.applied("destroy")


def test_a_command_of_ones_own_comes_up_once_and_goes_again(make_engine: Any, set_value: Callable[..., Edit]) -> None:
    engine = make_engine("aws-g5-dev")
    command = {
        "command": ["python", "train.py"],
        "image": PREBUILT.replace("us-east-2", "us-east-1"),
        "max_hours": 4,
        "env": {"LEVEL": "debug"},
    }
    engine.change(set_value("job", command))
    engine.change(set_value("cluster.nodes", {"min": 1, "max": 1}))
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert "gangway:job.command: the run is priced for all of max_hours" in preview.text
    up = engine.applied("up")
    assert "docker-build:index:Image" not in up.types("create"), "its image is there already"
    job = json.loads(engine.plain("stack", "output", "--json", "--show-secrets"))["job"]
    assert (job["image"], job["command"]["words"]) == (command["image"], command["command"])
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert engine.resources() == []


@pytest.mark.parametrize(
    ("edits", "made"),
    [
        ({"network": CLOSED, "cluster.image_id": "ami-0123456789abcdef0"}, "aws:ec2/vpcEndpoint:VpcEndpoint"),
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


def test_a_bought_block_is_left_to_its_end(make_engine: Any, set_value: Callable[..., Edit]) -> None:
    """The money is spent either way: `destroy` takes all the rest. Only another offering buys another block."""
    engine = make_engine("aws-demo")

    def blocks() -> list[str]:
        return [resource["id"] for resource in engine.resources() if resource["type"] == BLOCK]

    engine.change(set_value("cluster.capacity", [PURCHASE]))
    engine.applied("up")
    bought = blocks()
    assert len(bought) == 1

    engine.change(set_value("cluster.capacity", [{"kind": "spot"}, PURCHASE]))
    engine.applied("up")
    assert blocks() == bought, "elsewhere in the ladder it is the same block"

    other = {**PURCHASE, "offering_id": "cbo-0fedcba9876543210"}
    engine.change(set_value("cluster.capacity", [other]))
    engine.applied("up")
    assert len(blocks()) == 2
    assert set(bought) < set(blocks())

    engine.applied("destroy")
    assert {resource["type"] for resource in engine.resources()} == {BLOCK}


def sizes(engine: Any) -> dict[str, tuple[int, int | None]]:
    """By the name of a group's market: maximum and desired number, as the cloud holds them."""
    groups = [resource for resource in engine.resources() if resource["type"] == GROUP]
    return {
        resource["urn"].partition("::aws-demo-")[2].partition("-")[2]: (
            resource["inputs"]["maxSize"],
            resource["inputs"].get("desiredCapacity"),
        )
        for resource in groups
    }


def drift(engine: Any, urn_ends: str, type_token: str = GROUP, **changes: Any) -> None:
    """Changes a group behind the engine's back, as nodes, people and scheduled actions do."""
    for file in engine.cloud.glob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        if record["type"] == type_token and record["urn"].endswith(urn_ends):
            record["inputs"].update(changes)
            record["outputs"].update(changes)
            file.write_text(json.dumps(record), "utf-8")


def test_a_block_is_waited_for_and_an_up_after_its_start_settles(
    make_engine: Any, set_value: Callable[..., Edit]
) -> None:
    engine = make_engine("aws-demo")
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0", "zone": "us-east-2a"}
    coming = {**block, "starts_at": "2035-07-01T11:30:00Z", "ends_at": "2035-07-02T11:30:00Z"}
    engine.change(set_value("cluster.capacity", [coming, {"kind": "on-demand"}]))
    engine.applied("up")
    assert sizes(engine) == {"capacity-block": (0, 0), "on-demand": (0, None)}
    actions = sorted(r["inputs"]["startTime"] for r in engine.resources() if r["type"] == SCHEDULE)
    assert actions == ["2035-07-01T11:30:00Z", "2035-07-01T12:30:00Z", "2035-07-02T10:50:00Z"]
    assert engine.applied("up").changes.keys() == {"same"}, "waiting changes nothing"

    # The block begins: the actions open the groups, and nobody runs `up`.
    drift(engine, "capacity-block", maxSize=2, desiredCapacity=2)
    drift(engine, "on-demand", maxSize=2)
    engine.change(
        set_value("cluster.capacity", [{**coming, "starts_at": "2020-07-01T11:30:00Z"}, {"kind": "on-demand"}])
    )
    first = engine.applied("up")
    assert (first.types("update"), first.types("delete")) == ({GROUP}, {SCHEDULE})
    assert not first.types("replace") | first.types("create")
    assert sizes(engine) == {"capacity-block": (2, 2), "on-demand": (2, None)}, "as the actions have left them"
    assert engine.applied("up").changes.keys() == {"same"}


def test_a_group_that_has_gone_to_zero_comes_back_by_refresh_alone(make_engine: Any) -> None:
    """After a job with terminate_when_done, the budget's stop, or by hand: what docs and alarms tell people to run."""
    engine = make_engine("aws-demo")
    engine.applied("up")
    assert sizes(engine) == {"spot": (2, 2), "on-demand": (2, None)}
    drift(engine, "spot", desiredCapacity=0, suspendedProcesses=["AZRebalance", "AlarmNotification"])
    assert engine.applied("up").changes.keys() == {"same"}, "Pulumi believes the old number"
    assert sizes(engine)["spot"] == (2, 0)
    mended = engine.applied("up", "--refresh")
    assert Counter(mended.changes)["update"] == 1
    assert sizes(engine)["spot"] == (2, 2)
    (spot,) = [r["inputs"] for r in engine.resources() if r["type"] == GROUP and r["urn"].endswith("spot")]
    assert spot["suspendedProcesses"] == ["AZRebalance"], "and the alarms fill the ladder again"


def test_scale_sets_keep_the_size_the_head_has_given_them_by_refresh_alone(
    make_engine: Any, set_value: Callable[..., Edit]
) -> None:
    """What the plan tells people: `up` makes them empty, and sends the size it last saw with any other change."""
    engine = make_engine("azure-nc-dev")

    def capacities() -> list[int]:
        sets = [resource for resource in engine.resources() if resource["type"] == SCALE_SET]
        return sorted(int(resource["inputs"]["sku"]["capacity"]) for resource in sets)

    engine.applied("up")
    assert capacities() == [0, 0]
    (sku,) = {json.dumps(r["inputs"]["sku"], sort_keys=True) for r in engine.resources() if r["type"] == SCALE_SET}
    drift(engine, "0-spot", SCALE_SET, sku={**json.loads(sku), "capacity": 1})
    assert engine.applied("up").changes.keys() == {"same"}
    assert capacities() == [0, 1], "the head's size is no reason for a change"

    engine.change(set_value("job.max_hours", 3))
    changed = engine.applied("up", "--refresh")
    assert SCALE_SET in changed.types("update")
    assert changed.types("replace") == set(), "the head does not know the job's hours"
    assert capacities() == [0, 1]
    drift(engine, "0-spot", SCALE_SET, sku={**json.loads(sku), "capacity": 0})
    engine.applied("refresh")
    drift(engine, "0-spot", SCALE_SET, sku={**json.loads(sku), "capacity": 1})
    engine.change(set_value("cluster.root_volume_gib", 400))
    engine.applied("up")
    assert capacities() == [0, 0], "without --refresh the node is gone, which is why the plan says so"
