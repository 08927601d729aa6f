"""RDMA in pods of GKE: the NICs by their names, the plug-in on the node, and what a team's pods are given."""

import json
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest

from components.catalog.loader import load_provider
from components.catalog.schema import GcpMachineType
from components.gcp.fabric import GIB, plan_interfaces
from components.gcp.gke_fabric import fabric_manifests, has_rdma, network_names, team_fabric
from components.kubernetes.spec import FABRIC, FABRIC_KEY
from stacks.engines.kubernetes.fabric import Fabric

RDMA = ("a3-ultragpu-8g", "a4-highgpu-8g")


def machine(name: str) -> GcpMachineType:
    found = load_provider("gcp").machine(name, "machine_type")
    assert isinstance(found, GcpMachineType)
    return found


def manifests(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    own = machine(name)
    ids = [f"projects/p/of/{position}" for position in range(len(plan_interfaces(own)) - 1)]
    found = [*fabric_manifests(own, ids, ids), *team_fabric("vision", own)]
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
    assert f"cp -r /var/lib/gib/. {mounted[folder]}\n" in install["command"][-1]
    assert "seq 0 7)" in install["command"][-1]
    assert pod["nodeSelector"] == {"gangway.dev/pool": "jobs"}
