"""A folder of jobs that three real users share: root, alice, and mallory, who plants what she likes in it. Whoever of
the others asks for her job begins, writes, ends and moves nothing of it, and sees no more than a row of a list.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.jobs.figures import read_reported
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.job_folders import read_status, write_status
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.slurm.conftest import pretended as pretended
from tests.gangway.jobs.test_contract import job
from tests.other_users import ALICE, GROUP, MALLORY, gangway, prefix, shell, why_not

pytestmark = [
    pytest.mark.attack("a user of a shared queue", "has others begin, end or move a job"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
WAYS = [
    pytest.param(0, 0o1777, id="root-1777"),
    pytest.param(ALICE, 0o2775, id="alice-2775"),
]
ESCAPE = "\x1b]0;pwned\x07\x1b[31m"


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own folder, which nobody else may enter."""
    made = Path(tempfile.mkdtemp(prefix="gangway-shared-"))
    made.chmod(0o755)
    (made / "ran").mkdir()
    (made / "ran").chmod(0o1777)
    yield made
    shutil.rmtree(made)


def shared(place: Path, mode: int) -> Path:
    folder = place / "queue"
    folder.mkdir()
    os.chown(folder, 0, GROUP)
    folder.chmod(mode)
    return folder


def planted(folder: Path, job_id: str, **state: object) -> Path:
    """A job of mallory's that everybody may read, and that says what she likes: she has written it by hand."""
    job = {"name": "case", "command": ["sh", "-c", f"id -u >{folder.parent}/ran/$$"], "max_hours": 1, "workdir": "/"}
    said = {
        "id": job_id, "name": "case", "user": "root", "team": "", "phase": "waiting", "nodes": [], "starts": 0,
        "exit_code": None, "reason": "", "submitted_at": "2026-11-29T08:00:00Z", **state,
    }  # fmt: skip
    place = folder / job_id
    for name in ("run", ""):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "job.json").write_text(json.dumps(job))
    (place / "state.json").write_text(json.dumps(said))
    (place / "environment").write_bytes(b"PATH=/usr/bin:/bin\0")
    for path in (place, *place.iterdir()):
        os.chown(path, MALLORY, MALLORY)
        path.chmod(0o755)
    return place


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All of it: mode, owner and content."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (seen.st_mode, seen.st_uid, content)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("uid", "mode"), WAYS)
def test_somebody_elses_job_is_a_row_of_the_list_and_nothing_else(place: Path, uid: int, mode: int) -> None:
    folder = shared(place, mode)
    before = tree(planted(folder, "case-1"))
    on, case = f"--on=local:{folder}", place / "case.yaml"
    case.write_text("name: mine\ncommand: [echo, ran]\nmax_hours: 1\nworkdir: /\n")
    (place / "other").mkdir()
    (place / "other").chmod(0o1777)
    refused = [
        ("wait", "case-1"), ("logs", "-f", "case-1"), ("logs", "case-1"), ("status", "case-1"), ("cancel", "case-1"),
        ("record", "case-1"), ("move", "case-1", f"--to=local:{place}/other"),
    ]  # fmt: skip
    commands = [(*words, on) for words in refused]
    *answers, submitted, waited, listed = gangway(
        uid, *commands, ("submit", str(case), on), ("wait", "mine-2", on), ("list", "--json", on)
    )
    for words, answer in zip(refused, answers, strict=True):
        assert (answer.code, answer.out) == (2, ""), (words, answer)
        assert "ask nobody" in answer.err, (words, answer)
    rows = {row["id"]: row for row in json.loads(listed.out)}
    phase = "waiting" if uid == 0 else "another user's"
    assert (rows["case-1"]["user"], rows["case-1"]["phase"]) == ("nobody", phase)
    if mode & 0o1000:
        assert (submitted.code, submitted.out, waited.code) == (0, "mine-2\n", 0), (submitted, waited)
        assert rows["mine-2"]["user"] == ("root" if uid == 0 else str(ALICE))
    else:  # she could replace the job's folder while it runs
        assert (submitted.code, "chmod +t" in submitted.err, set(rows)) == (2, True, {"case-1"}), submitted
    assert tree(folder / "case-1") == before
    assert list((place / "ran").iterdir()) == []
    assert list((place / "other").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("above", "queue", "unsafe", "code"),
    [
        pytest.param((0, 0o755), (0, 0o1777), "", 0, id="roots"),
        pytest.param((0, 0o1777), (0, 0o1777), "", 0, id="sticky-above"),
        pytest.param((0, 0o3775), (0, 0o3775), "", 0, id="sticky-group"),
        pytest.param((ALICE, 0o755), (ALICE, 0o755), "", 0, id="own"),
        pytest.param((0, 0o2775), (0, 0o1777), "above", 0, id="group-above"),
        pytest.param((0, 0o777), (0, 0o1777), "above", 2, id="anybody-above"),
        pytest.param((MALLORY, 0o755), (0, 0o1777), "above", 0, id="hers-above"),
        pytest.param((MALLORY, 0o1777), (0, 0o1777), "above", 0, id="hers-and-sticky-above"),
        pytest.param((0, 0o755), (0, 0o2775), "queue", 2, id="group"),
        pytest.param((0, 0o755), (MALLORY, 0o1777), "queue", 0, id="hers-and-sticky"),
    ],
)
def test_who_submits_where_others_can_replace_a_folder_is_told_or_refused(
    place: Path, above: tuple[int, int], queue: tuple[int, int], unsafe: str, code: int
) -> None:
    """Mallory tries: whatever folder she can rename is named, by way of a link too; to root it is refused."""
    folders = {"above": place / "data/above", "queue": place / "data/above/queue"}
    for (uid, mode), folder in zip((above, queue), folders.values(), strict=True):
        folder.mkdir(parents=True)
        os.chown(folder, uid, GROUP)
        folder.chmod(mode)
    case, link = place / "case.yaml", place / "link"
    case.write_text("name: case\ncommand: [echo, ran]\nmax_hours: 1\nworkdir: /\n")
    link.symlink_to(folders["queue"])
    # Of the last, the queue is a folder above: its group is warned of.
    codes = {folders["queue"]: code, link: code, folders["queue"] / "deeper": code if unsafe == "above" else 0}
    done = gangway(ALICE, *(("submit", str(case), f"--on=local:{each}") for each in codes))
    for expected, submitted in zip(codes.values(), done, strict=True):
        said = re.findall(r"(?:cannot run it|warning): (/\S+): .*run their programs as you", submitted.err)
        assert [name for name, each in folders.items() if str(each) in said] == [unsafe] * bool(unsafe), submitted
        assert submitted.code == expected, submitted
    (by_root,) = gangway(0, ("submit", str(case), f"--on=local:{folders['queue']}"))
    assert by_root.code == (2 if unsafe or ALICE in (above[0], queue[0]) else 0), by_root
    (folders["queue"] / "job").mkdir()
    os.chown(folders["queue"] / "job", ALICE, ALICE)
    moved = {"above": can_move(folders["queue"]), "queue": can_move(folders["queue"] / "job")}
    assert moved == {"above": unsafe == "above", "queue": unsafe == "queue"}


