"""What a benchmark prints and keeps: every figure with its target, its parts and the machine."""

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from gangway.trainer.core.host import code_sha256
from tools.bench.__main__ import main
from tools.bench.cases import CASES
from tools.bench.measuring import ROUNDS, SECONDS, TITLES, Bench, ahead, medians
from tools.bench.results import (
    Machine,
    Result,
    Run,
    as_json,
    as_markdown,
    comparison_table,
    kept_with,
    read_runs,
    this_machine,
)

MACHINE = Machine(cpu="a CPU", cores=2, gpu="", torch="2.15.0", python="3.11.9", load_before=0.1)
MET = Result("A step", 1.51, "x", ">= 1.4 x", True, {"ours images/s": 1510.0, "theirs images/s": 1000.0})
MISSED = Result("A start", 9.0, "s", "<= 8 s", False)
ABSENT = Result("A GPU", None, "images/s", "", None, note="no CUDA device here")
BENCH = Bench(Path("work"), Path("data"), SECONDS, ROUNDS, 1, lambda _: None)
CODE = "5ea36d93de00" + 52 * "0"
COMMITTED = Path(__file__).parents[3] / "docs" / "benchmarks.json"


def _run(*results: Result, **machine: object) -> Run:
    return Run("2026-01-02", dataclasses.replace(MACHINE, **machine), results, CODE)  # type: ignore[arg-type]


def test_the_table_says_what_was_met_missed_and_not_measured() -> None:
    table = as_markdown([_run(MET, MISSED, ABSENT)])
    assert "| A step | 1.51 x | >= 1.4 x | met |" in table
    assert "| A start | 9 s | <= 8 s | missed |" in table
    assert "| A GPU | not measured here |  |  |" in table
    assert "- A step: ours images/s 1510, theirs images/s 1000" in table
    assert "- A GPU: no CUDA device here" in table
    assert table.startswith("## a CPU, 2 cores, no GPU\n\n2026-01-02, torch 2.15.0, ")
    assert "code 5ea36d93de00 " in table


def test_a_ratio_is_the_median_of_the_rounds_and_shows_their_spread() -> None:
    rates = {"ours": [150.0, 90.0, 260.0], "theirs": [100.0, 100.0, 200.0]}
    missed = ahead(BENCH, "A step", rates, "ours", "theirs", 1.4, medians(rates), "in turn")
    assert (missed.value, missed.spread, missed.met) == (1.3, (0.9, 1.5), False)
    assert missed.parts == {"ours images/s": 150.0, "theirs images/s": 100.0}
    met = ahead(BENCH, "A step", rates, "ours", "theirs", 1.3)
    assert met.met
    bound = ahead(BENCH, "A bound", rates, "theirs", "ours")
    assert (bound.met, bound.target) == (None, "")
    table = as_markdown([_run(missed, met)])
    assert "| A step | 1.3 x (0.9 to 1.5) | >= 1.4 x | missed |" in table
    assert "- A step: ours images/s 150, theirs images/s 100; in turn" in table


@pytest.mark.parametrize(
    ("rounds", "seconds", "extent"),
    [
        (ROUNDS - 1, SECONDS, "9 rounds of 5 s"),
        (ROUNDS, SECONDS / 2, "10 rounds of 2.5 s"),
        (1, SECONDS, "1 round of 5 s"),
    ],
)
def test_a_short_run_is_told_and_not_judged(rounds: int, seconds: float, extent: str) -> None:
    short = dataclasses.replace(BENCH, rounds=rounds, seconds=seconds)
    rates = {"ours": [150.0], "theirs": [100.0]}
    results = [ahead(short, "A step", rates, "ours", "theirs", 1.4), ahead(short, "A bound", rates, "ours", "theirs")]
    run = dataclasses.replace(_run(*results, MET, ABSENT), rounds=rounds, seconds=seconds)
    table = as_markdown([run])
    assert f"(sha256 over the trainer's own source files, as in run.json). {extent}.\n" in table
    assert f"| A step | 1.5 x (1.5 to 1.5) | >= 1.4 x | not judged: {extent} |" in table
    assert "| A bound | 1.5 x (1.5 to 1.5) |  |  |" in table
    assert "| A step | 1.51 x | >= 1.4 x | met |" in table, "which comes from no rounds"
    assert "| A GPU | not measured here |  |  |" in table


