"""GkeNodePools: what GKE is told of each rung, held against the API's own description."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
from pulumi_gcp import container

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.fabric import GIB, plan_interfaces
from gangway.components.gcp.gke_pools import (
    GkeNodePools,
    fabric_manifests,
    has_rdma,
    network_names,
    node_limits,
    team_fabric,
)
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY
from gangway.jobs.kubernetes.fabric import Fabric
from tests.components.fixture_types import Make, Mistakes

SPOT = {"kind": "spot"}
FLEX = {"kind": "flex-start", "max_hours": 24}
RESERVED = {"kind": "reservation", "id": "ours"}
NICS = {
    "a2-highgpu-8g": 0,
    "a3-highgpu-8g": 4,
    "a3-megagpu-8g": 8,
    "a3-ultragpu-8g": 9,
    "a4-highgpu-8g": 9,
    "g2-standard-4": 0,
}


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    """Arguments of GkeNodePools, to be varied."""
    return {
        "project": "lab",
        "region": "us-east4",
        "zone": "us-east4-b",
        "cluster": "projects/lab/locations/us-east4/clusters/demo",
        "num_nodes_min": 0,
        "num_nodes_max": 4,
        "capacity": [RESERVED, FLEX, SPOT],
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "root_volume_gib": 200,
        "kms_key_name": "projects/lab/locations/us-east4/keyRings/r/cryptoKeys/k",
        "tags": labels,
    }


@pytest.fixture
def make(declare: Make, args: dict[str, Any]) -> Make:
    """Declares pools of a machine type, with its NICs, or of what `changes` say."""

    def run(machine: str | None = "a3-megagpu-8g", **changes: Any) -> Any:
        of_machine: dict[str, Any] = {}
        if machine is not None:
            further = range(NICS[machine])
            of_machine = {
                "machine_type": machine,
                "fabric_network_ids": [f"net-{n}" for n in further],
                "fabric_subnet_ids": [f"sub-{n}" for n in further],
            }
        changed: Any = {**args, **of_machine, **changes}
        return declare(lambda: GkeNodePools("demo", changed))

    return run


def as_the_api_has_it(pool: Any) -> dict[str, Any]:
    """A node pool in the words of container.v1, whose provider's words differ in a few."""
    inputs = pool.inputs
    node = dict(inputs["nodeConfig"])
    renamed = {"tags": "tags", "guestAccelerators": "accelerators", "bootDiskKmsKey": "bootDiskKmsKey"}
    body = {renamed.get(key, key): value for key, value in node.items()}
    if accelerators := body.get("accelerators"):
        body["accelerators"] = [
            {
                "acceleratorType": one["type"],
                "acceleratorCount": float(one["count"]),
                "gpuDriverInstallationConfig": one["gpuDriverInstallationConfig"],
            }
            for one in accelerators
        ]
    body["kubeletConfig"] = {"insecureKubeletReadonlyPortEnabled": False}
    autoscaling = {"enabled": True, **inputs["autoscaling"]}
    named = ("name", "initialNodeCount", "management", "upgradeSettings", "placementPolicy", "queuedProvisioning")
    return {
        **{key: inputs[key] for key in named if key in inputs},
        "locations": inputs["nodeLocations"],
        "autoscaling": autoscaling,
        "networkConfig": inputs["networkConfig"],
        "config": body,
    }


@pytest.mark.parametrize("machine", sorted(NICS))
def test_the_api_takes_the_pools(make: Make, api_mistakes: Mistakes, machine: str) -> None:
    for pool in make(machine).each("NodePool"):
        assert api_mistakes("container.v1", "NodePool", as_the_api_has_it(pool)) == []


@pytest.mark.parametrize("accelerator", ["v5litepod-16", "v5p-8", "v6e-16"])
def test_the_api_takes_slices(make: Make, api_mistakes: Mistakes, accelerator: str) -> None:
    made = make(None, accelerator_type=accelerator, capacity=[RESERVED, SPOT], num_nodes_max=2)
    for pool in made.each("NodePool"):
        assert api_mistakes("container.v1", "NodePool", as_the_api_has_it(pool)) == []
        assert "guestAccelerators" not in pool.inputs["nodeConfig"]


