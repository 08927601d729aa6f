"""What a plan says of its own figures, finding by finding."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest

from gangway.components.catalog.loader import load
from gangway.components.catalog.validators import STALE_DAYS
from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import CostComponent
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import money_findings, span, stale_prices
from gangway.stacks.estimates.run_costs import pace, price_ladder

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
TODAY = date(2026, 11, 21)
LINES = [
    CostComponent("edited-0-spot: nodes", "hours", 2, 22.98, 45.96, "a list", "2026-09-06", "list-price"),
    CostComponent("edited-lustre: disks", "GiB-months", 10, 0.1, 0.01, "a list", "2026-09-06", "list-price"),
]


def said(config: StackConfig, lines: Sequence[CostComponent] = LINES) -> dict[str, Finding]:
    rungs = price_ladder(config, load().machine("p5.48xlarge"), lines, pace(config))
    return {f.code: f for f in money_findings(config, rungs, pace(config), lines, TODAY)}


def with_job(estimate: dict[str, Any], **job: Any) -> Callable[[dict[str, Any]], None]:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:job"].update(job)
        stack["gangway:estimate"] = estimate

    return change


def test_the_demo_is_near_enough_to_its_best_interval(edited: Edited) -> None:
    found = said(edited(lambda stack: None))
    assert set(found) == {"cost.usage-unsaid", "prices.stale"}
    assert found["cost.usage-unsaid"].severity is Severity.INFO
    assert "older than 180 days, the oldest of 2025-06-28 (rate of interruptions of capacity[0])" in (
        found["prices.stale"].message
    ), "the Spot Advisor's day, not the day on which it was read"
    told = said(edited(with_job({"taken_percent_per_month": 8})))
    assert "prices.stale" not in told, "the stack file answers for its own figure"


def test_saving_too_often_is_told_with_an_interval_that_is_enough(edited: Edited) -> None:
    """1 kimg of 150 in an hour: 10 s of saving every 24 s; 1 % of the time is one every 1000 s, 41.7 kimg."""
    measured = {"checkpoint_sec": 10}
    finding = said(edited(with_job(measured, checkpoint_kimg=1)))["checkpoint.interval"]
    assert (finding.severity, finding.path) == (Severity.WARNING, "gangway:job.checkpoint_kimg")
    assert "a checkpoint every 1 kimg, 24 s at 42 images/s" in finding.message
    assert "too often for spot: the run takes 41% longer than with the best interval, 60 min" in finding.message
    assert finding.fix == "set checkpoint_kimg: 41, one every 17 min"
    assert "checkpoint.interval" not in said(edited(with_job(measured, checkpoint_kimg=41)))


def test_saving_often_is_no_matter_where_a_checkpoint_may_cost_next_to_nothing(edited: Edited) -> None:
    """The demo's is 6.7 MB: 7 ms at the 0.9 GB/s that one was seen to be saved at, of 24 s; of 0.1 s it is 7 %."""
    assert "checkpoint.interval" not in said(edited(with_job({}, checkpoint_kimg=1)))
    assert "checkpoint.interval" in said(edited(with_job({}, checkpoint_kimg=1 / 240)))


def test_a_save_longer_than_its_interval_is_told_on_demand_as_well(edited: Edited) -> None:
    """Checkpoints cost the same time on every kind of capacity; it is said once, of the first rung."""

    def change(stack: dict[str, Any]) -> None:
        with_job({"checkpoint_sec": 10, "images_per_second": 1000}, checkpoint_kimg=1)(stack)
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]

    finding = said(edited(change))["checkpoint.interval"]
    assert "a checkpoint every 1 kimg, 1 s at 1,000 images/s" in finding.message
    assert "too often for on-demand" in finding.message


def test_saving_too_seldom_is_told_with_the_best_interval(edited: Edited) -> None:
    """90 % a month on 2 nodes is an interruption in 156 h: never saving in 100 h loses 50 h of them."""
    job = {"max_hours": 100, "kimg": 10000, "checkpoint_kimg": 10000}
    finding = said(edited(with_job({"taken_percent_per_month": 90}, **job)))["checkpoint.interval"]
    assert "too seldom for spot" in finding.message
    assert finding.fix.startswith("set checkpoint_kimg: ")
    advised = float(finding.fix.split()[2].rstrip(","))
    mended = {**job, "checkpoint_kimg": advised}
    assert "checkpoint.interval" not in said(edited(with_job({"taken_percent_per_month": 90}, **mended)))


def test_spot_that_cannot_finish_is_an_error_with_a_fix(edited: Edited) -> None:
    values = {"taken_percent_per_month": 99, "restart_sec": 3600 * 90}
    finding = said(edited(with_job(values)))["capacity.spot-infeasible"]
    assert finding.severity is Severity.ERROR
    assert "its 2 nodes lose one every 76.29 h, and each loss costs 90.07 h" in finding.message
    assert finding.fix == "use fewer nodes, or another kind of capacity"


