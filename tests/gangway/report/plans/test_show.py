"""The plan on a terminal: everything a person needs is there, and the user's words are not taken for markup."""

from dataclasses import replace

import pytest
from rich.console import Console

from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.cost import Bound, estimate, unknown_price
from gangway.report.plans.show import (
    Detail,
    cost_table,
    explain,
    findings_table,
    first_clause,
    ladder_table,
    resource_tree,
    sandbox_notes,
    sandbox_table,
    show_plan,
    usd,
)
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.estimates.run_costs import most_bound
from gangway.stacks.plan.plan import Plan


def shown(what: object, width: int = 200) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False, quiet=False, no_color=True)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def all_of(plan: Plan, detail: Detail, width: int = 80) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        show_plan(plan, console, detail)
    return capture.get()


def shown_plan(plan: Plan) -> str:
    """The last part, with the sums."""
    return all_of(plan, Detail.SUMMARY, 200).rpartition("envelope (estimated)")[2]


@pytest.mark.parametrize(
    ("amount", "digits", "text"),
    [(1234.5, 2, "$1,234.50"), (0.34, 4, "$0.3400"), (0, 2, "$0.00"), (None, 2, "unknown")],
)
def test_an_amount_for_people(amount: float | None, digits: int, text: str) -> None:
    assert usd(amount, digits) == text


def test_the_tree_shows_components_with_their_children(demo_plan: Plan) -> None:
    lines = shown(resource_tree("aws-demo", demo_plan.resources)).splitlines()
    assert lines[0] == "aws-demo"
    assert len(lines) == 1 + len(demo_plan.resources)
    pool = next(i for i, line in enumerate(lines) if "gangway:aws:EfaNodePool" in line)
    assert lines[pool].startswith(("├── ", "└── "))
    assert lines[pool + 1].startswith("│   ├── autoscaling.Group aws-demo-0-spot")


def test_findings_come_gravest_last() -> None:
    said = [
        Finding.info("a.info", "p", "nice"),
        Finding.error("b.error", "p", "[bold]not markup[/bold]"),
        Finding.warning("c.warning", "p", "hm", "do something"),
    ]
    text = shown(findings_table(said))
    assert text.index("a.info") < text.index("c.warning") < text.index("b.error")
    assert "[bold]not markup[/bold]" in text
    assert "do something" in text


def test_short_notes_are_whole_clauses_and_nothing_that_must_be_mended_is_shortened(demo_plan: Plan) -> None:
    said = (
        Finding.info("a.info", "p", "nice things are said here, and more of them: all [that] there is", "perhaps"),
        Finding.info("a.info", "p", "another"),
        Finding.info("b.info", "p", "long " * 30 + "end; and more"),
        Finding.warning("c.warning", "p", "hm " * 40 + "end; and more", "do something"),
    )
    text = all_of(replace(demo_plan, findings=said), Detail.SUMMARY)
    assert "note a.info (2): nice things are said here\n" in text
    assert "another" not in text
    assert "perhaps" not in text
    words = " ".join(text.split())
    assert f"b.info: {'long ' * 30}end" in words, "what is no clause's end is no place to cut"
    assert f"warning {'hm ' * 40}end; and more p c.warning do something" in words
    assert "…" not in text


@pytest.mark.parametrize(
    ("message", "clause"),
    [
        ("us-east-2a chosen: the first that has it; nodes share one zone", "us-east-2a chosen: the first that has it"),
        ("no hard limit: Google is late, so the stop is too", "no hard limit: Google is late"),
        ("nodes of one rung (all that there are; two) stand together: near", "nodes of one rung"),
        ("a sentence of its own", "a sentence of its own"),
        ("160,000.00 USD are what the budget has, 3 months long", "160,000.00 USD are what the budget has"),
    ],
)
def test_a_note_ends_where_a_clause_does(message: str, clause: str) -> None:
    assert first_clause(message) == clause


def test_no_note_of_a_shipped_stack_is_cut_in_a_word(gcp_plans: dict[str, Plan], azure_plans: dict[str, Plan]) -> None:
    for plan in (*gcp_plans.values(), *azure_plans.values()):
        for finding in plan.findings:
            clause = first_clause(finding.message)
            assert finding.message.startswith(clause)
            assert clause.count("(") == clause.count(")")
            assert clause[-1] not in ",;:("


def test_a_plan_is_a_screen_or_two_and_ends_with_its_sum(
    demo_plan: Plan, gcp_plans: dict[str, Plan], azure_plans: dict[str, Plan]
) -> None:
    for plan in (demo_plan, *gcp_plans.values(), *azure_plans.values()):
        lines = all_of(plan, Detail.SUMMARY).splitlines()
        assert len(lines) <= 103, plan.config.stack
        assert lines[0].startswith(f"{plan.config.stack}: ")
        last = " ".join(lines[-5:])
        assert f"${plan.most_usd:,.2f}" in last
        is_bound = most_bound(plan.cost) is Bound.AT_MOST
        assert (f"${plan.most_usd:,.2f} at most" in last) == is_bound
        assert ("no bound" in " ".join(last.split())) != is_bound
        assert "--full" in lines[-1]


