"""`job.autoscale` in a plan: the curve by number of nodes, the number that it would begin with, and mistakes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding, InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import autoscale_findings, find_curve, wanted_nodes
from gangway.stacks.estimates.run_costs import rung_in_use, rung_lines
from gangway.stacks.plan.plan import make_plan

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
H100X8 = load().machine("p5.48xlarge")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def asking(autoscale: dict[str, Any], **job: Any) -> Callable[[dict[str, Any]], None]:
    """On one to eight nodes, with a network that more of them make faster."""

    def edit(values: dict[str, Any]) -> None:
        own = {"preset": "r3gan-imagenet64", "kimg": 20_000, "max_hours": 300, "settings": {"batch_size": 4096}}
        values["gangway:job"] = {**own, "autoscale": autoscale, **job}
        values["gangway:cluster"]["nodes"] = {"min": 1, "max": 8}

    return edit


def told(config: StackConfig, now: datetime = NOW) -> dict[str, Finding]:
    return {finding.code: finding for finding in autoscale_findings(config, H100X8, None, now)}


def begins_with(config: StackConfig, now: datetime = NOW) -> int:
    return int(told(config, now)["autoscale.begins"].message.removeprefix("the job would start with ").split()[0])


def test_the_curve_is_the_plans_own_and_grows_with_the_nodes(edited: Edited) -> None:
    config = edited(asking({"images_per_sec": 1}))
    curve = find_curve(config, H100X8)
    assert [*curve] == list(range(1, 9))
    assert all(rate.low < rate.mid < rate.high for rate in curve.values())
    assert curve[8].mid > 2 * curve[1].mid


def test_what_was_measured_is_the_level_and_the_projection_the_shape(edited: Edited) -> None:
    plain = find_curve(edited(asking({"images_per_sec": 1})), H100X8)

    def measure(values: dict[str, Any]) -> None:
        asking({"images_per_sec": 1})(values)
        values["gangway:estimate"] = {"images_per_second": 5000}

    curve = find_curve(edited(measure), H100X8)
    assert curve[8].low == curve[8].mid == curve[8].high
    assert 4000 < curve[8].mid <= 5000, "less what checkpoints and interruptions take"
    assert curve[1].mid / curve[8].mid == pytest.approx(plain[1].mid / plain[8].mid, rel=0.1)
    assert curve[1].high / curve[1].low < plain[1].high / plain[1].low, "a measurement narrows it"


def test_a_nearer_deadline_begins_with_more_nodes(edited: Edited) -> None:
    config = edited(asking({"deadline": "2030-02-01T00:00:00Z"}))
    deadline = datetime(2030, 2, 1, tzinfo=UTC)
    numbers = [begins_with(config, deadline - timedelta(hours=hours)) for hours in (700, 40, 20, 10, 5, 1)]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 8)


def test_what_cannot_be_reached_is_an_error_and_what_is_not_expected_a_warning(edited: Edited) -> None:
    curve = find_curve(edited(asking({"images_per_sec": 1})), H100X8)
    slow = told(edited(asking({"images_per_sec": curve[8].high * 1.01})))
    assert slow["autoscale.missed"].severity is Severity.ERROR
    unsure = told(edited(asking({"images_per_sec": curve[8].mid * 1.01})))
    assert unsure["autoscale.missed"].severity is Severity.WARNING
    assert "autoscale.missed" not in told(edited(asking({"images_per_sec": curve[8].mid * 0.99})))


@pytest.mark.slow
def test_an_hours_bound_of_the_controller_holds_back_nodes(edited: Edited) -> None:
    def begins(**job: Any) -> tuple[int, str]:
        config = edited(asking({"images_per_sec": 1e9}, **job))
        (found,) = (each for each in make_plan(config).findings if each.code == "autoscale.begins")
        words = found.message.removeprefix("the job would start with ")
        return int(words.split()[0]), words

    assert begins()[0] == 8
    with pytest.raises(InputError) as caught:
        begins(controller={"bounds": {"usd_per_hour": 0.01}})
    least = float(caught.value.fix.rpartition(" ")[2])  # of a node on the cheapest rung
    _, words = begins(controller={"bounds": {"usd_per_hour": least}})
    price = float(words.partition("a node costs ")[2].split()[0])
    nodes, words = begins(controller={"bounds": {"usd_per_hour": 2.5 * price}})
    assert nodes == 2
    assert f"pays no more than {nodes}" in words


def test_an_hour_whose_price_nobody_knows_brings_no_more_nodes(edited: Edited) -> None:
    job = {"controller": {"bounds": {"usd_per_hour": 200}}}
    config = edited(asking({"images_per_sec": 1e9}, **job))
    curve = find_curve(config, H100X8)
    for present, nodes in ((None, 1), (3, 3)):
        wanted = wanted_nodes(config, H100X8, None, curve, NOW, present=present)
        assert (wanted.nodes, "is unknown" in wanted.reason) == (nodes, True)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 6, 7])
def test_an_hours_bound_of_some_nodes_price_pays_so_many(edited: Edited, nodes: int) -> None:
    """Whatever the last bit of the quotient says: 1.2 is three times 0.4, and 1.2 / 0.4 is less than 3."""
    plain = edited(asking({"images_per_sec": 1e9}))
    cost, curve = make_plan(plain).cost, find_curve(plain, H100X8)
    assert cost is not None
    price = sum(line.hourly or 0.0 for line in rung_lines(plain, cost.components, rung_in_use(plain, cost))) / 8
    bound = {"controller": {"bounds": {"usd_per_hour": price * nodes * (1 - 1e-12)}}}
    config = edited(asking({"images_per_sec": 1e9}, **bound))
    assert wanted_nodes(config, H100X8, cost, curve, NOW, present=8).nodes == nodes


def test_an_hours_bound_gives_up_no_node_that_is_paid_for_anyway(edited: Edited) -> None:
    def edit(values: dict[str, Any]) -> None:
        asking({"images_per_sec": 1e9}, controller={"bounds": {"usd_per_hour": 200}})(values)
        values["gangway:cluster"]["capacity"] = [{"kind": "reservation", "id": "cr-0123456789abcdef0"}]

    config = edited(edit)
    curve = find_curve(config, H100X8)
    assert wanted_nodes(config, H100X8, None, curve, NOW, present=8).nodes == 8


def test_who_carries_it_out_is_told(edited: Edited) -> None:
    config = edited(asking({"images_per_sec": 1}))
    assert config.provider == "aws"
    by_command = told(config)["autoscale.by-command"]
    assert by_command.severity is Severity.INFO
    assert f"gangway job {config.stack} --scale" in by_command.message

    def on(provider: str, kind: str) -> dict[str, Finding]:
        def edit(values: dict[str, Any]) -> None:
            asking({"images_per_sec": 1})(values)
            values["gangway:cluster"]["capacity"] = [{"kind": kind}]

        return told(edited(edit).model_copy(update={"provider": provider}))

    assert on("openstack", "on-demand")["autoscale.told-not-done"].severity is Severity.WARNING
    assert "none are removed" in on("azure", "spot")["autoscale.by-command"].message
    assert "none are removed" not in on("azure", "on-demand")["autoscale.by-command"].message
    one = edited(lambda values: values["gangway:job"].update({"autoscale": {"images_per_sec": 1}}))
    assert "autoscale.one-number" in told(one)
    assert told(edited(lambda values: None)) == {}


def test_where_nodes_may_be_sent_away_none_of_them_is_missed(edited: Edited) -> None:
    assert edited(asking({"images_per_sec": 1})).expected_nodes == 1
    plain = edited(lambda values: values["gangway:cluster"].update(nodes={"min": 1, "max": 8}))
    assert plain.expected_nodes == 8


@pytest.mark.slow
def test_mistakes_have_a_value_that_will_do(edited: Edited) -> None:
    with pytest.raises(InputError, match="in the past") as past:
        told(edited(asking({"deadline": "2029-12-31T23:59:59Z"})))
    assert "2030-01-01T00:00:00Z" in past.value.allowed
    with pytest.raises(InputError, match="below an hour of one node") as poor:
        make_plan(edited(asking({"budget_usd": 1})))
    fix = float(poor.value.fix.removeprefix("write budget_usd: "))
    assert make_plan(edited(asking({"budget_usd": fix}))).findings
    with pytest.raises(ExceptionGroup) as nothing:
        edited(asking({"hold_minutes": 5}))
    assert "one at least" in str(nothing.value.exceptions[0])


def test_what_holds_the_nodes_back_is_what_the_fix_is_about(edited: Edited) -> None:
    price = 60.0
    bound = {"controller": {"bounds": {"usd_per_hour": 2.5 * price}}}
    by_nodes = told(edited(asking({"images_per_sec": 1e9})))["autoscale.missed"].fix
    by_dollars = told(edited(asking({"images_per_sec": 1e9}, **bound)))["autoscale.missed"].fix
    assert ("cluster.nodes.max" in by_nodes, "usd_per_hour" in by_nodes) == (True, False)
    assert ("cluster.nodes.max" in by_dollars, "usd_per_hour" in by_dollars) == (False, True)