def test_an_interval_that_would_make_it_feasible_is_the_fix(edited: Edited) -> None:
    """99 % a month on 2 nodes: 78 h between two interruptions, and 200 h between two checkpoints."""
    job = {"max_hours": 200, "kimg": 10000, "checkpoint_kimg": 10000}
    finding = said(edited(with_job({"taken_percent_per_month": 99}, **job)))["capacity.spot-infeasible"]
    assert finding.fix.startswith("set gangway:job.checkpoint_kimg: ")
    mended = {**job, "checkpoint_kimg": float(finding.fix.split()[2].rstrip(","))}
    assert "capacity.spot-infeasible" not in said(edited(with_job({"taken_percent_per_month": 99}, **mended)))


def test_an_unknown_rate_is_said(edited: Edited) -> None:
    config = edited(lambda stack: stack.update({"gangway:region": "eu-west-1"}))
    finding = said(config)["capacity.spot-rate-unknown"]
    assert finding.severity is Severity.INFO
    assert "AWS Spot Instance Advisor lists no such machine type" in finding.message


def test_a_setting_without_effect_is_a_warning(edited: Edited) -> None:
    def change(stack: dict[str, Any]) -> None:
        stack["gangway:cluster"]["capacity"] = [{"kind": "on-demand"}]
        stack["gangway:estimate"] = {"taken_percent_per_month": 5}

    finding = said(edited(change))["estimate.ignored"]
    assert (finding.severity, finding.path) == (
        Severity.WARNING, "gangway:estimate.taken_percent_per_month",
    )  # fmt: skip


def test_an_owned_block_that_nobody_has_priced_is_told(edited: Edited) -> None:
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}

    def change(rung: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        return lambda values: values["gangway:cluster"].update(capacity=[rung, {"kind": "on-demand"}])

    finding = said(edited(change(block)))["cost.block-not-included"]
    assert finding.path == "gangway:cluster.capacity[0].paid_usd_per_hour"
    assert "cost.block-not-included" not in said(edited(change({**block, "paid_usd_per_hour": 31.5})))


@pytest.mark.parametrize(("days", "old"), [(0, False), (STALE_DAYS, False), (STALE_DAYS + 1, True)])
def test_prices_grow_old(days: int, old: bool) -> None:
    today = date.fromordinal(date(2026, 9, 6).toordinal() + days)
    assert bool(list(stale_prices(LINES, (), today))) == old


def test_old_prices_are_named_and_the_oldest_dated() -> None:
    lines = [
        CostComponent(f"line {day}", "hours", 1, 1.0, 1.0, "a list", f"2025-01-0{day}", "list-price")
        for day in range(1, 6)
    ]
    undated = CostComponent("bought", "purchase", 1, 9.0, 0.0, "file", "", "stack file")
    (finding,) = stale_prices([undated, *lines], (), TODAY)
    assert (finding.severity, finding.code) == (Severity.WARNING, "prices.stale")
    assert finding.message == ("of 6 figures, 5 older than 180 days, the oldest of 2025-01-01 (line 1, ...)")
    assert finding.fix.startswith("run `gangway prices refresh`")


def test_what_bears_no_date_and_what_was_recalled_is_of_unknown_age() -> None:
    """Read yesterday or not: a copy without a date may be of any year. All of it is one line of the plan."""
    lines = [
        CostComponent("copy", "hours", 1, 1.0, 1.0, "a list", "", "list-price", read_on="2026-11-20"),
        CostComponent("memory", "hours", 1, 1.0, 1.0, "a page", "2026-11-20", "recalled", read_on="2026-11-20"),
        CostComponent("young", "hours", 1, 1.0, 1.0, "a list", "2026-11-20", "list-price", read_on="2026-11-20"),
        CostComponent("unpriced", "hours", 1, None, None, "nobody", "", "unknown"),
    ]
    (finding,) = stale_prices(lines, (), TODAY)
    assert finding.message == ("of 3 figures, 2 undated or recalled, read from 2026-11-20 on (copy, ...)")
    assert lines[0].dated == "undated, read 2026-11-20"


def test_a_figure_without_any_day_is_told_without_one() -> None:
    """No empty date stands in the sentence."""
    (finding,) = stale_prices([CostComponent("copy", "hours", 1, 1.0, 1.0, "a list", "", "list-price")], (), TODAY)
    assert finding.message == "of 1 figures, 1 undated or recalled (copy)"


@pytest.mark.parametrize(("seconds", "text"), [(34.56, "35 s"), (480, "8 min"), (3600, "60 min"), (11091, "3.1 h")])
def test_spans_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert span(seconds) == text