def test_brief_is_what_has_to_be_mended_and_the_sum(demo_plan: Plan) -> None:
    bad = replace(demo_plan, findings=(*demo_plan.findings, Finding.error("x.y", "gangway:cluster", "wrong", "mend")))
    text = all_of(bad, Detail.BRIEF)
    assert (
        text.index("budget.fallback") < text.index("x.y") < text.index("1 error, 4 warnings, 18 notes\n$32.83* an hour")
    )
    assert "fabric.efa" not in text
    assert "envelope" not in text
    money = (
        "$32.83* an hour; a run: 10 min, $5.56* expected; 1 h at most, $114.75* (on-demand)\n"
        "* in part at the prices of us-east-1: no bound"
    )
    expected = f"no errors, 4 warnings, 18 notes\n{money}"
    assert " ".join(expected.split()) in " ".join(all_of(demo_plan, Detail.BRIEF).split())
    assert "findings" not in all_of(replace(demo_plan, findings=()), Detail.BRIEF)


def test_everything_is_shown_on_demand(demo_plan: Plan) -> None:
    text = all_of(demo_plan, Detail.FULL, width=400)
    assert all(resource.name in text for resource in demo_plan.resources)
    assert all(finding.message in text and finding.fix in text for finding in demo_plan.findings)
    assert all(component.source in text for component in demo_plan.cost.components)


def test_one_finding_is_explained_or_the_known_ones_are_named(demo_plan: Plan) -> None:
    console = Console(width=400, no_color=True)
    with console.capture() as capture:
        explain(demo_plan, "budget.fallback", console)
    (finding,) = [each for each in demo_plan.findings if each.code == "budget.fallback"]
    assert finding.message in capture.get()
    assert finding.fix in capture.get()
    assert "fabric.efa" not in capture.get()
    with console.capture() as capture:
        explain(demo_plan, "data.protection-order", console)
    assert capture.get().startswith("data.protection-order: Rule: What protects")
    assert "Nothing found" in capture.get()
    with pytest.raises(InputError, match=r"did you mean 'fabric\.efa'"):
        explain(demo_plan, "fabric.ef", console)


def test_the_bill_shows_price_source_date_and_confidence(demo_plan: Plan) -> None:
    text = shown(cost_table(demo_plan.cost), 260)
    assert "aws-demo-0-spot: 2 x p5.48xlarge, spot" in text
    assert "$14.0818" in text
    assert "$28.16" in text
    assert "SkyPilot catalogue v9 (two undated copies), undated, read 2026-11-30, list-price" in text
    assert "(price of us-east-1), 2026-07-20, list-price" in text
    standby = next(line for line in text.splitlines() if "1-on-demand: 2 x" in line)
    assert "(standby)" in standby


def test_a_line_names_the_region_whose_price_stands_in(demo_plan: Plan) -> None:
    """Also in short, where no source is shown: us-east-2 is not what us-east-1 costs."""
    short = shown(cost_table(demo_plan.cost, sources=False), 80)
    assert short.count("price of us-east-1") == 2, "of the file system and the disks' throughput, not of the nodes"
    own = replace(demo_plan.cost.components[0], source="a list")
    assert "price of" not in shown(cost_table(estimate([own], 1), sources=False))


def test_an_unknown_price_is_shown_as_such(demo_plan: Plan) -> None:
    unknown = replace(demo_plan.cost.components[0], price=None, hourly=None)
    assert shown(cost_table(estimate([unknown], 1))).count("unknown") == 2


def test_provenance_has_no_holes(demo_plan: Plan) -> None:
    assert "no price in the catalogue, unknown" in shown(
        cost_table(estimate([unknown_price("nodes", 2, "no price in the catalogue")], 1))
    )


def test_small_lines_are_one_until_all_is_asked_for(demo_plan: Plan) -> None:
    cost = demo_plan.cost
    rows, every = shown(cost_table(cost, sources=False)), shown(cost_table(cost))
    assert "aws-demo-lustre: 9600 GiB" in rows
    assert "dashboards" not in rows
    assert all(line.name in every for line in cost.components)
    assert "smaller lines" not in every
    (small,) = [row for row in rows.splitlines() if "smaller lines" in row]
    number = int(small.split("│")[1].split()[0])
    shown_alone = [line for line in cost.components if line.name in rows]
    empty = shown(cost_table(replace(cost, components=()), sources=False))
    heights = sum(2 if line.priced_in else 1 for line in shown_alone)
    assert len(rows.splitlines()) == len(empty.splitlines()) + heights + 1
    left = [line for line in cost.components if line.name not in rows]
    assert len(left) == number
    assert f"${sum(line.hourly or 0.0 for line in left):.2f}" in small
    few = estimate([unknown_price("a: b", 1, "nobody knows"), *left[:3]], 1)
    assert "smaller lines" not in shown(cost_table(few, sources=False))


