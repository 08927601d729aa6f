"""`gangway plan A B C`: one table, JSON, and the worst exit code."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gangway.cli import main
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.cost import Bound
from gangway.report.plans import side_by_side
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, demo_plan: Plan) -> Run:
    """Plans are the demo's, with an error on Google Cloud."""

    def planned(config: StackConfig) -> Plan:
        found = (Finding.error("x", "gangway:x", "m"),) if config.provider == "gcp" else ()
        return replace(demo_plan, config=config, findings=(*demo_plan.findings, *found))

    monkeypatch.setattr(side_by_side, "make_plan", planned)
    return lambda *args: CliRunner().invoke(main.app, ["plan", *args], env={"COLUMNS": "160"})


def test_stacks_of_several_clouds_share_a_table(run: Run) -> None:
    result = run("aws-demo", "azure-ndv5-spot")
    assert result.exit_code == 0, result.output
    lines = {line.strip("│ ").split("│")[0].strip(): line for line in result.stdout.splitlines() if "│" in line}
    assert "aws" in lines["provider"]
    assert "azure" in lines["provider"]
    assert "us-east-2" in lines["region"]
    assert {
        "an hour",
        "a run, expected",
        "a run, all of max_hours",
        "energy, expected",
        "emissions, expected",
        "errors",
        "capacity",
    } <= lines.keys()
    assert "spot, then on-demand" in lines["capacity"]
    hour = lines["an hour"].strip("│ ").split("│")
    assert "*" in hour[1], "in part at another region's prices"
    assert "at most" not in lines["a run, all of max_hours"].split("│")[2]
    assert "in part at the prices of us-east-1: no bound" in result.stdout


def test_json_has_the_plans_own_figures_and_the_worst_exit_code_counts(run: Run, demo_plan: Plan) -> None:
    result = run("aws-demo", "gcp-a3-spot", "--json")
    assert result.exit_code == 1, "one of them has an error"
    first, second = json.loads(result.stdout)["stacks"]
    assert first["usd_per_hour"] == demo_plan.cost.hourly
    assert first["kwh"] == demo_plan.energy.kwh
    assert first["most_usd"] == demo_plan.most_usd
    assert (first["errors"], second["errors"]) == (0, 1)


def test_a_stack_that_cannot_be_planned_is_named_after_the_others(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "Pulumi.wrong.yaml"
    wrong.write_text("config: {gangway:provider: aws}\n", "utf-8")
    result = run("aws-demo", str(wrong))
    assert "aws-demo" in result.stdout
    assert isinstance(result.exception, ExceptionGroup)
    mistakes = result.exception.exceptions
    assert all(isinstance(one, InputError) for one in mistakes)
    assert "Pulumi.wrong.yaml" in str(mistakes[0])


@pytest.mark.parametrize(
    "flag", [["--against", "plan.json"], ["--full"], ["--explain", "x"], ["--format", "infracost"]]
)
def test_what_is_about_one_stack_is_refused(run: Run, flag: list[str]) -> None:
    result = run("aws-demo", "azure-ndv5-spot", *flag)
    assert isinstance(result.exception, InputError)
    assert result.exception.place == flag[0]


def test_a_bill_without_some_price_is_at_least(demo_plan: Plan) -> None:
    summary = replace(side_by_side.StackSummary.from_plan(demo_plan), foreign_regions=())
    assert side_by_side._cells(summary)["an hour"].startswith("$")
    partial = replace(summary, unpriced=("a disk",), bound=Bound.AT_LEAST)
    assert side_by_side._cells(partial)["an hour"].startswith("at least $")
