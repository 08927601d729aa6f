"""How a machine joins a cluster, and what an autoscaler knows of one that does not stand yet."""

import json
import re
from base64 import b64decode
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.eks_nodes import (
    VERSIONS,
    JoinSpec,
    check_version,
    cluster_charts,
    get_flavor,
    group_pattern,
    group_tags,
    image_parameter,
    join_script,
    lustre_volume,
    network_levels,
    node_labels,
    node_of,
    service_cidr,
)
from gangway.components.catalog.loader import load
from gangway.components.core.capacity import OnDemand, Spot, plan_ladder
from gangway.components.core.findings import InputError
from gangway.components.core.job import OPEN_FILES
from gangway.components.kubernetes.spec import EFA, GPU, JOBS_ONLY, ClusterSpec

JOIN = JoinSpec("demo", "https://x.eks.amazonaws.com", "Q0E=", "172.20.0.0/16")
MACHINES = sorted(name for name, machine in load().machines.items() if machine.provider == "aws")


def config_of(script: str) -> dict[str, Any]:
    message = message_from_bytes(b64decode(script), policy=default)
    assert isinstance(message, EmailMessage)
    [part] = message.iter_parts()
    assert part.get_content_type() == "application/node.eks.aws"
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    found: dict[str, Any] = json.loads(payload)
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_a_node_is_what_the_autoscaler_was_told(name: str) -> None:
    machine = load().machine(name)
    config = config_of(join_script(JOIN, node_labels(machine, "0-spot"), machine.memory_gib.value))
    labels_flag, taint_flag = config["spec"]["kubelet"]["flags"]
    labels = dict(each.split("=") for each in labels_flag.removeprefix("--node-labels=").split(","))
    tags = group_tags("demo", machine, "0-spot", 200)
    prefix = "k8s.io/cluster-autoscaler/node-template"
    assert labels == {
        key.removeprefix(f"{prefix}/label/"): value for key, value in tags.items() if key.startswith(f"{prefix}/label/")
    }
    assert taint_flag == f"--register-with-taints={JOBS_ONLY}={tags[f'{prefix}/taint/{JOBS_ONLY}']}"
    assert get_flavor(machine, standing=True).labels.items() <= labels.items(), (
        "or Kueue would send pods where no node is"
    )
    resources = {
        key.removeprefix(f"{prefix}/resources/"): value
        for key, value in tags.items()
        if key.startswith(f"{prefix}/resources/")
    }
    node = node_of(machine, 200)
    devices = {name: str(count) for name, count in node.devices.items()}
    assert resources == {**devices, "ephemeral-storage": node.quantities(1)["ephemeral-storage"]}


@pytest.mark.parametrize("name", MACHINES)
def test_labels_and_tags_are_taken(name: str) -> None:
    """Kubernetes takes 63 characters for a label's value, EC2 128 for a tag's key and 256 for its value."""
    machine = load().machine(name)
    for key, value in node_labels(machine, "0-capacity-block").items():
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value), (key, value)
    for key, value in group_tags("demo", machine, "0-capacity-block", 200).items():
        assert len(key) <= 128
        assert len(value) <= 256


def test_a_machine_knows_its_cluster() -> None:
    spec = config_of(join_script(JOIN, {"a": "b"}, 2048.0))["spec"]
    assert spec["cluster"] == {
        "name": "demo",
        "apiServerEndpoint": JOIN.endpoint,
        "certificateAuthority": "Q0E=",
        "cidr": "172.20.0.0/16",
    }


def test_containers_have_the_nodes_limits() -> None:
    """As nodeadm merges them into the runtime specification of every container, the NVIDIA runtime's too."""
    spec = config_of(join_script(JOIN, {"a": "b"}, 2048.0))["spec"]
    limits = {each["type"]: each for each in spec["containerd"]["baseRuntimeSpec"]["process"]["rlimits"]}
    assert limits["RLIMIT_MEMLOCK"]["soft"] == limits["RLIMIT_MEMLOCK"]["hard"] == 2048 * 2**30
    assert limits["RLIMIT_NOFILE"]["soft"] == limits["RLIMIT_NOFILE"]["hard"] == OPEN_FILES
    assert all(float(each["hard"]) == each["hard"] for each in limits.values()), "exact for a reader of floats"


def test_a_p5_has_its_gpus_and_its_fabric() -> None:
    node = node_of(load().machine("p5.48xlarge"), 200)
    assert (node.cpus, node.devices[GPU], node.devices[EFA]) == (190, 8, 32)
    assert node.memory_gib < 2048, "some of it is the system's"
    assert node.disk_gib > 10_000, "it has disks of its own"
    assert node_of(load().machine("p5.48xlarge"), 400) == node


