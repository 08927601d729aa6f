"""A stack on Google Cloud: how the components are wired together, with labels on everything that takes them."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from gangway.components.gcp.node_pool import tag_condition
from gangway.components.gcp.tpu.request import queued_resource_body
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.providers.gcp.plan import plan
from gangway.stacks.providers.gcp.provider import PROVIDER
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, Recording
from tests.sdk_arguments import sdk_arguments

GPU, POD, SLICES = "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"
Edited = Callable[..., StackConfig]
Resources = tuple[PlannedResource, ...]
# The names that a stack exports on any provider.
EVERYWHERE = {
    "dashboard", "group_names", "head_instance_id", "image", "job", "log_group", "lustre_dns_name", "machine_images",
    "run_bucket",
}  # fmt: skip


def of(resources: Resources, kind: str) -> list[PlannedResource]:
    return [r for r in resources if r.type.startswith("gcp:") and r.type.endswith(f":{kind}")]


@pytest.fixture(
    scope="module",
    params=[
        (GPU, {}),
        (GPU, {"cluster": {"capacity": [{"kind": "flex-start", "max_hours": 12}, {"kind": "on-demand"}]}}),
        (GPU, {"cluster": {"machine_type": "g2-standard-48", "nodes": {"min": 1, "max": 1}}, "storage": None}),
        (POD, {}),
        (SLICES, {"image": None, "cluster": {"capacity": [{"kind": "on-demand"}]}}),
        (SLICES, {}),
        (SLICES, {"storage": None, "encryption": "provider-key"}),
    ],
    ids=["a3", "flex-start", "one g2", "v5e", "v5p with an image of its own", "v5p", "v5p without storage"],
)
def program(
    request: pytest.FixtureRequest, gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> tuple[StackConfig, Recording]:
    name, changes = request.param
    config = gcp_edited(name, **changes)
    return config, recorded(config)


@pytest.mark.slow
def test_whatever_takes_labels_has_them_all(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    labels, checked = plan(config).tags, 0
    for resource in recorded.resources:
        if resource.type.endswith(":QueuedTpuRequest"):
            assert resource.inputs["labels"] == labels
            checked += 1
        if not resource.type.startswith("gcp:"):
            continue
        words = {"labels": "labels", "user_labels": "userLabels"}
        taken = [wire for word, wire in words.items() if word in sdk_arguments(resource.type)]
        if taken:
            # A channel's `labels` say what it is; ours are the user's. The head has one more label.
            assert labels.items() <= resource.inputs[taken[-1]].items(), resource.urn
            checked += 1
    assert checked > 8


def test_everything_is_made_by_the_stacks_own_provider_in_its_project(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    (provider,) = [r for r in recorded.resources if r.type == "pulumi:providers:gcp"]
    assert provider.inputs["project"] == "my-project"
    assert provider.inputs["region"] == config.region
    assert provider.inputs["zone"] == plan(config).zone
    for resource in recorded.resources:
        project = resource.inputs.get("project", "my-project")
        assert project in ("my-project", "${Project.my-project.id}") or "${" in project, resource.urn


def test_the_exports_have_the_names_of_every_provider(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    exported = dict(recorded.result)
    own = {"queued_resource", "budget_topic_id", "mount_point", "project", "signing_public_key", "zone"}
    own |= {"service_perimeter"}
    assert set(exported) == EVERYWHERE | own
    assert (exported["project"], exported["zone"]) == ("my-project", plan(config).zone)
    assert (exported["mount_point"] is not None) is (config.storage is not None)
    tpu = plan(config).tpu is not None
    assert (exported["queued_resource"] is not None) is tpu
    assert bool(exported["group_names"]) is not tpu
    assert (exported["head_instance_id"] is not None) is plan(config).head
    assert (exported["lustre_dns_name"] is not None) is (config.storage is not None)
    if tpu:
        place = f"projects/my-project/locations/{plan(config).zone}"
        assert exported["queued_resource"] == f"{place}/queuedResources/{config.stack}"


def test_aws_exports_the_same_names(demo_config: StackConfig) -> None:
    assert set(run_program(demo_config, PlaceholderCloud()).result) >= EVERYWHERE


def test_everything_waits_for_the_apis(program: tuple[StackConfig, Recording]) -> None:
    """An API that is not enabled refuses the first resource: `up` would fail, and succeed when run again."""
    _, recorded = program
    apis = {r.urn for r in of(recorded.resources, "Service")}
    assert len(apis) > 5
    for resource in recorded.resources:
        if resource.type.startswith("gcp:") and resource.urn not in apis:
            assert apis <= resource.dependencies, resource.urn


def test_no_machine_has_an_external_address(program: tuple[StackConfig, Recording]) -> None:
    _, recorded = program
    assert "accessConfigs" not in json.dumps([r.inputs for r in recorded.resources], default=str)


def test_the_parts_of_gpu_machines_refer_to_each_other(gcp_plans: dict[str, Plan]) -> None:
    resources = gcp_plans[GPU].resources
    names = [group.name for group in of(resources, "InstanceGroupManager")]
    assert names == ["gcp-a3-spot-0-spot", "gcp-a3-spot-1-on-demand"]
    (head,) = [r for r in of(resources, "Instance") if r.type.startswith("gcp:compute/")]
    (stop,) = of(resources, "Workflow")
    told = {key: json.loads(value) for key, value in stop.inputs["userEnvVars"].items() if key != "STOP_PERCENT"}
    zone = "projects/my-project/zones/us-central1-a"
    assert told["HEADS"] == [head.id]
    assert told["QUEUED_RESOURCES"] == []
    assert [group.rpartition("/")[0] for group in told["GROUPS"]] == [f"{zone}/instanceGroupManagers"] * 2
    (fallback,) = of(resources, "BucketObject")
    # The provider takes an object's content for a secret.
    content = json.loads(fallback.inputs["content"]["value"])
    assert (content["num_nodes_min"], [group["kind"] for group in content["groups"]]) == (2, ["spot", "on-demand"])
    assert [group["name"] for group in content["groups"]] == [
        f"${{InstanceGroupManager.{name}.name}}" for name in names
    ]
    for template in of(resources, "InstanceTemplate"):
        assert head.urn in template.dependencies, "the head's store outlives the workers"
        assert len(template.inputs["networkInterfaces"]) == 9


def test_only_the_stacks_own_groups_are_changed(gcp_plans: dict[str, Plan]) -> None:
    resources = gcp_plans[GPU].resources
    (key,), (value,) = of(resources, "TagKey"), of(resources, "TagValue")
    assert (key.inputs["shortName"], value.inputs["parent"]) == (f"gangway-{GPU}", key.id)
    for group in of(resources, "InstanceGroupManager"):
        assert group.inputs["params"] == {"resourceManagerTags": {key.id: value.id}}
    changing = {
        f"${{IAMCustomRole.{role.name}.name}}"
        for role in of(resources, "IAMCustomRole")
        if "compute.instanceGroupManagers.update" in role.inputs["permissions"]
    }
    grants = [member.inputs for member in of(resources, "IAMMember") if member.inputs.get("role") in changing]
    assert {grant["member"] for grant in grants} == {
        f"${{Account.{GPU}-{who}.member}}" for who in ("head", "node", "stop")
    }
    assert {grant["condition"]["expression"] for grant in grants} == {tag_condition(key.id, value.id)}
    assert not of(gcp_plans[SLICES].resources, "TagKey"), "slices are in no group"


def test_the_stop_deletes_slices(gcp_plans: dict[str, Plan]) -> None:
    (stop,) = [one for one in of(gcp_plans[SLICES].resources, "Workflow") if one.name.endswith("-stop")]
    told = json.loads(stop.inputs["userEnvVars"]["QUEUED_RESOURCES"])
    assert told == ["projects/my-project/locations/us-east5-a/queuedResources/gcp-v5p-multislice"]
    (schedule,) = of(gcp_plans[SLICES].resources, "Job")
    assert json.loads(stop.inputs["userEnvVars"]["SCHEDULES"]) == [schedule.id]


@pytest.mark.parametrize("name", [POD, SLICES])
def test_what_brings_slices_back_asks_for_what_up_asked_for(gcp_plans: dict[str, Plan], name: str) -> None:
    resources = gcp_plans[name].resources
    (request,) = [one.inputs for one in resources if one.type.endswith(":QueuedTpuRequest")]
    (kept,) = [one.inputs for one in of(resources, "BucketObject") if one.inputs["name"] == "request.json"]
    assert json.loads(kept["content"]["value"]) == queued_resource_body(request)
    (flow,) = [one for one in of(resources, "Workflow") if one.name.endswith("-slices")]
    told = flow.inputs["userEnvVars"]
    assert told["QUEUED_RESOURCE"].endswith(f"/queuedResources/{name}")
    ended = re.search(r"ENDED_OBJECT=(\S+)", request["startup_script"])
    assert ended is not None
    assert unquote(told["ENDED_URL"]).endswith(f"/o/{name}/{ended[1]}"), "what a host puts when the job has ended"
    leaves = gcp_plans[name].config.work.terminate_when_done
    assert (f"QUEUED_RESOURCE={told['QUEUED_RESOURCE']}\n" in request["startup_script"]) is leaves
    # Of a plan: of its account the node may delete the request only where it has to.
    permissions = [set(one.inputs["permissions"]) for one in of(resources, "IAMCustomRole") if "-node" in one.name]
    assert permissions == ([{"tpu.queuedResources.delete", "tpu.nodes.delete"}] if leaves else [])


def test_a_reservation_is_asked_for_as_gcloud_asks(gcp_plans: dict[str, Plan]) -> None:
    (slices,) = [r.inputs for r in gcp_plans[SLICES].resources if r.type.endswith(":QueuedTpuRequest")]
    body = queued_resource_body(slices)
    assert body.keys() == {"tpu", "reservationName"}
    assert body["reservationName"] == "projects/my-project/locations/us-east5-a/reservations/gan-v5p"


def test_the_key_of_boot_disks_can_be_left_out(gcp_edited: Edited) -> None:
    config = gcp_edited(SLICES, gcp={"tpu_boot_key": False})
    resources = run_program(config, PlaceholderCloud()).resources
    (request,) = [r.inputs for r in resources if r.type.endswith(":QueuedTpuRequest")]
    assert "bootDiskConfig" not in queued_resource_body(request)["tpu"]["nodeSpec"][0]["node"]
    assert of(resources, "CryptoKey"), "all else stays under the key"


@pytest.mark.slow
@pytest.mark.parametrize("wait_sec", [120, 0])
def test_up_waits_for_grants_before_it_relies_on_them(gcp_edited: Edited, wait_sec: int) -> None:
    config = gcp_edited(GPU, gcp={"grant_wait_sec": wait_sec})
    resources = run_program(config, PlaceholderCloud()).resources
    waits = {r.name: r for r in resources if r.type.endswith(":Settling")}
    assert waits.keys() == ({f"{GPU}-data-heeded", f"{GPU}-stop-heeded"} if wait_sec else set())
    assert {wait.inputs["seconds"] for wait in waits.values()} <= {wait_sec}
    assert bool(PROVIDER.dynamic(config, plan(config))) is bool(wait_sec)
    for wait in waits.values():
        assert all(" for " in one for one in wait.inputs["awaited"])


def test_machines_have_nothing_that_brings_slices_back(gcp_plans: dict[str, Plan]) -> None:
    assert of(gcp_plans[GPU].resources, "Job") == []


def test_slices_are_asked_for_as_the_plan_says(gcp_plans: dict[str, Plan]) -> None:
    (pod,) = [r.inputs for r in gcp_plans[POD].resources if r.type.endswith(":QueuedTpuRequest")]
    assert (pod["accelerator_type"], pod["tier"], pod["num_slices"]) == ("v5litepod-64", "spot", 1)
    assert "reservation_name" not in pod
    (slices,) = [r.inputs for r in gcp_plans[SLICES].resources if r.type.endswith(":QueuedTpuRequest")]
    assert (slices["tier"], slices["num_slices"]) == ("guaranteed", 2)
    assert slices["reservation_name"] == "projects/my-project/locations/us-east5-a/reservations/gan-v5p"
    assert slices["kms_key_name"].startswith("${CryptoKey.")


def test_an_unusual_topology_is_asked_for_by_its_shape(gcp_edited: Edited) -> None:
    config = gcp_edited(SLICES, cluster={"accelerator": "v5p-512", "topology": "4x4x16", "nodes": {"min": 1, "max": 1}})
    resources = run_program(config, PlaceholderCloud()).resources
    (request,) = [r.inputs for r in resources if r.type.endswith(":QueuedTpuRequest")]
    assert request["accelerator_config"] == {"type": "V5P", "topology": "4x4x16"}
    assert "accelerator_type" not in request


@pytest.mark.slow
def test_a_pool_of_another_size_has_the_same_head(gcp_edited: Edited) -> None:
    """Or every change of the number of nodes would take the workers' store away."""

    def head(nodes: int) -> dict[str, Any]:
        config = gcp_edited(GPU, cluster={"nodes": {"min": nodes, "max": 2 * nodes}})
        (found,) = [
            r
            for r in of(run_program(config, PlaceholderCloud()).resources, "Instance")
            if r.type.startswith("gcp:compute/")
        ]
        return found.inputs

    assert head(1) != {}
    assert head(2) == head(4)


