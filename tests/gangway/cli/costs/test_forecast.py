"""`gangway forecast` from outside: the whole answer as golden text, the files that it writes, and mistakes."""

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