@pytest.mark.parametrize("met", [True, False])
def test_a_figure_is_judged_by_what_it_comes_from(met: bool) -> None:
    few, brief = dataclasses.replace(BENCH, rounds=1), dataclasses.replace(BENCH, seconds=0.5)
    assert [bench.judged(met) for bench in (BENCH, few, brief)] == [met, met, met]
    assert [bench.judged(met, rounds=True) for bench in (BENCH, few, brief)] == [met, None, met]
    assert [bench.judged(met, seconds=True) for bench in (BENCH, few, brief)] == [met, met, None]
    longer = dataclasses.replace(BENCH, rounds=2 * ROUNDS, seconds=2 * SECONDS)
    assert longer.judged(met, rounds=True, seconds=True) is met


def test_an_older_run_does_not_say_how_much_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    content = json.loads(as_json([_run(MET)]))
    assert (content[0].pop("rounds"), content[0].pop("seconds")) == (None, None)
    path.write_text(json.dumps(content))
    assert as_markdown(read_runs(path)) == as_markdown([_run(MET)])
    assert "round" not in as_markdown([_run(MET)])


def test_a_busy_machine_is_told() -> None:
    assert "not idle (load 3.2)" in as_markdown([_run(MET, load_before=3.2)])
    assert "not idle" not in as_markdown([_run(MET)])


def test_json_holds_everything(tmp_path: Path) -> None:
    run, path = _run(MET, ABSENT), tmp_path / "results.json"
    path.write_text(as_json([run]))
    (content,) = json.loads(path.read_text())
    assert content["machine"]["cpu"] == "a CPU"
    assert content["code_sha256"] == CODE
    assert content["results"][0]["parts"] == MET.parts
    assert content["results"][1]["value"] is None
    (again,) = read_runs(path)
    assert (again.date, again.machine, tuple(again.results)) == (run.date, run.machine, run.results)


def test_a_run_takes_the_place_of_that_machines_last_and_leaves_other_machines() -> None:
    first, other, again = _run(MET), _run(MISSED, gpu="a GPU"), _run(ABSENT, load_before=2.0)
    runs = kept_with(kept_with([first], other), again)
    assert runs == [other, again]
    page = as_markdown(runs)
    assert page.index("## a CPU, 2 cores, a GPU") < page.index("| A start |") < page.index("## a CPU, 2 cores, no GPU")


