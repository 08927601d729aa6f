"""EfaNodePool: launch templates, groups, and the alarms that make the ladder's order work with nobody watching."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from components.aws.fabric import plan_interfaces
from components.aws.node_pool import EfaNodePool, plan_fill_steps, plan_node_pool
from components.catalog import load
from components.findings import InputError

BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef1"}
SPOT = {"kind": "spot", "max_usd_per_hour": 9.5}
ON_DEMAND = {"kind": "on-demand"}
EVERY_KIND = [BLOCK, RESERVATION, SPOT, ON_DEMAND]


def test_each_rung_is_a_template_with_its_own_market(make: Callable[..., Any]) -> None:
    block, reservation, spot, on_demand = (
        t.inputs for t in make(EfaNodePool, capacity=EVERY_KIND).of("LaunchTemplate")
    )
    assert block["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert "instanceMarketOptions" not in reservation
    assert spot["instanceMarketOptions"] == {
        "marketType": "spot",
        "spotOptions": {
            "spotInstanceType": "one-time",
            "instanceInterruptionBehavior": "terminate",
            "maxPrice": "9.5",
        },
    }
    assert "instanceMarketOptions" not in on_demand
    targets = [
        t.get("capacityReservationSpecification", {}).get("capacityReservationTarget", {}).get("capacityReservationId")
        for t in (block, reservation, spot, on_demand)
    ]
    assert targets == [BLOCK["id"], RESERVATION["id"], None, None]


def test_reserved_capacity_gets_no_placement_group_of_ours(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, capacity=EVERY_KIND)
    group = made.one("PlacementGroup")
    assert group.inputs["strategy"] == "cluster"
    placed = {t.name: t.inputs.get("placement") for t in made.of("LaunchTemplate")}
    name = {"groupName": "<PlacementGroup.demo-cluster.name>"}
    assert placed == {
        "demo-0-capacity-block": None, "demo-1-reservation": None, "demo-2-spot": name, "demo-3-on-demand": name,
    }  # fmt: skip
    assert not make(EfaNodePool, capacity=[BLOCK, RESERVATION]).of("PlacementGroup")
    assert not make(EfaNodePool, machine_type="g5.xlarge").of("PlacementGroup"), "no fabric, nothing to keep together"


@pytest.mark.parametrize("machine_type", sorted(load().machines))
def test_every_template_is_closed_and_wired(make: Callable[..., Any], machine_type: str) -> None:
    templates = make(EfaNodePool, machine_type=machine_type, capacity=EVERY_KIND).of("LaunchTemplate")
    assert len(templates) == 4
    for template in templates:
        inputs = template.inputs
        assert inputs["instanceType"] == machine_type
        assert inputs["metadataOptions"] == {
            "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 2,
        }  # fmt: skip
        declared = [(i["networkCardIndex"], i["deviceIndex"], i["interfaceType"]) for i in inputs["networkInterfaces"]]
        planned = plan_interfaces(load().machine(machine_type))
        assert declared == [(i.network_card_index, i.device_index, i.interface_type) for i in planned]
        for interface in inputs["networkInterfaces"]:
            assert "associatePublicIpAddress" not in interface, "EC2 refuses it on a launch with several interfaces"
            assert interface["securityGroups"] == ["sg-1"]
            assert interface["deleteOnTermination"] == "true"
        assert "keyName" not in inputs, "people come in through Session Manager"
        (disk,) = inputs["blockDeviceMappings"]
        assert disk["ebs"] == {
            "volumeSize": 200, "volumeType": "gp3", "encrypted": "true", "deleteOnTermination": "true",
        }  # fmt: skip


def test_what_a_template_launches_is_tagged(make: Callable[..., Any], tags: dict[str, str]) -> None:
    for template in make(EfaNodePool).of("LaunchTemplate"):
        specifications = template.inputs["tagSpecifications"]
        assert [s["resourceType"] for s in specifications] == ["instance", "volume", "network-interface"]
        assert all(s["tags"] == {**tags, "Name": template.name} for s in specifications)


def test_the_first_rung_holds_the_nodes_and_the_others_wait(make: Callable[..., Any]) -> None:
    first, second = make(EfaNodePool).of("Group")
    templates = {t.name: t.id for t in make(EfaNodePool).of("LaunchTemplate")}
    assert (first.inputs["minSize"], first.inputs["maxSize"], first.inputs["desiredCapacity"]) == (0, 4, 4)
    assert (second.inputs["minSize"], second.inputs["maxSize"]) == (0, 2)
    assert "desiredCapacity" not in second.inputs, "a declared number would empty the rung on each `up`"
    for group in (first, second):
        assert group.inputs["launchTemplate"]["id"] == templates[group.name]
        assert group.inputs["suspendedProcesses"] == ["AZRebalance"]
        assert group.inputs["waitForCapacityTimeout"] == "0"
        assert "GroupInServiceInstances" in group.inputs["enabledMetrics"], "the alarms read it"
        assert group.inputs["vpcZoneIdentifiers"] == ["subnet-1"]


def test_one_rung_needs_no_fallback(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, capacity=[ON_DEMAND])
    assert not made.of("MetricAlarm")
    assert not made.of("Policy")
    assert len(made.of("Group")) == 1


def test_the_alarms_count_the_nodes_missing_above(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, capacity=[BLOCK, SPOT, ON_DEMAND])
    alarms = {alarm.name: alarm.inputs for alarm in made.of("MetricAlarm")}
    groups = ["<Group.demo-0-capacity-block.name>", "<Group.demo-1-spot.name>"]
    expected = {
        "demo-1-spot": ("2 - m0", groups[:1]),
        "demo-2-on-demand": ("2 - m0 - m1", groups),
    }
    assert set(alarms) == {f"{rung}-{what}" for rung in expected for what in ("fill", "empty")}
    for rung, (expression, above) in expected.items():
        for what, comparison in (("fill", "GreaterThanOrEqualToThreshold"), ("empty", "LessThanThreshold")):
            inputs = alarms[f"{rung}-{what}"]
            *metrics, missing = inputs["metricQueries"]
            assert missing["expression"] == expression
            assert [m["id"] for m in metrics] == [f"m{i}" for i in range(len(above))]
            assert [m["metric"]["dimensions"] for m in metrics] == [{"AutoScalingGroupName": name} for name in above]
            assert {m["metric"]["metricName"] for m in metrics} == {"GroupInServiceInstances"}
            assert [q["returnData"] for q in inputs["metricQueries"]] == [False] * len(above) + [True]
            assert (inputs["comparisonOperator"], inputs["threshold"]) == (comparison, 1)
            assert inputs["evaluationPeriods"] == 3
            assert inputs["alarmActions"] == [f"<Policy.demo-{rung[5:]}-{what}.arn>"]


def test_the_policies_set_exactly_the_missing_number(make: Callable[..., Any]) -> None:
    made = make(EfaNodePool, num_nodes_min=3, num_nodes_max=4)
    fill, empty = (next(p for p in made.of("Policy") if p.name.endswith(end)) for end in ("-fill", "-empty"))
    for policy in (fill, empty):
        assert policy.inputs["adjustmentType"] == "ExactCapacity"
        assert policy.inputs["policyType"] == "StepScaling"
        assert policy.inputs["autoscalingGroupName"] == "<Group.demo-1-on-demand.name>"
    assert fill.inputs["stepAdjustments"] == [
        {"scalingAdjustment": 1, "metricIntervalLowerBound": "0", "metricIntervalUpperBound": "1"},
        {"scalingAdjustment": 2, "metricIntervalLowerBound": "1", "metricIntervalUpperBound": "2"},
        {"scalingAdjustment": 3, "metricIntervalLowerBound": "2"},
    ]
    assert empty.inputs["stepAdjustments"] == [{"scalingAdjustment": 0, "metricIntervalUpperBound": "0"}]


def size_after(num_nodes: int, missing: int) -> int:
    """What AWS would set the rung to: the step whose interval holds the breach of the threshold 1."""
    return next(size for beyond, size in reversed(plan_fill_steps(num_nodes)) if missing - 1 >= beyond)


@given(st.integers(1, 512), st.data())
def test_the_steps_always_fill_what_is_missing(num_nodes: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, num_nodes))
    steps = plan_fill_steps(num_nodes)
    assert len(steps) <= 20, "AWS's limit of adjustments a policy"
    assert steps[0][0] == 0
    assert steps[-1][1] == num_nodes
    assert [beyond for beyond, _ in steps] == sorted({beyond for beyond, _ in steps})
    size = size_after(num_nodes, missing)
    assert missing <= size <= num_nodes
    if num_nodes <= 20:
        assert size == missing


def test_a_plan_before_any_resource_exists(pool_args: dict[str, Any]) -> None:
    plan = plan_node_pool({**pool_args, "machine_type": "p5.48xlarge"})  # type: ignore[typeddict-item]  # a fixture's dict
    assert len(plan.interfaces) == 33
    assert [rung.kind for rung in plan.rungs] == ["spot", "on-demand"]
    assert (plan.num_nodes_min, plan.num_nodes_max, plan.placement_group) == (2, 4, True)


def test_mistakes_of_a_programmer_are_named(pool_args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"machine_type: no such machine type"):
        plan_node_pool({**pool_args, "machine_type": "p5.48xl"})  # type: ignore[typeddict-item]  # a fixture's dict
    with pytest.raises(ValidationError, match="capacity-block"):
        plan_node_pool({**pool_args, "capacity": [{"kind": "magic"}]})  # type: ignore[typeddict-item]  # a fixture's dict
