"""Any stack file for OpenStack: a plan that is valid JSON and can be shown, or mistakes with a place and a fix.

As `test_plan_properties.py` for AWS: every section is drawn with every key it has, those of other providers among them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.presets import PRESETS

Settings = dict[str, Any]

ONE, OTHER = "11111111-0000-4000-8000-111111111111", "22222222-0000-4000-8000-222222222222"
IMAGE = f"registry.example.com/gan/trainer@sha256:{'0a' * 32}"


def some(
    fixed: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Settings]:
    """Mappings with all keys of `fixed` and any of `optional`."""
    return st.fixed_dictionaries(dict(fixed), optional=optional)


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
JOB = some(
    {"preset": st.sampled_from(sorted(PRESETS)), "kimg": st.floats(1e-3, 1e6), "max_hours": st.floats(0.01, 672)},
    terminate_when_done=st.booleans(),
)
OWN = {
    "auth_url": st.sampled_from([*["https://c.example.com:5000/v3", "http://10.0.0.1/identity/v3/"] * 8, "https://c"]),
    "image": st.sampled_from([ONE, "ubuntu", 'a\'b "c"']),
    "external_network_id": st.just(OTHER),
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
    storage = draw(st.sampled_from([{"kind": "manila", "capacity_gib": 100}, {}]))
    volume = draw(st.booleans())
    section = {
        **OWN,
        **({"service_cidrs": st.just(["192.0.2.0/24", "198.51.100.0/25"])} if egress == "endpoints" else {}),
        **({"boot": st.just("volume")} if volume else {}),
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        **({"volume_type": st.just("luks")} if volume else {}),
        **({"rdma_network_id": st.just(OTHER)} if site.get("fabric", {}).get("kind", "none") != "none" else {}),
        **({"head_image": st.sampled_from([OTHER, "debian"])} if several else {}),
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
        "placement": st.sampled_from(["affinity", "soft-anti-affinity"]),
        "access_rules": st.booleans(),
        "object_role": st.just("swiftoperator"),
    }
    sections = some(
        {"budget": BUDGET, "job": JOB, "tags": TAGS, "openstack": some(section, **optional)},
        encryption=st.sampled_from([*["provider-key"] * 7, "customer-key"]),
    )
    return {
        **{"provider": "openstack", "region": "RegionOne", "cluster": cluster, "site": site, "storage": storage},
        **{"image": {"prebuilt": IMAGE}, "head": {"machine_type": "m1.medium"} if several else {}},
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
