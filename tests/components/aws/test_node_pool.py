"""EfaNodePool: launch templates, groups, and the alarms that make the ladder's order work with nobody watching."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.aws.capacity import BEHIND_BLOCK_DELAY, opening_times
from gangway.components.aws.launch import plan_interfaces
from gangway.components.aws.node_pool import LIFECYCLE_HOOK, START_MARGIN, EfaNodePool, plan_node_pool, plan_sizes
from gangway.components.catalog.loader import load
from gangway.components.core.capacity import RungPlan, plan_ladder, rung_from_args
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
RESERVATION = {"kind": "reservation", "id": "cr-0123456789abcdef1"}
SPOT = {"kind": "spot", "max_usd_per_hour": 9.5}
ON_DEMAND = {"kind": "on-demand"}
EVERY_KIND = [BLOCK, RESERVATION, SPOT, ON_DEMAND]
LADDER = [SPOT, ON_DEMAND]


NOW = datetime(2026, 6, 1, tzinfo=UTC)


def ref(kind: str, name: str, output: str) -> str:
    """What a plan writes where an output of another resource goes."""
    return f"${{{kind}.{name}.{output}}}"


@pytest.mark.slow
def test_each_rung_is_a_template_with_its_own_market(make: Make) -> None:
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


def test_reserved_capacity_gets_no_placement_group_of_ours(make: Make) -> None:
    made = make(EfaNodePool, capacity=EVERY_KIND)
    group = made.one("PlacementGroup")
    assert group.inputs["strategy"] == "cluster"
    placed = {t.name: t.inputs.get("placement") for t in made.of("LaunchTemplate")}
    name = {"groupName": ref("PlacementGroup", "demo-cluster", "name")}
    assert placed == {
        "demo-0-capacity-block": None, "demo-1-reservation": None, "demo-2-spot": name, "demo-3-on-demand": name,
    }  # fmt: skip
    assert not make(EfaNodePool, capacity=[BLOCK, RESERVATION]).of("PlacementGroup")
    assert not make(EfaNodePool, machine_type="g5.xlarge").of("PlacementGroup"), "no fabric, nothing to keep together"


@pytest.mark.slow
@pytest.mark.parametrize("machine_type", sorted(load().machines))
def test_every_template_is_closed_and_wired(make: Make, machine_type: str) -> None:
    # Every kind of rung for one machine; one rung for each of the others, whose wiring is what differs.
    capacity = EVERY_KIND if machine_type == "p5.48xlarge" else [ON_DEMAND]
    templates = make(EfaNodePool, machine_type=machine_type, capacity=capacity).of("LaunchTemplate")
    assert len(templates) == len(capacity)
    for template in templates:
        inputs = template.inputs
        assert inputs["instanceType"] == machine_type
        assert inputs["updateDefaultVersion"] is True, "what launches by the default version would stay behind"
        assert inputs["metadataOptions"] == {
            "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1,
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
            "throughput": 500,
        }  # fmt: skip


def test_what_a_template_launches_is_tagged(make: Make, tags: dict[str, str]) -> None:
    for template in make(EfaNodePool, capacity=LADDER).each("LaunchTemplate"):
        specifications = template.inputs["tagSpecifications"]
        assert [s["resourceType"] for s in specifications] == ["instance", "volume", "network-interface"]
        assert all(s["tags"] == {**tags, "Name": template.name} for s in specifications)


def test_the_first_rung_holds_the_nodes_and_the_others_wait(make: Make) -> None:
    first, second = make(EfaNodePool, capacity=LADDER).of("Group")
    templates = {t.name: t.id for t in make(EfaNodePool, capacity=LADDER).of("LaunchTemplate")}
    assert (first.inputs["minSize"], first.inputs["maxSize"], first.inputs["desiredCapacity"]) == (0, 4, 4)
    assert (second.inputs["minSize"], second.inputs["maxSize"]) == (0, 2)
    assert "desiredCapacity" not in second.inputs, "a declared number would empty the rung on each `up`"
    for group in (first, second):
        assert group.inputs["launchTemplate"]["id"] == templates[group.name]
        assert group.inputs["suspendedProcesses"] == ["AZRebalance"]
        assert group.inputs["waitForCapacityTimeout"] == "0"
        assert group.inputs["capacityRebalance"] is False, "the nodes handle the notice themselves"
        assert not {"maxInstanceLifetime", "protectFromScaleIn", "mixedInstancesPolicy"} & group.inputs.keys()
        assert "GroupInServiceInstances" in group.inputs["enabledMetrics"], "the alarms read it"
        assert group.inputs["vpcZoneIdentifiers"] == ["subnet-1"]


def test_one_rung_needs_no_fallback(make: Make) -> None:
    made = make(EfaNodePool, capacity=[ON_DEMAND])
    assert not made.of("MetricAlarm")
    assert not made.of("Policy")
    assert len(made.of("Group")) == 1


def test_the_alarms_count_the_nodes_missing_above(make: Make) -> None:
    made = make(EfaNodePool, capacity=[BLOCK, SPOT, ON_DEMAND])
    alarms = {alarm.name: alarm.inputs for alarm in made.of("MetricAlarm")}
    groups = [ref("Group", f"demo-{rung}", "name") for rung in ("0-capacity-block", "1-spot")]
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
            assert inputs["alarmActions"] == [ref("Policy", f"{rung}-{what}", "arn")]


def test_the_policies_set_exactly_the_missing_number(make: Make) -> None:
    made = make(EfaNodePool, capacity=LADDER, num_nodes_min=3, num_nodes_max=4)
    fill, empty = (next(p for p in made.of("Policy") if p.name.endswith(end)) for end in ("-fill", "-empty"))
    for policy in (fill, empty):
        assert policy.inputs["adjustmentType"] == "ExactCapacity"
        assert policy.inputs["policyType"] == "StepScaling"
        assert policy.inputs["autoscalingGroupName"] == ref("Group", "demo-1-on-demand", "name")
    assert fill.inputs["stepAdjustments"] == [
        {"scalingAdjustment": 1, "metricIntervalLowerBound": "0", "metricIntervalUpperBound": "1"},
        {"scalingAdjustment": 2, "metricIntervalLowerBound": "1", "metricIntervalUpperBound": "2"},
        {"scalingAdjustment": 3, "metricIntervalLowerBound": "2"},
    ]
    assert empty.inputs["stepAdjustments"] == [{"scalingAdjustment": 0, "metricIntervalUpperBound": "0"}]


def test_a_plan_before_any_resource_exists(pool_args: dict[str, Any]) -> None:
    plan = plan_node_pool({**pool_args, "machine_type": "p5.48xlarge"}, NOW)  # type: ignore[typeddict-item]  # a fixture's dict
    assert len(plan.interfaces) == 33
    assert [rung.kind for rung in plan.rungs] == ["spot", "on-demand"]
    assert [(size.most, size.wanted) for size in plan.sizes] == [(4, 4), (2, None)]
    assert plan.placement_group


def test_mistakes_of_a_programmer_are_named(pool_args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"machine_type: no such machine type"):
        plan_node_pool({**pool_args, "machine_type": "p5.48xl"}, NOW)  # type: ignore[typeddict-item]  # a fixture's dict
    with pytest.raises(ValidationError, match="capacity-block"):
        plan_node_pool({**pool_args, "capacity": [{"kind": "magic"}]}, NOW)  # type: ignore[typeddict-item]  # a fixture's dict
    with pytest.raises(InputError, match=r"capacity\[0\]\.id: EC2 has no id of this form"):
        plan_node_pool({**pool_args, "capacity": [{**BLOCK, "id": "block"}]}, NOW)  # type: ignore[typeddict-item]  # as above
    with pytest.raises(InputError, match=r"capacity\[0\]\.zones\[0\]: no such zone here"):
        plan_node_pool({**pool_args, "capacity": [{**SPOT, "zones": ["us-east-2a"]}]}, NOW)  # type: ignore[typeddict-item]  # as above


def test_a_rung_with_several_types_is_a_mixed_group_on_one_market(make: Make) -> None:
    types = ["p4de.24xlarge", "p5.48xlarge"]
    spot = {**SPOT, "machine_types": types, "allocation": "capacity-optimized"}
    made = make(EfaNodePool, capacity=[spot, {**ON_DEMAND, "machine_types": types[:1]}])
    templates = {t.name: t for t in made.of("LaunchTemplate")}
    assert list(templates) == [
        "demo-0-spot-p4d-24xlarge", "demo-0-spot-p4de-24xlarge", "demo-0-spot-p5-48xlarge",
        "demo-1-on-demand-p4d-24xlarge", "demo-1-on-demand-p4de-24xlarge",
    ]  # fmt: skip
    assert not any("instanceMarketOptions" in t.inputs for t in templates.values()), "the group names the market"
    counts = {t.inputs["instanceType"]: len(t.inputs["networkInterfaces"]) for t in templates.values()}
    assert counts == {"p4d.24xlarge": 5, "p4de.24xlarge": 5, "p5.48xlarge": 33}, "each type its own layout"

    first, second = (group.inputs for group in made.of("Group"))
    assert "launchTemplate" not in first
    assert first["mixedInstancesPolicy"]["instancesDistribution"] == {
        "onDemandBaseCapacity": 0,
        "onDemandPercentageAboveBaseCapacity": 0,
        "onDemandAllocationStrategy": "prioritized",
        "spotAllocationStrategy": "capacity-optimized",
        "spotMaxPrice": "9.5",
    }
    distribution = second["mixedInstancesPolicy"]["instancesDistribution"]
    assert distribution["onDemandPercentageAboveBaseCapacity"] == 100
    assert not {"spotMaxPrice", "spotAllocationStrategy"} & distribution.keys()
    launch = first["mixedInstancesPolicy"]["launchTemplate"]
    own = templates["demo-0-spot-p4d-24xlarge"].id
    assert launch["launchTemplateSpecification"]["launchTemplateId"] == own
    assert [(o["instanceType"], o["launchTemplateSpecification"]["launchTemplateId"]) for o in launch["overrides"]] == [
        ("p4d.24xlarge", own),
        ("p4de.24xlarge", templates["demo-0-spot-p4de-24xlarge"].id),
        ("p5.48xlarge", templates["demo-0-spot-p5-48xlarge"].id),
    ]


def test_a_rung_uses_the_subnets_of_its_zones_only(make: Make) -> None:
    made = make(
        EfaNodePool,
        machine_type="g5.xlarge",
        subnet_ids=["subnet-1", "subnet-2", "subnet-3"],
        zones=["us-east-2a", "us-east-2b", "us-east-2c"],
        capacity=[
            {**BLOCK, "zone": "us-east-2b"},
            RESERVATION,
            {**SPOT, "zones": ["us-east-2c", "us-east-2a"]},
            ON_DEMAND,
        ],
    )
    subnets = [group.inputs["vpcZoneIdentifiers"] for group in made.of("Group")]
    assert subnets == [["subnet-2"], ["subnet-1"], ["subnet-3", "subnet-1"], ["subnet-1"]]


def test_no_placement_group_over_several_zones(make: Make) -> None:
    zones = ["us-east-2a", "us-east-2b"]
    made = make(
        EfaNodePool, subnet_ids=["subnet-1", "subnet-2"], zones=zones, capacity=[{**SPOT, "zones": zones}, ON_DEMAND]
    )
    placed = {t.name: "placement" in t.inputs for t in made.of("LaunchTemplate")}
    assert placed == {"demo-0-spot": False, "demo-1-on-demand": True}


@pytest.mark.parametrize(
    ("ends_at", "lead", "start"),
    [
        ("2026-07-01T11:30:00Z", {}, "2026-07-01T10:50:00Z"),
        ("2026-07-01T13:30:00+02:00", {}, "2026-07-01T10:50:00Z"),
        ("2026-07-01T11:30:00Z", {"block_stop_lead_minutes": 30}, "2026-07-01T10:30:00Z"),
    ],
)
def test_a_blocks_group_is_emptied_once_before_the_block_ends(
    make: Make, ends_at: str, lead: dict[str, int], start: str
) -> None:
    made = make(EfaNodePool, capacity=[{**BLOCK, "ends_at": ends_at}, SPOT], **lead)
    assert made.one("Schedule").inputs == {
        "scheduledActionName": "demo-0-capacity-block-stop",
        "autoscalingGroupName": made.of("Group")[0].id,
        "startTime": start,
        "minSize": 0,
        "maxSize": 0,
        "desiredCapacity": 0,
    }
    assert not make(EfaNodePool, capacity=EVERY_KIND).of("Schedule"), "no end, nothing to schedule"


def test_every_group_waits_for_a_last_checkpoint(make: Make) -> None:
    """The hook is part of the group: `destroy` would take one of its own away first, and end the nodes at once."""
    made = make(EfaNodePool, capacity=EVERY_KIND)
    assert len(made.of("Group")) == len(EVERY_KIND)
    for group in made.each("Group"):
        assert group.inputs["initialLifecycleHooks"] == [
            {
                "name": LIFECYCLE_HOOK,
                "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                "heartbeatTimeout": 300,
                "defaultResult": "CONTINUE",
            }
        ]
        assert "forceDelete" not in group.inputs, "it would not wait for the nodes"
    assert not made.of("LifecycleHook")


def test_destroy_waits_for_the_nodes_and_is_kept_waiting_by_nothing_else(
    declare: Make, pool_args: dict[str, Any]
) -> None:
    waits: dict[str, str] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        timeouts = args.opts.custom_timeouts
        if timeouts is not None and timeouts.delete is not None:
            waits[args.type_] = timeouts.delete

    args: Any = pool_args
    declare(lambda: EfaNodePool("demo", args, pulumi.ResourceOptions(transformations=[look])))
    assert waits == {"aws:autoscaling/group:Group": "40m"}


def test_the_root_disk_is_the_images_own_under_the_given_key(make: Make) -> None:
    for template in make(EfaNodePool, capacity=LADDER).each("LaunchTemplate"):
        (disk,) = template.inputs["blockDeviceMappings"]
        assert disk["deviceName"] == "/dev/sda1", "Ubuntu's, as of the Deep Learning AMI"
    made = make(EfaNodePool, capacity=LADDER, root_device_name="/dev/xvda", kms_key_arn="arn:key")
    for template in made.each("LaunchTemplate"):
        (disk,) = template.inputs["blockDeviceMappings"]
        assert (disk["deviceName"], disk["ebs"]["kmsKeyId"]) == ("/dev/xvda", "arn:key")


def test_a_bought_block_is_what_the_template_targets(make: Make, written: Make, tags: dict[str, str]) -> None:
    made = make(EfaNodePool, capacity=[written("bought"), ON_DEMAND])
    block = made.one("CapacityBlockReservation")
    assert block.inputs == {
        "capacityBlockOfferingId": "cbo-0123456789abcdef0", "instancePlatform": "Linux/UNIX", "tags": tags,
    }  # fmt: skip
    template, other = (t.inputs for t in made.of("LaunchTemplate"))
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = template["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": block.id}
    assert "capacityReservationSpecification" not in other
    assert not make(EfaNodePool, capacity=EVERY_KIND).of("CapacityBlockReservation"), "nothing is bought unasked"


def test_only_the_bought_block_outlives_the_stack(declare: Make, written: Make, pool_args: dict[str, Any]) -> None:
    """Destroying it would give no money back; everything else must go with the stack, and nothing may hold it up."""
    stays: dict[str, tuple[str, bool]] = {}

    def look(args: pulumi.ResourceTransformationArgs) -> None:
        assert not args.opts.protect
        stays[args.type_] = args.name, bool(args.opts.retain_on_delete)

    args: Any = {**pool_args, "capacity": [written("bought"), SPOT]}
    declare(lambda: EfaNodePool("demo", args, pulumi.ResourceOptions(transformations=[look])))
    # Named by the offering: the same block must not be bought again because it stands elsewhere in the ladder.
    assert [(kind, name) for kind, (name, kept) in stays.items() if kept] == [
        ("aws:ec2/capacityBlockReservation:CapacityBlockReservation", "demo-cbo-0123456789abcdef0")
    ]
    assert "aws:autoscaling/group:Group" in stays


def test_a_queue_sizes_every_group_and_no_alarm_does(make: Make) -> None:
    made = make(EfaNodePool, capacity=LADDER, sized_by_queue=True, num_nodes_min=1)
    first, second = (group.inputs for group in made.of("Group"))
    assert (first["minSize"], first["maxSize"]) == (1, 4)
    assert (second["minSize"], second["maxSize"]) == (0, 4), "the whole cluster, should the first have nothing"
    assert not {"desiredCapacity"} & {*first, *second}, "an `up` leaves the number to the queue"
    assert not made.of("MetricAlarm")
    assert not made.of("Policy")


def test_a_queues_block_is_opened_and_emptied_at_its_hours(make: Make, written: Callable[..., dict[str, Any]]) -> None:
    block = written("bought", starts_at="2999-06-30T11:30:00Z", ends_at="2999-07-01T11:30:00Z")
    made = make(EfaNodePool, capacity=[block, ON_DEMAND], sized_by_queue=True, num_nodes_min=1)
    assert made.of("Group")[0].inputs["maxSize"] == 0, "closed until then"
    assert made.of("Group")[0].inputs["minSize"] == 0
    stop, start = (
        each.inputs for each in made.of("Schedule") if each.inputs["scheduledActionName"].startswith("demo-0")
    )
    assert (start["minSize"], start["maxSize"], start["desiredCapacity"]) == (1, 4, 1)
    assert (stop["minSize"], stop["maxSize"], stop["desiredCapacity"]) == (0, 0, 0)


def test_each_rung_may_have_user_data_and_tags_of_its_own(make: Make, tags: dict[str, str]) -> None:
    rungs = [{"user_data": data, "group_tags": {"rung": data}} for data in ("Zmlyc3Q=", "c2Vjb25k")]
    made = make(EfaNodePool, capacity=LADDER, sized_by_queue=True, rungs=rungs)
    assert [template.inputs["userData"] for template in made.of("LaunchTemplate")] == ["Zmlyc3Q=", "c2Vjb25k"]
    for group, own in zip(made.of("Group"), rungs, strict=True):
        carried = {tag["key"]: tag["value"] for tag in group.inputs["tags"]}
        assert carried == {**tags, "gangway:sized-by": "queue", "rung": own["user_data"]}


def test_machines_that_are_named_read_their_tags_and_the_newest_goes_first(make: Make) -> None:
    named, others = make(EfaNodePool, capacity=LADDER, named_by_tag=True), make(EfaNodePool, capacity=LADDER)
    for made, tags, first in ((named, "enabled", ["NewestInstance"]), (others, None, None)):
        for template in made.each("LaunchTemplate"):
            assert template.inputs["metadataOptions"].get("instanceMetadataTags") == tags
        for group in made.each("Group"):
            assert group.inputs.get("terminationPolicies") == first


START = datetime(2035, 7, 1, 11, 30, tzinfo=UTC)
HOURS_BLOCK: dict[str, Any] = {
    "kind": "capacity-block",
    "id": "cr-0123456789abcdef0",
    "starts_at": "2035-07-01T13:30:00+02:00",
    "ends_at": "2035-07-02T11:30:00Z",
}
RUNNING = {**HOURS_BLOCK, "starts_at": "2020-07-01T11:30:00Z"}
HOURS_SPOT: dict[str, Any] = {"kind": "spot"}
HOURS_ON_DEMAND: dict[str, Any] = {"kind": "on-demand"}


def ladder(*rungs: dict[str, Any]) -> tuple[RungPlan, ...]:
    return plan_ladder(tuple(rung_from_args(rung) for rung in rungs))


@pytest.mark.parametrize(
    ("rungs", "opens"),
    [
        ([HOURS_SPOT, HOURS_ON_DEMAND], [None, None]),
        ([HOURS_BLOCK], [START]),
        ([HOURS_BLOCK, HOURS_SPOT, HOURS_ON_DEMAND], [START, START + BEHIND_BLOCK_DELAY, START + BEHIND_BLOCK_DELAY]),
        # What stands behind spot makes up for spot, whenever the block begins.
        ([HOURS_SPOT, HOURS_BLOCK, HOURS_ON_DEMAND], [None, START, None]),
    ],
)
def test_a_rung_waits_for_its_block_and_for_one_above_it(
    rungs: list[dict[str, Any]], opens: list[datetime | None]
) -> None:
    assert opening_times(ladder(*rungs)) == tuple(opens)


@given(st.integers(-120, 120))
def test_a_group_is_open_from_shortly_before_its_time(minutes: int) -> None:
    """Shortly before, because AWS refuses an action for what is past by the time it is asked."""
    first, second = plan_sizes(ladder(HOURS_BLOCK, HOURS_ON_DEMAND), 2, 4, START + timedelta(minutes=minutes))
    closed = timedelta(minutes=minutes) < -START_MARGIN
    assert (first.most_now, first.wanted_now, first.opens_at) == ((0, 0, START) if closed else (4, 4, None))
    behind = timedelta(minutes=minutes) < BEHIND_BLOCK_DELAY - START_MARGIN
    assert (second.most_now, second.wanted_now) == (0 if behind else 2, None)
    assert behind or not closed, "nobody makes up for a block that has not begun"


def test_before_the_start_every_group_waits_for_an_action(make: Make) -> None:
    made = make(EfaNodePool, capacity=[HOURS_BLOCK, HOURS_ON_DEMAND])
    groups = {group.name: group for group in made.of("Group")}
    sizes = {
        name: (g.inputs["minSize"], g.inputs["maxSize"], g.inputs.get("desiredCapacity")) for name, g in groups.items()
    }
    assert sizes == {"demo-0-capacity-block": (0, 0, 0), "demo-1-on-demand": (0, 0, None)}
    schedules = {schedule.name: schedule.inputs for schedule in made.of("Schedule")}
    assert schedules.pop("demo-0-capacity-block")["startTime"] == "2035-07-02T10:50:00Z", "and it is emptied in time"
    assert schedules == {
        "demo-0-capacity-block-start": {
            "scheduledActionName": "demo-0-capacity-block-start",
            "autoscalingGroupName": groups["demo-0-capacity-block"].id,
            "startTime": "2035-07-01T11:30:00Z",
            "minSize": 0, "maxSize": 4, "desiredCapacity": 4,
        },
        "demo-1-on-demand-start": {
            "scheduledActionName": "demo-1-on-demand-start",
            "autoscalingGroupName": groups["demo-1-on-demand"].id,
            "startTime": "2035-07-01T12:30:00Z",
            "minSize": 0, "maxSize": 2, "desiredCapacity": 0,
        },
    }  # fmt: skip


def test_after_the_start_the_groups_are_declared_as_the_actions_have_left_them(make: Make) -> None:
    made = make(EfaNodePool, capacity=[RUNNING, HOURS_ON_DEMAND])
    sizes = [(g.inputs["maxSize"], g.inputs.get("desiredCapacity")) for g in made.of("Group")]
    assert sizes == [(4, 4), (2, None)]
    assert [schedule.name for schedule in made.of("Schedule")] == ["demo-0-capacity-block"], "AWS refuses a past start"
    plain = make(EfaNodePool, capacity=[{k: v for k, v in HOURS_BLOCK.items() if k != "starts_at"}, HOURS_ON_DEMAND])
    assert [g.inputs for g in plain.of("Group")] == [g.inputs for g in made.of("Group")]
