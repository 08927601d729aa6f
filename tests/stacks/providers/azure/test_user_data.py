"""What machines on Azure read at boot: the plan's own names, rendered by `images`, in the declared resources."""

import base64
import gzip
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gangway.components.azure.launch import MAX_CUSTOM_DATA_BYTES
from gangway.components.core.fields import Egress
from gangway.images.node import fill_order
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.recording import PlaceholderCloud, PlannedResource

SPOT, V4, DEV = "azure-ndv5-spot", "azure-ndv4", "azure-nc-dev"
FILL_ORDER = Path(fill_order.__file__)
Edited = Callable[..., StackConfig]
Resources = tuple[PlannedResource, ...]


def custom_data(resource: PlannedResource) -> str:
    profile = resource.inputs.get("virtualMachineProfile", resource.inputs)["osProfile"]
    data: str = profile["customData"]
    return data


def files_of(resource: PlannedResource) -> dict[str, str]:
    """What a machine's cloud-init writes: path -> text."""
    text = gzip.decompress(base64.b64decode(custom_data(resource))).decode()
    assert text.startswith("#cloud-config")
    return {entry["path"]: entry["content"] for entry in yaml.safe_load(text)["write_files"]}


def workers(resources: Resources) -> list[PlannedResource]:
    return [r for r in resources if r.type.endswith(":VirtualMachineScaleSet")]


def head(resources: Resources) -> PlannedResource:
    (found,) = [r for r in resources if r.type.endswith(":VirtualMachine")]
    return found


def assignments(text: str) -> dict[str, str]:
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in text.splitlines())}


@pytest.mark.parametrize("name", [SPOT, V4, DEV])
def test_machines_boot_with_the_plans_own_names(azure_plans: dict[str, Plan], name: str) -> None:
    made = azure_plans[name]
    for machine in [*workers(made.resources), head(made.resources)]:
        files = files_of(machine)
        settings = assignments(files["/etc/gangway/node.env"])
        role = "head" if machine.type.endswith(":VirtualMachine") else "node"
        account = f"${{StorageAccount.{name.replace('-', '')[:16]}.name}}"
        runs = f"${{BlobContainer.{name}-runs.name}}"
        assert settings["CLIENT_ID"] == f"${{UserAssignedIdentity.{name}-{role}.clientId}}"
        assert settings["BUCKET_URI"] == f"https://{account}.blob.core.windows.net/{runs}/{name}"
        assert settings["IMAGE_REGISTRY"] == f"${{Registry.{name.replace('-', '')}.loginServer}}"
        assert settings["RUN_DIR"].endswith(f"/runs/{name}")
        assert f"${{DataCollectionRule.{name}-lines.immutableId}}" in settings["LOG_GROUP"]
        assert settings["SIGNING_KEY"] == settings["MEMBER_KEY"].replace("/member-key", "/signing-key")
        if role == "node":
            assert machine.inputs["tags"]["gangway-ended"] == settings["ENDED_OBJECT"], "where the head looks for it"
    assert json.loads(files_of(workers(made.resources)[0])["/etc/gangway/job.json"]) == made.job


def test_a_node_looks_for_what_its_size_has(azure_plans: dict[str, Plan]) -> None:
    for group in workers(azure_plans[SPOT].resources):
        files = files_of(group)
        settings, fabric = assignments(files["/etc/gangway/node.env"]), files["/etc/gangway/fabric.env"]
        assert [settings[name] for name in ("RDMA_DEVICES", "RDMA_GBPS", "GPUS_PLANNED")] == ["8", "400", "8"]
        assert settings["DATA_DIR"] == "/shared/digits", "blobs appear under their own path"
        assert settings["MOUNT_SOURCE"].endswith("@tcp:/lustrefs")
        assert "NCCL_TOPO_FILE" in fabric
        assert "/dev/infiniband" in files["/etc/gangway/job.env"]
    (dev, *_) = workers(azure_plans[DEV].resources)
    assert "/etc/gangway/fabric.env" not in files_of(dev)
    assert assignments(files_of(dev)["/etc/gangway/node.env"])["MOUNT_SOURCE"] == ""


