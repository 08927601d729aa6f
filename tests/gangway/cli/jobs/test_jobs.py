"""`gangway job submit` and its like, as a user types them, on the local engine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gangway.cli import main as cli
from gangway.components.core.findings import InputError
from gangway.jobs import moves
from gangway.jobs.base import SubmitUnansweredError, wait_until_over
from gangway.jobs.copying import copy_run
from gangway.jobs.job_folder import JobFolder
from gangway.jobs.job_record import FIGURES
from gangway.jobs.local.engine import LocalQueue, is_alive
from gangway.jobs.sites import VARIABLE
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.slurm.conftest import pretended as pretended

FILE = "name: mine\ncommand: [sh, -c, {script}]\nmax_hours: 1\n"


@pytest.fixture(autouse=True)
def own_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"local:{tmp_path / 'queue'}")


def gangway(words: list[str]) -> object:
    """The exit code of a command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gangway", *words])
        patch.setattr(cli, "gc", SimpleNamespace(freeze=lambda: None))
        with pytest.raises(SystemExit) as left:
            cli.main()
    return left.value.code


def submitted(tmp_path: Path, script: str, capsys: pytest.CaptureFixture[str]) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(FILE.format(script=json.dumps(script)))
    assert gangway(["job", "submit", str(path)]) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(("script", "code"), [("echo made", 0), ("exit 2", 2)])
