"""What root puts of a folder that the trainer may fill as it likes: its own regular files, and nothing else, ever."""

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.images.node.outbox import Owned, get_results, main

pytestmark = pytest.mark.attack("a job (uid 10001)", "names in the run's folder that lead root elsewhere")

SECRET = "of root alone"
RUN = {
    "run.json": "{}",
    "stats.jsonl": "1\n",
    "samples/000017kimg.png": "grid",
    "checkpoints/000000017920.pt": "old",
    "checkpoints/000000019072.pt": "new",
    "checkpoints/000000019072.json": "{new}",
    "checkpoints/000000019072.part-0-of-2": "first worker's",
    "checkpoints/000000019072.part-1-of-2": "second worker's",
}
KEPT = {name: text for name, text in RUN.items() if name != "run.json" and "17920" not in name}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    for name, text in RUN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "marks").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def put(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[dict[str, str], str]]:
    """Has a command copy what it is given, after `meanwhile` (bash); returns that, and what was said."""
    target = tmp_path / "put"

    def start(meanwhile: str = ":", uid: int = os.getuid()) -> tuple[dict[str, str], str]:
        target.mkdir()
        copy = f'[ -z "$RECORD" ] || cp "$RECORD" {target}/run.json; [ -z "$RESULTS" ] || cp -r "$RESULTS/." {target}'
        command = ["bash", "-ec", f"{meanwhile}; {copy}"]
        assert main([str(run), str(uid), str(tmp_path / "marks"), "yes", *command]) == 0
        files = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
        return files, capfd.readouterr().err

    return start


def test_statistics_that_cannot_be_read_keep_no_record_back(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(of: Owned) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "stats.jsonl")

    monkeypatch.setattr("gangway.images.node.outbox.get_progress", broken)
    files, said = put()
    assert files == {"run.json": RUN["run.json"], **KEPT}
    assert "skipping the progress" in said