def test_the_head_fills_the_scale_sets_of_the_ladder(azure_plans: dict[str, Plan]) -> None:
    made = azure_plans[SPOT].resources
    files = files_of(head(made))
    ladder = json.loads(files["/etc/gangway/fallback.json"])
    assert [group["name"] for group in ladder["groups"]] == [
        f"${{VirtualMachineScaleSet.{group.name}.name}}" for group in workers(made)
    ]
    assert ladder["together"] is False, "no InfiniBand connects two scale sets"
    assert ladder["resource_group_name"] == f"${{ResourceGroup.{SPOT}-gangway.name}}"
    assert files["/opt/gangway/lib/gangway/images/node/fill_order.py"] == FILL_ORDER.read_text("utf-8")
    assert not [path for path in files_of(workers(made)[0]) if "fill" in path]
    alone = files_of(head(azure_plans[V4].resources))
    assert len(json.loads(alone["/etc/gangway/fallback.json"])["groups"]) == 1, "the first rung's set is empty too"


def test_what_the_head_decides_by_needs_nothing_else() -> None:
    look = runpy.run_path(str(FILL_ORDER))["reconcile"]  # alone, without the package that it is in
    config = SimpleNamespace(together=False, window=3)
    assert look(config, (2, 4), [[1, 0]] * 3, [4, 0], 0).sizes == (0, 4)
    assert look(config, (2, 4), [[2, 0]] * 3, [4, 0], 0).sizes == (4, 0)
    assert look(SimpleNamespace(together=True, window=3), (2, 4), [[1, 0]] * 3, [4, 0]).sizes == (4, 1)


@pytest.mark.parametrize("egress", list(Egress))
def test_the_head_scrapes_where_prometheus_can_come_from_outside(azure_edited: Edited, egress: Egress) -> None:
    config = azure_edited(DEV, network={"egress": egress.value})
    files = files_of(head(run_program(config, PlaceholderCloud()).resources))
    assert ("/etc/gangway/prometheus.yaml" in files) is (egress is Egress.NAT)


@pytest.mark.parametrize("name", [SPOT, V4, DEV])
def test_first_boot_files_fit_twice_over(azure_plans: dict[str, Plan], name: str) -> None:
    """Azure takes 64 KiB. Names are longer once there are any, tags are the user's: half has to be free."""
    made = azure_plans[name].resources
    for machine in [*workers(made), head(made)]:
        assert len(base64.b64decode(custom_data(machine))) < MAX_CUSTOM_DATA_BYTES / 2, machine.name


def test_a_pool_of_another_size_has_the_same_head(azure_edited: Edited) -> None:
    """Or every change of the number of nodes would take the workers' store away."""

    def made(nodes: int) -> PlannedResource:
        config = azure_edited(V4, cluster={"nodes": {"min": nodes, "max": 2 * nodes}})
        return head(run_program(config, PlaceholderCloud()).resources)

    assert made(2).inputs == made(4).inputs


def test_the_same_configuration_gives_the_same_bytes(azure_configs: dict[str, StackConfig]) -> None:
    """Another byte would be another head."""

    def data() -> list[str]:
        made = run_program(azure_configs[V4], PlaceholderCloud()).resources
        return [custom_data(machine) for machine in [*workers(made), head(made)]]

    assert data() == data()


@pytest.mark.slow
def test_user_data_names_the_kind_of_scratch_disk(azure_edited: Edited) -> None:
    """It looks for that one alone, and gives itself up where there is none."""
    image = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/Microsoft.Compute/images/i"
    told = []
    for machine_type in ("Standard_NC24ads_A100_v4", "Standard_NV36ads_A10_v5"):
        config = azure_edited(DEV, cluster={"machine_type": machine_type, "image_id": image})
        (node, *_) = workers(run_program(config, PlaceholderCloud()).resources)
        settings = assignments(files_of(node)["/etc/gangway/node.env"])
        told.append((settings["SCRATCH_MOUNT_POINT"], settings["SCRATCH_TEMPORARY"]))
    assert told == [("/scratch", ""), ("/scratch", "yes")]