def test_an_owner_from_outside_of_the_container_is_nobody_here(place: Path) -> None:
    """In a user namespace with root alone, who submits below a folder whose owner is not in it."""
    folder = shared(place, 0o755)
    os.chown(folder, ALICE, GROUP)
    code = (
        "import sys; from pathlib import Path; from gangway.jobs.job_folder import sharing_findings; "
        "print([each.path for each in sharing_findings(Path(sys.argv[1]))])"
    )
    words = [sys.executable, "-c", code, str(folder)]
    inside = subprocess.run(
        ["unshare", "--user", "--map-root-user", *words], capture_output=True, text=True, check=False
    )
    if "unshare: " in inside.stderr:
        pytest.skip(f"no user namespaces here: {inside.stderr}")
    outside = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (inside.stdout, outside.stdout) == ("[]\n", f"['{folder}']\n"), inside.stderr


def can_move(folder: Path) -> bool:
    """Whether mallory can, who is in GROUP; it is back then."""
    words = [*prefix(MALLORY), "sh", "-c", 'mv "$0" "$0-moved" && mv "$0-moved" "$0"', str(folder)]
    return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0


def test_folders_that_are_made_on_the_way_are_closed_to_a_shared_group(place: Path) -> None:
    """Of a user whose umask lets their group write: else the next submit would refuse what the first has made."""
    case, home = place / "case.yaml", place / "home"
    case.write_text("name: case\ncommand: [echo, ran]\nmax_hours: 1\nworkdir: /\n")
    home.mkdir()
    os.chown(home, ALICE, GROUP)
    home.chmod(0o2755)
    before = os.umask(0o002)
    try:
        (submitted,) = gangway(ALICE, ("submit", str(case), f"--on=local:{home}/on/the/way"))
    finally:
        os.umask(before)
    assert (submitted.code, submitted.out) == (0, "case-1\n"), submitted