def test_submit_wait_logs_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, code: int) -> None:
    job_id = submitted(tmp_path, script, capsys)
    assert gangway(["job", "wait", job_id]) == code
    capsys.readouterr()
    assert gangway(["job", "logs", "--follow", job_id]) == 0
    assert ("made\n" in capsys.readouterr().out) == (code == 0)
    assert gangway(["job", "status", "--json", job_id]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["exit_code"], found["starts"]) == (job_id, code, 1)
    assert gangway(["job", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [found]
    assert gangway(["job", "list"]) == 0
    assert job_id in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_a_warning_has_its_code_and_its_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pretended: Callable[[str, str], None], kind: str
) -> None:
    path = tmp_path / "job.yaml"
    pretended("sinfo", "case \"$*\" in *idle*) echo 'gpu|3';; *) echo 'gpu*|3|infinite';; esac")
    path.write_text(f"{FILE.format(script='exit')}processes_per_node: 2\nmax_restarts: 0\n")
    assert gangway(["job", "submit", str(path), f"--on={kind}:{tmp_path}/queue"]) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: command: ")
    assert first.endswith(" (job.rendezvous-without-key)")
    assert second == "  fix:     submit it where no one else can reach its nodes' ports"
    if kind == "local":
        wait_until_over(LocalQueue(tmp_path / "queue"), "mine-1", lambda _: time.sleep(0.05))


FREEZES = {
    "before it has its number": "job_folder.OwnJobFolder.move_to = lambda *_: freeze()",
    "once it has its number": "job_folder.OwnJobFolder.move_to = lambda *args: (move_to(*args), freeze())",
    "as its runner is begun": "engine.begin_runner = lambda _: freeze()",
}
FROZEN_SUBMIT = """
import sys, time
from pathlib import Path
from gangway.cli import main
from gangway.jobs import job_folder
from gangway.jobs.local import engine
move_to = job_folder.OwnJobFolder.move_to
def freeze():
    if not Path({mark!r}).exists():
        Path({mark!r}).touch()
        time.sleep(300)
{freeze}
sys.argv = ["gangway", "job", "submit", {file!r}]
main.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("moment", FREEZES)
def test_a_submit_that_is_told_to_end_leaves_nothing(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    old, queue = submitted_by_hand(tmp_path), LocalQueue(tmp_path / "queue")
    (tmp_path / "job.yaml").write_text(FILE.format(script="echo"))
    mark = tmp_path / "mark"
    script = FROZEN_SUBMIT.format(mark=str(mark), freeze=FREEZES[moment], file=str(tmp_path / "job.yaml"))
    words = [sys.executable, "-c", script]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    until = time.monotonic() + 300
    while not mark.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait() not in (0, 2, -number)
    assert list((tmp_path / "queue").iterdir()) == [old]
    assert [each.id for each in queue.jobs()] == [old.name]


def submitted_by_hand(tmp_path: Path) -> Path:
    """The folder of a job that is over."""
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(JobFile(name="mine", command=("true",), max_hours=1))
    wait_until_over(queue, job_id, lambda _: time.sleep(0.05))
    folder = tmp_path / "queue" / job_id
    while is_alive(JobFolder(folder)):  # it leaves
        time.sleep(0.05)
    return folder


def test_cancel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = "cd \"$GANGWAY_RUN_DIR\"; trap '' TERM; touch up; while [ ! -e end ]; do sleep 0.1; done; exit 1"
    job_id = submitted(tmp_path, script, capsys)
    while not (tmp_path / "queue" / job_id / "run" / "up").exists():
        time.sleep(0.05)
    assert gangway(["job", "cancel", job_id]) == 0
    shown = capsys.readouterr()
    assert "being cancelled" in shown.out
    assert f"gangway job wait {job_id}" in shown.err
    (tmp_path / "queue" / job_id / "run" / "end").touch()
    assert gangway(["job", "wait", job_id]) == 1
    assert "cancelled" in capsys.readouterr().out


def test_a_file_with_mistakes_submits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: mine\npreset: dcgan-digits\ncommand: [true]\nmax_hours: 1\n")
    assert gangway(["job", "submit", str(path)]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert "fix:" in told
    assert not (tmp_path / "queue").exists()


def test_what_users_have_written_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = submitted(tmp_path, "true", capsys)
    assert gangway(["job", "wait", job_id]) == 0
    state = tmp_path / "queue" / job_id / "state.json"
    found = json.loads(state.read_bytes())
    state.write_text(json.dumps({**found, "user": "[red]ann[/]", "team": ":x:", "reason": "at [/nowhere]"}))
    capsys.readouterr()
    assert gangway(["job", "list"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(each in shown for each in (":x:", "[/nowhere]"))
    assert "ann" not in shown, "whose a job is, its folder says"


@pytest.mark.slow
def test_one_that_cannot_be_read_is_a_row_of_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (submitted(tmp_path, "true", capsys) for _ in range(2))
    assert gangway(["job", "wait", second]) == 0
    (tmp_path / "queue" / first / "stretches").write_text("1 2\n")
    capsys.readouterr()
    assert gangway(["job", "list"]) == 0
    shown = capsys.readouterr()
    assert all(each in shown.out for each in (first, second, "cannot be read", "stretches"))
    assert "Traceback" not in shown.err
    assert gangway(["job", "wait", first]) == 2
    assert "fix:" in capsys.readouterr().err


@pytest.mark.parametrize("is_file", [True, False])
def test_a_place_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_file: bool) -> None:
    if is_file:
        (tmp_path / "typo").touch()
    assert gangway(["job", "list", "--on", f"local:{tmp_path}/typo"]) == 2
    told = capsys.readouterr().err
    assert all(each in told for each in ("--on", f"{tmp_path}/typo", "allowed:", "fix:"))


def test_without_a_name_there_may_be_no_folder_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert gangway(["job", "list"]) == 0
    assert "no jobs" in capsys.readouterr().err


@pytest.mark.slow
def test_a_move_says_what_did_not_travel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = 'cd "$GANGWAY_RUN_DIR"; ln -s /nowhere link; touch "a#1"; touch ready; sleep 600'
    job_id = submitted(tmp_path, script, capsys)
    while not (tmp_path / "queue" / job_id / "run" / "ready").exists():
        time.sleep(0.05)
    (tmp_path / "queue" / job_id / "environment").unlink()  # as earlier releases have left jobs in Slurm
    target = f"local:{tmp_path}/other"
    assert gangway(["job", "move", job_id, "--to", target]) == 0
    shown = capsys.readouterr()
    assert "warning: not copied: link (a link)\n" in shown.err
    assert "warning: the job continues with the environment of this shell" in shown.err
    assert "a#1" not in shown.err
    new_id = shown.out.strip()
    assert gangway(["job", "status", job_id]) == 0
    assert f"moved to {target} as {new_id}" in capsys.readouterr().out
    assert gangway(["job", "cancel", new_id, "--on", target]) == 0
    assert gangway(["job", "wait", new_id, "--on", target]) == 1


@pytest.mark.parametrize("words", [["status", "mine-7"], ["list", "--on", "slurmm"], ["submit", "/no/such/file"]])
def test_mistakes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gangway(["job", *words]) == 2
    told = capsys.readouterr().err
    assert "error:" in told
    assert "fix:" in told


def test_without_a_command_it_is_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert gangway(["job", "no-such-stack"]) == 2
    plain = capsys.readouterr().err
    assert gangway(["job", "show", "no-such-stack"]) == 2
    assert capsys.readouterr().err == plain


@pytest.mark.slow
def test_of_two_engines_the_first_with_room_and_then_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, both = tmp_path / "job.yaml", f"local:{tmp_path / 'queue'},local:{tmp_path / 'other'}"
    script = 'cd "$GANGWAY_RUN_DIR"; test -e seen && exit 0; touch seen; while :; do sleep 0.1; done'
    path.write_text(FILE.format(script=json.dumps(script)))
    assert gangway(["job", "submit", str(path), "--on", both]) == 0
    first = capsys.readouterr()
    assert "starts immediately" in first.err
    assert gangway(["job", "submit", str(path), "--on", both]) == 0
    second = capsys.readouterr()
    assert f"busy: {first.out.strip()} before it" in second.err
    assert str(tmp_path / "other") in second.err
    while not (tmp_path / "other" / second.out.strip() / "run" / "seen").exists():
        time.sleep(0.05)
    other = f"local:{tmp_path / 'other'}"
    regions = ("#aws:eu-west-1", "#aws:eu-west-3")
    words = ["job", "move", second.out.strip(), "--on", other + regions[0], "--to", f"local:{tmp_path / 'third'}"]
    words[-1] += regions[1]
    assert gangway(words) == 0
    told = capsys.readouterr()
    moved = told.out.strip()
    assert "0.02 USD/GiB, aws:eu-west-1 to aws:eu-west-3: " in told.err
    assert gangway(["job", "wait", moved, "--on", words[-1]]) == 0
    assert gangway(["job", "status", moved, "--on", words[-1]]) == 0
    said = capsys.readouterr().out
    assert f"moved from file://{tmp_path}/other/" in said
    assert "0.02 USD/GiB" in said
    assert gangway(words) == 0
    assert capsys.readouterr().out.strip() == moved
    assert gangway(["job", "cancel", first.out.strip()]) == 0
    assert gangway(["job", "wait", first.out.strip()]) == 1


@pytest.mark.slow
def test_one_that_waits_too_long_bursts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalQueue, "bring_data", says_whom_it_waits_for)
    path, queues = tmp_path / "job.yaml", [f"local:{tmp_path / name}" for name in ("one", "two")]
    path.write_text(FILE.format(script=json.dumps("while [ ! -e end ]; do sleep 0.1; done")))
    ids = []
    for queue in queues:
        assert gangway(["job", "submit", str(path), "--on", queue]) == 0
        ids.append(capsys.readouterr().out.strip())
    path.write_text(FILE.format(script='"true"'))
    ends = freed_once_it_waits(tmp_path, ids[1])
    assert gangway(["job", "submit", str(path), "--on", ",".join(queues), "--burst-after", "0.04"]) == 0
    ends.join()
    burst = capsys.readouterr()
    assert "busy" in burst.err
    assert "somebody else is copying it" in burst.err
    assert queues[1] in burst.err.splitlines()[-1]
    assert gangway(["job", "wait", burst.out.splitlines()[-1], "--on", queues[1]]) == 0
    assert gangway(["job", "cancel", ids[0], "--on", queues[0]]) == 0
    assert gangway(["job", "wait", ids[0], "--on", queues[0]]) == 1


def freed_once_it_waits(tmp_path: Path, job_id: str) -> threading.Thread:
    """Ends that job in queue `two` as soon as a second one stands in queue `one`: before, that one had gone to `two`
    at once.
    """

    def free() -> None:
        while len(LocalQueue(tmp_path / "one").jobs()) < 2:
            time.sleep(0.05)
        LocalQueue(tmp_path / "two").cancel(job_id)

    made = threading.Thread(target=free, daemon=True)
    made.start()
    return made


def says_whom_it_waits_for(
    self: LocalQueue, job: JobFile, tell: object, say: Callable[[str], None] | None = None
) -> None:
    if say is not None:
        say("somebody else is copying it")


@pytest.mark.slow
def test_a_move_says_whom_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = submitted(tmp_path, "while [ ! -e end ]; do sleep 0.1; done", capsys)
    waits = submitted(tmp_path, "true", capsys)
    monkeypatch.setattr(LocalQueue, "bring_data", says_whom_it_waits_for)
    other = f"local:{tmp_path / 'other'}"
    assert gangway(["job", "move", waits, "--to", other]) == 0
    told = capsys.readouterr()
    assert "somebody else is copying it" in told.err
    assert gangway(["job", "wait", told.out.strip(), "--on", other]) == 0
    assert gangway(["job", "cancel", running]) == 0
    assert gangway(["job", "wait", running]) == 1


@pytest.mark.slow
def test_who_waits_for_a_job_whose_process_was_killed_takes_it_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = 'cd "$GANGWAY_RUN_DIR"; test -e seen && exit 0; touch seen; echo begun; sleep 600'
    job_id = submitted(tmp_path, script, capsys)
    while not (tmp_path / "queue" / job_id / "run" / "seen").exists():
        time.sleep(0.05)
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path / "queue" / job_id) in (process.info["cmdline"] or []):
            process.kill()
    assert gangway(["job", "wait", job_id]) == 0
    assert f"{job_id}: done, start 2" in capsys.readouterr().out


def test_where_a_job_could_not_be_moved_from_nothing_is_submitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(FILE.format(script="'true'"))
    here = f"local:{tmp_path}/a"
    assert gangway(["job", "submit", str(path), "--on", f"{here},kubernetes:@a/b", "--burst-after", "1"]) == 2
    told = capsys.readouterr()
    assert "--burst-after" in told.err
    assert told.out == ""
    assert not (tmp_path / "a").exists()


def test_an_engine_that_cannot_be_asked_says_it_in_its_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(FILE.format(script="'true'"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gangway(["job", "submit", str(path), "--on", f"slurm:{tmp_path}/a"]) == 2
    told = capsys.readouterr().err
    assert "sinfo is not on PATH" in told
    assert "login node" in told
    assert gangway(["job", "submit", str(path), "--on", f"slurm:{tmp_path}/a,slurm:{tmp_path}/b"]) == 2
    told = capsys.readouterr().err
    assert "no engine accepts this job" in told
    assert "login node" in told


def test_engines_with_names_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_ENGINES", str(tmp_path / "engines.yaml"))
    (tmp_path / "engines.yaml").write_text('engines: {lab: {engine: "local:/jobs", usd_per_node_hour: 11.5}}\n')
    assert gangway(["job", "engines", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lab"]["usd_per_node_hour"] == 11.5
    assert gangway(["job", "engines"]) == 0
    assert "$11.50" in capsys.readouterr().out


def test_what_a_job_cost_is_told_where_its_engine_has_a_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submitted(tmp_path, "true", capsys)
    assert gangway(["job", "wait", job_id]) == 0
    assert gangway(["job", "status", job_id]) == 0
    assert "cost unknown" in capsys.readouterr().out
    monkeypatch.setenv("GANGWAY_ENGINES", str(tmp_path / "engines.yaml"))
    own = f'{{engine: "local:{tmp_path}/queue", usd_per_node_hour: 3600000}}'
    (tmp_path / "engines.yaml").write_text(f"engines: {{lab: {own}}}\n")
    assert gangway(["job", "status", job_id, "--on", "lab"]) == 0
    told = capsys.readouterr().out
    assert "USD (engines.lab.usd_per_node_hour)" in told
    assert " 0.00 USD" not in told


REPORTS = 'echo "{\\"images\\": 2000, \\"joules\\": 50, \\"accuracy\\": 0.5}" >"$GANGWAY_RUN_DIR/figures.json"'


def recorded(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert gangway(["job", "record", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {*found["figures"], *found["absent"]} == set(FIGURES)
    return found


@pytest.mark.slow
def test_the_record_of_a_job_that_reports_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_ENGINES", str(tmp_path / "engines.yaml"))
    own = f'{{engine: "local:{tmp_path}/queue", usd_per_node_hour: 3600}}'
    (tmp_path / "engines.yaml").write_text(f"engines: {{lab: {own}}}\n")
    seen = tmp_path / "seen"
    job_id = submitted(tmp_path, f"test -e {seen} || {{ touch {seen}; exit 9; }}; {REPORTS}", capsys)
    assert gangway(["job", "wait", job_id]) == 0
    found = recorded([job_id, "--on", "lab", "--out", str(tmp_path / "record.json")], capsys)
    figures = found["figures"]
    assert json.loads((tmp_path / "record.json").read_text())["figures"] == figures
    assert [figures[name]["value"] for name in ("starts", "failures", "interruptions")] == [2, 1, 0]
    assert figures["usd"]["value"] == pytest.approx(figures["on_nodes_sec"]["value"])
    assert figures["usd_per_1000_images"]["value"] == pytest.approx(figures["usd"]["value"] / 2)
    assert figures["usd_per_1000_images"]["source"] == "told"
    assert (figures["joules_per_image"]["value"], figures["joules_per_image"]["source"]) == (0.025, "reported")
    assert found["metrics"]["accuracy"]["value"] == 0.5
    assert found["problems"] == []
    assert (found["schema_version"], found["so_far"]) == (1, False)
    assert gangway(["job", "record", job_id, "--on", "lab"]) == 0
    told = capsys.readouterr().out
    assert f"{job_id}: done, start 2" in told
    assert "usd_per_1000_images" in told
    assert "0.025 J/image" in told


@pytest.mark.slow
def test_the_record_of_a_job_that_reports_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = submitted(tmp_path, "exit 9", capsys)
    assert gangway(["job", "cancel", job_id]) == 0
    assert gangway(["job", "wait", job_id]) == 1
    found = recorded([job_id], capsys)
    assert "has not written figures.json" in found["absent"]["images"]
    assert "engines.yaml" in found["absent"]["usd_per_node_hour"]
    assert {"joules", "gco2e", "usd", "usd_per_1000_images"} <= found["absent"].keys()
    assert found["job"]["phase"] in ("cancelled", "failed")


def test_figures_that_are_none_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = submitted(tmp_path, 'ln -s /etc/hostname "$GANGWAY_RUN_DIR/figures.json"', capsys)
    assert gangway(["job", "wait", job_id]) == 0
    capsys.readouterr()
    assert gangway(["job", "record", job_id]) == 0
    assert "warning: run/figures.json: it is a link" in capsys.readouterr().err
    found = recorded([job_id], capsys)
    assert "it is a link" in found["problems"][0]
    assert "it is a link" in found["absent"]["images"]


@pytest.mark.slow
def test_the_record_of_a_job_that_runs_goes_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = tmp_path / "seen"
    job_id = submitted(tmp_path, f"{REPORTS}; touch {seen}; sleep 600", capsys)
    while not seen.exists():
        time.sleep(0.05)
    found = recorded([job_id], capsys)
    assert found["so_far"]
    assert found["figures"]["images"]["value"] == 2000
    until = time.monotonic() + 60
    while found["figures"]["on_nodes_sec"]["value"] == 0:  # written every few seconds
        assert time.monotonic() < until
        found = recorded([job_id], capsys)
    assert "not over" in found["absent"]["joules_per_image"]
    assert gangway(["job", "record", job_id]) == 0
    assert "/queue, so far\n" in capsys.readouterr().out
    assert gangway(["job", "cancel", job_id]) == 0
    assert gangway(["job", "wait", job_id]) == 1


def test_of_no_job_there_is_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "record.json"
    assert gangway(["job", "record", "mine-7", "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert "has no such job" in told
    assert "fix:" in told
    assert not out.exists()
    job_id = submitted(tmp_path, "true", capsys)
    assert gangway(["job", "record", job_id, "--out", str(tmp_path / "no" / "record.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert gangway(["job", "wait", job_id]) == 0


def full_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """Two queues that a job each keeps from others, and the jobs."""
    path, queues = tmp_path / "job.yaml", [f"local:{tmp_path / name}" for name in ("one", "two")]
    path.write_text(FILE.format(script=json.dumps("while [ ! -e end ]; do sleep 0.1; done")))
    ids = []
    for queue in queues:
        assert gangway(["job", "submit", str(path), "--on", queue]) == 0
        ids.append(capsys.readouterr().out.strip())
    path.write_text(FILE.format(script='"true"'))
    return queues, ids


def burst(tmp_path: Path, queues: list[str], ids: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """A job that the second queue refuses, though it is free: what is said, and the job's last id."""
    ends = freed_once_it_waits(tmp_path, ids[1])
    words = ["job", "submit", str(tmp_path / "job.yaml"), "--on", ",".join(queues), "--burst-after", "0.04"]
    assert gangway(words) == 2
    ends.join()
    told = capsys.readouterr()
    assert gangway(["job", "cancel", ids[0], "--on", queues[0]]) == 0
    return told.err, told.out.splitlines()[-1]


@pytest.mark.slow
def test_a_burst_that_fails_leaves_the_job_in_its_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it has been told to stop already: it is there under another id."""
    queues, ids = full_queues(tmp_path, capsys)
    copy, fails = copy_run, [False, True]

    def full(*args: Any, **kwargs: Any) -> Any:
        if fails and fails.pop(0):
            raise InputError("the target", "No space left on device")
        return copy(*args, **kwargs)

    monkeypatch.setattr(moves, "copy_run", full)
    told, left = burst(tmp_path, queues, ids, capsys)
    assert "No space left" in told
    assert gangway(["job", "wait", left, "--on", queues[0]]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [InputError, SubmitUnansweredError])
def test_a_burst_that_is_refused_at_the_last_says_where_the_job_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: type[InputError]
) -> None:
    """Back in its queue; or, where the other may have taken it all the same, as what its move is made again."""
    queues, ids = full_queues(tmp_path, capsys)
    begin = LocalQueue._begin

    def begun(self: LocalQueue, job_id: str) -> None:
        if self.where == str(tmp_path / "two"):
            raise kind("--on slurm", "sbatch: QOSMaxSubmitJobPerUserLimit")
        begin(self, job_id)

    monkeypatch.setattr(LocalQueue, "_begin", begun)
    told, left = burst(tmp_path, queues, ids, capsys)
    assert "QOSMax" in told
    if kind is InputError:
        assert gangway(["job", "wait", left, "--on", queues[0]]) == 0
        return
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, queues[0])
    assert gangway(["job", "move", left, "--on", queues[0], "--to", queues[1]]) == 0
    moved = capsys.readouterr().out.splitlines()[-1]
    assert gangway(["job", "wait", moved, "--on", queues[1]]) == 0
