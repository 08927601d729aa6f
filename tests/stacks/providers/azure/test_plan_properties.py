"""Any stack file for Azure: a plan that is valid JSON and can be shown, or mistakes with a place and a fix.

As `test_plan_properties.py` for AWS: every section is drawn with every key it has, those of other providers among them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.presets import PRESETS

Settings = dict[str, Any]

MACHINES = [
    *sorted(load_provider("azure").machines),
    *["Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC96ads_A100_v4"] * 8,
]
REGIONS = sorted(load_provider("azure").regions)
DIGEST = "sha256:" + "0a" * 32
ONE, OTHER = "11111111-0000-0000-0000-111111111111", "99999999-0000-0000-0000-999999999999"
GROUP = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/ours"
ACCOUNT = "/subscriptions/{}/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/mydata"
REGISTRY = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/ourimages"
OWN_IMAGE = f"/subscriptions/{ONE}/resourceGroups/g/providers/Microsoft.Compute/images/ours"


def some(
    fixed: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Settings]:
    """Mappings with all keys of `fixed` and any of `optional`."""
    return st.fixed_dictionaries(dict(fixed), optional=optional)


ZONE = st.sampled_from([*["1", "2", "3"] * 5, "4"])
ZONES = {"zones": st.lists(ZONE, max_size=2, unique=True)}
# Mostly right, here and below: a file with ten sections is told for the first thing that is wrong.
PLAIN = st.sampled_from([{"kind": "spot"}, {"kind": "on-demand"}, {"kind": "spot", "max_usd_per_hour": 9}])
RUNG = st.one_of(
    some({"kind": st.just("spot")}, max_usd_per_hour=st.floats(1e-6, 100), **ZONES),
    some({"kind": st.just("on-demand")}, **ZONES),
    some({"kind": st.just("spot")}, allocation=st.just("lowest-price")),
    some({"kind": st.just("reservation"), "id": st.sampled_from([GROUP] * 3 + ["cr-1"])}, zone=ZONE),
    some({"kind": st.just("flex-start"), "max_hours": st.just(12)}),
)
CLUSTER = some(
    {
        "machine_type": st.sampled_from(MACHINES),
        "nodes": st.tuples(st.integers(1, 3), st.sampled_from([*[0, 1, 110] * 5, 310])).map(
            lambda n: {"min": n[0], "max": n[0] + n[1]}
        ),
        "capacity": st.one_of(*[st.lists(PLAIN, min_size=1, max_size=3)] * 4, st.lists(RUNG, min_size=1, max_size=3)),
    },
    zone=ZONE,
    image_id=st.sampled_from([*["microsoft-dsvm:ubuntu-hpc:2404:latest", OWN_IMAGE] * 8, "ami-01234567"]),
    root_volume_gib=st.integers(100, 16384),
    fabric_check=some({}, enabled=st.booleans(), min_fraction=st.floats(1e-9, 1)),
)
STORAGE = some(
    {
        "kind": st.just("lustre"),
        "capacity_gib": st.sampled_from([*[49152] * 9, 16384, 9600]),
        "throughput_mbps_per_tib": st.sampled_from([*[40, 125, 250, 500] * 4, 1000]),
    },
    source=st.sampled_from(
        [*["az://mydata/images/d", "az://mydata/images/d/e'f"] * 8, "az://mydata/images", "s3://b-1"]
    ),
    efa=st.sampled_from([*[False] * 15, True]),
    export_runs=st.booleans(),
)
IDS = {
    "source_account_id": st.sampled_from([*[ACCOUNT.format(ONE)] * 15, ACCOUNT.format(OTHER)]),
    "importer_principal_id": st.just(OTHER),
}
BUDGET = some(
    {"monthly_usd": st.sampled_from([*[1e12] * 15, 50]), "emails": st.just(["ml@example.com"])},
    alert_percent=st.lists(st.floats(1, 1000), max_size=3),
    stop_at_percent=st.floats(1, 1000),
)
JOB = some(
    {"preset": st.sampled_from(sorted(PRESETS)), "kimg": st.floats(1e-3, 1e6), "max_hours": st.floats(0.01, 672)},
    terminate_when_done=st.booleans(),
)
NETWORK = some(
    {},
    cidr=st.sampled_from([*["10.42.0.0/16", "172.16.0.0/20", "192.168.0.0/18"] * 5, "10.42.0.0/21"]),
    egress=st.sampled_from(["nat", "endpoints"]),
    flow_logs=st.booleans(),
)
TAGS = some(
    {"team": st.just("ml-platform"), "cost_center": st.just("4711")},
    owner=st.sampled_from([*["a-b", "A B", "", "x" * 256] * 5, "x" * 257]),
)


@st.composite
def stack_settings(draw: st.DrawFn) -> Settings:
    """The `config:` mapping of a stack file in which each value may stand where it is."""
    storage = draw(st.one_of(STORAGE, STORAGE, st.just({})))
    prebuilt = draw(st.sampled_from([*[None, "ourimages"] * 12, "otherimages"]))
    section = {
        **{"subscription_id": st.just(ONE), "tenant_id": st.just(OTHER)},
        **{"budget_starts_on": st.sampled_from([*["2026-11-01", "2020-01-01"] * 8, "2026-11-02"])},
        **(IDS if "source" in storage else {}),
        **({"registry_id": st.just(REGISTRY)} if prebuilt else {}),
    }
    sections = some(
        {"cluster": CLUSTER, "budget": BUDGET, "job": JOB, "tags": TAGS, "azure": some(section)},
        network=NETWORK,
        head=some({}, machine_type=st.sampled_from([*["Standard_B2s", "Standard_D2s_v5"] * 8, "t3.medium"])),
        observe=some({}, log_days=st.sampled_from([*[30, 365] * 8, 731]), no_steps_minutes=st.sampled_from([10, 1440])),
        encryption=st.sampled_from(["provider-key", "customer-key"]),
    )
    image = {"prebuilt": f"{prebuilt}.azurecr.io/gan/trainer@{DIGEST}"} if prebuilt else {}
    region = draw(st.sampled_from(REGIONS))
    return {"provider": "azure", "region": region, "storage": storage, "image": image, **draw(sections)}


# A plan takes 0.2 to 0.5 s. To search deeper, raise the profile's max_examples (tests/conftest.py)
# and give pytest another --hypothesis-seed.
@settings(
    max_examples=settings().max_examples * 2 // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=stack_settings(), mistakes=st.sampled_from([*[0] * 8, 1, 2]), data=st.data())
def test_any_stack_file_is_planned_or_refused(
    planned_or_told: Callable[..., Plan | None], values: Settings, mistakes: int, data: st.DataObject
) -> None:
    plan = planned_or_told(values, mistakes, data)
    event("refused" if plan is None else f"InfiniBand: {'NCCL_NET' in plan.job['env']}")
