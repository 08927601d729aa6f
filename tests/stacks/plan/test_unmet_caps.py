"""Price caps that no machine meets: all figures are of the rungs that are left, on every cloud that takes a cap."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from rich.console import Console

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Severity
from gangway.report.plans.infracost import infracost
from gangway.report.plans.show import Detail, show_plan
from gangway.stacks.base import registry
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import unmet_caps
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from tests.gangway.report.plans.test_show import all_of

Edited = Callable[..., StackConfig]
STACKS = ("aws-p5-spot", "azure-ndv5-spot")
LOW = {"kind": "spot", "max_usd_per_hour": 2}
ON_DEMAND = {"kind": "on-demand"}


@pytest.fixture(scope="module")
def made(gcp_edited: Edited) -> Callable[..., Plan]:
    def of(name: str, *capacity: dict[str, Any], usd: float = 90_000, **more: Any) -> Plan:
        cluster = {"capacity": list(capacity), "nodes": {"min": 2, "max": 2}}
        return make_plan(gcp_edited(name, cluster=cluster, budget={"monthly_usd": usd}, **more))

    return of


def codes(plan: Plan) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in plan.findings}


@pytest.mark.parametrize(
    ("region", "cap", "is_met"),
    [
        ("us-east-2", 11.22, False),
        ("us-east-2", 11.23, True),
        # Only another region's price is known there: it keeps nothing away.
        ("sa-east-1", 0.01, True),
    ],
)
def test_nothing_comes_below_the_lowest_price_seen(gcp_edited: Edited, region: str, cap: float, is_met: bool) -> None:
    capacity = [{"kind": "spot", "max_usd_per_hour": cap}, ON_DEMAND]
    config = gcp_edited("aws-p5-spot", region=region, cluster={"capacity": capacity})
    assert (unmet_caps(config, load().machine("p5.48xlarge")) == {}) is is_met


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_all_figures_are_those_of_the_ladder_without_the_rung(name: str, made: Callable[..., Plan]) -> None:
    """The trial's case: $10.43 an hour and $3.94 a run, where on-demand is 112.47 an hour."""
    capped, alone = made(name, LOW, ON_DEMAND), made(name, ON_DEMAND)
    assert capped.ladder.shares == (0.0, 1.0)
    for found, right in (
        (capped.cost.hourly, alone.cost.hourly),
        (capped.cost.run, alone.cost.run),
        (capped.most_usd, alone.most_usd),
        (capped.ladder.usd, alone.ladder.usd),
        (capped.ladder.usd_high, alone.ladder.usd_high),
        (capped.rungs[1].run, alone.rungs[0].run),
        (capped.idle_hourly, alone.idle_hourly),
    ):
        # Alarms and a second group differ by cents.
        assert found == pytest.approx(right, rel=1e-2)
    assert capped.expected.hours == alone.expected.hours
    assert capped.expected.usd is not None
    assert alone.expected.usd is not None
    assert capped.expected.usd.mid == pytest.approx(alone.expected.usd.mid, rel=1e-2)
    assert capped.cost.standby_hourly == 0
    assert (capped.rungs[0].hourly, capped.rungs[0].run_hours, capped.rungs[0].run) == (None, None, None)
    assert codes(capped)["capacity.spot-cap-low"] is Severity.WARNING


@pytest.mark.slow
def test_where_nobody_bids_a_cap_changes_no_figure(made: Callable[..., Plan]) -> None:
    """Google's spot price is a list price: the setting is said to have no effect, and has none."""
    spot = {"kind": "spot"}
    capped, free = made("gcp-a3-spot", {**spot, "max_usd_per_hour": 1}), made("gcp-a3-spot", spot)
    assert codes(capped)["capacity.ignored-setting"] is Severity.WARNING
    assert "capacity.spot-cap-low" not in codes(capped)
    assert free.expected.usd is not None
    for plan in (capped, free):
        assert plan.rung is not None
        assert (plan.cost.hourly, plan.expected.usd) == (free.cost.hourly, free.expected.usd)


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_programs_read_no_cap_as_a_price(name: str, made: Callable[..., Plan]) -> None:
    plan = json.loads(json.dumps(made(name, LOW, ON_DEMAND).to_json()))
    assert 2 not in [line["price"] for line in plan["cost"]["components"]]
    assert plan["cost"]["run_most"]["position"] == 1
    assert [rung["in_reach"] for rung in plan["rungs"]] == [False, True]
    total = float(infracost(plan)["totalHourlyCost"])
    assert total == pytest.approx(plan["cost"]["hourly"])


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_the_budget_is_held_against_the_rung_that_comes(name: str, made: Callable[..., Plan]) -> None:
    plan = made(name, LOW, ON_DEMAND, usd=600, job={"max_hours": 48})
    found = {finding.code: finding.message for finding in plan.findings}
    assert f"do not pay for a run of 48 h: {plan.cost.run:,.2f} USD" in found["budget.below-run"]
    assert "the on-demand price of capacity[1]" in found["budget.below-estimate"]
    assert "budget.fallback" not in found, "there is nothing else to fall back from"


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_alone_such_a_rung_is_an_error_and_no_run_has_a_price(name: str, made: Callable[..., Plan]) -> None:
    plan = made(name, LOW)
    assert codes(plan)["capacity.spot-cap-low"] is Severity.ERROR
    assert plan.has_errors
    assert (plan.expected.hours, plan.expected.usd, plan.ladder.usd, plan.rung) == (None, None, None, None)
    assert plan.to_json()["cost"]["run_most"] is None
    for detail in Detail:
        last = all_of(plan, detail)[-250:]
        assert "a run: the job never starts: no machine comes" in last
        assert "expected;" not in last


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_the_last_line_has_the_dearest_rung_and_the_budget_both(name: str, made: Callable[..., Plan]) -> None:
    spot = {"kind": "spot"}
    plan = made(name, spot, ON_DEMAND, usd=1e6, job={"max_hours": 48})
    dearest = 48 * (plan.rungs[1].hourly or 0.0)
    assert plan.cost.run < dearest == pytest.approx(plan.most_usd)
    last = " ".join(all_of(plan, Detail.BRIEF).splitlines()[-4:])
    assert f"${plan.most_usd:,.2f}" in last
    assert "(on-demand)" in last
    assert f"${plan.cost.run:,.2f}" not in last
    between = (plan.cost.run + dearest) / 2
    (told,) = [f for f in made(name, spot, ON_DEMAND, usd=between, job={"max_hours": 48}).findings if "-run" in f.code]
    assert f"{dearest:,.2f} USD on capacity[1] (on-demand)" in told.message  # prices of another region: no "at most"
    assert f"on capacity[0] (spot), {plan.cost.run:,.2f} USD" in told.message


