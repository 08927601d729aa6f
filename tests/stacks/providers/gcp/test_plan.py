"""What a configuration means on Google Cloud before anything is declared: nodes, zone, labels, image, job."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.gcp.plan import job_spec, plan, reservation_name
from gangway.trainer.records.run_record import RunContext
from tests.stacks.drawn import DIGEST as DRAWN_DIGEST
from tests.stacks.drawn import JOB, Settings, some

GPU, POD, SLICES = "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"
Configs = dict[str, StackConfig]
Edited = Callable[..., StackConfig]
DIGEST = f"sha256:{'0a' * 32}"


def test_gpu_machines_lie_in_the_first_zone_that_has_them(gcp_configs: Configs) -> None:
    planned = plan(gcp_configs[GPU])
    assert (planned.machine.name, planned.tpu, planned.num_machines) == ("a3-megagpu-8g", None, 4)
    assert (planned.zone, planned.head, planned.project) == ("us-central1-a", True, "my-project")
    assert planned.tags == {
        "team": "ml-platform",
        "cost_center": "4711",
        "gangway-stack": "gcp-a3-spot",
        "gangway-run": "shared",
        "gangway-energy-class": "h100x8",
        "gangway-carbon-class": "high",
    }


def test_slices_are_nodes_of_several_machines(gcp_configs: Configs) -> None:
    planned = plan(gcp_configs[SLICES])
    assert planned.tpu is not None
    assert (planned.tpu.chips, planned.tpu.topology, planned.tpu.default_topology) == (32, "2x4x4", True)
    assert (planned.machine.name, planned.num_machines, planned.head) == ("v5p-64", 16, False)
    assert planned.zone == "us-east5-a"
    assert planned.repository_id == "projects/my-project/locations/us-east5/repositories/gan"
    (rung,) = gcp_configs[SLICES].cluster.capacity
    assert reservation_name(rung, "my-project", "us-east5-a") == (
        "projects/my-project/locations/us-east5-a/reservations/gan-v5p"
    )


@pytest.mark.parametrize(("name", "least"), [(GPU, 450), (POD, None)])
def test_the_job_is_what_the_machines_run(
    gcp_configs: Configs, gcp_plans: dict[str, Plan], name: str, least: Any
) -> None:
    job = gcp_plans[name].job
    training = job["training"]
    assert (training["fabric_min_gbps"], training["run_dir"]) == (least, f"/shared/runs/{name}")
    spec = job_spec(gcp_configs[name], plan(gcp_configs[name]), f"x@{DIGEST}")
    if name == GPU:
        assert (job["backend"], job["num_nodes_min"], job["num_nodes_max"]) == ("nccl", 2, 4)
        assert spec.rendezvous.host == "head.gcp-a3-spot.gangway.internal"
        assert "NCCL_FASTRAK_IFNAME" in spec.env
        assert "/var/lib/tcpxo/lib64" in {volume.target for volume in spec.volumes}
    else:
        assert (job["backend"], job["num_nodes_min"], job["num_nodes_max"]) == ("xla", 16, 16)
        assert training["config"]["backend"] == "xla"
        assert spec.num_nodes_max * spec.processes_per_node == 64
        assert [name for name in spec.env if name.startswith("MEGASCALE")] == [], "Google sets them in the metadata"


def test_the_record_counts_machines_and_not_slices(gcp_configs: Configs) -> None:
    """Dollars of a record are hours times machines times a machine's price."""
    config = gcp_configs[POD]
    spec = job_spec(config, plan(config), f"x@{DIGEST}")
    context = RunContext.model_validate_json(spec.env["GANGWAY_CONTEXT"])
    assert (context.provider, context.machine_type, context.num_nodes) == ("gcp", "v5litepod-64", 16)
    assert context.image_digest == DIGEST
    price, watts, host = context.usd_per_hour, context.accelerator_watts, context.host_watts
    assert price is not None
    assert price.value == pytest.approx(4 * 0.525363), "four chips of a host, on spot"
    assert watts is not None
    assert (watts.value, watts.provenance) == (None, "absent")
    assert "no power figure" in str(watts)
    assert host is not None
    assert host.value == 581


ZONE = {"cluster": {"zone": "us-central1-b"}}