@pytest.mark.slow
def test_a_job_that_another_user_submitted_is_listed_as_theirs(place: Path) -> None:
    """Its folder is as Gangway makes it, and closed to others."""
    folder, case = shared(place, 0o1777), place / "case.yaml"
    case.write_text("name: case\ncommand: [echo, ran]\nmax_hours: 1\nworkdir: /\n")
    on = f"--on=local:{folder}"
    submitted, waited = gangway(ALICE, ("submit", str(case), on), ("wait", "case-1", on))
    assert (submitted.code, submitted.out, waited.code) == (0, "case-1\n", 0), (submitted, waited)
    table, listed, asked = gangway(MALLORY, ("list", on), ("list", "--json", on), ("status", "case-1", on))
    assert (table.code, "another user's" in table.out, "cannot be read" in table.out) == (0, True, False), table
    (row,) = json.loads(listed.out)
    assert (row["id"], row["name"], row["user"], row["phase"]) == ("case-1", "case", str(ALICE), "another user's")
    assert row["reason"] == f"only {ALICE} and root can see its state"
    assert {row[name] for name in ("exit_code", "submitted_at", "ended_at", "stretches")} == {None}
    assert (asked.code, f"ask {ALICE}" in asked.err) == (2, True), asked
    (listed,) = gangway(0, ("list", "--json", on))
    assert [(row["user"], row["phase"]) for row in json.loads(listed.out)] == [(str(ALICE), "done")]


@pytest.mark.slow
def test_the_same_job_is_begun_by_its_owner(place: Path) -> None:
    """Or the test above would show nothing."""
    folder = shared(place, 0o1777)
    planted(folder, "case-1")
    (answer,) = gangway(MALLORY, ("wait", "case-1", f"--on=local:{folder}"))
    assert answer.code == 0, answer
    assert [path.read_text() for path in (place / "ran").iterdir()] == [f"{MALLORY}\n"]


@pytest.mark.slow
def test_an_own_folder_that_others_may_write_to_is_begun_by_nobody(place: Path) -> None:
    """It may be one that was moved there; what is in it was written by whoever."""
    folder = shared(place, 0o1777)
    job = planted(folder, "case-1")
    job.chmod(0o777)
    commands = [(command, "case-1", f"--on=local:{folder}") for command in ("wait", "status", "cancel")]
    for answer in gangway(MALLORY, *commands):
        assert (answer.code, "chmod go-w" in answer.err) == (2, True), answer
    assert list((place / "ran").iterdir()) == []


