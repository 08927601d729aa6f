"""The NICs of each GPU machine, and the networks they lie in."""

from collections import Counter
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.fabric import (
    MAIN,
    FabricNetwork,
    InterfacePlan,
    NcclPlugin,
    nccl_env,
    nccl_findings,
    nccl_plugin,
    plan_fabric_networks,
    plan_interfaces,
    secure_boot_allowed,
)

MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
machines = st.sampled_from(sorted(MACHINES)).map(MACHINES.__getitem__)


@pytest.mark.parametrize(
    ("machine_type", "nic_types", "networks"),
    [
        ("a2-highgpu-8g", {"GVNIC": 1}, []),
        ("a3-highgpu-1g", {"GVNIC": 1}, []),
        ("a3-highgpu-8g", {"GVNIC": 5}, [(f"gpu-{n}", 1, 8244, None) for n in range(1, 5)]),
        ("a3-megagpu-8g", {"GVNIC": 9}, [(f"gpu-{n}", 1, 8244, None) for n in range(1, 9)]),
        *(
            (name, {"GVNIC": 2, "MRDMA": 8}, [("host-1", 1, 8896, None), ("rdma", 8, 8896, "us-east4-b-vpc-roce")])
            for name in ("a3-ultragpu-8g", "a4-highgpu-8g")
        ),
    ],
)
def test_the_documented_layouts(
    machine_type: str, nic_types: dict[str, int], networks: list[tuple[str, int, int, str | None]]
) -> None:
    machine = MACHINES[machine_type]
    assert Counter(interface.nic_type for interface in plan_interfaces(machine)) == nic_types
    assert plan_fabric_networks(machine, "us-east4-b") == tuple(FabricNetwork(*network) for network in networks)


def test_the_host_nics_come_first() -> None:
    first, second, third, *_, last = plan_interfaces(MACHINES["a3-ultragpu-8g"])
    assert first == InterfacePlan(0, "GVNIC", MAIN, 0)
    assert second == InterfacePlan(1, "GVNIC", "host-1", 0)
    assert third == InterfacePlan(2, "MRDMA", "rdma", 0)
    assert last == InterfacePlan(9, "MRDMA", "rdma", 7)


@given(machines, st.sampled_from(["us-central1-a", "europe-west4-b"]))
def test_every_nic_has_a_subnet_of_its_own(machine: GcpMachineType, zone: str) -> None:
    interfaces, networks = plan_interfaces(machine), plan_fabric_networks(machine, zone)
    assert [interface.index for interface in interfaces] == list(range(len(interfaces)))
    assert interfaces[0].network == MAIN
    places = [(interface.network, interface.subnet) for interface in interfaces]
    assert len(set(places)) == len(places)
    # The order of the subnets that a network declares is that of the NICs: one list serves both.
    assert places[1:] == [(network.name, subnet) for network in networks for subnet in range(network.num_subnets)]
    for network in networks:
        rdma = [i.nic_type == "MRDMA" for i in interfaces if i.network == network.name]
        assert all(rdma) == any(rdma) == (network.profile is not None), "an RDMA network takes nothing else"
        assert network.takes_firewall_rules == (network.profile is None)
        assert network.profile is not None or network.num_subnets == 1, "one NIC of a machine in an ordinary network"
        assert 1300 <= network.mtu_bytes <= 8896, "what a VPC takes"
    assert len(interfaces) <= 10, "address ranges are planned for so many"


@given(machines)
def test_a_machine_without_a_fabric_has_one_nic(machine: GcpMachineType) -> None:
    assert (len(plan_interfaces(machine)) == 1) == (machine.gpu_fabric is None)


WITH_PLUGIN = {"a3-highgpu-8g": "tcpx", "a3-megagpu-8g": "tcpxo", "a3-ultragpu-8g": "gib", "a4-highgpu-8g": "gib"}


def plugin_of(machine_type: str) -> NcclPlugin:
    plugin = nccl_plugin(MACHINES[machine_type], own_image=True)
    assert plugin is not None
    return plugin


