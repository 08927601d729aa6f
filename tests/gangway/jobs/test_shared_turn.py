"""Turns in a folder of jobs that several real users share, what each of them sees of it, and where they are refused:
mallory makes and removes what she can, and holds the folder's lock.
"""

import json
import os
import time
from pathlib import Path

import pytest

from gangway.components.core.findings import Severity
from gangway.jobs.base import Phase
from gangway.jobs.job_folders import working_folder_findings
from gangway.jobs.local.engine import LocalQueue, Turn
from tests.gangway.jobs.test_contract import job, over
from tests.gangway.jobs.test_shared_folders import place as place
from tests.gangway.jobs.test_shared_folders import planted, shared
from tests.other_users import ALICE, MALLORY, Done, gangway, holds_lock, shell, why_not

pytestmark = [
    pytest.mark.attack("a user of a shared queue", "blocks the queue, or begins a job beside another one"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
CASE = "name: {name}\ncommand: [sh, -c, '{script}']\nmax_hours: 1\nworkdir: /\n"


def job_file(place: Path, name: str = "case", script: str = "echo ran") -> str:
    (file := place / f"{name}.yaml").write_text(CASE.format(name=name, script=script))
    return str(file)


def get_row(done: Done, job_id: str) -> dict[str, object]:
    return next(row for row in json.loads(done.out) if row["id"] == job_id)


@pytest.mark.parametrize("line", ["mkfifo turn", "ln -s x turn", "mkdir turn", "umask 077; touch turn"])
def test_no_file_in_the_folder_blocks_the_queue(place: Path, line: str) -> None:
    """Under the name by which an earlier release took turns."""
    folder = shared(place, 0o1777)
    shell(MALLORY, f"cd {folder}; {line}")
    on = f"--on=local:{folder}"
    submitted, waited = gangway(ALICE, ("submit", job_file(place), on), ("wait", "case-1", on))
    assert (submitted.code, submitted.out, waited.code) == (0, "case-1\n", 0), (submitted, waited)


def test_whoever_removes_what_she_can_runs_no_job_beside_another(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    script = f"cd {place}/ran; mkdir alone || exit 9; while [ ! -e end ]; do sleep 0.1; done; rmdir alone"
    (begun,) = gangway(ALICE, ("submit", job_file(place, "long", script), on))
    assert begun.code == 0, begun
    while not (place / "ran/alone").exists():
        time.sleep(0.05)
    shell(MALLORY, f"cd {folder}; rm -rf turn * .[!.]* 2>/dev/null; mv long-1 away 2>/dev/null; touch turn")
    hers = job_file(place, "hers", f"cd {place}/ran; mkdir alone || exit 9; rmdir alone")
    submitted, found = gangway(MALLORY, ("submit", hers, on), ("status", "hers-2", on))
    assert (submitted.code, found.code) == (0, 0), (submitted, found)
    assert f"another user's job or lock on {folder} (process " in found.out
    assert f"of {ALICE}) before it" in found.out
    (place / "ran/end").touch()
    for uid, job_id in ((ALICE, "long-1"), (MALLORY, "hers-2")):
        (waited,) = gangway(uid, ("wait", job_id, on))
        assert waited.code == 0, waited


@pytest.mark.parametrize("kind", ["LOCK_EX", "LOCK_SH"])
def test_whoever_holds_the_lock_is_named_with_the_process(place: Path, kind: str) -> None:
    """That stalls the queue, as docs/security-queues.md says."""
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    with holds_lock(MALLORY, folder, kind) as pid:
        submitted, found, listed = gangway(
            ALICE, ("submit", job_file(place), on), ("status", "case-1", on), ("list", "--json", on)
        )
        cause = f"another user's job or lock on {folder} (process {pid} of nobody) before it"
        assert (submitted.code, found.out) == (0, f"case-1: waiting: {cause}\n"), (submitted, found)
        assert get_row(listed, "case-1")["reason"] == cause
    assert gangway(ALICE, ("wait", "case-1", on))[0].code == 0


def test_a_lock_whose_holder_is_hidden_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.jobs.local.engine._LOCKS", tmp_path / "none")
    with Turn(tmp_path) as other:
        other.take()
        assert f"fuser -v {tmp_path}" in LocalQueue(tmp_path).room(job("true")).reason
    assert LocalQueue(tmp_path).room(job("true")).now


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o733, 0o744])
@pytest.mark.parametrize("below", ["", "deeper/"])
def test_a_closed_folder_is_no_empty_one(place: Path, mode: int, below: str) -> None:
    """Mallory's, with a job in it."""
    closed = place / "hers"
    folder = closed / below / "queue" if below else closed
    folder.mkdir(parents=True)
    planted(folder, "case-1")
    closed.chmod(mode)
    os.chown(closed, MALLORY, MALLORY)
    if below and mode in (0o711, 0o733):
        folder.chmod(mode)
        os.chown(folder, MALLORY, MALLORY)
    on = f"--on=local:{folder}"
    words = [("list",), ("status", "case-1"), ("wait", "case-1"), ("logs", "case-1"), ("cancel", "case-1")]
    named = folder if below and mode in (0o711, 0o733) else closed
    for words_, done in zip(words, gangway(ALICE, *((*each, on) for each in words)), strict=True):
        if words_ != ("list",) and mode in (0o711, 0o733):
            assert (done.code, "ask nobody" in done.err) == (2, True), (words_, done)  # her folder can be entered
            continue
        assert (done.code, done.out, "chmod u+rwx" in done.err) == (2, "", False), (words_, done)
        assert f"permission denied: {named} belongs to user {MALLORY} with mode {mode:04o}" in done.err, (words_, done)
    (submitted,) = gangway(ALICE, ("submit", job_file(place), on))
    assert (submitted.code, submitted.out, str(named) in submitted.err) == (2, "", True), submitted
    assert [each.name for each in folder.iterdir()] == ["case-1"]


def test_a_move_to_a_closed_folder_names_it(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    (place / "closed").mkdir(mode=0o700)
    gangway(ALICE, ("submit", job_file(place, script="sleep 60"), on))
    moved, *_ = gangway(ALICE, ("move", "case-1", on, f"--to=local:{place}/closed/queue"), ("cancel", "case-1", on))
    assert moved.code == 2, moved
    assert f"permission denied: {place}/closed belongs to user 0 with mode 0700" in moved.err, moved
    assert [each.name for each in folder.iterdir()] == ["case-1"]


@pytest.mark.parametrize("named", [True, False], ids=["workdir", "cwd"])
def test_a_command_that_cannot_begin_where_it_is_to_is_refused(place: Path, named: bool) -> None:
    folder, closed = shared(place, 0o1777), place / "closed"
    (closed / "work").mkdir(parents=True)
    closed.chmod(0o700)
    workdir = f"workdir: {closed}/work\n" if named else ""
    (place / "case.yaml").write_text(f"name: case\ncommand: [echo, ran]\nmax_hours: 1\n{workdir}")
    cwd = "/" if named else closed / "work"
    (done,) = gangway(ALICE, ("submit", str(place / "case.yaml"), f"--on=local:{folder}"), cwd=cwd)
    assert (done.code, done.out) == (2, ""), done
    assert f"workdir: the command starts in {closed}/work: permission denied: {closed} belongs to" in done.err
    assert "fix:     cd to a folder that you can enter, or name one in the job file: workdir:" in done.err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("workdir", "problem"), [("/dev/null", "it is a file"), ("/no/such/folder", ""), ("/tmp", ""), (None, "")]
)
def test_where_a_command_begins_elsewhere_is_known_by_half(workdir: str | None, problem: str) -> None:
    """On the nodes of a Slurm the path may lead to another folder; one that is not there may be made."""
    made = job("true", workdir=workdir)
    here = next((each.severity for each in working_folder_findings(made, is_here=True)), None)
    there = next(iter(working_folder_findings(made, is_here=False)), None)
    assert here is (Severity.ERROR if problem else None)
    assert (there is None) is (problem == "")
    assert there is None or (there.severity is Severity.WARNING and there.message.endswith(problem) and there.fix)


def test_an_opened_folder_of_another_users_tells_no_more_than_a_closed_one(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    gangway(ALICE, ("submit", job_file(place), on), ("wait", "case-1", on))
    shell(ALICE, f"chmod -R go+rX {folder}/case-1; chmod 600 {folder}/case-1/environment")
    (planted(folder, "case-2", phase="running", reason="forged", nodes=["node"]) / "environment").chmod(0o600)
    for uid, others in ((MALLORY, {"case-1": str(ALICE)}), (ALICE, {"case-2": "nobody"})):
        (listed,) = gangway(uid, ("list", "--json", on))
        for job_id, owner in others.items():
            row = get_row(listed, job_id)
            assert (row["phase"], row["user"], row["reason"]) == (
                "another user's", owner, f"only {owner} and root can see its state"
            )  # fmt: skip
            assert {str(row[key]) for key in ("starts", "nodes", "submitted_at", "stretches")} == {"None", "[]"}
    (listed,) = gangway(0, ("list", "--json", on))
    assert [get_row(listed, each)["phase"] for each in ("case-1", "case-2")] == ["done", "waiting"]


def test_a_job_of_roots_is_for_root_alone_to_see(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    queue = LocalQueue(folder)
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    table, listed = gangway(ALICE, ("list", on), ("list", "--json", on))
    row = get_row(listed, "case-1")
    assert (row["reason"], row["starts"]) == ("only root can see its state", None)
    (line,) = (line for line in table.out.splitlines() if "case-1" in line)
    assert [cell.strip() for cell in line.split("│")][5] == "", "its starts are not known"


@pytest.mark.parametrize("kind", ["mkfifo", "mkdir", "ln -s x"])
def test_a_state_that_is_no_file_is_a_row_that_says_why(place: Path, kind: str) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    gangway(ALICE, ("submit", job_file(place), on), ("wait", "case-1", on))
    shell(ALICE, f"cd {folder}/case-1; rm state.json; {kind} state.json")
    listed, found = gangway(ALICE, ("list", "--json", on), ("status", "case-1", on))
    row = get_row(listed, "case-1")
    assert (row["phase"], f"{folder}/case-1/state.json: not the state of a job: it is" in str(row["reason"])) == (
        "cannot be read", True
    )  # fmt: skip
    assert (found.code, f"fix:     find out what made {folder}/case-1/state.json, then remove it" in found.err) == (
        2,
        True,
    ), found


def test_a_link_in_place_of_a_log_is_named_with_what_to_do(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    gangway(ALICE, ("submit", job_file(place), on), ("wait", "case-1", on))
    shell(ALICE, f"cd {folder}/case-1; rm log; ln -s /etc/passwd log")
    (done,) = gangway(ALICE, ("logs", "case-1", on))
    assert (done.code, "release" in done.err) == (2, False), done
    assert (
        f"{folder}/case-1/log: the job's log cannot be read: it is a link, and links are not followed here" in done.err
    )
    assert f"fix:     find out what made {folder}/case-1/log, then remove it" in done.err


def test_errors_begin_with_themselves_and_fixes_are_for_who_reads_them(place: Path) -> None:
    folder, on = shared(place, 0o1777), f"--on=local:{place}/queue"
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    moved, refused = gangway(
        ALICE, ("move", "case-1", on, f"--to=local:{place}/x"), ("submit", job_file(place), f"--on=local:{place}/open")
    )
    assert (moved.code, moved.err.startswith("error: ")) == (2, True), moved
    assert (refused.code, f"ask root, who owns it, for chmod +t {place}/open" in refused.err) == (2, True), refused
    (by_root,) = gangway(0, ("submit", job_file(place), f"--on=local:{place}/open"))
    assert (by_root.code, f"fix:     chmod +t {place}/open" in by_root.err) == (2, True), by_root
    assert not list(folder.iterdir())
