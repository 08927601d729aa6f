"""RDMA in pods of GKE: the NICs by their names, the plug-in on the node, and what a team's pods are given."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.fabric import GIB, plan_interfaces
from gangway.components.gcp.gke_fabric import fabric_manifests, has_rdma, network_names, node_limits, team_fabric
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY
from gangway.jobs.kubernetes.fabric import Fabric

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
