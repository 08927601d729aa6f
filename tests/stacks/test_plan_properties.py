"""Any stack file whatever: a plan that is valid JSON and can be shown, or mistakes with a place and a fix.

Other properties of the plan mutate the demo (`test_plan.py`); here every section is drawn with every key it has, so
that the program behind the checks is reached in most examples, by combinations that nobody has written down.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load
from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.presets import PRESETS
from tests.stacks.drawn import DIGEST, Settings, some

Outcome = Callable[[Path], Plan | list[InputError]]
MACHINES = sorted(name for name, row in load().machines.items() if row.provider == "aws")
ACCELERATORS = ["H100x8", "A100x8", "V100x1", "H100x1", "GB200x4", "Trainiumx1"]
REGIONS = sorted(load().regions)
ZONES = {name: [f"{name}{letter}" for letter in load().regions[name].zones] for name in REGIONS}


# Words that mean something where YAML, bash, JSON or Pulumi read them: there such programs break.
ODD_WORDS = ["", "-", "null", "%s", "${x}", "$(x)", "{{x}}", "[/]", "a'b", 'a"b', "a\\b", "a\nb", "a:b", "\U0001f600"]
USD = st.one_of(st.integers(1, 200), st.floats(0.001, 1e6), st.just(1e-9), st.just(1e15))
PERCENT = st.one_of(st.integers(1, 1000), st.floats(0.01, 1000))
# Python counts hours from year 1 to 9999, and any block ends in between; one in five is not of our millennium.
TIMES = st.one_of(
    *[st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))] * 4,
    st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]),
).map(lambda time: time.replace(microsecond=0))
RESERVATION_IDS = st.sampled_from(["cr-0123456789abcdef0", "cr-0123456789abcdef1", "cr-01234567"])


def rungs(zones: list[str]) -> st.SearchStrategy[Settings]:
    """One rung of any kind, with any of its keys."""
    zone, market = st.sampled_from(zones), {
        "machine_types": st.lists(st.sampled_from(MACHINES), max_size=3, unique=True),
        "zones": st.lists(st.sampled_from(zones), max_size=3, unique=True),
    }  # fmt: skip
    block = st.just("capacity-block")
    buying = {
        "purchase": st.just(True),
        "offering_id": st.sampled_from(["cbo-0123456789abcdef0", "cb-0123456789abcdef0"]),
        "upfront_usd": USD,
        "starts_at": st.sampled_from(["2001-01-01T00:00:00Z", "2034-01-01T00:00:00Z"]),
        "ends_at": TIMES,
    }
    allocation = st.sampled_from(["price-capacity-optimized", "capacity-optimized", "lowest-price"])
    return st.one_of(
        some({"kind": block, "id": RESERVATION_IDS}, starts_at=TIMES, ends_at=TIMES, zone=zone),
        some({"kind": block, **buying}, zone=zone),
        some({"kind": st.just("reservation"), "id": RESERVATION_IDS}, zone=zone),
        some({"kind": st.just("spot")}, max_usd_per_hour=USD, allocation=allocation, **market),
        some({"kind": st.just("on-demand")}, **market),
    )


def clusters(zones: list[str]) -> st.SearchStrategy[Settings]:
    """The section `cluster`: one of the two names of a machine, and any other key."""
    nodes = st.tuples(st.integers(1, 4), st.integers(0, 4)).map(lambda n: {"min": n[0], "max": n[0] + n[1]})
    named = st.one_of(
        st.sampled_from(ACCELERATORS).map(lambda name: {"accelerator": name}),
        st.sampled_from(MACHINES).map(lambda name: {"machine_type": name}),
    )
    rest = some(
        {
            "nodes": nodes | st.just({"min": 512, "max": 512}),
            "capacity": st.lists(rungs(zones), min_size=1, max_size=4),
        },
        zone=st.sampled_from(zones),
        image_id=st.just("ami-0123456789abcdef0"),
        root_volume_gib=st.integers(100, 16384),
        fabric_check=some({}, enabled=st.booleans(), min_fraction=st.floats(1e-9, 1)),
    )
    return st.builds(lambda name, others: {**name, **others}, named, rest)


PERSISTENT = some(
    {
        "capacity_gib": st.sampled_from([1200, 2400, 9600, 19200, 38400, 76800]),
        "throughput_mbps_per_tib": st.sampled_from([125, 250, 500, 1000]),
    },
    deployment=st.just("persistent"),
    efa=st.booleans(),
    metadata_iops=st.sampled_from([1500, 12000, 192000, 1501]),
)
SCRATCH = some({"capacity_gib": st.sampled_from([1200, 2400, 4800]), "deployment": st.just("scratch")})
LINKS = some(
    {"kind": st.just("lustre")}, source=st.sampled_from(["s3://my-bucket", "s3://b.c/d.e/f"]), export_runs=st.booleans()
)
STORAGE = st.builds(lambda size, links: {**links, **size}, st.one_of(PERSISTENT, PERSISTENT, SCRATCH), LINKS)
NETWORK = some(
    {},
    cidr=st.sampled_from(["10.42.0.0/16", "172.16.0.0/20", "192.168.0.0/18", "10.42.0.0/21"]),
    egress=st.sampled_from(["nat", "endpoints"]),
    flow_logs=st.booleans(),
    dns_firewall=st.booleans(),
)
BUDGET = some(
    {
        # Mostly enough for an hour of anything: a plan that ends at its budget has shown nothing else.
        "monthly_usd": st.one_of(st.just(1e12), st.just(1e12), USD),
        "emails": st.lists(st.sampled_from(["ml@example.com", "a+b@x.org", "o'k@x.org"]), min_size=1, max_size=3),
    },
    alert_percent=st.lists(PERCENT, max_size=4),
    stop_at_percent=PERCENT,
    activate_tag=st.booleans(),
)
JOB = some(
    {
        "preset": st.sampled_from(sorted(PRESETS)),
        "kimg": st.one_of(st.integers(1, 25000), st.floats(1e-6, 1e9), st.just(1e300)),
        "max_hours": st.floats(0.01, 672),
    },
    terminate_when_done=st.booleans(),
)
HEAD = some(
    {},
    machine_type=st.sampled_from(["t3.small", "t3.medium", "t3.large", "nonsense"]),
    prometheus_image=st.sampled_from(
        [
            None,
            "docker.io/prom/prometheus:v3.5.0",
            "prom/prometheus:latest",
            f"prom/prometheus@{DIGEST}",
            "localhost:50",
        ]
    ),
)
OBSERVE = some({}, log_days=st.sampled_from([1, 30, 3653]), no_steps_minutes=st.sampled_from([10, 17, 30, 1440]))
TAGS = some(
    {"team": st.just("ml-platform"), "cost_center": st.just("4711")},
    owner=st.sampled_from(["A B", "a@b.c", "x" * 256, *ODD_WORDS]),
    Name=st.just("n"),
)


@st.composite
def stack_settings(draw: st.DrawFn) -> Settings:
    """The `config:` mapping of a stack file in which each value may stand where it is."""
    region = draw(st.sampled_from(REGIONS))
    prebuilt = f"123456789012.dkr.ecr.{region}.amazonaws.com/gan/trainer@{DIGEST}"
    sections = some(
        {"cluster": clusters(ZONES[region]), "budget": BUDGET, "job": JOB, "tags": TAGS},
        provider=st.just("aws"),
        storage=st.one_of(STORAGE, STORAGE, st.just({})),
        network=NETWORK,
        image=st.sampled_from([{}, {"prebuilt": prebuilt}, {"prebuilt": f"registry.example.com/x@{DIGEST}"}]),
        head=HEAD,
        observe=OBSERVE,
        encryption=st.sampled_from(["provider-key", "customer-key"]),
    )
    return {"region": region, **draw(sections)}


NAMES = st.sampled_from(["drawn"] * 8 + ["x", "a-b-c-0", "a" * 40, "a--b", "a-", "sg-x", "0x", "Upper", "a" * 41])


# A plan takes 0.1 to 0.3 s, so these are some 10 s. To search deeper, raise the profile's max_examples
# (tests/conftest.py) to some thousands and give pytest another --hypothesis-seed.
@settings(
    max_examples=settings().max_examples * 2 // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(values=stack_settings(), name=NAMES, mistakes=st.sampled_from([0, 0, 0, 1, 2]), data=st.data())
def test_any_stack_file_is_planned_or_told(
    planned_or_told: Callable[..., Plan | None], values: Settings, name: str, mistakes: int, data: st.DataObject
) -> None:
    plan = planned_or_told(values, mistakes, data, name)
    event("refused" if plan is None else "planned")


def test_every_bound_of_a_setting_is_in_the_schema() -> None:
    """Pydantic leaves some in its own words, `gt`: then a mistake is told without them, and the fix is a guess."""

    def keys(schema: Any) -> set[str]:
        inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        return set(schema if isinstance(schema, dict) else ()).union(*map(keys, inner))

    found = keys(StackConfig.model_json_schema())
    assert {"exclusiveMinimum", "maximum"} <= found
    assert not {"gt", "ge", "lt", "le"} & found


BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
FOUND_ONCE: dict[str, tuple[str, Settings, str]] = {
    "no hour before": ("cluster", {"capacity": [{**BLOCK, "ends_at": "0001-01-01T00:07:00Z"}]}, "capacity[0].ends_at"),
    "no hour after": (
        "cluster",
        {"capacity": [{**BLOCK, "ends_at": "9999-12-31T23:59:00-01:00"}]},
        "capacity[0].ends_at",
    ),
    "no one version": ("head", {"prometheus_image": "prom/prometheus:latest"}, "head.prometheus_image"),
    "true dollars": ("cluster", {"capacity": [{"kind": "spot", "max_usd_per_hour": True}]}, "[0].max_usd_per_hour"),
}


@pytest.mark.parametrize("what", FOUND_ONCE)
def test_what_once_ended_in_a_traceback_or_passed_is_told(
    stack_file: Callable[[Callable[[Settings], object]], Path], outcome: Outcome, what: str
) -> None:
    section, changes, place = FOUND_ONCE[what]
    found = outcome(stack_file(lambda values: values.setdefault(f"gangway:{section}", {}).update(changes)))
    assert isinstance(found, list)
    assert [mistake.place.endswith(place) for mistake in found] == [True]
    assert all(mistake.fix for mistake in found)


def test_a_name_that_no_dns_label_may_have_is_told(demo_file: Path, tmp_path: Path, outcome: Outcome) -> None:
    path = tmp_path / "Pulumi.team-.yaml"
    path.write_text(demo_file.read_text("utf-8"), "utf-8")
    found = outcome(path)
    assert isinstance(found, list)
    assert [(mistake.place, mistake.fix) for mistake in found] == [(f"{path}: gangway:stack", "rename the stack")]
