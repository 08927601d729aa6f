"""`gangway when`: a forecast's file in, hours out; every mistake with its place and its fix, and nothing written."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli import main
from gangway.components.core.findings import InputError

VALUES = (9, 2, 2, 9, 1, 8)


def written(path: Path, values: tuple[float, ...] = VALUES, wide: float = 1, name: str = "usd_per_hour") -> Path:
    rows = [f"2026-03-02T{hour:02}:00Z,{each},{each - wide},{each + wide},5" for hour, each in enumerate(values)]
    path.write_text("\n".join([f"time,{name},low,high,baseline", *rows, ""]), "utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "price.csv")


def answered(*arguments: str | Path) -> dict[str, Any]:
    result = CliRunner().invoke(main.app, ["when", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_hours_by_hand(file: Path) -> None:
    """Two hours at 2 and one at 1, for four nodes; running through pays 9 + 2 + 2."""
    found = answered(file, "--hours", "3h", "--restart-sec", "0", "--times", "4")
    assert [(stint["from"], stint["hours"]) for stint in found["stints"]] == [
        ("2026-03-02T01:00Z", 2),
        ("2026-03-02T04:00Z", 1),
    ]
    assert (found["expected"], found["running_through"], found["unit"]) == (20, 52, "USD")
    assert found["saving"] == {"low": 4 * (9 - 1 - 1 - 1), "middle": 32, "high": 4 * (9 - 1 + 1 + 1)}
    assert found["verdict"] == "pays"


def test_what_is_made_up_stays_told_as_that(file: Path) -> None:
    file.write_text(f"# SIMULATED: by hand\n{file.read_text('utf-8')}", "utf-8")
    assert answered(file, "--hours", "3h")["note"] == "SIMULATED: by hand"
    printed = CliRunner().invoke(main.app, ["when", str(file), "--hours", "3h"])
    assert printed.stdout.startswith("SIMULATED: by hand\n")


def test_a_deadline_leaves_the_later_hours_out(file: Path) -> None:
    found = answered(file, "--hours", "3h", "--restart-sec", "0", "--deadline", "4h")
    assert found["deadline"] == "2026-03-02T04:00Z"
    assert found["expected"] == 2 + 2 + 9


def test_without_pauses_it_waits_for_one_cheap_window(file: Path) -> None:
    found = answered(file, "--hours", "3h", "--restart-sec", "0", "--pauses", "0")
    assert [stint["from"] for stint in found["stints"]] == ["2026-03-02T02:00Z"]
    assert found["expected"] == 2 + 9 + 1


def test_wide_intervals_make_no_sure_saving(tmp_path: Path) -> None:
    found = answered(written(tmp_path / "wide.csv", wide=8), "--hours", "1", "--restart-sec", "0")
    assert found["verdict"] == "expected to pay"


def test_lines_for_people_and_the_picture(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "when.png"
    result = CliRunner().invoke(main.app, ["when", str(file), "--hours", "3", "--running", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "2026-03-02T01:00Z" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        (["--hours", "6h"], True),
        (["--hours", "6.5h", "--running"], False),
        (["--hours", "6.5h", "--restart-sec", "0"], False),
        (["--hours", "1.5h", "--deadline", "1.6h"], True),
        (["--hours", "1h", "--deadline", "0.5h", "--running"], False),
    ],
)
def test_what_does_not_fit_is_told(file: Path, arguments: list[str], *, starts: bool) -> None:
    """With a start only where it takes one."""
    result = CliRunner().invoke(main.app, ["when", str(file), *arguments])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert ("a start" in result.stderr) == starts


def test_a_deadline_may_lie_within_a_step(file: Path) -> None:
    """What runs through until then fits; what would wait for the next cheap hour is too late."""
    found = answered(file, "--hours", "1.5h", "--restart-sec", "0", "--deadline", "1.5h")
    assert [(stint["from"], stint["hours"]) for stint in found["stints"]] == [("2026-03-02T00:00Z", 1.5)]
    assert (found["deadline"], found["expected"]) == ("2026-03-02T01:30Z", 9 + 2 / 2)
    later = answered(file, "--hours", "1.5h", "--restart-sec", "0", "--deadline", "2.5h")
    assert (later["stints"][0]["from"], later["expected"]) == ("2026-03-02T01:00Z", 2 + 2 / 2)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--hours", "soon"], "--hours"),
        (["--hours", "3", "--deadline", "9h"], "--deadline"),
        (["--hours", "3", "--restart-sec", "-1"], "--restart-sec"),
        (["--hours", "3", "--times", "nan"], "--times"),
        (["--hours", "3", "--plot", "when.txt"], "--plot"),
        (["--hours", "3", "--column", "eur"], "--column"),
    ],
)
def test_mistakes_in_options(file: Path, arguments: list[str], place: str) -> None:
    result = CliRunner().invoke(main.app, ["when", str(file), *arguments])
    assert isinstance(result.exception, InputError)
    assert result.exception.place == place
    assert result.exception.fix


@pytest.mark.parametrize(
    "text",
    [
        "time,usd_per_hour\n2026-03-02T00:00Z,1\n2026-03-02T01:00Z,1\n",
        "time,usd_per_hour,low,high\n2026-03-02T00:00Z,-1,-2,1\n2026-03-02T01:00Z,1,0,2\n",
        "time,usd_per_hour,low,high\n2026-03-02T00:00Z,5,1,2\n2026-03-02T01:00Z,1,0,2\n",
        "time,low,high\n2026-03-02T00:00Z,1,2\n2026-03-02T01:00Z,0,2\n",
        "",
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.csv"
    file.write_text(text, "utf-8")
    result = CliRunner().invoke(main.app, ["when", str(file), "--hours", "1"])
    assert isinstance(result.exception, InputError)
    assert str(file) in result.exception.place
    assert result.exception.fix


def test_too_many_steps(tmp_path: Path) -> None:
    rows = [f"2026-03-{1 + hour // 24:02}T{hour % 24:02}:00Z,1,1,1" for hour in range(400)]
    file = tmp_path / "long.csv"
    file.write_text("\n".join(["time,g_per_kwh,low,high", *rows]), "utf-8")
    result = CliRunner().invoke(main.app, ["when", str(file), "--hours", "1"])
    assert isinstance(result.exception, InputError)