@pytest.mark.slow
def test_a_rung_below_that_no_machine_comes_to_leaves_the_first_as_it_is(made: Callable[..., Plan]) -> None:
    capped, alone = made(STACKS[0], ON_DEMAND, LOW), made(STACKS[0], ON_DEMAND)
    assert capped.ladder.shares == (1.0, 0.0)
    assert capped.cost.hourly == pytest.approx(alone.cost.hourly, rel=1e-2)
    assert capped.cost.standby_hourly == 0


TOYS = Path(__file__).parent.parent / "providers"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Of a cluster of toys with a queue, all of which may be away."""
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setattr(registry, "PROVIDERS", {**registry.PROVIDERS, "toy": "toy.provider"})
    from toy import program, provider  # type: ignore[import-not-found]

    settings = replace(provider.PROVIDER.settings, queues=("slurm",))
    monkeypatch.setattr(provider, "PROVIDER", replace(provider.PROVIDER, settings=settings))
    monkeypatch.setattr(program, "build", _build)

    values = yaml.safe_load((TOYS / "toy" / "Pulumi.toy-lab.yaml").read_text("utf-8"))["config"]
    del values["gangway:job"]
    values["gangway:engine"] = {"kind": "slurm"}
    values["gangway:cluster"]["nodes"] = {"min": 0, "max": 1}
    path = tmp_path / "Pulumi.toy-lab.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    return make_plan(from_file(path))


def _build(config: StackConfig, planned: Any) -> Mapping[str, pulumi.Input[Any]]:
    from toy.program import ToyBox  # type: ignore[import-not-found]

    machine = {"size": planned.machine.name, "place": config.region, "labels": planned.tags}
    kind, monthly_usd = config.cluster.capacity[0].kind, config.budget.monthly_usd
    ToyBox(config.stack, {"machine": machine, "kind": kind, "monthly_usd": monthly_usd})
    return {}


def shown(plan: Plan, detail: Detail) -> str:
    out = StringIO()
    show_plan(plan, Console(width=120, file=out), detail)
    return out.getvalue()


def test_it_is_priced_by_the_nodes_that_are_up(plan: Plan) -> None:
    # Ten an hour for the machine, 7.30 a month of 730 hours for the budget.
    assert [plan.hourly_with(nodes) for nodes in (0, 1)] == pytest.approx([0.01, 10.01])
    assert plan.idle_hourly == pytest.approx(0.01)
    assert plan.cost.run_hours == 730
    assert plan.to_json()["cost"]["standing"] == pytest.approx(
        {"no_nodes_hourly": 0.01, "nodes_min_hourly": 0.01, "nodes_max_hourly": 10.01}
    )


def test_nothing_is_forecast(plan: Plan) -> None:
    assert plan.to_json()["job"] is None
    assert plan.expected.hours is None
    assert plan.expected.memory is None
    assert plan.energy.kwh is None
    assert (plan.energy.kwh_most, plan.carbon.gco2e_most, plan.sci.g_per_kimg_most) == (None, None, None)
    assert "cluster.standing" in {finding.code for finding in plan.findings}
    assert not {code for finding in plan.findings if (code := finding.code).startswith(("run.", "batch", "memory"))}


@pytest.mark.parametrize("detail", Detail)
def test_it_is_shown_as_a_cluster_and_not_as_a_run(plan: Plan, detail: Detail) -> None:
    text = shown(plan, detail)
    assert "$10.01 an hour with all nodes up, $0.01 without work" in text
    assert "a run" not in text.replace("a run: once", "")
    if detail is not Detail.BRIEF:
        assert "with no node up: $0.01 an hour" in text
        assert "with 1 node up: $10.01 an hour, $7,307.30 a month of 730 h" in text