@pytest.mark.parametrize(("name", "layers"), [("p5.48xlarge", 3), ("p6-b200.48xlarge", 4), ("g6e.xlarge", 3)])
def test_nodes_that_stand_are_chosen_by_ec2s_network_layers(name: str, layers: int) -> None:
    machine = load().machine(name)
    labels = [f"topology.k8s.aws/network-node-layer-{number}" for number in range(1, layers + 1)]
    assert list(get_flavor(machine, standing=True).levels) == [*labels, "kubernetes.io/hostname"]
    assert get_flavor(machine, standing=False).levels == (), "Kueue knows none that does not stand"


@pytest.mark.parametrize("name", ["p5.4xlarge", "g5.48xlarge", "p3.16xlarge"])
def test_of_other_types_ec2_does_not_tell(name: str) -> None:
    assert network_levels(load().machine(name)) == ()


def test_images_are_those_for_the_machine() -> None:
    parameter = image_parameter("1.36", load().machine("p5.48xlarge"))
    assert parameter == ("/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id")


@pytest.mark.parametrize("version", ["1.30", "1.2", "latest"])
def test_a_version_that_costs_more_is_refused(version: str) -> None:
    with pytest.raises(InputError) as caught:
        check_version(version, "engine.version")
    assert VERSIONS[-1] in caught.value.allowed
    for each in VERSIONS:
        check_version(each, "engine.version")


@given(st.sampled_from(["10.100.0.0/16", "172.20.0.0/16", "172.20.16.0/20", "10.0.0.0/16", "192.168.0.0/16"]))
def test_services_have_addresses_of_their_own(vpc: str) -> None:
    assert not ip_network(service_cidr(vpc)).overlaps(ip_network(vpc))


def test_the_groups_name_is_recognized_with_pulumis_letters() -> None:
    rungs = plan_ladder((Spot(kind="spot"), OnDemand(kind="on-demand")))
    patterns = [group_pattern("demo", position, rung) for position, rung in enumerate(rungs)]
    names = ["demo-0-spot-1a2b3c4", "demo-1-on-demand-0f0f0f0", "other-demo-0-spot-1a2b3c4"]
    assert [[bool(re.search(each, name)) for name in names] for each in patterns] == [
        [True, False, False],
        [False, True, False],
    ]


def get_spec(machine: str) -> ClusterSpec:
    found = load().machine(machine)
    return ClusterSpec((), node_of(found, 200), 4, (get_flavor(found, standing=False),))


def charts_of(machine: str, lustre: bool) -> dict[str, Any]:
    made = cluster_charts(
        get_spec(machine), cluster="demo", region="us-east-2",
        groups=("^demo-0",), idle_minutes=15, lustre=lustre,
    )  # fmt: skip
    return {chart.name: chart for chart in made}


def test_a_cluster_has_the_charts_that_its_machines_need() -> None:
    always = {"jobset", "kueue", "cluster-autoscaler", "aws-node-termination-handler"}
    gpus = {"nvidia-device-plugin", "dcgm-exporter"}
    assert set(charts_of("p5.48xlarge", lustre=True)) == (
        always | gpus | {"aws-efa-k8s-device-plugin", "aws-fsx-csi-driver"}
    )
    assert set(charts_of("g5.xlarge", lustre=False)) == always | gpus


def test_spot_notices_drain_a_node_and_guesses_do_not() -> None:
    values = charts_of("p5.48xlarge", lustre=False)["aws-node-termination-handler"].values
    assert values["enableSpotInterruptionDraining"] is True
    assert values["enableRebalanceDraining"] is False
    assert {"operator": "Exists"} in values["tolerations"]


def test_the_autoscaler_finds_the_clusters_groups() -> None:
    values = charts_of("p5.48xlarge", lustre=False)["cluster-autoscaler"].values
    assert values["autoDiscovery"] == {"clusterName": "demo"}
    assert values["awsRegion"] == "us-east-2"
    assert "k8s.io/cluster-autoscaler/demo" in group_tags("demo", load().machine("p5.48xlarge"), "0-spot", 200)


def test_a_volume_is_given_to_pods_without_rights() -> None:
    driver = charts_of("p5.48xlarge", lustre=True)["aws-fsx-csi-driver"]
    assert driver.values["csidriver"] == {"fsGroupPolicy": "File"}
    assert lustre_volume("fs-1.fsx", "abcd")["csi"]["volumeAttributes"] == {"dnsname": "fs-1.fsx", "mountname": "abcd"}
