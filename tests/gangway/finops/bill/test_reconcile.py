"""Estimated, recorded, billed: the three clouds' hand-made bills against records of the same day."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.finops.bill.reader import Bills
from gangway.finops.bill.reconcile import Reconciliation, reconcile
from gangway.runs.run_folders import Run
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext, RunRecord, SessionRecord

PLAN = {"stack": "aws-p5-spot", "provider": "aws", "cost": {"run": 200.0, "run_hours": 4.0}}
Sessions = Callable[..., SessionRecord]
Records = Callable[..., RunRecord]


def run(record: RunRecord, plan: dict[str, Any] | None = None) -> Run:
    return Run(Path("run"), record, plan)


def parts(result: Reconciliation) -> float:
    rest = [*result.unexplained.values(), *result.untagged.values()]
    return sum(line.billed.usd for line in result.runs) + sum(sums.usd for sums in rest)


def test_on_aws_by_hand(samples: Path, run_1: RunRecord) -> None:
    result = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1, PLAN)])
    (line,) = result.runs
    # Two nodes for four begun hours, less the hour's refund; the file system's four hours, and its day's credit.
    assert line.billed.compute_usd == pytest.approx(8 * 22.98 - 1)
    assert line.billed.usd == pytest.approx(8 * 22.98 - 1 + 4 * 4.5 - 3)
    assert line.recorded.value == pytest.approx(7 * 22.98)
    assert line.percent == pytest.approx((8 * 22.98 - 1 - 7 * 22.98) / (7 * 22.98) * 100)
    assert line.estimated.value == 200
    assert line.percent_of_estimate == pytest.approx((line.billed.usd - 200) / 2)
    # The boot before the run's first step, and twenty hours of the file system.
    assert result.unexplained["aws", "aws-p5-spot"].usd == pytest.approx(2 * 22.98 + 20 * 4.5)
    assert dict(result.untagged["aws"].by_service) == {"Amazon Simple Storage Service": 12, "Tax": 7.5}
    assert parts(result) == pytest.approx(result.total.usd) == pytest.approx(353.3)
    assert result.missing == ()
    assert result.notes == ()


def test_on_google_cloud_by_hand(samples: Path, get_record: Records, session_of: Sessions) -> None:
    record = get_record([session_of(10, 13.5, "spot")], stack="gcp-a3-spot", provider="gcp")
    result = reconcile(Bills([samples / "gcp_detailed.jsonl"]), [run(record)])
    (line,) = result.runs
    assert line.billed.usd == pytest.approx(4 * (30 + 6 - 1.5) - 2)
    assert dict(line.billed.by_category) == {"Usage": 144, "Credit": -6, "Adjustment": -2}
    assert result.unexplained["gcp", "gcp-a3-spot"].usd == 2
    assert result.untagged["gcp"].usd == pytest.approx(3 + 4 - 0.01)
    assert parts(result) == pytest.approx(result.total.usd)


def test_on_azure_by_hand(samples: Path, get_record: Records, session_of: Sessions) -> None:
    """The account pays in euros; without a rate nothing can be compared, and that is said."""
    record = get_record([session_of(10, 13.5, "spot")], stack="azure-ndv5-spot", provider="azure")
    silent = reconcile(Bills([samples / "azure_focus.csv"]), [run(record)])
    assert silent.foreign == {"EUR": 78.5}
    assert (silent.total.num_charges, silent.runs[0].why_nothing) == (
        0,
        "its charges are in EUR: add --usd-per EUR=RATE",
    )
    assert silent.notes == ("78.50 EUR is in no total: add --usd-per EUR=RATE",)
    result = reconcile(Bills([samples / "azure_focus.csv"]), [run(record)], rates={"EUR": 1.1})
    (line,) = result.runs
    assert line.billed.usd == pytest.approx(72.5 * 1.1)
    assert line.billed.compute_usd == pytest.approx(63.5 * 1.1)
    assert result.unexplained["azure", "azure-ndv5-spot"].usd == pytest.approx(5.5)
    assert result.untagged["azure"].usd == pytest.approx(1.1)
    assert result.notes == (
        "EUR counts as 1.1 USD (assumed: --usd-per)",
        "charges of runs span more than an hour: idle time within them counts for the run",
    )


def test_another_runs_bill_in_another_currency_is_no_empty_bill(samples: Path, run_1: RunRecord) -> None:
    result = reconcile(Bills([samples / "azure_focus.csv"]), [run(run_1)])
    assert result.runs[0].why_nothing == "the bill has no charge in US dollars"


@pytest.mark.parametrize("cost", [None, [], {"run": True}, {"run": "12"}, {"run": float("nan")}, {"run_hours": 3}])
def test_a_plan_beside_a_record_may_be_anything(samples: Path, run_1: RunRecord, cost: object) -> None:
    """A file of another version, or edited: it is no estimate, and no traceback either."""
    plan = {"stack": "aws-p5-spot", "provider": "aws", "cost": cost}
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1)._replace(plan=plan)]).runs
    assert (line.estimated.value, line.estimated.source) == (None, "the plan has no cost of a run")
    odd = {**plan, "cost": {"run": 12.5, "run_hours": "three"}}
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1)._replace(plan=odd)]).runs
    assert (line.estimated.value, line.estimated.note) == (12.5, "")


def test_a_plan_that_no_run_is_of_is_told(samples: Path, run_1: RunRecord) -> None:
    plans = {"aws-p5-spto": {"stack": "aws-p5-spto", "provider": "aws", "cost": {"run": 1.0}}}
    notes = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1)], plans).notes
    assert "the plan of stack 'aws-p5-spto' is unused: no run of it, or each has its own plan" in notes


def test_three_clouds_at_once(samples: Path, get_record: Records, session_of: Sessions, run_1: RunRecord) -> None:
    names = ("aws_focus.csv", "gcp_detailed.jsonl", "azure_focus.csv")
    runs = [
        run(run_1),
        run(get_record([session_of(10, 12, "spot")], "run-2", "gcp-a3-spot", "gcp")),
        run(get_record([session_of(10, 12, "spot")], "run-3", "azure-ndv5-spot", "azure")),
    ]
    result = reconcile(Bills([samples / name for name in names]), runs, rates={"EUR": 1.1})
    assert [line.why_nothing for line in result.runs] == ["", "", ""]
    assert parts(result) == pytest.approx(result.total.usd)
    assert set(result.untagged) == {"aws", "azure", "gcp"}


def test_why_a_run_is_not_in_the_bill(samples: Path, get_record: Records, session_of: Sessions) -> None:
    here = [session_of(10, 12, "spot")]
    runs = [
        run(get_record(here, "elsewhere", "another-stack")),
        run(get_record([session_of(240, 242, "spot")], "later")),
        run(get_record(here, "at-home", provider="local")),
    ]
    result = reconcile(Bills([samples / "aws_focus.csv"]), runs)
    reasons = {line.run_id: line.why_nothing for line in result.runs}
    assert reasons["elsewhere"].startswith("no charge at its time has the tag of stack 'another-stack'")
    assert reasons["later"] == "the bill covers 2026-10-05 to 2026-10-06, the run was on 2026-10-15"
    assert reasons["at-home"] == "ran on local: not billed by a cloud"
    assert [line.run_id for line in result.missing] == ["elsewhere", "later"]
    assert [line.percent for line in result.runs] == [None, None, None]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (None, "no plan of this stack"),
        ({**PLAN, "stack": "other"}, "no plan of this stack"),
        ({**PLAN, "provider": "gcp"}, "the plan is for gcp, the run was on aws"),
        ({**PLAN, "cost": {"run": None}}, "the plan has no cost of a run"),
    ],
)
def test_an_estimate_that_is_not_there(samples: Path, run_1: RunRecord, plan: dict[str, Any] | None, why: str) -> None:
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1, plan)]).runs
    assert line.estimated.source.startswith(why)
    assert line.percent_of_estimate is None


def test_an_estimate_is_of_the_expected_run_where_the_plan_has_one(samples: Path, run_1: RunRecord) -> None:
    expected = {"usd": {"low": 150.0, "mid": 190.0, "high": 230.0}, "hours": {"low": 2.5, "mid": 3.25, "high": 4}}
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1, {**PLAN, "expected_run": expected})]).runs
    assert (line.estimated.value, line.estimated.note) == (190, "of 3.25 h, 150.00 to 230.00")
    assert line.percent_of_estimate == pytest.approx((line.billed.usd - 190) / 1.9)
    for none in (None, {}, {"usd": None, "hours": None}, {"usd": {"mid": "190"}}, {"usd": [150, 190, 230]}):
        (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1, {**PLAN, "expected_run": none})]).runs
        assert (line.estimated.value, line.estimated.note) == (200, "of 4 h")


def test_a_plan_given_apart(samples: Path, run_1: RunRecord) -> None:
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1)], {"aws-p5-spot": PLAN}).runs
    assert line.estimated.value == 200


def test_a_run_without_recorded_dollars(samples: Path, get_record: Records, session_of: Sessions) -> None:
    record = get_record([session_of(10, 12, "spot")], context=RunContext())
    (line,) = reconcile(Bills([samples / "aws_focus.csv"]), [run(record)]).runs
    assert line.recorded == Quantity.absent("USD", "the launcher gave no price of spot nodes")
    assert line.percent is None
    assert line.billed.usd > 0


def test_tags_that_were_activated_late(
    write_csv: Callable[..., Path], focus_row: Callable[..., dict[str, str]], run_1: RunRecord
) -> None:
    early = focus_row(ChargePeriodStart="2026-10-05T10:00:00Z", ResourceId="i-1", Tags="{}", BilledCost="1")
    late = focus_row(ChargePeriodStart="2026-10-05T11:00:00Z", ChargePeriodEnd="2026-10-05T12:00:00Z", ResourceId="i-1")
    told: list[int] = []
    result = reconcile(Bills([write_csv([early, late])]), [run(run_1)], progress=told.append)
    assert result.runs[0].billed.usd == 3
    assert result.untagged == {}
    assert result.notes == ("1 resources are tagged in some rows only; their other rows count for the same stack",)
    assert (result.num_rows, result.num_replaced) == (2, 0)


def test_one_run_with_charges_by_the_day_is_told_beside_others_by_the_hour(
    write_csv: Callable[..., Path],
    focus_row: Callable[..., dict[str, str]],
    run_1: RunRecord,
    get_record: Records,
    session_of: Sessions,
) -> None:
    hourly = focus_row(ChargePeriodStart="2026-10-05T10:00:00Z", ChargePeriodEnd="2026-10-05T11:00:00Z")
    daily = {"ChargePeriodStart": "2026-10-05T00:00:00Z", "ChargePeriodEnd": "2026-10-06T00:00:00Z"}
    other = get_record([session_of(10, 12, "spot")], "run-2", "by-the-day")
    said = "charges of runs span more than an hour: idle time within them counts for the run"

    def notes(**stack: str) -> tuple[str, ...]:
        bill = write_csv([hourly, focus_row(**daily, **stack)])
        result = reconcile(Bills([bill]), [run(run_1), run(other)])
        assert result.runs[0].billed.longest_sec == 3600
        return result.notes

    assert notes(Tags='{"gangway:stack": "by-the-day"}') == (said,)
    assert notes(Tags='{"gangway:stack": "nobody"}') == ()


def test_as_json_it_is_plain_data(samples: Path, run_1: RunRecord, get_record: Records, session_of: Sessions) -> None:
    other = get_record([session_of(10, 12, "spot")], "run-2", "another-stack")
    data = reconcile(Bills([samples / "aws_focus.csv"]), [run(run_1, PLAN), run(other)]).to_json()
    assert (data["currency"], data["cost"], data["num_rows"]) == ("USD", "effective", 38)
    first, second = data["runs"]
    assert first["billed"]["first"] == "2026-10-05T00:00:00+00:00"
    assert first["recorded"]["provenance"] == "estimated"
    assert second["billed"] is None
    assert [(each["provider"], each["stack"]) for each in data["unexplained"]] == [("aws", "aws-p5-spot")]
    assert [each["provider"] for each in data["untagged"]] == ["aws"]
    assert data["untagged"][0]["by_service"] == {"Amazon Simple Storage Service": 12, "Tax": 7.5}


Gangway = Callable[..., tuple[int, str]]


@pytest.fixture
def gangway(monkeypatch: pytest.MonkeyPatch) -> Gangway:
    """Runs a command; a mistake is raised as it is."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, [str(word) for word in words])
        if isinstance(result.exception, InputError):
            raise result.exception
        return result.exit_code, result.stdout

    return call