@pytest.mark.parametrize("machine_type", sorted(MACHINES))
def test_each_fabric_has_its_plugin(machine_type: str) -> None:
    plugin = nccl_plugin(MACHINES[machine_type], own_image=True)
    assert (plugin and plugin.name) == WITH_PLUGIN.get(machine_type)


@pytest.mark.parametrize("machine_type", WITH_PLUGIN)
def test_a_plugin_is_pinned_mounted_and_on_the_library_path(machine_type: str) -> None:
    plugin = plugin_of(machine_type)
    images = [plugin.image, *([plugin.side.image] if plugin.side else [])]
    for image in images:
        assert image.startswith("us-docker.pkg.dev/gce-ai-infra/"), "which Private Google Access reaches"
        assert image.rpartition(":")[2].startswith("v"), "a version, never latest"
    libraries = plugin.env["LD_LIBRARY_PATH"]
    assert any(libraries.startswith(volume.target) for volume in plugin.volumes)
    assert any(volume.source.startswith(plugin.host_dir) for volume in plugin.volumes)
    assert any(plugin.host_dir.startswith(volume.target) for volume in plugin.install_volumes)
    assert not plugin.env_script or any(plugin.env_script.startswith(volume.target) for volume in plugin.volumes)
    assert plugin.source.startswith("https://github.com/GoogleCloudPlatform/")
    assert nccl_env(MACHINES[machine_type], own_image=True) == plugin.env
    network = {"gib": "gIB", "tcpxo": "FasTrak", "tcpx": "GPUDirectTCPX_v7"}[plugin.name]
    assert plugin.env["NCCL_NET"] == network, "or NCCL would go on over TCP where the plug-in does not load"


