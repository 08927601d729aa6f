"""Links, FIFOs and folders at every name that the engines use, in a folder of jobs and in a job's own: none is
followed, nothing is waited for, and nothing outside is made, changed or shown.
"""

import ast
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from components.core.findings import InputError
from stacks.engines.base import Phase
from stacks.engines.data_sets import bring_data, has_data, with_data
from stacks.engines.job_folder import OwnJobFolder
from stacks.engines.job_folders import FolderEngine
from stacks.engines.local.engine import LocalQueue
from stacks.engines.slurm.engine import SlurmEngine
from tests.conftest import REPO
from tests.other_users import MALLORY
from tests.stacks.engines.slurm.conftest import pretended as pretended
from tests.stacks.engines.test_contract import job, over
from tests.stacks.engines.test_shared_folders import planted, shared, tree

SECRET = "of-root-alone"
METHODS = {name for name in dir(OwnJobFolder) if not name.startswith("_")} | {"first", "number_in", "sec_since_mark"}
pytestmark = [
    pytest.mark.attack("a user of a shared queue", "plants links and FIFOs where others read and write"),
    pytest.mark.skipif(os.geteuid() != 0, reason="wants root, to give files to other users"),
]


def names_in_code() -> list[str]:
    """Every file that a module of the engines names to a folder, by a literal or a constant of its own."""
    found = set[str]()
    files = sorted((REPO / "stacks/engines").rglob("*.py"))
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


def test_the_names_are_those_of_the_code() -> None:
    known = {"job.json", "state.json", "environment", "log", "cancel", "alive", "stretches", "on-nodes", "moved.json"}
    assert known | {"slurm-id", "end", "nodes", "started", ".gone", "exit-code", "spent.json"} <= {*NAMES}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that waits at a FIFO fails."""

    def late(*_: object) -> None:
        raise KeyboardInterrupt("it waits at a FIFO")  # a TimeoutError would be an OSError, which is heard

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gangway-planted-"))
    made.chmod(0o755)
    (made / "private").mkdir(mode=0o700)
    (made / "private/key").write_text(SECRET)
    (made / "private/key").chmod(0o600)
    yield made
    shutil.rmtree(made)


def _link(path: Path) -> None:
    path.symlink_to(path.parents[1 if path.parent.name == "queue" else 2] / "private/key")


def _link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parents[1 if path.parent.name == "queue" else 2] / "private/made")


def _link_to_folder(path: Path) -> None:
    path.symlink_to(path.parents[1 if path.parent.name == "queue" else 2] / "private")


KINDS = [_link, _link_to_nothing, _link_to_folder, os.mkfifo, Path.mkdir]
each_kind = pytest.mark.parametrize("plant", KINDS, ids=lambda kind: kind.__name__.strip("_"))
each_odd_file = pytest.mark.parametrize("plant", [_link, _link_to_nothing, os.mkfifo], ids=["link", "nowhere", "fifo"])
each_name = pytest.mark.parametrize("name", NAMES)


def engines(place: Path, pretended: Callable[[str, str], None]) -> list[FolderEngine]:
    pretended("squeue", f"echo '7|{MALLORY}|RUNNING|None|gangway:{place}/queue/case-1'")
    return [LocalQueue(place / "queue"), SlurmEngine(place / "queue")]


def replaced(folder: Path, name: str, plant: Callable[[Path], None], uid: int) -> None:
    if (folder / name).is_dir():
        (folder / name).rmdir()
    (folder / name).unlink(missing_ok=True)
    plant(folder / name)
    os.lchown(folder / name, uid, uid)


@each_odd_file
@each_name
def test_in_somebody_elses_job(
    place: Path, pretended: Callable[[str, str], None], name: str, plant: Callable[[Path], None]
) -> None:
    planted(folder := shared(place, 0o1777), "case-1")
    (folder / "case-1/slurm-id").write_text("7\n")
    replaced(folder / "case-1", name, plant, MALLORY)
    before = tree(place / "private"), sorted(map(str, folder.rglob("*")))
    for engine in engines(place, pretended):
        rows = engine.jobs()
        assert SECRET not in str(rows)
        assert {row.user for row in rows} <= {"nobody"}
        for ask in (engine.status, engine.cancel, engine.ensure_begun, engine.stop, engine.used, engine.run_url):
            with pytest.raises(InputError):
                ask("case-1")
        assert engine.moved("x") is None
    assert (tree(place / "private"), sorted(map(str, folder.rglob("*")))) == before


@each_odd_file
@each_name
def test_in_an_own_job(
    place: Path, pretended: Callable[[str, str], None], name: str, plant: Callable[[Path], None]
) -> None:
    """Nobody else can put them there, but what a job runs can."""
    planted(folder := shared(place, 0o1777), "case-1", phase="done")
    os.chown(folder / "case-1", 0, 0)
    replaced(folder / "case-1", name, plant, 0)
    before = tree(place / "private")
    for engine in engines(place, pretended):
        assert SECRET not in str(engine.jobs())
        for ask in (engine.status, engine.log, engine.cancel, engine.environment, engine.used, engine.kept):
            with suppress(InputError):
                assert SECRET not in str(ask("case-1"))
    own = OwnJobFolder(folder / "case-1")
    for write in (own.touch, own.append_to, lambda it: own.overwrite(it, b"x")):
        with suppress(OSError):
            write(name)
    with suppress(OSError):
        own.write(name, b"x")
    assert tree(place / "private") == before


@each_kind
@pytest.mark.parametrize("name", ["turn", "case-1", "case-2", ".staged", ".data", ".new-0123456789abcdef"])
def test_in_the_folder_of_all(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, plant: Callable[[Path], None]
) -> None:
    """Of names that mallory can know before: of the next job, of a move and of a data set."""
    monkeypatch.setattr("stacks.engines.local.engine.begin_runner", lambda _: None)
    folder, source = shared(place, 0o1777), place / "source"
    queue, reads = LocalQueue(folder), job("true").model_copy(update={"data": None})
    source.mkdir()
    (source / "x").write_text("x")
    staged = queue.stage("origin").path.parent
    queue.unstage("origin")
    path = folder / {".staged": staged.name, ".data": f".data-{os.geteuid()}"}.get(name, name)
    plant(path)
    os.lchown(path, MALLORY, MALLORY)
    before = tree(place / "private")
    if name == ".staged":
        with pytest.raises(InputError):
            queue.stage("origin")
        with pytest.raises(InputError):
            queue.unstage("origin")
    elif name == ".data":
        _no_data(folder, source)
    elif name == "turn":
        with pytest.raises(InputError):
            queue.submit(reads)
        assert [each.name for each in folder.iterdir()] == ["turn"]
    else:
        job_id = queue.submit(reads)
        assert {row.id for row in queue.jobs()} == {job_id}
    assert tree(place / "private") == before


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