def test_a_bill_and_its_runs(gangway: Gangway, samples: Path, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(
        json.dumps({"stack": "aws-p5-spot", "provider": "aws", "cost": {"run": 200.0, "run_hours": 4}})
    )
    code, text = gangway(
        *("reconcile", "--bill", samples / "aws_focus.csv", "--runs", run_dir.parent, "--plan", tmp_path / "plan.json")
    )
    assert code == 0
    (row,) = [line for line in text.splitlines() if "200.00" in line]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells == ["run-1", "200.00", "160.86", "197.84", "182.84", "+13.7%", "-1.1%"]
    assert "unexplained: aws, stack aws-p5-spot, no active run" in text
    assert "Amazon FSx 90.00, Amazon Elastic Compute Cloud 45.96" in text
    assert "aws, without a stack's tag" in text
    assert "353.30 in 38 rows, 2026-10-05 to 2026-10-06 (effective cost): 197.84 of runs, 135.96 unexplained" in text


def test_a_run_that_is_not_in_the_bill(gangway: Gangway, samples: Path, run_dir: Path) -> None:
    code, text = gangway("reconcile", "--bill", samples / "gcp_detailed.jsonl", "--runs", run_dir)
    assert code == 1
    assert "run-1: not in the bill: no charge at its time has the tag of stack 'aws-p5-spot'" in text


def test_what_is_missing_is_said_last(gangway: Gangway, samples: Path, run_dir: Path) -> None:
    half = run_dir.parent / "half"
    half.mkdir()
    (half / "stats.jsonl").touch()
    words = ["reconcile", "--bill", samples / "gcp_detailed.jsonl", "--runs", run_dir.parent]
    result = CliRunner().invoke(app, [str(word) for word in words])
    *_, last, half_run = result.output.splitlines()
    assert last.startswith("run-1: not in the bill: ")
    assert half_run == f"warning: {half}: no run.json; its cost counts as unexplained"


def test_at_home_no_bill_is_missed(
    gangway: Gangway,
    samples: Path,
    tmp_path: Path,
    get_record: Callable[..., RunRecord],
    session_of: Callable[..., SessionRecord],
) -> None:
    get_record([session_of(1, 2, "")], provider="local").write(tmp_path / "run.json")
    code, text = gangway("reconcile", "--bill", samples / "gcp_detailed.jsonl", "--runs", tmp_path)
    assert code == 0
    assert "ran on local: not billed by a cloud" in text


def test_as_json(gangway: Gangway, samples: Path, run_dir: Path) -> None:
    words = ("reconcile", "--bill", samples / "aws_cur2.csv", "--runs", run_dir, "--json")
    effective = json.loads(gangway(*words)[1])
    billed = json.loads(gangway(*words, "--cost", "billed")[1])
    assert (effective["cost"], billed["cost"]) == ("effective", "billed")
    # The savings plan's hour and the reservation's are worth something, and invoiced with their fees.
    difference = effective["runs"][0]["billed"]["usd"] - billed["runs"][0]["billed"]["usd"]
    assert difference == pytest.approx(31 + 38)


def test_a_file_that_is_no_plan_and_two_of_one_stack(
    gangway: Gangway, samples: Path, run_dir: Path, tmp_path: Path
) -> None:
    words = ("reconcile", "--bill", samples / "aws_focus.csv", "--runs", run_dir)
    with pytest.raises(InputError, match=r"run.json: not a plan: no stack, or no cost of a run"):
        gangway(*words, "--plan", run_dir / "run.json")
    plans = [tmp_path / name for name in ("a.json", "b.json")]
    for path in plans:
        path.write_text(json.dumps({"stack": "aws-p5-spot", "provider": "aws", "cost": {"run": 1.0}}))
    with pytest.raises(InputError, match=r"b.json: two plans of one stack(.|\n)*'aws-p5-spot'"):
        gangway(*words, "--plan", plans[0], "--plan", plans[1])


def test_currencies(gangway: Gangway, samples: Path, run_dir: Path) -> None:
    words = ("reconcile", "--bill", samples / "azure_focus.csv", "--runs", run_dir)
    assert "78.50 EUR is in no total: add --usd-per EUR=RATE" in gangway(*words)[1]
    assert "EUR counts as 1.08 USD" in gangway(*words, "--usd-per", "EUR=1.08")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cost", "efective"), r"--cost: no such cost(.|\n)*did you mean 'effective'\?"),
        (("--usd-per", "1.08"), r"--usd-per: not a rate(.|\n)*EUR=1.08"),
        (("--usd-per", "EUR=0"), "--usd-per: not a rate"),
        (("--usd-per", "USD=2"), r"--usd-per: USD needs no rate(.|\n)*'USD=2'"),
        (("--usd-per", "EUR=1.1", "--usd-per", "EUR=1.2"), r"two rates for EUR(.|\n)*'EUR=1.2'"),
        (("--plan", "nowhere.json"), "nowhere.json: cannot be read"),
        (("--runs", "nowhere"), r"--runs: no such folder or file(.|\n)*nowhere"),
        (("--bill", "nowhere"), r"--bill: no such file or folder(.|\n)*nowhere"),
    ],
)
def test_mistakes_are_named(
    gangway: Gangway, samples: Path, run_dir: Path, words: tuple[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        gangway("reconcile", "--bill", samples / "aws_focus.csv", "--runs", run_dir, *words)
