"""`gangway bench` from its arguments to its exit code: checked before anything is begun, told when all is over."""

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gangway.bench import session
from gangway.bench.journal import Journal
from gangway.bench.processes import AbandonedError, Stop
from gangway.bench.pulumi_cli import read_project, write_project
from gangway.bench.results import Caps, Screen, get_rate, show_results
from gangway.bench.runner import Environment
from gangway.bench.session import Options, resume_suite, run_suite
from gangway.bench.suite import Item, get_items, get_preset, get_run_id, load_suite
from gangway.cli import main
from gangway.components.core.findings import InputError
from gangway.stacks.plan.plan import make_plan
from gangway.trainer.records.run_record import RunRecord
from tests.shard_files import write_shards

LOCAL_SUITE: dict[str, Any] = {
    "name": "here", "preset": "dcgan-digits", "kimg": 1, "seeds": [0, 1], "stacks": ["local"], "deadline_hours": 0.1,
}  # fmt: skip
PAID_SUITE: dict[str, Any] = {**LOCAL_SUITE, "name": "there", "stacks": ["aws-g5-dev"], "budget": {"usd": 20}}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(suite: Mapping[str, Any], **changes: Any) -> Path:
        path = tmp_path / "suite.yaml"
        path.write_text(yaml.safe_dump({**suite, **changes}), "utf-8")
        return path

    return write