def test_a_bill_with_something_missing_says_at_least_and_names_it(demo_plan: Plan) -> None:
    lines = [*demo_plan.cost.components, unknown_price("data: 18000 GiB", 18000, "no price in the catalogue")]
    text = shown_plan(replace(demo_plan, cost=estimate(lines, 1)))
    assert "$32.83* an hour" in text
    assert "without these, whose price is not known: data: 18000 GiB" in text
    assert "at least" not in text, "where another region's price is in it"
    own = [replace(line, priced_in="", is_limit=False) for line in lines]
    assert "at least $32.83 an hour" in shown_plan(replace(demo_plan, cost=estimate(own, 1)))
    assert "at least" not in shown_plan(demo_plan)
    nothing = estimate([unknown_price("nodes: 2 hosts", 2, "not said")], 1)
    text = shown_plan(replace(demo_plan, cost=nothing))
    assert "unknown an hour, unknown a month of 730 h" in text
    assert "1 h at most, unknown (spot)" in text


def test_the_envelope_gives_an_hour_a_month_a_run_energy_and_carbon(demo_plan: Plan) -> None:
    text = all_of(demo_plan, Detail.FULL, 200)
    for words in (
        "$32.83* an hour, $23,965.20* a month of 730 h ",
        "a run: 1 h at most, $114.75* (on-demand)",
        "on the whole ladder (spot 64%, then on-demand 36%): $",
        "standby: $110.16* an hour more, when a lower rung steps in",
        "when the job is done: $32.83* an hour until the stack is destroyed",
        "kWh expected (",
        "), 23.1 at most; PUE 1.13",
        "9.14 at most; 396 g/kWh",
        "making the machines: ",
        "SCI (1,000 images): ",
        "waits 100% of a step) + 3500 W host (assumed) per node",
    ):
        assert words in text


def test_the_ladder_shows_a_run_on_each_rung_and_the_interruptions(demo_plan: Plan) -> None:
    text = shown(ladder_table(demo_plan.rungs), 300)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│ " in line]
    assert rows[0] == ["0: spot", "$32.83*", "$23,965.20*", "10 min", "$5.56*"]
    assert "one interruption in 1,644 h, goodput 99.4%, a checkpoint every 1 s (best 5 min): AWS Spot" in rows[1][0]
    assert "5-10% in the trailing month, counted as 10% of nodes in 720 h, 2025-06-28, assumed; Llama 3" in " ".join(
        row[0] for row in rows
    )
    assert ["1: on-demand", "$114.75*", "$83,764.17*", "10 min", "$19.44*"] in rows
    assert "one failure in 3,167 h, goodput 99.4%: Llama 3" in text


def test_a_rate_nobody_knows_and_a_run_without_an_end_are_said(demo_plan: Plan, gcp_plans: dict[str, Plan]) -> None:
    (rung,) = gcp_plans["gcp-v5e-pod"].rungs
    assert "rate not known: failures alone, one in" in shown(ladder_table([rung]), 300)
    assert "Google publishes no rate" in shown(ladder_table([rung]), 300)
    endless = replace(demo_plan.rungs[0], run_hours=None, run=None)
    text = shown(ladder_table([endless]), 300)
    assert "no end" in text
    assert "unknown" in text


def test_a_ladder_of_which_no_rate_is_known_says_so_in_words(gcp_plans: dict[str, Plan]) -> None:
    text = " ".join(all_of(gcp_plans["gcp-a3-spot"], Detail.SUMMARY).split())
    assert "a run: not known how often spot is taken there; $" in text
    assert "unknown expected" not in text


def test_usage_is_shown_once_a_run(demo_plan: Plan) -> None:
    line = replace(demo_plan.cost.components[0], name="log lines, a run", unit="GiB", hourly=0.0, once=1.5)
    text = shown(cost_table(estimate([line], 1)), 200)
    assert "$1.50" in text
    assert "once a run" in text


def test_unknown_energy_is_unknown_carbon_too(gcp_plans: dict[str, Plan]) -> None:
    text = shown_plan(gcp_plans["gcp-v5e-pod"])
    assert "energy: unknown kWh; PUE" in text
    assert "emissions: unknown kg CO2e; " in text
    assert "making the machines: unknown kg CO2e" in text


def test_the_sandbox_says_that_it_is_one_and_counts_by_type() -> None:
    rows = [
        SandboxRow("aws:ec2/vpc:Vpc", "demo-vpc", Status.READ_BACK_EQUAL, ("ec2:CreateVpc",), ""),
        SandboxRow("aws:ec2/vpc:Vpc", "other-vpc", Status.READ_BACK_EQUAL, ("ec2:CreateVpc",), ""),
        SandboxRow("aws:ec2/placementGroup:PlacementGroup", "demo", Status.VALIDATED, (), "moto lacks [this] action"),
    ]
    text = shown(sandbox_table(rows))
    assert "SIMULATED by moto, nothing was billed" in text
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│ ec2")]
    assert cells == [["ec2.PlacementGroup", "1", "", "1"], ["ec2.Vpc", "2", "2", ""]]
    assert "different" not in text, "a result that nobody had needs no column"
    assert sandbox_notes(rows) == ["ec2.PlacementGroup demo: validated only; moto lacks [this] action"]
