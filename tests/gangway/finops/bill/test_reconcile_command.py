"""`gangway reconcile` as a person types it: tables, JSON, exit codes, and mistakes that are named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.trainer.records.run_record import RunRecord, SessionRecord

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
