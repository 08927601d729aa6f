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
from gangway.report.plans.side_by_side import MACHINES, on_machine, table
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import estimate

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


@pytest.mark.parametrize("name", ["r3gan-ffhq256", "r3gan-imagenet64", "progan-celebahq512", "r3gan-cifar10"])
@pytest.mark.parametrize("accelerator", MACHINES)
def test_hours_and_dollars_follow_from_the_speed_and_the_price(name: str, accelerator: str) -> None:
    config = PRESETS[name]
    found = on_machine(config, accelerator)
    assert not found.problem
    assert found.images_per_second is not None
    assert found.hours is not None
    assert found.usd is not None
    assert found.hours.low < found.hours.mid < found.hours.high
    assert found.hours.mid * 3600 * found.images_per_second.mid == pytest.approx(config.kimg * 1000)
    price = found.usd.mid / found.hours.mid
    assert found.usd.high / found.hours.high == pytest.approx(price)
    assert 5 < price < 200, "of eight such accelerators"
    assert "on-demand" in found.offer
    assert found.needs_gib == estimate(config, 8).total
    assert found.fitting is None


def test_what_has_no_room_or_no_images_for_all_is_said_and_costs_nothing() -> None:
    wide = on_machine(PRESETS["r3gan-ffhq256"].replace({"batch_size": 4096}), "A100x8")
    assert wide.has_gib is not None
    assert wide.needs_gib > wide.has_gib
    few = on_machine(PRESETS["progan-celebahq512"].replace({"batch_size": 16, "segments": ()}), "H100x8")
    for found, words in ((wide, "GiB of 40 GiB"), (few, "a batch of 16 is too small for 8 workers")):
        assert words in found.problem
        assert (found.hours, found.usd) == (None, None)
        assert found.problem in table(PRESETS["r3gan-ffhq256"], [found])


def test_a_micro_batch_for_which_there_is_room_is_named_where_the_estimate_has_none() -> None:
    """What is refused surely is another matter: it is told without hours."""
    config = PRESETS["r3gan-imagenet64"].replace({"batch_gpu": 128})
    found = on_machine(config, "A100-80Gx8")
    assert (found.problem, found.fitting) == ("", 64)
    assert found.has_gib is not None
    assert found.needs_gib > found.has_gib > estimate(config.replace({"batch_gpu": 64}), 8).total
    assert "--batch-gpu 64, for which there is room" in table(config, [found])


def test_an_accelerator_without_a_known_peak_has_no_hours() -> None:
    found = on_machine(PRESETS["dcgan-cifar10"], "Trainiumx16")
    assert found.hours is None
    assert "unknown" in table(PRESETS["dcgan-cifar10"], [found])


def test_steps_are_those_of_the_segments_where_there_are_some() -> None:
    found = [on_machine(PRESETS["progan-celebahq512"], machine) for machine in MACHINES]
    shown = table(PRESETS["progan-celebahq512"], found)
    assert "in steps of 512, 256, 128, 64, 32 by segments;" in shown
    assert "in steps of 512;" in table(PRESETS["r3gan-cifar10"], found)
    short = PRESETS["progan-celebahq512"].replace({"kimg": 700})
    assert "in steps of 512, 256 by segments" in table(short, found)


def test_a_batch_is_held_against_the_sizes_that_it_trains_at() -> None:
    """16,384 images at 4x4 take what few at 512x512 do."""
    config = PRESETS["progan-celebahq512"]
    large = {"from_image": 0, "batch_size": 16384}
    small = [{"from_image": 600_000, "batch_size": 32}]
    early = on_machine(config.replace({"segments": [large, *small]}), "A100-80Gx8")
    late = on_machine(config.replace({"segments": [*small, large | {"from_image": 11_000_000}]}), "A100-80Gx8")
    assert (early.problem, early.hours is None) == ("", False)
    assert "GiB of 80 GiB at least" in late.problem
    few = on_machine(config.replace({"segments": [{"from_image": 600_000, "batch_size": 16}]}), "H100x8")
    assert few.problem == "a batch of 16 is too small for 8 workers"


def test_what_makes_the_times_uncertain_is_said_beside_them() -> None:
    shown = table(PRESETS["r3gan-cifar10"], [on_machine(PRESETS["r3gan-cifar10"], "H100x8")])
    assert "from 2% to 30% of the peak and 50 to 5 us to start an operation: nobody has published a speed" in shown


@pytest.mark.parametrize("name", ["r3gan-imagenet64", "progan-celebahq512", "dcgan-cifar10"])
def test_the_table_fits_a_screen_and_has_each_offer_below_its_machine(name: str) -> None:
    found = [on_machine(PRESETS[name], machine) for machine in MACHINES]
    lines = table(PRESETS[name], found).splitlines()
    assert max(map(len, lines)) <= 120
    for each in found:
        row = next(number for number, line in enumerate(lines) if line.startswith(each.accelerator))
        assert lines[row + 1].strip() == each.offer
