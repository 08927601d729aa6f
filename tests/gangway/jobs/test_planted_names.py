"""Links, FIFOs and folders under the names that engines use, in a folder of jobs and in a job's own folder: none is
followed, no read blocks, and nothing outside is created, changed or shown.
"""

import ast
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.jobs.copying import bring_data, has_data, with_data
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.slurm.engine import SlurmEngine
from tests.conftest import REPO
from tests.gangway.jobs.slurm.conftest import pretended as pretended
from tests.gangway.jobs.test_contract import job, over
from tests.gangway.jobs.test_shared_folders import place as place
from tests.gangway.jobs.test_shared_folders import planted, shared, tree
from tests.other_users import MALLORY

SECRET = "of-root-alone"
METHODS = {name for name in dir(OwnJobFolder) if not name.startswith("_")} | {"first", "read_number", "sec_since_mark"}
pytestmark = [
    pytest.mark.attack("a user of a shared queue", "plants links and FIFOs where others read and write"),
    pytest.mark.skipif(os.geteuid() != 0, reason="wants root, to give files to other users"),
]


def names_in_code() -> list[str]:
    """Every file that a module of the engines names to a folder, by a literal or a constant of its own."""
    found = set[str]()
    files = sorted((REPO / "gangway/jobs").rglob("*.py"))
    trees = [ast.parse(file.read_text()) for file in files]
    everywhere = {name: text for each in trees for name, text in _constants(each).items()}
    for each in trees:
        constants = {**everywhere, **_constants(each)}
        for call in (node for node in ast.walk(each) if isinstance(node, ast.Call)):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            for argument in call.args if called in METHODS else ():
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.add(argument.value)
                elif isinstance(argument, ast.Name) and argument.id in constants:
                    found.add(constants[argument.id])
    return sorted(name for name in found if name and "/" not in name and " " not in name)


def _constants(module: ast.Module) -> dict[str, str]:
    found = dict[str, str]()
    for node in (each for each in module.body if isinstance(each, ast.Assign)):
        target, value = node.targets[0], node.value
        pairs = zip(target.elts, value.elts, strict=True) if isinstance(value, ast.Tuple) and isinstance(
            target, ast.Tuple
        ) else [(target, value)]  # fmt: skip
        for name, text in pairs:
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[name.id] = text.value
    return found


NAMES = names_in_code()


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that blocks on a FIFO fails."""

    def late(*_: object) -> None:
        raise KeyboardInterrupt("it blocks on a FIFO")  # a TimeoutError would be an OSError, which is caught

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def private(place: Path) -> Path:
    (made := place / "private").mkdir(mode=0o700)
    (made / "key").write_text(SECRET)
    (made / "key").chmod(0o600)
    return made


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, private: path.symlink_to(private / "key"),
    "link-to-nothing": lambda path, private: path.symlink_to(private / "made"),
    "fifo": lambda path, _: os.mkfifo(path),
    "link-to-folder": lambda path, private: path.symlink_to(private),
    "folder": lambda path, _: path.mkdir(),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_odd_file = pytest.mark.parametrize("kind", ["link", "link-to-nothing", "fifo"])


def engines(place: Path, pretended: Callable[[str, str], None]) -> list[FolderEngine]:
    pretended("squeue", f"echo '7|{MALLORY}|RUNNING|None|gangway:{place}/queue/case-1'")
    return [LocalQueue(place / "queue"), SlurmEngine(place / "queue")]


def each_name(place: Path, private: Path, kind: str, uid: int) -> Iterator[str]:
    """Each name in turn, as the only odd one in a job of that user's."""
    folder = shared(place, 0o1777) / "case-1"
    for name in NAMES:
        planted(folder.parent, folder.name, phase="waiting" if uid else "done")
        os.chown(folder, uid, uid)
        (folder / "slurm-id").write_text("7\n")
        if (folder / name).is_dir():
            (folder / name).rmdir()
        (folder / name).unlink(missing_ok=True)
        KINDS[kind](folder / name, private)
        os.lchown(folder / name, uid, uid)
        yield name
        (folder / name).unlink()