def test_calls_are_charged_to_the_project(program: tuple[StackConfig, Recording]) -> None:
    """With a person's credentials the API of budgets answers 403 to all other calls."""
    _, recorded = program
    (provider,) = [r.inputs for r in recorded.resources if r.type == "pulumi:providers:gcp"]
    assert (provider["billingProject"], provider["userProjectOverride"]) == ("my-project", "true")
    assert "serviceusage.googleapis.com" in {r.inputs["service"] for r in of(recorded.resources, "Service")}


def test_what_up_writes_is_not_in_the_bucket_that_refuses_to_go(program: tuple[StackConfig, Recording]) -> None:
    _, recorded = program
    buckets = {r.name: r.inputs.get("forceDestroy", False) for r in of(recorded.resources, "Bucket")}
    assert {name.rpartition("-")[2]: gone for name, gone in buckets.items()} in (
        {"runs": False},
        {"runs": False, "head": True},
    )
    for written in of(recorded.resources, "BucketObject"):
        (own,) = [name for name in buckets if name in written.inputs["bucket"]]
        assert buckets[own] is True, "a version of it would stay, and so would the bucket"


@pytest.mark.slow
def test_nodes_read_the_source_only_where_they_bring_it(gcp_edited: Edited) -> None:
    def readers(config: StackConfig) -> set[str]:
        resources = run_program(config, PlaceholderCloud()).resources
        granted = [r for r in of(resources, "BucketIAMMember") if r.inputs["bucket"] == "my-bucket"]
        return {r.name.removeprefix(f"{config.stack}-") for r in granted}

    assert readers(gcp_edited(GPU)) == {"lustre-import"}, "the head has Managed Lustre bring it"
    assert "node-data" in readers(gcp_edited(SLICES)), "there is no head"


def test_a_budget_is_in_the_billing_accounts_currency(gcp_edited: Edited) -> None:
    config = gcp_edited(GPU, gcp={"currency": "EUR", "monthly_amount": 147000.5})
    (budget,) = of(run_program(config, PlaceholderCloud()).resources, "Budget")
    amount = {"currencyCode": "EUR", "units": "147000", "nanos": 500_000_000}
    assert budget.inputs["amount"]["specifiedAmount"] == amount


def test_locks_on_a_share_pass_the_firewall(gcp_plans: dict[str, Plan]) -> None:
    (rule,) = [r.inputs for r in of(gcp_plans[POD].resources, "Firewall") if r.name.endswith("-nfs-locks")]
    assert rule["targetTags"] == ["gcp-v5e-pod-fabric"]
    assert not [r for r in of(gcp_plans[GPU].resources, "Firewall") if r.name.endswith("-nfs-locks")]
