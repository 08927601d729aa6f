"""`gangway forecast` and `gangway when` from outside: whole answers, the files that they write, and mistakes."""

import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangway.cli import main
from gangway.components.core.findings import InputError
from gangway.sim.forecast.series import Series, read_series
from gangway.sim.forecast.synthetic import simulate
from gangway.trainer.power.forecast import read_forecast

GOLDEN = Path(__file__).parent / "forecast.golden"
NUMBER = re.compile(r"-?[0-9]+(?:[.,][0-9]+)*")
QUICK = ["--horizon", "6h", "--level", "0.8"]


@pytest.fixture(scope="module")
def history() -> Series:
    return simulate("grid", 24 * 14)


@pytest.fixture
def file(tmp_path: Path, history: Series) -> Path:
    (tmp_path / "grid.csv").write_text(history.write_csv(), "utf-8")
    return tmp_path / "grid.csv"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main.app, ["forecast", *map(str, arguments)], env={"COLUMNS": "110"})


def refused(*arguments: str | Path) -> InputError:
    error = run(*arguments).exception
    assert isinstance(error, InputError), error
    return error


def numbers(text: str) -> Iterator[float]:
    return (float(found.replace(",", "")) for found in NUMBER.findall(text))


def test_the_answer_is_the_golden_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words and layout are; numbers to a twentieth, since a tree may split otherwise on another processor."""
    monkeypatch.chdir(file.parent)
    printed = run("grid.csv", *QUICK).stdout
    if os.environ.get("GANGWAY_UPDATE_GOLDEN"):
        GOLDEN.write_text(printed, "utf-8")
    golden = GOLDEN.read_text("utf-8")
    assert re.sub(r" +", " ", NUMBER.sub("#", printed)) == re.sub(r" +", " ", NUMBER.sub("#", golden))
    assert list(numbers(printed)) == pytest.approx(list(numbers(golden)), rel=0.05, abs=2)
    assert printed.startswith("SIMULATED")


def test_all_files_and_the_json_say_the_same(file: Path, history: Series, tmp_path: Path) -> None:
    out, gauges, plot, ledger = (tmp_path / name for name in ("f.csv", "f.prom", "f.svg", "l.jsonl"))
    asked: list[str | Path] = [
        file,
        *QUICK,
        "--out",
        out,
        "--gauges",
        gauges,
        "--plot",
        plot,
        "--ledger",
        ledger,
        "--json",
    ]
    answer: dict[str, Any] = json.loads(run(*asked).stdout)
    steps = answer["forecast"]
    assert len(steps) == 6
    assert all(step["low"] <= step["middle"] <= step["high"] for step in steps)
    assert [step["baseline"] for step in steps] == pytest.approx(history.values[-24:-18], rel=1e-9)
    assert answer["files"] == [str(path) for path in (gauges, out, plot)]
    assert answer["ledger"]["added"] is True
    # What the launcher's --start-when reads, by its own reader.
    read = read_forecast(str(out))
    assert [interval.value for interval in read.intervals] == pytest.approx([step["middle"] for step in steps])
    assert read.note == " ".join(history.note.splitlines())
    assert read_series(out, "g_per_kwh").note == history.note
    labels = 'ahead_seconds="3600",of="grid",quantile="0.5",series="g_per_kwh"'
    assert f"gangway_forecast_value{{{labels}}} {steps[0]['middle']}" in gauges.read_text("utf-8")
    assert ET.fromstring(plot.read_bytes()).tag.endswith("svg")
    said = json.loads(ledger.read_text("utf-8"))
    assert said["model"]["middle"] == [step["middle"] for step in steps]


@pytest.mark.slow
def test_the_ledger_judges_what_was_published(history: Series, tmp_path: Path) -> None:
    path, ledger = tmp_path / "grid.csv", tmp_path / "l.jsonl"
    for known in (320, 328, 336):
        path.write_text(history.until(known).write_csv(), "utf-8")
        answer = json.loads(run(path, *QUICK, "--ledger", ledger, "--json").stdout)
    assert (answer["ledger"]["new"], answer["ledger"]["model"]["forecasts"]) == (6, 2)
    errors = [
        abs(said["model"]["middle"][index] - history.values[320 + 8 * number + index])
        for number, said in enumerate(json.loads(line) for line in ledger.read_text("utf-8").splitlines()
                                      if '"forecast"' in line)
        if number < 2
        for index in range(6)
    ]  # fmt: skip
    assert answer["ledger"]["model"]["mae"] == pytest.approx(sum(errors) / 12, rel=1e-6)
    gain = answer["ledger"]["skill"]
    assert (gain["low"], gain["high"], gain["verdict"]) == (
        None,
        None,
        "too few blocks of forecasts for a claim: 2 of 6",
    )
    printed = run(path, *QUICK, "--ledger", ledger).stdout
    assert "already has a forecast from this time" in printed
    assert "2 published forecasts with known true values" in printed
    assert "too few blocks of forecasts for a claim: 2 of 6" in printed


@pytest.mark.slow
def test_a_ledger_keeps_grids_apart_and_says_so_once(file: Path, tmp_path: Path) -> None:
    other, ledger = tmp_path / "fr.csv", tmp_path / "l.jsonl"
    other.write_bytes(file.read_bytes())
    asked: list[str | Path] = [*QUICK, "--ledger", ledger, "--json"]
    calls: list[tuple[list[str | Path], str, list[str]]] = [
        ([file], "grid", []), ([other], "fr", ["grid"]), ([other], "fr", []), ([other, "--of", "grid"], "grid", []),
    ]  # fmt: skip
    for words, of, others in calls:
        answer = json.loads(run(*words, *asked).stdout)
        assert (answer["of"], answer["ledger"]["others"]) == (of, others)
    assert [json.loads(line)["of"] for line in ledger.read_text("utf-8").splitlines()] == ["grid", "fr"]
    assert "the first g_per_kwh of de; other subjects: grid, fr" in run(file, "--of", "de", *asked[:-1]).stdout


@pytest.mark.parametrize(
    ("arguments", "place", "fix"),
    [
        ([], "FILE", "name a file"),
        (["FILE", "--simulate", "grid"], "FILE", "remove one"),
        (["--simulate", "gird"], "--simulate", "did you mean 'grid'?"),
        (["none.csv"], "none.csv", "name a file"),
        (["FILE", "--column", "usd"], "--column", "choose one of the allowed values"),
        (["FILE", "--horizon", "90h30"], "--horizon", "write --horizon"),
        (["FILE", "--horizon", "1.5h"], "--horizon", "write --horizon 2h"),
        (["FILE", "--horizon", "900d"], "--horizon", "write --horizon 2016h"),
        (["FILE", "--season", "0.2h"], "--season", "write --season 1h"),
        (["FILE", "--level", "90"], "--level", "write --level 0.9"),
        (["FILE", "--gauges", "grid.txt"], "--gauges", "--gauges grid.prom"),
        (["FILE", "--plot", "grid.pdf"], "--plot", "--plot grid.png"),
        (["FILE", "--out", "FILE"], "--out", "--out "),
        (["FILE", "--horizon", "200h"], "FILE: g_per_kwh", "--horizon "),
    ],
)
def test_mistakes_are_told_with_place_and_fix(file: Path, arguments: list[str], place: str, fix: str) -> None:
    before = sorted(file.parent.iterdir())
    error = refused(*(str(file) if word == "FILE" else word for word in arguments))
    expected = place.replace("FILE: ", f"{file}: ")
    assert (error.place, error.fix.startswith(fix)) == (expected, True), str(error)
    assert sorted(file.parent.iterdir()) == before, "nothing is written"


def test_gauges_go_over_gauges_alone(file: Path, tmp_path: Path) -> None:
    foreign, ours = tmp_path / "node.prom", tmp_path / "ours.prom"
    foreign.write_text("node_load1 1\n", "utf-8")
    ours.write_text("# HELP gangway_forecast_value x\n", "utf-8")
    assert refused(file, "--gauges", foreign).place == "--gauges"
    assert run(file, *QUICK, "--gauges", ours).exit_code == 0
    assert "gangway_forecast_mae" in ours.read_text("utf-8")


def test_what_is_simulated_can_be_read_back(file: Path, history: Series) -> None:
    assert read_series(file).note == history.note


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of 10,000 images of which 4,000 are done, 100 in two seconds; stopped for a day in between."""
    lines, time = [], 1e9
    for number in range(1, 41):
        time += 86_400 if number == 21 else 2
        lines.append({"time": time, "images": 100 * number, "session": number // 21, **dict.fromkeys(STATISTICS, 1.0)})
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "stats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    (folder / "config.json").write_text('{"kimg": 10, "other": 1}', "utf-8")
    return folder


STATISTICS = ("kimg", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "images_per_sec", "world_size", "wall_sec")


def test_a_run_says_how_long_it_still_takes_without_its_stops(run_dir: Path) -> None:
    assert run(run_dir).stdout.splitlines() == [
        "4,000 of 10,000 images",
        "2 min remaining (90%: 2 min to 2 min)",
        "at its mean pace so far: 2 min; without interruptions",
    ]
    answer = json.loads(run(run_dir, "--json").stdout)
    assert (answer["images"], answer["total"]) == (4000, 10_000)
    assert answer["ahead"]["middle_sec"] == pytest.approx(120)
    (run_dir / "config.json").write_text('{"kimg": 4}', "utf-8")
    assert "the run is complete" in run(run_dir).stdout


def test_a_run_that_cannot_be_told_of(run_dir: Path, tmp_path: Path) -> None:
    for flag, value in (("--horizon", "2h"), ("--simulate", "grid"), ("--of", "x")):
        assert refused(run_dir, flag, value).place == flag
    assert "not a run's folder" in refused(tmp_path).problem
    for length in ('"x"', "1e400", "1e306", "NaN"):
        (run_dir / "config.json").write_text(f'{{"kimg": {length}}}', "utf-8")
        assert refused(run_dir).place.endswith("config.json")
    (run_dir / "config.json").write_text('{"kimg": 10}', "utf-8")
    stats = (run_dir / "stats.jsonl").read_text("utf-8").splitlines(keepends=True)
    (run_dir / "stats.jsonl").write_text("".join(stats[:5]), "utf-8")
    assert refused(run_dir).value == 4
    (run_dir / "stats.jsonl").write_text(stats[0].replace("1000000002.0", '"noon"'), "utf-8")
    assert "noon" in str(refused(run_dir).value)
    (run_dir / "stats.jsonl").write_text(stats[0].replace("1000000002.0", "null"), "utf-8")
    assert "whose time is not a number" in refused(run_dir).problem


VALUES = (9, 2, 2, 9, 1, 8)


def written(path: Path, values: tuple[float, ...] = VALUES, wide: float = 1, name: str = "usd_per_hour") -> Path:
    rows = [f"2026-03-02T{hour:02}:00Z,{each},{each - wide},{each + wide},5" for hour, each in enumerate(values)]
    path.write_text("\n".join([f"time,{name},low,high,baseline", *rows, ""]), "utf-8")
    return path


@pytest.fixture
def price_file(tmp_path: Path) -> Path:
    return written(tmp_path / "price.csv")


def answered(*arguments: str | Path) -> dict[str, Any]:
    result = CliRunner().invoke(main.app, ["when", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_hours_by_hand(price_file: Path) -> None:
    """Two hours at 2 and one at 1, for four nodes; running through pays 9 + 2 + 2."""
    found = answered(price_file, "--hours", "3h", "--restart-sec", "0", "--times", "4")
    assert [(stint["from"], stint["hours"]) for stint in found["stints"]] == [
        ("2026-03-02T01:00Z", 2),
        ("2026-03-02T04:00Z", 1),
    ]
    assert (found["expected"], found["running_through"], found["unit"]) == (20, 52, "USD")
    assert found["saving"] == {"low": 4 * (9 - 1 - 1 - 1), "middle": 32, "high": 4 * (9 - 1 + 1 + 1)}
    assert found["verdict"] == "pays"


def test_what_is_made_up_stays_told_as_that(price_file: Path) -> None:
    price_file.write_text(f"# SIMULATED: by hand\n{price_file.read_text('utf-8')}", "utf-8")
    assert answered(price_file, "--hours", "3h")["note"] == "SIMULATED: by hand"
    printed = CliRunner().invoke(main.app, ["when", str(price_file), "--hours", "3h"])
    assert printed.stdout.startswith("SIMULATED: by hand\n")


def test_a_deadline_leaves_the_later_hours_out(price_file: Path) -> None:
    found = answered(price_file, "--hours", "3h", "--restart-sec", "0", "--deadline", "4h")
    assert found["deadline"] == "2026-03-02T04:00Z"
    assert found["expected"] == 2 + 2 + 9


def test_without_pauses_it_waits_for_one_cheap_window(price_file: Path) -> None:
    found = answered(price_file, "--hours", "3h", "--restart-sec", "0", "--pauses", "0")
    assert [stint["from"] for stint in found["stints"]] == ["2026-03-02T02:00Z"]
    assert found["expected"] == 2 + 9 + 1


def test_wide_intervals_make_no_sure_saving(tmp_path: Path) -> None:
    found = answered(written(tmp_path / "wide.csv", wide=8), "--hours", "1", "--restart-sec", "0")
    assert found["verdict"] == "expected to pay"


def test_lines_for_people_and_the_picture(price_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "when.png"
    result = CliRunner().invoke(
        main.app, ["when", str(price_file), "--hours", "3", "--running", "--plot", str(picture)]
    )
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
def test_what_does_not_fit_is_told(price_file: Path, arguments: list[str], *, starts: bool) -> None:
    """With a start only where it takes one."""
    result = CliRunner().invoke(main.app, ["when", str(price_file), *arguments])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert ("a start" in result.stderr) == starts


def test_a_deadline_may_lie_within_a_step(price_file: Path) -> None:
    """What runs through until then fits; what would wait for the next cheap hour is too late."""
    found = answered(price_file, "--hours", "1.5h", "--restart-sec", "0", "--deadline", "1.5h")
    assert [(stint["from"], stint["hours"]) for stint in found["stints"]] == [("2026-03-02T00:00Z", 1.5)]
    assert (found["deadline"], found["expected"]) == ("2026-03-02T01:30Z", 9 + 2 / 2)
    later = answered(price_file, "--hours", "1.5h", "--restart-sec", "0", "--deadline", "2.5h")
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
def test_mistakes_in_options(price_file: Path, arguments: list[str], place: str) -> None:
    result = CliRunner().invoke(main.app, ["when", str(price_file), *arguments])
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
    price_file = tmp_path / "wrong.csv"
    price_file.write_text(text, "utf-8")
    result = CliRunner().invoke(main.app, ["when", str(price_file), "--hours", "1"])
    assert isinstance(result.exception, InputError)
    assert str(price_file) in result.exception.place
    assert result.exception.fix


def test_too_many_steps(tmp_path: Path) -> None:
    rows = [f"2026-03-{1 + hour // 24:02}T{hour % 24:02}:00Z,1,1,1" for hour in range(400)]
    price_file = tmp_path / "long.csv"
    price_file.write_text("\n".join(["time,g_per_kwh,low,high", *rows]), "utf-8")
    result = CliRunner().invoke(main.app, ["when", str(price_file), "--hours", "1"])
    assert isinstance(result.exception, InputError)