def test_a_zone_that_was_chosen_needs_no_reason(gcp_edited: Edited) -> None:
    planned = plan(gcp_edited(GPU, **ZONE))
    assert (planned.zone, planned.zone_reason) == ("us-central1-b", "")


def test_a_reservations_zone_is_the_clusters(gcp_edited: Edited) -> None:
    rung = {"kind": "reservation", "id": "projects/their-project/reservations/r1", "zone": "us-east5-b"}
    config = gcp_edited(SLICES, cluster={"capacity": [rung]})
    planned = plan(config)
    assert planned.zone == "us-east5-b"
    assert (
        reservation_name(config.cluster.capacity[0], "my-project", "us-east5-b")
        == "projects/their-project/locations/us-east5-b/reservations/r1"
    )


def test_one_node_with_a_fallback_has_a_head_that_fills_it(gcp_edited: Edited) -> None:
    one = gcp_edited(GPU, cluster={"nodes": {"min": 1, "max": 1}})
    planned = plan(one)
    assert planned.head
    assert job_spec(one, planned, f"x@{DIGEST}").rendezvous.standalone
    alone = gcp_edited(GPU, cluster={"nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "spot"}]})
    assert not plan(alone).head


FULL_RESERVATION = "projects/their-project/locations/us-east5-a/reservations/r"
MISTAKES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "region": (GPU, {"region": "us-central9"}, "gangway:region", "us-central1"),
    "machine type": (
        GPU, {"cluster": {"machine_type": "a3-megagpu-8"}}, "gangway:cluster.machine_type", "a3-megagpu-8g",
    ),
    "two types carry it": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "H100x8"}}, "gangway:cluster.accelerator",
        "write machine_type: a3-megagpu-8g",
    ),
    "a topology beside GPUs": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "A100x8", "topology": "4x4"}},
        "gangway:cluster.topology", "leave topology out",
    ),
    "zone": (GPU, {"cluster": {"zone": "us-central1-z"}}, "gangway:cluster.zone", "set zone: us-central1-a"),
    "zone of a reservation": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "r", "zone": "us-west1-a"}]}},
        "gangway:cluster.capacity[0].zone", "set gangway:region: us-west1",
    ),
    "zones of a rung": (
        GPU, {"cluster": {"capacity": [{"kind": "spot"}, {"kind": "on-demand", "zones": ["us-east5-a"]}]}},
        "gangway:cluster.capacity[1].zones", "set gangway:region: us-east5",
    ),
    "a reservation as the API writes it": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": FULL_RESERVATION}]}},
        "gangway:cluster.capacity[0].id", "write id: projects/their-project/reservations/r, zone: us-east5-a",
    ),
    "a block of a reservation for slices": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "r/reservationBlocks/b"}]}},
        "gangway:cluster.capacity[0].id", "write id: r",
    ),
    "a block of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}},
        "gangway:cluster.capacity[0].kind", "write {kind: reservation, id: NAME}",
    ),
    "head": (GPU, {"head": {"machine_type": "e2-medum"}}, "gangway:head.machine_type", "did you mean 'e2-medium'?"),
    "lustre size": (GPU, {"storage": {"capacity_gib": 9600}}, "gangway:storage.capacity_gib", "18000"),
    "lustre scratch": (
        GPU, {"storage": {"deployment": "scratch"}}, "gangway:storage.deployment", "leave deployment out",
    ),
    "filestore size": (POD, {"storage": {"capacity_gib": 100}}, "gangway:storage.capacity_gib", "2560"),
    "a block": (
        GPU, {"cluster": {"capacity": [{"kind": "capacity-block", "id": "cr-0123456789abcdef0"}]}},
        "gangway:cluster.capacity[0].kind", "flex-start",
    ),
    "flex-start of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "flex-start", "max_hours": 4}]}}, "gangway:cluster.capacity[0].kind",
        "write {kind: on-demand}",
    ),
    "two rungs of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}]}}, "gangway:cluster.capacity",
        "keep one of them",
    ),
    "zones of TPUs": (
        POD, {"cluster": {"capacity": [{"kind": "spot", "zones": ["us-west4-a"]}]}}, "gangway:cluster.capacity[0]",
        "gangway:cluster.zone names the zone",
    ),
    "a slice of no size": (
        POD, {"cluster": {"accelerator": "v5litepod-63"}}, "gangway:cluster.accelerator", "v5litepod-64",
    ),
    "a generation by its nickname": (
        POD, {"cluster": {"accelerator": "v5e-64"}}, "gangway:cluster.accelerator", "v5litepod-64",
    ),
    "a topology of another size": (
        SLICES, {"cluster": {"topology": "4x4x4"}}, "gangway:cluster", "topologies of 32 chips: 2x4x4",
    ),
    "a currency without an amount": (GPU, {"gcp": {"currency": "EUR"}}, "gangway:gcp", "add monthly_amount"),
    "an amount without a currency": (GPU, {"gcp": {"monthly_amount": 9}}, "gangway:gcp", "add currency: EUR"),
    "dollars twice": (
        GPU, {"gcp": {"currency": "USD", "monthly_amount": 9}}, "gangway:gcp.currency", "leave currency and",
    ),
    "a slice in capitals": (
        POD, {"cluster": {"accelerator": "V6E-8"}}, "gangway:cluster.accelerator",
        "v4-NUMBER, v5litepod-NUMBER, v5p-NUMBER, v6e-NUMBER write v6e-8",
    ),
    "an accelerator of nobody": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "v6e"}}, "gangway:cluster.accelerator",
        "; TPUs: v4-NUMBER, ",
    ),
    "a reservation of no project, for slices": (
        SLICES, {"cluster": {"capacity": [{"kind": "reservation", "id": "projects/other/reservations/r"}]}},
        "gangway:cluster.capacity[0].id", "an id of 6 to 30",
    ),
    "a reservation of no project": (
        GPU, {"cluster": {"capacity": [{"kind": "reservation", "id": "projects/other/reservations/r"}]}},
        "gangway:cluster.capacity[0].id", "write the id of the project that shares it",
    ),
    "a machine type as an accelerator": (
        GPU, {"cluster": {"machine_type": None, "accelerator": "a3-megagpu-8g"}}, "gangway:cluster.accelerator",
        "write machine_type: a3-megagpu-8g in place of accelerator",
    ),
    "no API for it": (
        POD, {"cluster": {"accelerator": "tpu7x-16"}}, "gangway:cluster.accelerator", "such as v6e-64",
    ),
    "an image of elsewhere": (
        POD, {"image": {"prebuilt": f"docker.io/x/y@{DIGEST}"}}, "gangway:image.prebuilt",
        "Artifact Registry in us-west4",
    ),
    "six addresses": (
        GPU, {"budget": {"emails": [f"{letter}@x.org" for letter in "abcdef"]}}, "gangway:budget.emails", "remove 1",
    ),
    "days of logs": (GPU, {"observe": {"log_days": 4000}}, "gangway:observe.log_days", "3650"),
    "a label": (GPU, {"tags": {"team": "ML Platform"}}, "gangway:tags.team", "ml-platform"),
    "a public range": (GPU, {"network": {"cidr": "8.8.0.0/16"}}, "gangway:network.cidr", "use 10.42.0.0/16"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_names_its_place_and_its_fix(gcp_edited: Edited, what: str) -> None:
    name, changes, place, fix = MISTAKES[what]
    config = gcp_edited(name, **changes)
    with pytest.raises(InputError) as caught:
        plan(config)
    assert caught.value.place == place
    assert fix in f"{caught.value.allowed} {caught.value.fix}"


def test_an_accelerator_of_two_machines_is_advised_the_one_that_the_plan_does_not_warn_about(
    gcp_edited: Edited,
) -> None:
    def refused(**cluster: Any) -> InputError:
        with pytest.raises(InputError) as caught:
            plan(gcp_edited(GPU, cluster={"machine_type": None, "accelerator": "H100x8", **cluster}))
        return caught.value

    two = refused()
    assert two.fix.startswith("write machine_type: a3-megagpu-8g in place of accelerator")
    assert (
        "a3-highgpu-8g (88.49 USD an hour on demand in us-central1; tcpx needs the kernel linux-gcp-tcpx" in two.allowed
    )
    assert "a3-megagpu-8g (92.21 USD an hour on demand in us-central1)" in two.allowed
    for fits in ({"image_id": "projects/p/global/images/family/ours"}, {"nodes": {"min": 1, "max": 1}}):
        assert "kernel" not in refused(**fits).allowed


def test_an_image_may_lie_in_a_multi_region(gcp_edited: Edited) -> None:
    config = gcp_edited(POD, image={"prebuilt": f"us-docker.pkg.dev/p/r/trainer/x@{DIGEST}"})
    assert plan(config).repository_id == "projects/p/locations/us/repositories/r"


def test_the_plans_versions_name_the_providers_package(gcp_plans: dict[str, Plan]) -> None:
    data = gcp_plans[POD].to_json()
    assert set(data["versions"]) == {"gangway", "pulumi", "pulumi-gcp"}
    assert data["energy"]["kwh"] is None
    assert data["carbon"]["gco2e"] is None
    json.dumps(data, allow_nan=False)


MACHINES = sorted(load_provider("gcp").machines)
# Accelerator types with topologies; those of WRONG_SLICES are wrong together, or by themselves.
DRAWN_SLICES = [
    *({"accelerator": name} for name in ("v5litepod-1", "v5litepod-8", "v5litepod-64", "v4-32", "v6e-16", "v5p-64")),
    *({"accelerator": "v5p-64", "topology": "2x4x4"}, {"accelerator": "v5p-128", "topology": "4x4x4"}),
]
WRONG_SLICES = [
    *({"accelerator": "v5p-64", "topology": "4x4x8"}, {"accelerator": "H100x8", "topology": "4x4"}),
    *({"accelerator": name} for name in ("v5e-64", "tpu7x-16", "v5p-7", "A100x8")),
]
REGIONS = sorted(load_provider("gcp").regions)
ZONES = {n: [f"{n}-{letter}" for letter in load_provider("gcp").regions[n].zones] for n in REGIONS}
TPU_REGIONS = sorted({name for tpu in load_tpus().generations.values() for name in tpu.offered.regions} & set(REGIONS))
RESERVATIONS = st.sampled_from(
    [
        *("gan", "projects/their-project/reservations/gan", "gan/reservationBlocks/b1", "cr-0123456789abcdef0"),
        *("projects/their-project/locations/us-east5-a/reservations/gan", "Gan"),
    ]
)


def rungs(zones: list[str]) -> st.SearchStrategy[Settings]:
    """One rung of any kind, now and then of one that Google does not have."""
    zone, one = st.sampled_from(zones), {"zones": st.lists(st.sampled_from(zones), max_size=1)}
    few = st.lists(st.sampled_from(zones), max_size=2, unique=True)
    return st.one_of(
        some({"kind": st.just("spot")}, max_usd_per_hour=st.floats(0.1, 100), **one),
        some({"kind": st.just("on-demand")}, **one),
        some({"kind": st.just("spot")}),
        some({"kind": st.just("on-demand")}, machine_types=st.lists(st.sampled_from(MACHINES), max_size=1), zones=few),
        some({"kind": st.just("reservation"), "id": RESERVATIONS}, zone=zone),
        some({"kind": st.just("flex-start"), "max_hours": st.sampled_from([1, 12, 168])}),
        some({"kind": st.just("capacity-block"), "id": st.just("cr-0123456789abcdef0")}),
    )


def clusters(zones: list[str], *, slices: bool) -> st.SearchStrategy[Settings]:
    """The section `cluster`, of GPU machines or of slices. Slices mostly have the one rung they may have."""
    named: st.SearchStrategy[Settings]
    few = st.tuples(st.integers(1, 2), st.sampled_from([0, 0, 0, 1]))
    if slices:
        named = st.sampled_from([*DRAWN_SLICES * 3, *WRONG_SLICES])
        plain = st.sampled_from(["spot", "on-demand"]).map(lambda kind: [{"kind": kind}])
        capacity = st.one_of(plain, plain, st.lists(rungs(zones), min_size=1, max_size=2))
    else:
        named = st.sampled_from(MACHINES).map(lambda name: {"machine_type": name})
        capacity = st.lists(rungs(zones), min_size=1, max_size=3)
    rest = some(
        {"nodes": few.map(lambda n: {"min": n[0], "max": n[0] + n[1]}), "capacity": capacity},
        zone=st.sampled_from(zones),
        image_id=st.sampled_from(
            [*["projects/p/global/images/i", "projects/p/global/images/family/f"] * 4, "ami-01234567"]
        ),
        root_volume_gib=st.integers(100, 16384),
        fabric_check=some({}, enabled=st.booleans(), min_fraction=st.floats(1e-9, 1)),
    )
    return st.builds(lambda name, others: {**name, **others}, named, rest)


LUSTRE = some(
    {
        "kind": st.just("lustre"),
        "capacity_gib": st.sampled_from([72000, 72000, 72000, 18000]),
        "throughput_mbps_per_tib": st.sampled_from([125, 250, 500, 1000]),
    },
    source=st.sampled_from([*["gs://my-bucket", "gs://my-bucket/d/e'f"] * 3, "gs://my-bucket/d e", "s3://my-bucket"]),
    efa=st.just(False),
    export_runs=st.sampled_from([*[False] * 7, True]),
)
FILESTORE = some(
    {"kind": st.just("filestore"), "capacity_gib": st.sampled_from([2560, 2560, 2560, 100])},
    tier=st.sampled_from(["basic-hdd", "basic-ssd", "zonal"]),
    source=st.just("gs://my-bucket/digits"),
)
GCP = some(
    {"project": st.just("my-project"), "billing_account": st.just("012345-6789AB-CDEF01")},
    currency=st.sampled_from(["EUR", "JPY", "USD"]),
    monthly_amount=st.sampled_from([1, 250000.5]),
    tpu_api_url=st.sampled_from(["https://tpu-lab.p.googleapis.com", "http://127.0.0.1:8080/"]),
)
BUDGET = some(
    {"monthly_usd": st.sampled_from([1e12, 1e12, 1e12, 50]), "emails": st.just(["ml@example.com"])},
    alert_percent=st.lists(st.floats(1, 1000), max_size=4),
    stop_at_percent=st.floats(1, 1000),
    activate_tag=st.sampled_from([*[False] * 7, True]),
)
NETWORK = some(
    {},
    cidr=st.sampled_from(["10.42.0.0/16", "172.16.0.0/20", "192.168.0.0/18", "10.42.0.0/21"]),
    egress=st.sampled_from(["nat", "endpoints"]),
    flow_logs=st.booleans(),
)
TAGS = some(
    {"team": st.just("ml-platform"), "cost_center": st.just("4711")},
    owner=st.sampled_from(["a-b", "a_b", "", "x" * 63, "a-b", "A B", "x" * 64]),
)


@st.composite
def stack_settings(draw: st.DrawFn) -> Settings:
    """The `config:` mapping of a stack file in which each value may stand where it is."""
    slices = draw(st.booleans())
    region = draw(st.sampled_from(TPU_REGIONS if slices else REGIONS))
    images = [
        {},
        {},
        {"prebuilt": f"{region}-docker.pkg.dev/p-1/r/x@{DRAWN_DIGEST}"},
        {"prebuilt": f"docker.io/x/y@{DRAWN_DIGEST}"},
    ]
    sections = some(
        {
            "cluster": clusters(ZONES[region], slices=slices), "budget": BUDGET, "job": JOB, "tags": TAGS, "gcp": GCP,
            "storage": st.one_of(LUSTRE, FILESTORE, st.just({})),
        },
        network=NETWORK,
        image=st.sampled_from(images),
        head=some({}, machine_type=st.sampled_from([*["e2-small", "e2-medium"] * 4, "t3.medium"])),
        observe=some({}, log_days=st.sampled_from([1, 30, 365, 3651]), no_steps_minutes=st.sampled_from([10, 1440])),
        encryption=st.sampled_from(["provider-key", "customer-key"]),
    )  # fmt: skip
    return {"provider": "gcp", "region": region, **draw(sections)}


# A plan takes 0.1 to 0.4 s. To search deeper, raise the profile's max_examples (tests/conftest.py)
# and give pytest another --hypothesis-seed.
@settings(
    max_examples=settings().max_examples * 2 // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=stack_settings(), mistakes=st.sampled_from([0, 0, 0, 0, 1, 2]), data=st.data())
def test_any_stack_file_is_planned_or_refused(
    planned_or_told: Callable[..., Plan | None], values: Settings, mistakes: int, data: st.DataObject
) -> None:
    plan = planned_or_told(values, mistakes, data)
    event("refused" if plan is None else f"planned: {plan.job['backend']}")