@pytest.mark.slow
def test_a_job_that_is_another_folder_at_every_look_is_never_begun(place: Path) -> None:
    """In turn mallory's own folder and a link to a job of root's in another queue."""
    folder, private = shared(place, 0o1777), place / "private"
    private.mkdir(mode=0o700)
    roots = planted(private, "case-1", reason="of-root-alone")
    os.chown(roots, 0, 0)
    planted(folder, "case-1")
    swap = (
        f"cd {folder}; mv case-1 kept; ln -s {roots} link; for i in $(seq 3000); do mv -T kept case-1; "
        "mv -T case-1 kept; mv -T link case-1; mv -T case-1 link; done"
    )
    on = f"--on=local:{folder}"
    looks = [(command, *words, on) for command, *words in (("wait", "case-1"), ("cancel", "case-1"), ("list",)) * 10]
    before = tree(private)
    swapping = os.posix_spawnp(
        "setpriv",
        ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups", "sh", "-c", swap],
        os.environ,
    )
    try:
        answers = gangway(0, *looks)
    finally:
        os.kill(swapping, 9)
        os.waitpid(swapping, 0)
    assert {answer.code for answer in answers if not answer.out} <= {0, 2}
    assert not any("of-root-alone" in f"{answer.out}{answer.err}" for answer in answers)
    assert tree(private) == before
    assert list((place / "ran").iterdir()) == []


@pytest.mark.slow
def test_what_a_stranger_says_of_a_job_reaches_no_terminal_as_it_is(place: Path) -> None:
    folder = shared(place, 0o1777)
    texts = dict.fromkeys(("reason", "team", "user", "name"), f"{ESCAPE}x\nforged")
    planted(folder, "case-1", **texts, nodes=[f"{ESCAPE}n"])
    planted(folder, "case-2", id=f"{ESCAPE}case-2")
    table, rows = gangway(0, ("list", f"--on=local:{folder}"), ("list", "--json", f"--on=local:{folder}"))
    assert table.code == rows.code == 0
    assert "\x1b" not in table.out + table.err + rows.out + rows.err
    assert "\x07" not in table.out + table.err
    assert not any(line.strip().startswith("forged") for line in table.out.splitlines())
    first, second = json.loads(rows.out)
    assert (first["id"], first["name"], first["user"]) == ("case-1", "case", "nobody")
    assert (second["id"], second["phase"]) == ("case-2", "cannot be read")


@pytest.mark.parametrize(
    "state", ["", "[" * 100_000, "\0\xff", "null", '{"id": 1}', " " * 2_000_000], ids=lambda text: f"{text[:5]!r}"
)
def test_a_state_that_is_none_is_a_row(place: Path, state: str) -> None:
    folder = shared(place, 0o1777)
    (planted(folder, "case-1") / "state.json").write_text(state)
    (row,) = LocalQueue(folder).jobs()
    assert (row.phase, row.user) == ("cannot be read", "nobody")


@pytest.mark.slow
def test_no_planted_name_takes_all_numbers(place: Path) -> None:
    folder, case = shared(place, 0o1777), place / "case.yaml"
    case.write_text("name: mine\ncommand: [echo, ran]\nmax_hours: 1\nworkdir: /\n")
    names = [f"case-{'9' * 18}", f"x-{'9' * 200}", f"case-{10**9}"]
    shell(MALLORY, f"cd {folder}; mkdir {' '.join(names)}; ln -s /nowhere mine-{10**9 + 1}; mkfifo mine-{10**9 + 2}")
    submitted, listed = gangway(0, ("submit", str(case), f"--on=local:{folder}"), ("list", f"--on=local:{folder}"))
    assert (submitted.code, submitted.out) == (0, f"mine-{10**9 + 3}\n"), submitted
    assert listed.code == 0


CALLS = (
    "open",
    "stat",
    "lstat",
    "rename",
    "replace",
    "mkdir",
    "unlink",
    "rmdir",
    "scandir",
    "listdir",
    "chmod",
    "utime",
)
HERS = "written-by-mallory"
Queue = LocalQueue | SlurmEngine