@each_odd_file
def test_in_somebody_elses_job(place: Path, private: Path, pretended: Callable[[str, str], None], kind: str) -> None:
    for name in each_name(place, private, kind, MALLORY):
        before = tree(private), sorted(map(str, (place / "queue").rglob("*")))
        for engine in engines(place, pretended):
            rows = engine.jobs()
            assert SECRET not in str(rows), name
            assert {row.user for row in rows} <= {"nobody"}
            for ask in (
                engine.status,
                engine.cancel,
                engine.ensure_begun,
                engine.stop,
                engine.get_usage,
                engine.run_url,
            ):
                with pytest.raises(InputError):
                    ask("case-1")
            assert engine.find_moved("x") is None
        assert (tree(private), sorted(map(str, (place / "queue").rglob("*")))) == before, name


@each_odd_file
def test_in_an_own_job(place: Path, private: Path, pretended: Callable[[str, str], None], kind: str) -> None:
    """No other user can put them there, but the job's own program can."""
    for name in each_name(place, private, kind, 0):
        before = tree(private)
        for engine in engines(place, pretended):
            assert SECRET not in str(engine.jobs()), name
            for ask in (
                engine.status,
                engine.log,
                engine.cancel,
                engine.environment,
                engine.get_usage,
                engine.get_stored_job,
            ):
                with suppress(InputError):
                    assert SECRET not in str(ask("case-1")), name
        own = OwnJobFolder(place / "queue/case-1")
        writes: list[tuple[Any, ...]] = [(own.touch,), (own.append_to,), (own.overwrite, b"x"), (own.write, b"x")]
        for write, *content in writes:
            with suppress(OSError):
                write(name, *content)
        assert tree(private) == before, name


@each_kind
@pytest.mark.parametrize("name", ["turn", "case-1", "case-2", ".staged", ".data", ".new-0123456789abcdef"])
def test_in_the_folder_of_all(
    place: Path, private: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """Under names that mallory can guess: of the next job, of a move, of a data set, and of the file by which an
    earlier release took turns.
    """
    monkeypatch.setattr("gangway.jobs.local.engine.begin_runner", lambda _: None)
    folder, source = shared(place, 0o1777), place / "source"
    queue, reads = LocalQueue(folder), job("true").model_copy(update={"data": None})
    source.mkdir()
    (source / "x").write_text("x")
    staged = queue.stage("origin").path.parent
    queue.unstage("origin")
    path = folder / {".staged": staged.name, ".data": f".data-{os.geteuid()}"}.get(name, name)
    KINDS[kind](path, private)
    os.lchown(path, MALLORY, MALLORY)
    before = tree(private)
    if name == ".staged":
        with pytest.raises(InputError):
            queue.stage("origin")
        with pytest.raises(InputError):
            queue.unstage("origin")
    elif name == ".data":
        _no_data(folder, source)
    else:
        job_id = queue.submit(reads)
        assert {row.id for row in queue.jobs()} == {job_id}
    assert tree(private) == before


def _no_data(folder: Path, source: Path) -> None:
    data = {"source": source.as_uri(), "region": "hosts:here/DE", "gib": 1}
    reads = job("true").model_validate({**job("true").model_dump(exclude_unset=True), "data": data})
    uses = (
        lambda: bring_data(reads, folder, lambda *_: None), lambda: has_data(reads, folder),
        lambda: with_data(reads, folder),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(InputError):
            use()


@pytest.mark.slow
def test_a_lock_of_somebody_elses_is_locked_and_not_changed(place: Path) -> None:
    folder = shared(place, 0o1777)
    (folder / "turn").write_text("hers")
    os.chown(folder / "turn", MALLORY, MALLORY)
    (folder / "turn").chmod(0o600)
    queue = LocalQueue(folder)
    assert over(queue, queue.submit(job("true"))).phase is Phase.DONE
    assert ((folder / "turn").read_text(), (folder / "turn").stat().st_mode & 0o777) == ("hers", 0o600)


def test_a_held_folder_is_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "case-1").mkdir(mode=0o700)
    (tmp_path / "case-1/log").write_text("mine")
    held = OwnJobFolder(tmp_path / "case-1")
    (tmp_path / "case-1").rename(tmp_path / "away")
    (tmp_path / "case-1").mkdir()
    (tmp_path / "case-1/log").write_text("hers")
    assert (held.read("log"), held.is_in_place) == (b"mine", False)
    held.write("state.json", b"")
    held.remove_tree()
    assert sorted(os.listdir(tmp_path / "away")) == ["log", "state.json"]  # noqa: PTH208
    assert (tmp_path / "case-1/log").read_text() == "hers"
    with pytest.raises(FileNotFoundError):
        held.move_to(tmp_path / "y")
    OwnJobFolder(tmp_path / "away").move_to(tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"case-1", "x"}