@pytest.mark.parametrize(
    ("machine_type", "variable"),
    [("a3-highgpu-8g", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"), ("a3-megagpu-8g", "NCCL_FASTRAK_IFNAME")],
)
def test_every_gpu_nic_is_named_once(machine_type: str, variable: str) -> None:
    plugin, gpu_nics = plugin_of(machine_type), len(plan_interfaces(MACHINES[machine_type])) - 1
    names = plugin.env[variable].split(",")
    assert len(set(names)) == len(names) == gpu_nics
    assert plugin.env["NCCL_SOCKET_IFNAME"] not in names, "the host's own NIC carries the rendezvous"
    assert plugin.env["GLOO_SOCKET_IFNAME"] == plugin.env["NCCL_SOCKET_IFNAME"], "and what workers agree on"
    for key, value in plugin.env.items():
        if key.endswith("_BINDINGS"):
            assert [binding.partition(":")[0] for binding in value.split(";")] == names


def test_tcpx_sends_and_receives_on_different_cpus() -> None:
    def cpus(spans: str) -> set[int]:
        ends = [span.split("-") for span in spans.split(",")]
        return {cpu for first, last in ends for cpu in range(int(first), int(last) + 1)}

    env = plugin_of("a3-highgpu-8g").env
    bindings = [
        dict(part.split(":") for part in env[f"NCCL_GPUDIRECTTCPX_{way}_BINDINGS"].split(";")) for way in ("TX", "RX")
    ]
    for nic in bindings[0]:
        sending, receiving = cpus(bindings[0][nic]), cpus(bindings[1][nic])
        assert not sending & receiving
        assert max(sending | receiving) < MACHINES["a3-highgpu-8g"].vcpus.value


def test_the_daemon_and_the_job_share_their_sockets() -> None:
    tcpx = plugin_of("a3-highgpu-8g")
    assert tcpx.side is not None
    sockets = tcpx.env["NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"]
    assert sockets in {volume.target for volume in tcpx.side.volumes} & {volume.target for volume in tcpx.volumes}
    assert tcpx.side.args[-2:] == ("--uds_path", sockets)
    tcpxo = plugin_of("a3-megagpu-8g")
    assert tcpxo.side is not None
    assert tcpxo.side.devices == ("/dev/dmabuf_import_helper",), "what its kernel module makes"
    assert tcpxo.host.kernel_modules == ("import-helper",)
    assert plugin_of("a4-highgpu-8g").side is None


def test_without_its_kernel_tcpx_stays_away_and_the_plan_says_so() -> None:
    machine = MACHINES["a3-highgpu-8g"]
    assert nccl_plugin(machine) is None, "NCCL_NET would name a network that is not there, and NCCL would stop"
    assert nccl_env(machine) == {}
    (finding,) = nccl_findings(machine, False, 2, "gangway:cluster.machine_type", "2.30.7")
    assert (finding.severity, finding.code) == ("warning", "fabric.kernel")
    assert "linux-gcp-tcpx" in finding.message
    assert not nccl_findings(machine, True, 2, "x", "2.19.4"), "an image of one's own has it"
    assert not nccl_findings(machine, False, 1, "x", "2.30.7"), "one node talks to nobody"


@pytest.mark.parametrize(("machine_type", "name"), [("a3-megagpu-8g", "tcpxo"), ("a3-highgpu-8g", "tcpx")])
def test_a_plugin_qualified_for_another_nccl_is_told(machine_type: str, name: str) -> None:
    machine, qualified = MACHINES[machine_type], plugin_of(machine_type).qualified_nccl
    (finding,) = nccl_findings(machine, True, 2, "x", "2.30.7")
    assert (finding.severity, finding.code) == ("warning", "fabric.nccl-unproven")
    assert all(word in finding.message for word in (name, qualified, "2.30.7"))
    library = f"{plugin_of(machine_type).env['LD_LIBRARY_PATH']}/libnccl.so.2"
    assert library in (finding.message if name == "tcpxo" else finding.fix), "preloaded, or to be preloaded"
    assert not nccl_findings(machine, True, 2, "x", qualified)
    assert not nccl_findings(machine, True, 1, "x", "2.30.7")


def test_the_qualified_nccl_is_preloaded_from_where_the_plugin_installs_it() -> None:
    plugin = plugin_of("a3-megagpu-8g")
    assert "--install-nccl" in plugin.install_args
    (volume,) = [one for one in plugin.volumes if plugin.env["LD_PRELOAD"].startswith(f"{one.target}/")]
    assert volume.read_only
    assert plugin.env["GANGWAY_NCCL_QUALIFIED"] == plugin.qualified_nccl
    assert "LD_PRELOAD" not in plugin_of("a3-highgpu-8g").env, "older than any that this torch knows"
    assert "LD_PRELOAD" not in plugin_of("a3-ultragpu-8g").env, "the plug-in names no version"


@pytest.mark.parametrize("machine_type", sorted(set(MACHINES) - {"a3-highgpu-8g", "a3-megagpu-8g"}))
def test_nothing_is_said_of_machines_that_work(machine_type: str) -> None:
    assert not nccl_findings(MACHINES[machine_type], False, 4, "x", "2.30.7")


@pytest.mark.parametrize(
    ("machine_type", "net"),
    [("a3-highgpu-8g", "GPUDirectTCPX_v7"), ("a3-megagpu-8g", "FasTrak"), ("a4-highgpu-8g", "gIB")],
)
def test_every_plugin_is_named_so_that_nccl_never_goes_on_without_it(machine_type: str, net: str) -> None:
    assert plugin_of(machine_type).env["NCCL_NET"] == net


def test_daemon_and_plugin_are_a_pair() -> None:
    """TCPXO's must fit each other: whoever raises one has to look the other up."""
    plugin = plugin_of("a3-megagpu-8g")
    assert plugin.side is not None
    assert [image.rpartition(":")[2] for image in (plugin.image, plugin.side.image)] == ["v1.0.17", "v1.0.23"]


@pytest.mark.parametrize(
    ("machine_type", "own_image", "allowed"),
    [
        ("a2-highgpu-8g", False, True),
        ("a3-highgpu-8g", False, True),
        ("a3-highgpu-8g", True, False),
        ("a3-megagpu-8g", False, False),
        ("a3-ultragpu-8g", False, True),
    ],
)
def test_secure_boot_only_where_everything_is_signed(machine_type: str, own_image: bool, allowed: bool) -> None:
    assert secure_boot_allowed(MACHINES[machine_type], own_image=own_image) is allowed