@pytest.mark.parametrize("content", ["", "no JSON", '{"results": []}', '[{"date": "2026-01-02"}]', "changed"])
def test_a_file_of_something_else_is_refused_before_anything_is_measured(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(as_json([_run(MET)]).replace("code_sha256", "code") if content == "changed" else content)
    before = path.read_text()
    assert main(["--json", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--markdown", "page.md"], "--markdown: shows what --json keeps"),
        (["--only", "gpu", "--json", "data.json"], "--only: leaves figures out"),
        (["--json", "."], "is a folder, not a file"),
        (["--json", "file/data.json"], "--json: "),
        (["--json", "data.json", "--markdown", "."], "is a folder, not a file"),
        (["--json", "data.json", "--markdown", "file"], "lacks one of the two lines"),
        (["--json", "data.json", "--markdown", "half"], "allowed: <!-- end of results -->"),
        (["--rounds", "0"], "allowed: a whole number above 0"),
        (["--seconds", "nan"], "allowed: a number above 0"),
    ],
)
def test_what_would_keep_results_from_being_kept_is_found_before_anything_is_measured(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("# A page\n")
    Path("half").write_text("<!-- results: written by make bench -->\n## Kept by hand\n")
    assert main(flags) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "half"]
    assert "by hand" in Path("half").read_text()


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(*_: object) -> list[Result]:
        raise KeyboardInterrupt

    monkeypatch.setattr("tools.bench.__main__._run", stopped)
    assert main([]) == 130
    assert capsys.readouterr().err == "stopped: nothing was written\n"


def test_this_machine_is_named() -> None:
    found = this_machine()
    assert found.cpu
    assert found.cores >= 1


def test_only_what_is_asked_for_is_shown_and_what_needs_a_gpu_has_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded: list[bool] = []
    monkeypatch.setattr(
        "tools.bench.runs.subprocess.run",
        lambda argv, **_: guarded.append(Path(argv[-1]).parent == Path(os.environ["GANGWAY_BENCH_FOLDER"])),
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shown: list[Run] = []

    def show(runs: Iterable[Run]) -> str:
        shown.extend(runs)
        return ""

    monkeypatch.setattr("tools.bench.__main__.as_markdown", show)
    assert main(["--only", "gpu"]) == 0
    assert guarded == [True], "what prepares the data works in the guard's folder"
    found = {result.name: result for result in shown[-1].results}
    assert tuple(found) == TITLES["gpu"]
    assert {result.value for result in found.values()} == {None}
    assert all("no CUDA device" in result.note for result in found.values())


def test_the_committed_results_name_every_figure_and_say_why_one_is_missing() -> None:
    runs = read_runs(COMMITTED)
    assert runs
    for run in runs:
        found = {result.name: result for result in run.results}
        assert set(found) >= {title for case in CASES for title in TITLES[case]}
        assert all(result.note for result in found.values() if result.value is None)
        assert run.code_sha256


def test_the_committed_page_holds_the_committed_results() -> None:
    assert comparison_table(read_runs(COMMITTED)) in COMMITTED.with_suffix(".md").read_text()


def test_the_page_compares_machines_and_counts_what_none_has_measured() -> None:
    busy = _run(dataclasses.replace(MET, spread=(1.4, 1.6)), ABSENT, load_before=3.2)
    table = comparison_table([busy, _run(MISSED, cpu="another CPU")])
    assert table.startswith(
        "| what | wanted | a CPU, 2 cores, no GPU | another CPU, 2 cores, no GPU |\n|---|---|---|---|\n"
    )
    assert "| A step | >= 1.4 x | 1.51 x (1.4 to 1.6), met | - |" in table
    assert "| A start | <= 8 s | - | 9 s, missed |" in table
    assert "A GPU" not in table
    assert "- a CPU, 2 cores, no GPU: 2026-01-02, torch 2.15.0, Python 3.11.9, code 5ea36d93de00. The machine" in table
    assert table.endswith("- Not measured on any of these machines: 1 more figures.\n")


def test_an_unknown_benchmark_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "featurs"]) == 2
    told = capsys.readouterr().err
    assert "--only" in told
    assert "did you mean 'features'" in told
    assert all(name in told for name in CASES)


def test_a_page_keeps_what_stands_around_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "benchmarks.md", tmp_path / "benchmarks.json"
    page.write_text("# Benchmarks\n\nHow to read it.\n\n<!-- results: written by make bench -->\nold\n"
                    "<!-- end of results -->\nAfter.\n")  # fmt: skip
    data.write_text(as_json([_run(MET, cpu="another CPU")]))
    monkeypatch.setattr("tools.bench.__main__._run", lambda *_: [MET, MISSED])
    assert main(["--markdown", str(page), "--json", str(data)]) == 0
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\nHow to read it.\n")
    assert text.endswith("<!-- end of results -->\nAfter.\n")
    assert "old" not in text
    assert "| A start | <= 8 s | - | 9 s, missed |" in text
    assert "another CPU, 2 cores" in text
    shown = capsys.readouterr().out
    assert "| A start |" in shown
    assert "another CPU" not in shown
    other, here = read_runs(data)
    assert (other.machine.cpu, other.code_sha256) == ("another CPU", CODE)
    assert (list(here.results), here.code_sha256) == ([MET, MISSED], code_sha256())
    assert (here.rounds, here.seconds) == (ROUNDS, SECONDS)