def test_one_pool_a_rung_that_grows_from_nothing(make: Make) -> None:
    reserved, flex, spot = (pool.inputs for pool in make().of("NodePool"))
    for inputs in (reserved, flex, spot):
        assert inputs["autoscaling"] == {
            "minNodeCount": 0,
            "maxNodeCount": 4,
            "locationPolicy": "ANY",
        }
        assert "nodeCount" not in inputs, "the autoscaler owns it"
        assert inputs["nodeLocations"] == ["us-east4-b"]
        assert inputs["networkConfig"]["enablePrivateNodes"] is True
    affinity = reserved["nodeConfig"]["reservationAffinity"]
    assert affinity["values"] == ["projects/lab/reservations/ours"]
    assert affinity["consumeReservationType"] == "SPECIFIC_RESERVATION"
    assert (flex["nodeConfig"]["flexStart"], flex["queuedProvisioning"]) == (True, {"enabled": True})
    assert flex["nodeConfig"]["maxRunDuration"] == "86400s"
    assert flex["management"]["autoRepair"] is False
    assert spot["nodeConfig"]["spot"] is True
    assert spot["placementPolicy"] == {"type": "COMPACT"}
    for inputs in (flex, spot):
        assert inputs["nodeConfig"]["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}


def test_rungs_are_told_apart_by_their_labels(make: Make) -> None:
    made = make(node_labels=[{"a": "1"}, {"a": "2"}, {"a": "3"}], node_taints=[])
    labels = [pool.inputs["nodeConfig"]["labels"] for pool in made.of("NodePool")]
    assert labels == [
        {"gangway.dev/rung": "0-reservation", "a": "1"},
        {"gangway.dev/rung": "1-flex-start", "a": "2"},
        {"gangway.dev/rung": "2-spot", "a": "3"},
    ]


def test_taints_are_of_every_pool(make: Make) -> None:
    taint = {"key": "gangway.dev/job", "value": "true", "effect": "NO_SCHEDULE"}
    assert all(pool.inputs["nodeConfig"]["taints"] == [taint] for pool in make(node_taints=[taint]).each("NodePool"))
    assert all("taints" not in pool.inputs["nodeConfig"] for pool in make().each("NodePool"))


@pytest.mark.parametrize("machine", sorted(NICS))
def test_nics_of_gpus_in_the_machines_order(make: Make, machine: str) -> None:
    (pool,) = make(machine, capacity=[SPOT]).of("NodePool")
    further = pool.inputs["networkConfig"].get("additionalNodeNetworkConfigs", [])
    assert further == [{"network": f"net-{n}", "subnetwork": f"sub-{n}"} for n in range(NICS[machine])]


def test_gpus_with_the_driver_that_gke_installs(make: Make) -> None:
    (pool,) = make("a3-ultragpu-8g", capacity=[SPOT]).of("NodePool")
    node = pool.inputs["nodeConfig"]
    assert node["guestAccelerators"] == [
        {
            "type": "nvidia-h200-141gb",
            "count": 8,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"},
        }
    ]
    assert node["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 32}
    assert node["diskType"] == "hyperdisk-balanced"


def test_slices_have_their_topology(make: Make) -> None:
    made = make(None, accelerator_type="v5litepod-16", capacity=[SPOT], num_nodes_min=1, num_nodes_max=2)
    first, second = (pool.inputs for pool in made.of("NodePool"))
    for inputs in (first, second):
        assert inputs["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "4x4"}
        assert inputs["nodeConfig"]["machineType"] == "ct5lp-hightpu-4t"
        assert inputs["autoscaling"]["maxNodeCount"] == 4
    assert [one["autoscaling"]["minNodeCount"] for one in (first, second)] == [4, 0]


def gke_refuses(inputs: Any) -> bool:
    """What GKE says "max node count 0" to: a slice's pool whose most is counted for all zones."""
    sliced = any(inputs.get("placementPolicy", {}).get(key) for key in ("tpuTopology", "policyName"))
    return sliced and "maxNodeCount" not in inputs["autoscaling"]


@pytest.mark.parametrize("accelerator", ["v5litepod-16", "v5p-16", "v6e-16", "tpu7x-16", "tpu7x-64"])
def test_gke_takes_a_slices_counts(make: Make, accelerator: str) -> None:
    for pool in make(None, accelerator_type=accelerator, capacity=[SPOT]).each("NodePool"):
        assert not gke_refuses(pool.inputs)
        total = {name: count for name, count in pool.inputs["autoscaling"].items() if name.startswith("total")}
        assert gke_refuses({**pool.inputs, "autoscaling": {**total, "totalMaxNodeCount": 4}})


def test_slices_of_ironwood_are_placed_by_a_policy(make: Make) -> None:
    made = make(None, accelerator_type="tpu7x-64", capacity=[SPOT, RESERVED], num_nodes_max=1)
    (policy,) = made.of("ResourcePolicy")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4x4"}
    for pool in made.each("NodePool"):
        assert pool.inputs["placementPolicy"]["type"] == "COMPACT"
        assert pool.inputs["placementPolicy"]["policyName"] == policy.inputs["name"] == "demo-2x4x4"
        assert "tpuTopology" not in pool.inputs["placementPolicy"]
        assert pool.inputs["nodeConfig"]["machineType"] == "tpu7x-standard-4t"
    alone = make(None, accelerator_type="tpu7x-8", capacity=[SPOT], num_nodes_max=1)
    assert not alone.of("ResourcePolicy")
    assert "placementPolicy" not in alone.of("NodePool")[0].inputs


def test_walls_of_every_node(make: Make, args: dict[str, Any], labels: dict[str, str]) -> None:
    for pool in make().each("NodePool"):
        node = pool.inputs["nodeConfig"]
        assert node["shieldedInstanceConfig"] == {"enableSecureBoot": True, "enableIntegrityMonitoring": True}
        assert node["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
        assert node["bootDiskKmsKey"] == args["kms_key_name"]
        assert node["serviceAccount"] == args["service_account_email"]
        assert node["kubeletConfig"] == {"insecureKubeletReadonlyPortEnabled": "FALSE"}
        assert node["resourceLabels"] == labels
        assert node["tags"] == ["demo-fabric"]


def test_up_leaves_sizes_alone_and_never_makes_two_of_a_name(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[Any] = []
    real = container.NodePool

    def noting(logical: str, **values: Any) -> Any:
        options.append(values["opts"])
        return real(logical, **values)

    monkeypatch.setattr(container, "NodePool", noting)
    make()
    assert len(options) == 3
    assert all(set(one.ignore_changes) == {"initial_node_count", "node_count"} for one in options)
    assert all(one.delete_before_replace for one in options)


RDMA = ("a3-ultragpu-8g", "a4-highgpu-8g")


def machine(name: str) -> GcpMachineType:
    found = load_provider("gcp").machine(name, "machine_type")
    assert isinstance(found, GcpMachineType)
    return found


def manifests(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    own = machine(name)
    ids = [f"projects/p/of/{position}" for position in range(len(plan_interfaces(own)) - 1)]
    found = [*fabric_manifests(own, ids, ids), *team_fabric("vision", own, 800.0)]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize("name", ["a3-highgpu-8g", "a3-megagpu-8g", *RDMA])
def test_it_is_for_several_machines_with_rdma(name: str) -> None:
    assert has_rdma(machine(name), 2) is (name in RDMA)
    assert not has_rdma(machine(name), 1)


@pytest.mark.parametrize("name", RDMA)
def test_a_pods_interfaces_are_the_machines_rdma_nics(name: str) -> None:
    own = machine(name)
    made = manifests(name)
    pods = json.loads(made["ConfigMap", FABRIC]["data"][FABRIC_KEY])
    default, *others = json.loads(pods["annotations"]["networking.gke.io/interfaces"])
    assert default == {
        "interfaceName": pods["annotations"]["networking.gke.io/default-interface"],
        "network": "default",
    }
    nics = {f"eth{nic.index}": nic for nic in plan_interfaces(own)}
    for other in others:
        assert nics[other["interfaceName"]].nic_type == "MRDMA"
        assert made["Network", other["network"]]["spec"]["type"] == "Device"
        assert made["GKENetworkParamSet", other["network"]]["spec"]["deviceMode"] == "RDMA"
    assert (
        len(others)
        == sum(nic.nic_type == "MRDMA" for nic in nics.values())
        == len({each["network"] for each in others})
    )
    assert {name for kind, name in made if kind == "Network"} == set(network_names(own))


@pytest.mark.parametrize("name", RDMA)
def test_what_a_team_is_told_is_what_the_engine_reads(name: str) -> None:
    made = manifests(name)
    fabric = Fabric.model_validate_json(made["ConfigMap", FABRIC]["data"][FABRIC_KEY])
    assert fabric.gpus == machine(name).num_accelerators.value
    assert fabric.mount is not None
    assert (fabric.mount.claim, fabric.mount.path) == (FABRIC, GIB.volumes[0].target)
    assert fabric.script is not None
    assert fabric.script.startswith(f"{fabric.mount.path}/")
    assert fabric.env["NCCL_NET"] == "gIB"
    claim, volume = made["PersistentVolumeClaim", FABRIC]["spec"], made["PersistentVolume", f"{FABRIC}-vision"]["spec"]
    assert claim["accessModes"] == volume["accessModes"] == ["ReadOnlyMany"]
    assert claim["volumeName"] == f"{FABRIC}-vision"
    assert volume["claimRef"]["namespace"] == "vision"


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
def test_kubernetes_knows_every_field(version: str) -> None:
    for (kind, _), each in manifests("a3-ultragpu-8g").items():
        if kind not in ("GKENetworkParamSet", "Network"):
            kubernetes_validate.validate(each, version, strict=True)


def test_the_plug_in_goes_to_where_pods_have_it() -> None:
    made = manifests("a3-ultragpu-8g")
    pod = made["DaemonSet", "gangway-gib"]["spec"]["template"]["spec"]
    folder = made["PersistentVolume", f"{FABRIC}-vision"]["spec"]["hostPath"]["path"]
    (install,) = pod["initContainers"]
    at = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
    mounted = {at[each["name"]]: each["mountPath"] for each in install["volumeMounts"]}
    assert mounted[folder] in install["command"][-1]
    assert "seq 0 7)" in install["command"][-1]
    assert pod["nodeSelector"] == {"gangway.dev/pool": "jobs"}


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_has_the_scripts_last_however_often_it_is_prepared(tmp_path: Path, times: int) -> None:
    source, node, libraries = (tmp_path / name for name in ("image", "node", "libraries"))
    for folder in (source / "lib64", source / "configs", source / "scripts", node, libraries):
        folder.mkdir(parents=True)
    (source / "lib64" / "libnccl-net.so").write_text("new")
    (source / "scripts" / "set_nccl_env.sh").write_text("export A=1\n")
    (tmp_path / "mv").write_text('#!/bin/sh\n{ echo ---; find "$NODE" -type f; } >>"$LOG"\nexec /bin/mv "$@"\n')
    (tmp_path / "mv").chmod(0o755)
    made = manifests("a3-ultragpu-8g")
    (install,) = made["DaemonSet", "gangway-gib"]["spec"]["template"]["spec"]["initContainers"]
    places = {each["name"]: each["mountPath"] for each in install["volumeMounts"]}
    script = install["command"][-1].replace("/scripts/container_entry.sh", "true").replace("/proc/sys", str(tmp_path))
    for there, here in ((places["libraries"], libraries), (places["folder"], node), ("/var/lib/gib", source)):
        script = script.replace(there, str(here))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODE": str(node), "LOG": str(tmp_path / "log")}
    for _ in range(times):
        subprocess.run(["/bin/sh", "-c", script], env=env, check=True, capture_output=True, timeout=60)
    assert sorted(each.name for each in node.iterdir()) == ["configs", "lib64", "scripts"]
    assert (libraries / "libnccl-net.so").read_text() == "new"
    before_the_last_step = (tmp_path / "log").read_text().split("---\n")[-1]
    assert f"{node}/lib64/libnccl-net.so\n" in before_the_last_step
    assert f"{node}/scripts/" not in before_the_last_step


PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
"""
CAT = """#!/bin/sh
case $1 in */4711/comm) echo containerd ;; *) echo other ;; esac
"""


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
def test_kubernetes_knows_the_limits(version: str) -> None:
    kubernetes_validate.validate(node_limits(), version, strict=True)


def test_containers_may_lock_memory_and_open_chips(tmp_path: Path) -> None:
    (container,) = node_limits()["spec"]["template"]["spec"]["containers"]
    programs = {"prlimit": PROGRAM, "chmod": PROGRAM, "cat": CAT, "sleep": '#!/bin/sh\nkill "$PPID"\n'}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    for pid in ("1", "4711"):
        (tmp_path / "proc" / pid).mkdir(parents=True)
    shell, flag, script = container["command"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    subprocess.run([shell, flag, script.replace("/proc", f"{tmp_path}/proc")], env=env, check=False, timeout=60)
    called = (tmp_path / "log").read_text().splitlines()
    assert called[0] == "prlimit --pid 4711 --memlock=unlimited"
    assert called[1].startswith("chmod a+rw ")
    assert all(device in called[1] for device in ("/dev/accel", "/dev/vfio/"))
    assert len(called) == 2
