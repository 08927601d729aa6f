"""Any stack file for Google Cloud: a plan that is valid JSON and can be shown, or mistakes with a place and a fix.

As `test_plan_properties.py` for AWS: every section is drawn with every key it has, those of other providers among them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.presets import PRESETS

Settings = dict[str, Any]
MACHINES = sorted(load_provider("gcp").machines)
# Accelerator types with topologies; those of WRONG_SLICES are wrong together, or by themselves.
SLICES = [
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
DIGEST = "sha256:" + "0a" * 32
RESERVATIONS = st.sampled_from(
    [
        *("gan", "projects/their-project/reservations/gan", "gan/reservationBlocks/b1", "cr-0123456789abcdef0"),
        *("projects/their-project/locations/us-east5-a/reservations/gan", "Gan"),
    ]
)


def some(
    fixed: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Settings]:
    """Mappings with all keys of `fixed` and any of `optional`."""
    return st.fixed_dictionaries(dict(fixed), optional=optional)


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
        named = st.sampled_from([*SLICES * 3, *WRONG_SLICES])
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
JOB = some(
    {"preset": st.sampled_from(sorted(PRESETS)), "kimg": st.floats(1e-3, 1e6), "max_hours": st.floats(0.01, 672)},
    terminate_when_done=st.booleans(),
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
        {"prebuilt": f"{region}-docker.pkg.dev/p-1/r/x@{DIGEST}"},
        {"prebuilt": f"docker.io/x/y@{DIGEST}"},
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