class Swap:
    """Before the call `at` of those that the code makes to the operating system, mallory puts a folder of hers at
    `path`: what is there by then goes beside it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.hers, self.at, self.calls, self._is_busy = Path(), Path(), 0, 0, False
        for name in CALLS:
            monkeypatch.setattr(os, name, self._before(getattr(os, name)))
        monkeypatch.setattr(io, "open", self._before(io.open))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.at and not self._is_busy:
                self._is_busy = True
                self.calls += 1
                if self.calls >= self.at and self.hers.exists() and self.path.exists():
                    self.path.rename(self.hers.with_name("away"))
                    self.hers.rename(self.path)
                self._is_busy = False
            return call(*args, **kwargs)

        return counted


@pytest.fixture
def swap(monkeypatch: pytest.MonkeyPatch) -> Swap:
    def ends(folder: OwnJobFolder) -> None:
        write_status(folder, replace(read_status(folder), phase=Phase.CANCELLED))

    monkeypatch.setattr("gangway.jobs.local.engine.begin_runner", ends)
    return Swap(monkeypatch)


def record(engine: Queue, job_id: str) -> str:
    kept = engine.get_stored_job(job_id)
    return str(read_reported(kept.job, kept.folder.by_descriptor))


def moved(engine: Queue, other: Queue) -> str:
    to = move_job(engine, "case-1", other, lambda _: None, lambda *_: None)
    return "".join(path.read_text() for path in Path(other.where).rglob("*") if to.job_id and path.is_file())


OPERATIONS: dict[str, Callable[[Queue, Queue], object]] = {
    "list": lambda engine, _: [each.reason for each in engine.jobs() if each.user == "root"],
    "status": lambda engine, _: engine.status("case-1"),
    "logs": lambda engine, _: engine.log("case-1"),
    "wait": lambda engine, _: engine.ensure_begun("case-1"),
    "cancel": lambda engine, _: engine.cancel("case-1"),
    "record": lambda engine, _: record(engine, "case-1"),
    "used": lambda engine, _: engine.get_usage("case-1"),
    "environment": lambda engine, _: engine.environment("case-1"),
    "submit": lambda engine, _: engine.submit(job("true")),
    "move": moved,
    "arrive": lambda engine, other: moved(other, engine),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "slurm"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_folder_that_is_replaced_at_any_moment_is_not_read_or_written(
    place: Path, swap: Swap, pretended: Callable[[str, str], None], operation: str, kind: str
) -> None:
    """By one with links to what is root's alone; each time some calls later."""
    step = 9 if operation in ("move", "arrive") else 1
    told = place / "told"
    state = f"$(test -e {told} && echo CANCELLED || echo PENDING)"
    pretended("squeue", f'echo "7|0|{state}|None|gangway:{place}/queue/case-1"')
    pretended("scancel", f"touch {told}")
    (place / "private").mkdir(mode=0o700)
    (place / "private/key").write_text(HERS)
    before, outcomes = tree(place / "private"), list[str]()
    while True:
        folder, other = shared(place, 0o1777), LocalQueue(place / "other")
        engine: Queue = LocalQueue(folder) if kind == "local" else SlurmEngine(folder)
        name = {"submit": "case-2", "arrive": "arrived"}.get(operation, "case-1")
        for each in (planted(folder, "case-1"), planted(place / "other", "case-1")):
            (each / "run/n").write_text("own")
            (each / "slurm-id").write_text("7\n")
            for path in (each, *each.rglob("*")):
                os.chown(path, 0, 0)
        if name == "arrived":
            name = engine.stage(f"{other.run_url('case-1')} {other.status('case-1').submitted_at}").path.parent.name
        hers = planted(place / "hers", "case-1", reason=HERS)
        (hers / "log").symlink_to(place / "private/key")
        (hers / "run").rmdir()
        (hers / "run").symlink_to(place / "private")
        theirs = tree(hers)
        told.unlink(missing_ok=True)
        swap.path, swap.hers, swap.calls, swap.at = folder / name, hers, 0, step * len(outcomes) + 1
        try:
            outcomes.append(str(OPERATIONS[operation](engine, other)))
        except InputError as error:
            outcomes.append(error.problem)
        finally:
            swap.at, is_over = 0, hers.exists()
        there = next(path for path in (hers, *folder.iterdir()) if path.exists() and path.lstat().st_uid == MALLORY)
        assert list(tree(there).values()) == list(theirs.values()), outcomes
        assert (HERS in outcomes[-1], tree(place / "private")) == (False, before), outcomes
        for made in (folder, place / "other", place / "hers"):
            shutil.rmtree(made)
        if is_over:
            assert len(outcomes) > 3, "it was replaced at several moments"
            return