def test_record_and_results_are_put_and_nothing_is_left_behind(
    run: Path, put: Callable[..., tuple[dict[str, str], str]]
) -> None:
    assert put()[0] == {**KEPT, "run.json": "{}"}
    assert {str(path.relative_to(run)): path.read_text() for path in run.rglob("*") if path.is_file()} == RUN


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def listening(path: Path, secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        os.chdir(path.parent)  # a socket's path is short
        end.bind(path.name)


def folder(path: Path, secret: Path) -> None:
    path.mkdir()


def link_to_folder(path: Path, secret: Path) -> None:
    path.symlink_to(secret.parent)


@pytest.mark.parametrize("plant", [link, fifo, listening, folder, link_to_folder])
@pytest.mark.parametrize("name", ["run.json", "stats.jsonl", "samples/000017kimg.png", "checkpoints/000000019072.pt"])
def test_what_is_no_file_is_left_out_and_told(
    run: Path,
    put: Callable[..., tuple[dict[str, str], str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    plant: Callable[[Path, Path], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    (run / name).unlink()
    plant(run / name, tmp_path / "secret")
    files, said = put()
    wanted = {**KEPT, "run.json": "{}"}
    if name.endswith(".pt"):
        wanted = {key: text for key, text in wanted.items() if "19072" not in key}
        wanted["checkpoints/000000017920.pt"] = "old"
    assert files == {key: text for key, text in wanted.items() if key != name}
    assert f"skipping '{Path(name).name}'" in said


@pytest.mark.parametrize("name", ["samples", "checkpoints"])
def test_a_folder_that_is_a_link_is_none(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], tmp_path: Path, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.pt").write_text(SECRET)
    (run / name).rename(tmp_path / "before")
    (run / name).symlink_to(tmp_path / "elsewhere")
    assert SECRET not in put()[0].values()


def test_a_run_folder_that_is_a_link_is_none(run: Path, put: Callable[..., tuple[dict[str, str], str]]) -> None:
    run.rename(run.with_name("before"))
    run.symlink_to(run.with_name("before"))
    assert put()[0] == {}


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to other users")
def test_files_of_others_are_left_out_under_any_name(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], tmp_path: Path
) -> None:
    """A hard link is no link to the kernel: who owns the file tells."""
    for path in (run, *run.rglob("*")):
        os.chown(path, 10_001, 10_001)
    (run / "run.json").unlink()
    (run / "run.json").hardlink_to(tmp_path / "secret")
    (run / "samples/2.png").hardlink_to(tmp_path / "secret")
    files, said = put(uid=10_001)
    assert files == KEPT
    assert said.count("not written by the trainer") == 2


def test_a_name_that_is_swapped_all_the_time_never_leads_elsewhere(run: Path, tmp_path: Path) -> None:
    mine, ended = Owned(os.open(run, os.O_RDONLY), os.getuid()), threading.Event()

    def swap() -> None:
        new = run / "new"
        while not ended.is_set():
            new.symlink_to(tmp_path / "secret")
            new.replace(run / "run.json")
            new.write_text("{}")
            new.replace(run / "run.json")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    for _ in range(3000):
        if (descriptor := mine.file("run.json")) != -1:
            with os.fdopen(descriptor) as file:
                seen.add(file.read())
    ended.set()
    swapping.join()
    # Whether a read met the file, and not the link, is up to the scheduler; the last swap leaves the file.
    with os.fdopen(mine.file("run.json")) as file:
        assert seen | {file.read()} == {"{}"}


def test_a_folder_that_is_renamed_meanwhile_is_still_the_one_that_was_made(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], tmp_path: Path
) -> None:
    swap = 'staged=$(ls -d .results-*); mv "$staged" mine; mkdir "$staged"'
    theirs = f'cd {run}; {swap}; ln -s {tmp_path}/secret "$staged/a.png"'
    files, _ = put(theirs)
    assert files == {**KEPT, "run.json": "{}"}


def test_what_a_node_left_that_was_cut_off_goes_and_nothing_outside_with_it(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], tmp_path: Path
) -> None:
    left = run / f".results-{socket.gethostname()}-0123"
    (left / "samples").mkdir(parents=True)
    (run / f".results-{socket.gethostname()}-4567").symlink_to(tmp_path)
    (run / ".results-another-0123").mkdir()
    put()
    assert not left.exists()
    assert (tmp_path / "secret").read_text() == SECRET
    assert (run / ".results-another-0123").exists(), "that node may be at it"


def test_what_was_put_already_is_not_put_again(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], tmp_path: Path
) -> None:
    mark = f'echo "$SUM_OF_RECORD" >{tmp_path}/marks/uploaded; echo "$SUM_OF_RESULTS" >{tmp_path}/marks/results'
    assert put(mark)[0] == {**KEPT, "run.json": "{}"}
    (tmp_path / "put").rename(tmp_path / "first")
    assert put()[0] == {}
    (tmp_path / "put").rename(tmp_path / "second")
    (run / "run.json").write_text('{"id": "x"}')
    assert put()[0] == {"run.json": '{"id": "x"}'}


def test_a_record_of_gigabytes_is_none(run: Path, put: Callable[..., tuple[dict[str, str], str]]) -> None:
    with (run / "run.json").open("wb") as file:
        file.truncate(1 << 40)
    files, said = put()
    assert files == KEPT
    assert "too large for a record" in said


def test_the_newest_checkpoint_that_is_one_is_put(run: Path) -> None:
    (run / "checkpoints/zzz.pt").symlink_to("/etc/shadow")
    kept = get_results(Owned(os.open(run, os.O_RDONLY), os.getuid()))
    assert "checkpoints/000000019072.pt" in kept.names


def test_more_pictures_than_a_process_may_hold_files_keep_nothing_back(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):
        (run / f"samples/{number:06d}kimg.png").write_text(str(number))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))  # noqa: PTH208
    try:
        files, _ = put()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len([name for name in files if name.startswith("samples/")]) == 600
    assert files["run.json"] == "{}"


def test_of_more_pictures_than_anybody_looks_at_the_last_are_put(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangway.images.node.outbox._MAX_PICTURES", 2)
    for number in (18, 19):
        (run / f"samples/0000{number}kimg.png").write_text("later")
    files, told = put()
    assert sorted(name for name in files if "samples/" in name) == ["samples/000018kimg.png", "samples/000019kimg.png"]
    assert "uploading the last 2 of 3 pictures" in told


def test_the_record_is_put_whatever_else_the_folder_has_become(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = run / f".results-{socket.gethostname()}-x"
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    try:
        assert put()[0]["run.json"] == "{}"
    finally:
        subprocess.run(["rm", "-rf", deep], check=True)


def test_results_that_cannot_be_gathered_leave_the_record(
    run: Path, put: Callable[..., tuple[dict[str, str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gangway.images.node.outbox.os.link", full)
    files, told = put()
    assert files == {"run.json": "{}"}
    assert "skipping the results: [Errno 28]" in told


def test_the_exit_code_is_the_commands(run: Path, tmp_path: Path) -> None:
    argv = [str(run), str(os.getuid()), str(tmp_path / "marks"), "", "bash", "-c", "exit 7"]
    assert main(argv) == 7
    program = [sys.executable, str(Path(__file__).parents[3] / "images/node/outbox.py"), *argv]
    assert subprocess.run(program, check=False).returncode == 7
