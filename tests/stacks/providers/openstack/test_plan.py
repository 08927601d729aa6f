"""What a configuration means on OpenStack before anything is declared: flavour, fabric, addresses, disks, job."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.openstack.plan import data_dir, fabric_min_gbps, job_spec, plan
from gangway.trainer.records.run_record import RunContext
from tests.stacks.drawn import JOB, Settings, some

Edited = Callable[..., StackConfig]
IMAGE, OTHER = "33333333-0000-4000-8000-333333333333", "44444444-0000-4000-8000-444444444444"
DIGEST = f"sha256:{'0a' * 32}"


def test_the_shipped_stack(config: StackConfig) -> None:
    planned = plan(config)
    assert (planned.machine.name, planned.machine.accelerator, planned.num_machines) == ("gpu.h100x8", "H100x8", 4)
    assert (planned.fabric.link_layer, planned.fabric.gbps, planned.rdma_ports) == ("Ethernet", 3200, 8)
    assert (planned.head, planned.boot_volume_gib, planned.zone) == (True, None, "")
    assert planned.network.head == "10.42.0.10"
    assert planned.tags["gangway:stack"] == "openstack-gpu"
    assert planned.tags["gangway:carbon-class"] == "medium"
    assert (planned.region.name, planned.region.intensity_g_per_kwh.value) == ("RegionOne", 380)


def test_the_job_is_what_the_nodes_run(config: StackConfig, made: Plan) -> None:
    spec = job_spec(config, plan(config), f"x@{DIGEST}")
    assert (spec.backend, spec.processes_per_node, spec.num_nodes_max) == ("nccl", 8, 4)
    assert (spec.rendezvous.host, spec.rendezvous.port) == ("10.42.0.10", 29400)
    assert spec.env["NCCL_NET"] == "IB"
    assert {volume.target for volume in spec.volumes} == {"/shared"}
    training = made.job["training"]
    assert (training["fabric_min_gbps"], training["run_dir"]) == (800, "/shared/runs/openstack-gpu")
    assert training["data_dir"] == ""


def test_one_node_alone_needs_no_head(edited: Edited, alone: dict[str, Any]) -> None:
    config = edited(**alone)
    planned = plan(config)
    assert (planned.head, planned.num_machines, planned.fabric.num_devices) == (False, 1, 0)
    spec = job_spec(config, planned, f"x@{DIGEST}")
    assert spec.rendezvous.standalone
    assert {volume.target for volume in spec.volumes} == {"/var/lib/gangway"}
    assert "NCCL_NET" not in spec.env


def test_what_is_trained_on_is_on_the_share(edited: Edited) -> None:
    config = edited(openstack={"data_dir": "images/celeba"})
    assert data_dir(config) == "/shared/images/celeba"
    assert job_spec(config, plan(config), f"x@{DIGEST}").data_dir == "/shared/images/celeba"


@pytest.mark.parametrize("rung", [{"kind": "on-demand"}, {"kind": "reservation", "id": IMAGE}])
def test_the_record_knows_what_an_hour_costs_its_owner(edited: Edited, rung: dict[str, str]) -> None:
    config = edited(cluster={"capacity": [rung]})
    context = RunContext.model_validate_json(job_spec(config, plan(config), f"x@{DIGEST}").env["GANGWAY_CONTEXT"])
    assert (context.provider, context.machine_type, context.num_nodes) == ("openstack", "gpu.h100x8", 4)
    assert context.usd_per_hour is not None
    assert (context.usd_per_hour.value, context.image_digest) == (14.5, DIGEST)
    assert "stated by the stack file" in context.usd_per_hour.source


def test_missing_figures_are_unknown(edited: Edited) -> None:
    config = edited(site={"usd_per_node_hour": None})
    context = RunContext.model_validate_json(job_spec(config, plan(config), f"x@{DIGEST}").env["GANGWAY_CONTEXT"])
    assert context.usd_per_hour is not None
    assert context.usd_per_hour.value is None


def test_what_is_tested_before_the_job(edited: Edited, alone: dict[str, Any]) -> None:
    def least(**sections: Any) -> float | None:
        config = edited(**sections)
        return fabric_min_gbps(config, plan(config))

    assert least(cluster={"fabric_check": {"min_fraction": 0.5}}) == 1600
    assert least(cluster={"fabric_check": {"enabled": False}}) is None
    assert least(**alone) is None


def test_adapters_may_be_the_flavours(edited: Edited) -> None:
    planned = plan(edited(openstack={"rdma_network_id": None}))
    assert (planned.fabric.num_devices, planned.rdma_ports) == (8, 0)


def test_a_volume_has_the_size_that_is_written(edited: Edited) -> None:
    own = {"boot": "volume", "image": IMAGE, "head_image": OTHER, "volume_type": "luks"}
    assert plan(edited(openstack=own)).boot_volume_gib == 200
    assert plan(edited(openstack=own, cluster={"root_volume_gib": 400})).boot_volume_gib == 400


VOLUME = {"boot": "volume", "head_image": OTHER}
MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "spot": ({"cluster": {"capacity": [{"kind": "spot"}]}}, "cluster.capacity[0].kind", "write kind: on-demand"),
    "two rungs": (
        {"cluster": {"capacity": [{"kind": "reservation", "id": IMAGE}, {"kind": "on-demand"}]}},
        "cluster.capacity", "keep reservation alone",
    ),
    "an accelerator is no flavour": (
        {"cluster": {"machine_type": None, "accelerator": "H100x8"}}, "cluster.machine_type",
        "replace accelerator by machine_type",
    ),
    "no flavour for the head": ({"head": {"machine_type": None}}, "head.machine_type", "openstack flavor list"),
    "a range": ({"network": {"cidr": "10.0.0.0/8"}}, "network.cidr", "10.42.0.0/16"),
    "no way out": ({"network": {"egress": "endpoints"}}, "openstack.service_cidrs", "egress: nat"),
    "ranges of no use": ({"openstack": {"service_cidrs": ["192.0.2.0/24"]}}, "openstack.service_cidrs", "leave"),
    "a name server": ({"openstack": {"dns_nameservers": ["dns"]}}, "openstack.dns_nameservers[0]", "DNS server"),
    "a key of one's own": ({"encryption": "customer-key"}, "encryption", "volume_type"),
    "a named image on a volume": (
        {"openstack": {**VOLUME, "image": "ubuntu"}}, "openstack.image", "openstack image show",
    ),
    "a named image of the head on a volume": (
        {"openstack": {**VOLUME, "image": IMAGE, "head_image": "ubuntu"}}, "openstack.head_image", "'ubuntu'",
    ),
    "a server for native CephFS": (
        {"openstack": {"share_network": True, "share_protocol": "CEPHFS"}}, "openstack.share_network", "leave",
    ),
    "a disk of the flavour's": (
        {"cluster": {"root_volume_gib": 300}}, "cluster.root_volume_gib", "remove root_volume_gib",
    ),
    "a type of no volume": ({"openstack": {"volume_type": "luks"}}, "openstack.volume_type", "remove volume_type"),
    "ports of no network": (
        {"openstack": {"rdma_network_id": None, "rdma_vnic_type": "direct-physical"}}, "openstack.rdma_vnic_type",
        "remove rdma_vnic_type",
    ),
    "ports of no fabric": ({"site": {"fabric": None}}, "openstack.rdma_network_id", "remove rdma_network_id"),
    "a board nobody knows": (
        {"site": {"accelerator": "B99x8"}}, "site.accelerator_watts", "accelerator_watts",
    ),
    "a tag Nova refuses": ({"tags": {"o/wner": "x"}}, "tags.o/wner", "remove the characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_place_and_the_way_out(edited: Edited, name: str) -> None:
    changes, place, fix = MISTAKES[name]
    with pytest.raises(InputError) as caught:
        plan(edited(**changes))
    assert caught.value.place == f"gangway:{place}"
    assert fix in caught.value.fix


@pytest.mark.parametrize("name", ["share_type", "share_network", "data_dir", "share_protocol"])
def test_a_share_is_needed_for_its_settings(edited: Edited, alone: dict[str, Any], name: str) -> None:
    value = {"share_type": "t", "share_network": True, "data_dir": "d", "share_protocol": "CEPHFS"}[name]
    with pytest.raises(InputError, match=rf"openstack\.{name}: no effect without gangway:storage"):
        plan(edited(**{**alone, "openstack": {**alone["openstack"], name: value}}))


@pytest.mark.parametrize(("section", "name"), [("openstack", "head_image"), ("head", "machine_type")])
def test_a_head_is_needed_for_its_settings(edited: Edited, alone: dict[str, Any], section: str, name: str) -> None:
    changed = {**alone, section: {**(alone[section] or {}), name: "small"}}
    with pytest.raises(InputError, match=rf"{section}\.{name}: no effect without a rendezvous of several nodes"):
        plan(edited(**changed))


DOOR: dict[str, tuple[dict[str, Any], str, str]] = {
    "no section": ({"openstack": None}, "gangway:openstack", "auth_url"),
    "no site": ({"site": None}, "gangway:site", "accelerator: H100x8"),
    "no image of the trainer": ({"image": None}, "gangway:image.prebuilt", "gangway dockerfile cuda > Dockerfile"),
    "a word": ({"openstack": {"placement": "afinity"}}, "gangway:openstack.placement", "affinity"),
    "Keystone's old API": (
        {"openstack": {"auth_url": "https://c:5000/v2.0"}}, "gangway:openstack.auth_url",
        "https://cloud.example.com:5000/v3",
    ),
    "Lustre": ({"storage": {"kind": "lustre"}}, "gangway:storage.kind", "set kind: manila"),
    "a source": ({"storage": {"source": "s3://my-bucket/x"}}, "gangway:storage.source", "leave source out"),
    "a stop": ({"budget": {"stop_at_percent": 100}}, "gangway:budget.stop_at_percent", "leave stop_at_percent out"),
    "an image of AWS": (
        {"cluster": {"image_id": "ami-0123456789abcdef0"}}, "gangway:cluster.image_id", "leave image_id out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOOR)
def test_refused_settings(edited: Edited, name: str) -> None:
    changes, place, said = DOOR[name]
    with pytest.raises(ExceptionGroup) as caught:
        edited(**changes)
    mistakes = [mistake for mistake in caught.value.exceptions if isinstance(mistake, InputError)]
    assert place in [mistake.place.rpartition(": ")[2] for mistake in mistakes], mistakes
    assert any(said in str(mistake) for mistake in mistakes), mistakes


def test_manila_is_openstacks_alone(gcp_edited: Edited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited("aws-demo", storage={"kind": "manila"})
    assert any("allowed: lustre" in str(mistake) for mistake in caught.value.exceptions)


ONE, OTHER_ID = "11111111-0000-4000-8000-111111111111", "22222222-0000-4000-8000-222222222222"
DRAWN_IMAGE = f"registry.example.com/gan/trainer@sha256:{'0a' * 32}"


# Mostly right, here and below: a file with ten sections is told for the first thing that is wrong.
RUNG = st.sampled_from(
    [
        *[{"kind": "on-demand"}, {"kind": "reservation", "id": ONE}] * 8,
        {"kind": "spot"}, {"kind": "reservation", "id": "cr-1"}, {"kind": "on-demand", "zones": ["a"]},
    ]
)  # fmt: skip
CLUSTER = some(
    {
        "machine_type": st.sampled_from(["gpu.h100x8", f"reservation:{ONE}", "f" * 200]),
        "nodes": st.tuples(st.integers(1, 4), st.sampled_from([*[0, 1] * 5, 200])).map(
            lambda n: {"min": n[0], "max": n[0] + n[1]}
        ),
        "capacity": st.lists(RUNG, min_size=1, max_size=1) | st.lists(RUNG, min_size=1, max_size=2),
    },
    zone=st.sampled_from(["nova", "az-1"]),
    fabric_check=some({}, enabled=st.booleans(), min_fraction=st.floats(1e-9, 1)),
)
FABRIC = st.sampled_from(
    [{"kind": "none"}, {"kind": "roce", "devices": 8, "gbps": 400}, {"kind": "infiniband", "devices": 2, "gbps": 56.25}]
)
SITE = some(
    {
        "as_of": st.just("2026-11-01"),
        "accelerator": st.sampled_from([*["H100x8", "A100x4", "L4x1"] * 5, "B99x8"]),
        "vcpus": st.integers(1, 512),
        "memory_gib": st.integers(1, 4096),
        "interconnect": st.sampled_from(["nvswitch", "nvlink", "pcie"]),
        "accelerator_watts": st.floats(1, 2000),
    },
    fabric=FABRIC,
    usd_per_node_hour=st.floats(0, 100),
    pue=st.floats(1, 3),
    intensity_g_per_kwh=st.floats(0, 1200),
    interface=st.just("bond0"),
)
BUDGET = some(
    {"monthly_usd": st.sampled_from([*[1e12] * 15, 50]), "emails": st.just(["ml@example.com"])},
    alert_percent=st.lists(st.floats(1, 1000), max_size=3),
)
OWN = {
    "auth_url": st.sampled_from([*["https://c.example.com:5000/v3", "http://10.0.0.1/identity/v3/"] * 8, "https://c"]),
    "image": st.sampled_from([ONE, "ubuntu", 'a\'b "c"']),
    "external_network_id": st.just(OTHER_ID),
}
TAGS = some(
    {"team": st.just("ml-platform"), "cost_center": st.just("4711")},
    owner=st.sampled_from([*["a-b", "A, B", "", "x" * 255] * 5, "x" * 256]),
)


@st.composite
def stack_settings(draw: st.DrawFn) -> Settings:
    """The `config:` mapping of a stack file in which each value may stand where it is."""
    cluster, site = draw(CLUSTER), draw(SITE)
    several = cluster["nodes"]["max"] > 1
    egress = draw(st.sampled_from(["nat", "endpoints"]))
    has_ranges = (egress == "endpoints") != draw(st.sampled_from([*[False] * 15, True]))
    storage = draw(st.sampled_from([{"kind": "manila", "capacity_gib": 100}, {}]))
    volume = draw(st.booleans())
    section = {
        **OWN,
        **({"service_cidrs": st.just(["192.0.2.0/24", "198.51.100.0/25"])} if has_ranges else {}),
        **({"boot": st.just("volume")} if volume else {}),
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        **({"volume_type": st.just("luks")} if volume else {}),
        **({"rdma_network_id": st.just(OTHER_ID)} if site.get("fabric", {}).get("kind", "none") != "none" else {}),
        **({"head_image": st.sampled_from([OTHER_ID, "debian"])} if several else {}),
    }
    if storage:
        optional |= {
            "share_network": st.booleans(),
            "share_protocol": st.sampled_from(["NFS", "CEPHFS"]),
            "data_dir": st.sampled_from(["celeba", "a/b"]),
        }
    optional |= {
        "cloud": st.just("lab"),
        "dns_nameservers": st.sampled_from([["192.0.2.53"], ["dns"]]),
        "placement": st.sampled_from(["soft-affinity", "affinity", "anti-affinity", "soft-anti-affinity"]),
        "access_rules": st.booleans(),
        "object_role": st.just("swiftoperator"),
    }
    sections = some(
        {"budget": BUDGET, "job": JOB, "tags": TAGS, "openstack": some(section, **optional)},
        encryption=st.sampled_from([*["provider-key"] * 7, "customer-key"]),
    )
    return {
        **{"provider": "openstack", "region": "RegionOne", "cluster": cluster, "site": site, "storage": storage},
        **{"image": {"prebuilt": DRAWN_IMAGE}, "head": {"machine_type": "m1.medium"} if several else {}},
        "network": {"egress": egress, "cidr": draw(st.sampled_from(["10.42.0.0/16", "172.16.0.0/20"]))},
        **draw(sections),
    }


@settings(
    max_examples=settings().max_examples * 2 // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=stack_settings(), mistakes=st.sampled_from([*[0] * 8, 1, 2]), data=st.data())
def test_any_stack_file_is_planned_or_refused(
    planned_or_told: Callable[..., Plan | None], values: Settings, mistakes: int, data: st.DataObject
) -> None:
    plan = planned_or_told(values, mistakes, data)
    event("refused" if plan is None else f"RDMA: {'NCCL_NET' in plan.job['env']}")