class Instant(Environment):
    """An Environment whose runs are done at once, in the suite's folder."""

    poll_sec = (0.0, 0.0)

    def __init__(self, run_dir: Path, stamp: str, make_record: Callable[..., RunRecord]) -> None:
        self._run_dir, self._stamp, self._make = run_dir, stamp, make_record
        self.fails: set[str] = set()

    def up(self, item: Item, note: Any, guard: Any) -> Mapping[str, Any]:
        folder = self._run_dir / get_run_id(item, self._stamp)
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(self._make(folder.name, item.seed).model_dump_json(), "utf-8")
        return {}

    def attach(self, item: Item, facts: Any, note: Any) -> Mapping[str, Any]:
        return {}

    def record(self, item: Item, facts: Any) -> RunRecord:
        file = self._run_dir / get_run_id(item, self._stamp) / "run.json"
        return RunRecord.model_validate_json(file.read_bytes())

    def collect(self, item: Item, facts: Any) -> None:
        """It is there."""

    def destroy(self, item: Item, facts: Any, note: Any) -> list[str]:
        return ["a bucket [of yours]"]

    def doing(self, item: Item) -> str:
        return "running"


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch, make_record: Callable[..., RunRecord]) -> None:
    def environments(run_dir: Path, suite: Any, preset: Any, header: Any, command: Any) -> Any:
        made = Instant(run_dir, header["stamp"], make_record)
        return lambda item: made

    monkeypatch.setattr(session, "_environments", environments)


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@pytest.mark.usefixtures("instant")
def test_a_suite_leaves_records_results_and_a_table(
    tmp_path: Path, written: Callable[..., Path], repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    assert run_suite(written(LOCAL_SUITE, title="A [b]"), out, repo / "stacks", Options(local=True)) == 0
    run_dir = only(out)
    assert run_dir.name.startswith("here-")
    results = json.loads((run_dir / "results.json").read_text("utf-8"))
    assert [row["status"] for row in results["items"]] == ["recorded", "recorded"]
    for row in results["items"]:
        assert RunRecord.read(run_dir / row["record"]).id == row["run_id"]
        assert row["usd"] == {
            "value": None, "unit": "USD", "provenance": "absent", "source": "this machine is not billed",
            "as_of": None, "note": "",
        }  # fmt: skip
    assert json.loads((run_dir / "hardware.json").read_text("utf-8"))["cores"] >= 1
    assert (run_dir / "suite.yaml").exists()
    told = capsys.readouterr().out
    assert "A [b]" in told
    assert "321" in told
    assert "left in the cloud: a bucket [of yours]" in told


@pytest.mark.usefixtures("instant")
def test_json_is_alone_on_standard_output(
    written: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = CliRunner().invoke(
        main.app, ["bench", "run", str(written(LOCAL_SUITE)), "--local", "--json", "--out", str(tmp_path / "runs")]
    )
    assert ran.exit_code == 0
    results = json.loads(ran.stdout)
    assert results["suite"] == "here"
    assert results["local"] is True
    again = CliRunner().invoke(main.app, ["bench", "resume", str(only(tmp_path / "runs")), "--json"])
    assert again.exit_code == 0
    assert json.loads(again.stdout)["items"] == results["items"], "there was nothing to do"


@pytest.mark.usefixtures("instant")
def test_what_fails_is_exit_code_1_and_resume_leaves_it(
    tmp_path: Path, written: Callable[..., Path], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Instant, "record", lambda *_: 1 / 0)
    out = tmp_path / "runs"
    assert run_suite(written(LOCAL_SUITE, seeds=[0]), out, repo / "stacks", Options(local=True)) == 1
    run_dir = only(out)
    (row,) = json.loads((run_dir / "results.json").read_text("utf-8"))["items"]
    assert (row["status"], row["standing"]) == ("failed", False)
    assert "ZeroDivisionError" in row["reason"]
    assert resume_suite(run_dir, Options(), clean_only=False) == 1, "its own failure is not tried again"
    assert resume_suite(run_dir, Options(), clean_only=True) == 0, "nothing stands"


@pytest.mark.usefixtures("instant")
def test_a_stop_is_exit_code_130_and_resume_finishes(
    tmp_path: Path, written: Callable[..., Path], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Instant.record

    def stop_then(*words: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Instant, "record", stop_then)
    out = tmp_path / "runs"
    assert run_suite(written(LOCAL_SUITE), out, repo / "stacks", Options(local=True)) == 130
    run_dir = only(out)
    rows = json.loads((run_dir / "results.json").read_text("utf-8"))["items"]
    assert [row["status"] for row in rows] == ["stopped", "planned"]
    assert rows[0]["reason"] == "stopped by SIGTERM"
    monkeypatch.setattr(Instant, "record", real)
    assert resume_suite(run_dir, Options(), clean_only=False) == 0
    rows = json.loads((run_dir / "results.json").read_text("utf-8"))["items"]
    assert [row["status"] for row in rows] == ["recorded", "recorded"]


@pytest.mark.usefixtures("instant")
def test_leaving_at_once_tells_how_to_go_on(
    tmp_path: Path,
    written: Callable[..., Path],
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def twice(*words: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Instant, "record", twice)
    out = tmp_path / "runs"
    assert run_suite(written(LOCAL_SUITE), out, repo / "stacks", Options(local=True)) == 130
    told = capfd.readouterr()
    resume = f"gangway bench resume {only(out)}"
    assert f"to continue: {resume}; to destroy: {resume} --clean-only" in told.out.replace("\n", "")
    assert "SIGINT: stopping and destroying the stacks" in told.err
    assert not (only(out) / "results.json").exists()
    with Journal.open(only(out)) as journal:
        assert journal["local-s0"].is_up


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = Stop("")
    with stop.listening():
        assert signal.getsignal(signal.SIGINT) != before
        signal.raise_signal(signal.SIGINT)
        assert stop.asked == "SIGINT"
        began = time.monotonic()
        stop.pause(60)
        assert time.monotonic() - began < 5, "nobody sleeps on after that"
        with pytest.raises(AbandonedError):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    fresh = Stop("")
    fresh.pause(0.01)
    assert fresh.asked == ""


# what is wrong with a paid suite, and what is said before anything is begun
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no such setting": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"network.egres": "nat"}}]},
        ["stack aws-g5-dev: gangway:network.egres: unknown key", "'egress'"],
    ),
    "a setting of what is no mapping": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"region.name": "x"}}]},
        ["set: region.name", "region is not a mapping"],
    ),
    "what cannot be planned": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"cluster.zone": "us-east-1z"}}]},
        ["stack aws-g5-dev: gangway:cluster.zone", "us-east-1z"],
    ),
    "records where nobody can look": (
        {"stacks": [{"stack": "hosts-lab", "set": {"hosts.run_store": "/no/such/folder"}}], "budget": {"usd": 500}},
        ["stack hosts-lab: gangway:hosts.run_store", "this machine cannot see", "mount it here"],
    ),
    "a budget that the plan finds too small": (
        {"stacks": [{"stack": "aws-g5-dev", "set": {"budget.monthly_usd": 0.1}}]},
        ["stack aws-g5-dev: gangway:budget.monthly_usd"],
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_mistake_is_told_before_anything_is_begun(
    name: str, written: Callable[..., Path], tmp_path: Path, repo: Path
) -> None:
    changes, said = REFUSED[name]
    out = tmp_path / "runs"
    with pytest.raises((InputError, ExceptionGroup)) as told:
        run_suite(written(PAID_SUITE, **changes), out, repo / "stacks", Options())
    mistakes = getattr(told.value, "exceptions", (told.value,))
    text = "\n".join(str(mistake) for mistake in mistakes)
    for words in said:
        assert words in text
    assert list(out.iterdir()) == [], "nothing is left half written"


def test_findings_of_severity_error_refuse_the_suite(
    written: Callable[..., Path], tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch, demo_plan: Any
) -> None:
    from dataclasses import replace

    from gangway.components.core.findings import Finding
    from gangway.stacks.plan import plan

    bad = replace(demo_plan, findings=(Finding.error("x.y", "gangway:cluster", "wrong", "mend it"),))
    monkeypatch.setattr(plan, "make_plan", lambda config: bad)
    with pytest.raises(ExceptionGroup) as told:
        run_suite(written(PAID_SUITE), tmp_path / "runs", repo / "stacks", Options())
    assert "stack aws-g5-dev: gangway:cluster: wrong" in str(told.value.exceptions[0])


def test_without_a_cli_nothing_is_begun(
    written: Callable[..., Path], tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="the Pulumi CLI: not on PATH"):
        run_suite(written(PAID_SUITE), tmp_path / "runs", repo / "stacks", Options())
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("suite", "options", "said"),
    [
        (LOCAL_SUITE, Options(local=True, backend_url="file:///x"), "--backend-url: has no effect"),
        (LOCAL_SUITE, Options(install_cli=True), "--install-cli: has no effect"),
        (PAID_SUITE, Options(data=Path("x")), "--data: has no effect: no run of this suite is on this machine"),
    ],
)
def test_an_option_that_nothing_heeds_is_refused(
    written: Callable[..., Path], tmp_path: Path, repo: Path, suite: Mapping[str, Any], options: Options, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        run_suite(written(suite), tmp_path / "runs", repo / "stacks", options)


@pytest.mark.usefixtures("instant")
def test_data_that_no_run_could_read_is_refused_before_the_first(
    written: Callable[..., Path], tmp_path: Path, repo: Path
) -> None:
    def refused(suite: Mapping[str, Any], data: Path | None) -> InputError:
        with pytest.raises(InputError) as caught:
            run_suite(written(suite), tmp_path / "runs", repo / "stacks", Options(local=True, data=data))
        assert not (tmp_path / "runs").exists()
        return caught.value

    wrong, tiny = tmp_path / "wrong", tmp_path / "tiny"
    wrong.mkdir()
    (wrong / "holiday.jpg").write_bytes(b"x")
    found = refused(LOCAL_SUITE, wrong)
    assert (found.place, found.value) == ("--data", str(wrong))
    assert "holds no data set but other files, such as holiday.jpg" in found.problem
    write_shards(tiny, "digits", np.zeros((4, 1, 16, 16), np.uint8))
    found = refused(LOCAL_SUITE, tiny)
    assert (found.value, found.allowed) == ("digits (1, 16, 16)", "digits (1, 32, 32)")
    faces = refused({**LOCAL_SUITE, "preset": "dcgan-celeba64"}, None)
    assert "celeba does not prepare itself" in faces.problem
    assert faces.fix.startswith("python -m gangway.trainer data prepare celeba")
    # Of two arms the one that cannot is named; where all can, the suite begins.
    arms = [{"name": "small", "settings": {"resolution": 16}}, {"name": "usual", "settings": {}}]
    assert refused({**LOCAL_SUITE, "arms": arms}, tiny).problem.startswith("arm usual: ")
    begun = written(LOCAL_SUITE, settings={"resolution": 16})
    assert run_suite(begun, tmp_path / "runs", repo / "stacks", Options(local=True, data=tiny)) == 0


@pytest.mark.usefixtures("instant")
def test_stacks_that_are_not_used_are_named(
    written: Callable[..., Path], tmp_path: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_suite(written(PAID_SUITE), tmp_path / "runs", repo / "stacks", Options(local=True)) == 0
    assert "--local: runs on this machine only, without aws-g5-dev" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written(written: Callable[..., Path], tmp_path: Path, repo: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(InputError, match="--out"):
        run_suite(written(LOCAL_SUITE), tmp_path / "file", repo / "stacks", Options(local=True))


def test_a_mistake_is_exit_code_2(repo: Path) -> None:
    command = [sys.executable, "-m", "gangway.cli", "bench", "run", "local-smok", "--local"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'local-smoke'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_person_at_a_terminal_sees_what_goes_on() -> None:
    console = Console(force_terminal=True, width=80, record=True)
    with Screen(console) as screen:
        screen.show("a-s0", "up: 3 done [x]")
        screen.say("a-s0", "failed", "no [capacity]")
    told = console.export_text()
    assert "a-s0: failed: no [capacity]" in told


def test_on_paper_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(record=True, width=80)
    with Screen(console) as screen:
        screen.show("a-s0", "first")
        monkeypatch.setattr(screen, "_told_at", time.monotonic() - 31)
        screen.show("a-s0", "second")
        screen.show("a-s0", "third")
    told = console.export_text()
    assert "second" in told
    assert "first" not in told
    assert "third" not in told


def test_a_table_of_what_went_wrong(tmp_path: Path) -> None:
    row = {
        "item": "a-s0", "status": "failed", "standing": True, "record": "a/run.json", "usd": {"value": 1.5},
        "hours_up": 0.5, "reason": "no [capacity]", "left": [], "remark": "odd",
    }  # fmt: skip
    (tmp_path / "a").mkdir()
    (tmp_path / "a/run.json").write_text("{}", "utf-8")
    console = Console(record=True, width=160)
    show_results({"title": "", "suite": "s", "items": [row]}, tmp_path, console)
    told = console.export_text()
    for words in ("STILL UP", "1.50", "a-s0: no [capacity]", "a-s0: odd", "no record of this version",
                  "--clean-only"):  # fmt: skip
        assert words in told


def test_what_failed_and_what_to_do_are_said_last(tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "record": None,
        "usd": {"value": None},
        "hours_up": 0.5,
        "left": [],
        "remark": "",
        "reason": "",
    }
    items = [
        {**common, "item": "a-s0", "status": "failed", "standing": False, "reason": "no quota"},
        {**common, "item": "a-s1", "status": "recorded", "standing": False, "remark": "kept its bucket"},
        {**common, "item": "a-s2", "status": "stopped", "standing": True},
    ]
    console = Console(record=True, width=160)
    show_results({"title": "", "suite": "s", "items": items}, tmp_path, console)
    assert console.export_text().splitlines()[-6:] == [
        "a-s1: kept its bucket",
        f"results: {tmp_path}/results.json",
        f"as a page: gangway report {tmp_path}",
        "failed: a-s0: no quota",
        f"3 runs: 1 recorded, 1 failed, 1 stopped; to continue: gangway bench resume {tmp_path}",
        f"stacks still exist and cost money: gangway bench resume {tmp_path} --clean-only",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["p2-environments", "p3-resource-aware"])
def test_a_shipped_suite_can_go_up_within_its_budget(suite: str, tmp_path: Path, repo: Path) -> None:
    """Every stack of it plans without an error, and the caps have room for a run on each."""
    place = repo / "gangway/suites" / f"{suite}.yaml"
    loaded = load_suite(place)
    preset = get_preset(loaded, str(place), repo / "stacks")
    first = {item.stack.name: item for item in get_items(loaded, local=False) if not item.is_local}
    total = 0.0
    for name, item in first.items():
        write_project(tmp_path / name, item, loaded, preset, "20260101-000000-abcd", repo / "stacks")
        plan = make_plan(read_project(tmp_path / name, item, str(place)))
        assert not plan.has_errors
        rate = get_rate(plan, item, loaded.deadline_hours, "")
        assert rate.usd_run < Caps.of(loaded).by_stack.get(name, float("inf"))
        total += rate.usd_run
    assert loaded.budget is not None
    assert total < loaded.budget.usd


class Closed(io.StringIO):
    """A terminal that is gone; as a moving line too."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")

    def update(self, words: str) -> None:
        self.write(words)

    def stop(self) -> None:
        self.write("")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_closed_terminal_stops_nobody(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with Screen(Console(file=Closed())) as screen:
        monkeypatch.setattr(screen, "_status", Closed() if terminal else None)
        monkeypatch.setattr(screen, "_told_at", time.monotonic() - 31)
        screen.say("a-s0", "destroy")
        screen.show("a-s0", "still")


@pytest.mark.parametrize("ignored", [False, True], ids=["heard", "ignored, as nohup has it"])
def test_a_hangup_is_heard_unless_nohup_ignores_it(ignored: bool) -> None:
    # Set here both times: these tests may run under nohup themselves.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        stop = Stop("")
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
        assert stop.asked == ("" if ignored else "SIGHUP")
    finally:
        signal.signal(signal.SIGHUP, before)
