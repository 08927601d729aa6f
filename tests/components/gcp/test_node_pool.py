"""GpuNodePool: a group for each rung, the first with all nodes, none touched while it runs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.capacity import PERIOD_SEC, WINDOW, plan_ladder, rung_from_args
from gangway.components.core.findings import InputError
from gangway.components.gcp.launch import GPU_IMAGE
from gangway.components.gcp.node_pool import (
    FallbackConfig,
    GpuNodePool,
    GroupTag,
    plan_fallback,
    plan_node_pool,
    tag_condition,
)
from tests.components.fixture_types import Make, Mistakes

SPOT = {"kind": "spot"}
ON_DEMAND = {"kind": "on-demand"}
FLEX = {"kind": "flex-start", "max_hours": 24}
RESERVED = {"kind": "reservation", "id": "ours"}


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    """Arguments of GpuNodePool, to be varied."""
    return {
        "project": "lab",
        "region": "us-east4",
        "zone": "us-east4-b",
        "machine_type": "a3-megagpu-8g",
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": [SPOT, ON_DEMAND],
        "subnet_ids": ["main"],
        "fabric_subnet_ids": [f"gpu-{n}" for n in range(1, 9)],
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "user_data": "IyE=",
        "root_volume_gib": 200,
        "tags": labels,
    }


@pytest.fixture
def make(declare_seen: Make, args: dict[str, Any]) -> Make:
    """Declares a pool with changes; `seen` are its outputs."""

    return lambda **changes: declare_seen(GpuNodePool, {**args, **changes})


def test_the_first_rung_holds_the_nodes_and_the_others_wait(make: Make) -> None:
    made = make()
    first, second = made.of("InstanceGroupManager")
    assert (first.name, second.name) == ("demo-0-spot", "demo-1-on-demand")
    assert (first.inputs["targetSize"], second.inputs["targetSize"]) == (4, 0)
    for position, group in enumerate((first, second)):
        assert group.inputs["versions"] == [{"instanceTemplate": f"${{InstanceTemplate.{group.name}.id}}"}]
        assert group.inputs["baseInstanceName"] == f"demo-{position}"
        assert group.inputs["zone"] == "us-east4-b"
        assert group.inputs["waitForInstances"] is False
        assert group.inputs["updatePolicy"]["type"] == "OPPORTUNISTIC", "`up` never restarts a worker"
        assert group.inputs["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "REPAIR"
        assert "autoHealingPolicies" not in group.inputs


def test_up_leaves_a_size_alone_that_the_head_owns(
    args: dict[str, Any], declare: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulumi_gcp import compute

    options: dict[str, Any] = {}
    real = compute.InstanceGroupManager

    def noting(name: str, **values: Any) -> Any:
        options[name] = values["opts"]
        return real(name, **values)

    monkeypatch.setattr(compute, "InstanceGroupManager", noting)
    args["capacity"] = [SPOT, FLEX, ON_DEMAND]
    declare(lambda: GpuNodePool("demo", args))  # type: ignore[arg-type]  # a fixture's dict
    ignored = {name: opts.ignore_changes for name, opts in options.items()}
    assert ignored == {"demo-0-spot": None, "demo-1-flex-start": ["target_size"], "demo-2-on-demand": ["target_size"]}
    assert {opts.custom_timeouts.delete for opts in options.values()} == {"40m"}


def test_flex_start_nodes_are_asked_for_at_once(make: Make, api_mistakes: Mistakes) -> None:
    made = make(capacity=[FLEX, ON_DEMAND])
    group = made.of("InstanceGroupManager")[0].inputs
    assert group["targetSize"] == 0, "Compute Engine takes no such template with a size"
    assert group["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "DO_NOTHING"
    request = made.one("ResizeRequest").inputs
    assert request["instanceGroupManager"] == "${InstanceGroupManager.demo-0-flex-start.name}"
    assert (request["resizeBy"], request["requestedRunDuration"]) == (4, {"seconds": "86400"})
    named = ("resizeBy", "requestedRunDuration")
    assert api_mistakes("compute.v1", "InstanceGroupManagerResizeRequest", {k: request[k] for k in named}) == []


def test_a_flex_start_fallback_is_the_heads_to_ask_for(make: Make) -> None:
    made = make(capacity=[SPOT, FLEX])
    assert not made.of("ResizeRequest")
    assert json.loads(made.seen["fallback_config"])["groups"][1]["fill"] == "resize-request"


@pytest.mark.parametrize(
    ("capacity", "machine_type", "placed"),
    [
        ([SPOT, ON_DEMAND], "a3-megagpu-8g", [True, True]),
        ([RESERVED, SPOT], "a3-megagpu-8g", [False, True]),
        ([FLEX], "a3-megagpu-8g", [False]),
        ([FLEX, SPOT], "a4-highgpu-8g", [True, True]),
        ([SPOT], "a2-highgpu-8g", [False]),
    ],
)
def test_nodes_with_gpu_nics_stand_together(
    make: Make, capacity: list[dict[str, Any]], machine_type: str, placed: list[bool]
) -> None:
    made = make(capacity=capacity, machine_type=machine_type, fabric_subnet_ids=[f"nic-{n}" for n in range(1, 10)])
    groups = made.of("InstanceGroupManager")
    policy = {"workloadPolicy": "${ResourcePolicy.demo-cluster.id}"}
    assert [group.inputs.get("resourcePolicies") for group in groups] == [policy if is_ else None for is_ in placed]
    assert len(made.of("ResourcePolicy")) == any(placed), "none that nothing uses"


def test_how_far_apart_nodes_may_be(make: Make, api_mistakes: Mistakes) -> None:
    policy = make(max_topology_distance="BLOCK").one("ResourcePolicy").inputs
    assert policy["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "maxTopologyDistance": "BLOCK"}
    assert api_mistakes("compute.v1", "ResourcePolicyWorkloadPolicy", policy["workloadPolicy"]) == []
    assert policy["region"] == "us-east4"
    assert make().one("ResourcePolicy").inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT"}
    with pytest.raises(InputError, match="no such distance") as caught:
        make(max_topology_distance="BLOK")
    assert caught.value.fix == "did you mean 'BLOCK'?"


def test_a_rung_may_lie_in_another_zone(make: Make) -> None:
    made = make(machine_type="g2-standard-96", capacity=[SPOT, {**SPOT, "zones": ["us-east4-c"]}])
    assert [group.inputs["zone"] for group in made.of("InstanceGroupManager")] == ["us-east4-b", "us-east4-c"]


def test_the_image_and_what_it_lets_be_checked(make: Make) -> None:
    def seen(**changes: Any) -> tuple[str, bool]:
        template = make(capacity=[SPOT], **changes).one("InstanceTemplate").inputs
        return template["disks"][0]["sourceImage"], template["shieldedInstanceConfig"]["enableSecureBoot"]

    ours = "projects/lab/global/images/family/ours"
    assert seen() == (GPU_IMAGE, False), "TCPXO's kernel module is signed by nobody"
    assert seen(machine_type="a2-highgpu-8g") == (GPU_IMAGE, True)
    assert seen(machine_type="a2-highgpu-8g", image_id=ours) == (ours, True)
    assert seen(machine_type="a2-highgpu-8g", secure_boot=False) == (GPU_IMAGE, False)


def test_nics_and_subnets_in_one_order(make: Make) -> None:
    template = make(capacity=[SPOT]).one("InstanceTemplate").inputs
    subnets = [interface["subnetwork"] for interface in template["networkInterfaces"]]
    assert subnets == ["main", *(f"gpu-{n}" for n in range(1, 9))]


def test_gpu_nics_without_subnets_are_refused(args: dict[str, Any]) -> None:
    del args["fabric_subnet_ids"]
    with pytest.raises(InputError, match="9 network interfaces"):
        plan_node_pool(args)  # type: ignore[arg-type]  # a fixture's dict
    assert len(plan_node_pool({**args, "machine_type": "a2-highgpu-8g"}).interfaces) == 1  # type: ignore[typeddict-item]  # as above


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"machine_type": "p5.48xlarge"}, "no such machine type"),
        ({"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}, "no such capacity"),
    ],
)
def test_what_google_does_not_have_is_refused(make: Make, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make(**changes)


def test_the_outputs(make: Make) -> None:
    made = make()
    names = ["${InstanceGroupManager.demo-0-spot.name}", "${InstanceGroupManager.demo-1-on-demand.name}"]
    assert made.seen["group_names"] == names
    assert made.seen["launch_template_ids"] == [
        f"${{InstanceTemplate.{n}.id}}" for n in ("demo-0-spot", "demo-1-on-demand")
    ]
    assert made.seen["interfaces_per_node"] == 9
    config = json.loads(made.seen["fallback_config"])
    assert [group["name"] for group in config["groups"]] == names
    assert (config["num_nodes_min"], config["project"]) == (2, "lab")


def test_the_api_takes_the_groups(make: Make, api_mistakes: Mistakes) -> None:
    for group in make(capacity=[SPOT, FLEX]).each("InstanceGroupManager"):
        named = ("baseInstanceName", "targetSize", "versions", "instanceLifecyclePolicy", "resourcePolicies")
        body = {key: group.inputs[key] for key in named if key in group.inputs}
        policy = group.inputs["updatePolicy"]
        body["updatePolicy"] = {
            "type": policy["type"],
            "minimalAction": policy["minimalAction"],
            "maxSurge": {"fixed": policy["maxSurgeFixed"]},
            "maxUnavailable": {"fixed": policy["maxUnavailableFixed"]},
        }
        assert api_mistakes("compute.v1", "InstanceGroupManager", body) == []


def test_names_of_the_longest_stack_fit(declare: Make, args: dict[str, Any]) -> None:
    stack = "s" * 40
    args["capacity"] = [RESERVED, FLEX, SPOT, ON_DEMAND]
    made = declare(lambda: GpuNodePool(stack, args))  # type: ignore[arg-type]  # a fixture's dict
    # Pulumi adds a dash and seven digits; an instance's own suffix has five characters.
    assert all(len(r.name) <= 63 - 8 for r in made.resources if r.custom)
    assert all(len(group.inputs["baseInstanceName"]) <= 58 for group in made.each("InstanceGroupManager"))


@pytest.fixture
def made(declare_seen: Make) -> Any:
    """The tag of the stack `demo`; `seen` are its outputs."""
    return declare_seen(GroupTag, {"project_number": "123456789012", "stack": "demo"})


def test_the_key_is_the_stacks_own_in_the_project(made: Any) -> None:
    key = made.one("TagKey").inputs
    assert (key["parent"], key["shortName"]) == ("projects/123456789012", "gangway-demo")
    assert "purpose" not in key, "a key for firewalls may be bound to networks and machines alone"


def test_groups_carry_what_the_condition_asks(made: Any) -> None:
    key, value = made.one("TagKey").id, made.one("TagValue").id
    assert made.seen == {"bound": {key: value}, "condition": tag_condition(key, value)}


def test_what_is_declared_is_what_the_apis_know(
    made: Any, api_document: Callable[[str], dict[str, Any]], api_mistakes: Mistakes
) -> None:
    for kind in ("TagKey", "TagValue"):
        assert api_mistakes("cloudresourcemanager.v3", kind, dict(made.one(kind).inputs)) == []
    assert "params" in api_document("compute.beta")["schemas"]["InstanceGroupManager"]["properties"]
    params = {"resourceManagerTags": {"tagKeys/1": "tagValues/2"}}
    assert api_mistakes("compute.beta", "InstanceGroupManagerParams", params) == []


def test_the_head_is_told_everything_as_json() -> None:
    rungs: list[dict[str, Any]] = [
        {"kind": "spot"},
        {"kind": "flex-start", "max_hours": 1.5},
        {"kind": "on-demand", "zones": ["us-east4-c"]},
    ]
    ladder = plan_ladder(tuple(rung_from_args(rung) for rung in rungs))
    config = plan_fallback("lab", "us-east4-b", 2, ladder, ["g0", "g1", "g2"])
    assert isinstance(config, FallbackConfig)
    assert json.loads(json.dumps(config.to_json())) == {
        "version": 1, "project": "lab", "num_nodes_min": 2, "period_sec": PERIOD_SEC, "window": WINDOW,
        "groups": [
            {"name": "g0", "zone": "us-east4-b", "kind": "spot", "fill": "resize", "run_duration_sec": None},
            {"name": "g1", "zone": "us-east4-b", "kind": "flex-start", "fill": "resize-request",
             "run_duration_sec": 5400},
            {"name": "g2", "zone": "us-east4-c", "kind": "on-demand", "fill": "resize", "run_duration_sec": None},
        ],
    }  # fmt: skip
