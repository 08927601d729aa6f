"""Jobs that go from one local queue to another: to the bit, after kills, and once."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from obstore.store import S3Store

from gangway.components.core.findings import InputError
from gangway.jobs import copying, moves
from gangway.jobs.base import Engine, Phase
from gangway.jobs.copying import MANIFEST, copy_folder, files_of_run, forget_copy
from gangway.jobs.job_folder import JobFolder
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.run_folder import CopyDamagedError, FolderStore
from gangway.jobs.sites import choose_engine
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, limited, over, sites, until
from tests.gangway.jobs.test_copying import Cut, cut, quiet
from tests.moto_http import Moto


def folder_store(path: Path) -> FolderStore:
    return FolderStore(JobFolder(path))


@pytest.fixture
def two(tmp_path: Path) -> tuple[LocalQueue, LocalQueue]:
    return LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")


COUNTS = (
    'n=$(cat n 2>/dev/null || echo 0); told=; trap "told=1" TERM; '
    'while [ "$n" -lt 40 ]; do n=$((n+1)); echo $n >n.new; mv n.new n; echo "at $n"; '
    '[ -z "$told" ] || exit 75; sleep 0.05; done'
)


@pytest.mark.slow
def test_it_goes_on_where_it_was(two: tuple[LocalQueue, LocalQueue]) -> None:
    source, target = two
    job_id = source.submit(job(COUNTS, max_restarts=0))
    until(source, job_id, lambda found, log: "at 5\n" in log)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert source.status(job_id).phase is Phase.CANCELLED
    found = over(target, moved.job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 1)
    said = [*source.log(job_id)[0].splitlines(), *target.log(moved.job_id)[0].splitlines()]
    numbers = [int(line.removeprefix("at ")) for line in said if line.startswith("at ")]
    assert numbers == list(range(1, 41)), "each once, and none by two"
    (move,) = found.moves
    assert f"/a/{job_id}/run " in move.source
    assert move.bytes > 0
    assert (move.usd, bool(move.why_usd)) == (0.0, True)
    again = move_job(source, job_id, target, limited(), quiet)
    assert (again.job_id, again.copied) == (moved.job_id, None)
    assert len(target.jobs()) == 1


@pytest.mark.slow
def test_one_that_waits_is_taken_along_and_one_that_is_done_is_not(two: tuple[LocalQueue, LocalQueue]) -> None:
    source, target = two
    first = source.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(source, first, lambda found, log: found.phase is Phase.RUNNING)
    second = source.submit(job("echo here"))
    moved = move_job(source, second, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    with pytest.raises(InputError, match="moved to"):
        move_job(source, second, source, limited(), quiet)
    with pytest.raises(InputError, match="already"):
        move_job(source, first, source, limited(), quiet)
    with pytest.raises(InputError, match="done"):
        move_job(target, moved.job_id, source, limited(), quiet)
    source.cancel(first)
    over(source, first)


@pytest.mark.slow
def test_one_that_is_over_is_left_as_it_was(two: tuple[LocalQueue, LocalQueue], tmp_path: Path) -> None:
    """And one that ends by itself while it is told to stop."""
    source, target = two
    done = source.submit(job("true"))
    over(source, done)
    before = sorted(path.name for path in (tmp_path / "a" / done).iterdir())
    with pytest.raises(InputError, match="it is not resumed"):
        move_job(source, done, target, limited(), quiet)
    left = sorted(path.name for path in (tmp_path / "a" / done).iterdir() if path.name != "moving")
    assert (left, list((tmp_path / "b").glob("*"))) == (before, [])
    ends = source.submit(job("trap 'exit 0' TERM; echo begun; while :; do sleep 0.1; done"))
    until(source, ends, lambda found, log: "begun" in log)
    with pytest.raises(InputError, match="it is not resumed"):
        move_job(source, ends, target, limited(), quiet)
    assert source.status(ends).phase is Phase.DONE
    assert list((tmp_path / "b").iterdir()) == []
    assert not (tmp_path / "a" / ends / "moved.json").exists()


def test_one_that_was_cancelled_stays_so(two: tuple[LocalQueue, LocalQueue]) -> None:
    source, target = two
    job_id = source.submit(job("while :; do sleep 0.1; done"))
    until(source, job_id, lambda found, log: found.phase is Phase.RUNNING)
    source.cancel(job_id)
    assert over(source, job_id).phase is Phase.CANCELLED
    with pytest.raises(InputError, match="it is not resumed"):
        move_job(source, job_id, target, limited(), quiet)
    assert target.jobs() == []


@pytest.mark.slow
def test_one_that_waits_keeps_its_turn_where_the_copy_fails_and_one_that_was_stopped_can_go_back(
    two: tuple[LocalQueue, LocalQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    first = source.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(source, first, lambda found, log: found.phase is Phase.RUNNING)
    second = source.submit(job("echo here"))
    copy, fails = copying.copy_run, [True]

    def full(*args: Any, **kwargs: Any) -> Any:
        if fails.pop(0):
            raise InputError("the target", "No space left on device")
        return copy(*args, **kwargs)

    monkeypatch.setattr(moves, "copy_run", full)
    with pytest.raises(InputError, match="No space"):
        move_job(source, second, target, limited(), quiet)
    assert source.status(second).phase is Phase.WAITING
    fails.extend([False, True])
    with pytest.raises(InputError, match="No space"):
        move_job(source, second, target, limited(), quiet)
    assert source.status(second).phase is Phase.CANCELLED
    fails.extend([False] * 2)
    back = move_job(source, second, source, limited(), quiet)
    source.cancel(first)
    assert over(source, back.job_id).phase is Phase.DONE
    assert target.jobs() == []
    assert "moved to" in source.status(second).reason


def test_what_the_target_does_not_take_goes_on_where_it_is(
    two: tuple[LocalQueue, LocalQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    job_id = source.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(source, job_id, lambda found, log: found.phase is Phase.RUNNING)
    file = source.job(job_id).model_copy(update={"image": "a/b@sha256:" + "0" * 64})
    monkeypatch.setattr(source, "job", lambda _: file)
    with pytest.raises(InputError, match="image"):
        move_job(source, job_id, target, limited(), quiet)
    assert source.status(job_id).phase is Phase.RUNNING
    source.cancel(job_id)
    over(source, job_id)


MOVES = """
import sys, time
from pathlib import Path
from gangway.jobs import moves
from gangway.jobs.local.engine import LocalQueue

def tell(done, total):
    print(done, total, flush=True)
    time.sleep(0.05)

source, target = LocalQueue(Path(sys.argv[1])), LocalQueue(Path(sys.argv[2]))
print(moves.move_job(source, sys.argv[3], target, lambda _: time.sleep(0.05), tell).job_id, flush=True)
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_of_the_copy_costs_nothing(two: tuple[LocalQueue, LocalQueue], tmp_path: Path) -> None:
    source, target = two
    script = "for i in $(seq 60); do head -c 300000 /dev/urandom >part-$i; done; echo made; trap 'exit 75' TERM; "
    script += "test -e moved && exec sha256sum part-*; touch moved; while :; do sleep 0.1; done"
    script = f"test -e moved && exec sha256sum part-*; {script}"
    job_id = source.submit(job(script))
    until(source, job_id, lambda found, log: "made" in log)
    words = [sys.executable, "-c", MOVES, str(tmp_path / "a"), str(tmp_path / "b"), job_id]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    assert target.jobs() == []
    moved = move_job(source, job_id, target, limited(), quiet)
    assert moved.copied is not None
    assert over(target, moved.job_id).phase is Phase.DONE
    said = [line.split() for line in target.log(moved.job_id)[0].splitlines() if "part-" in line]
    told = {name: digest for digest, name in said}
    here = tmp_path / "a" / job_id / "run"
    assert told == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in here.glob("part-*")}
    assert len(told) == 60
    left = sorted(path.name for path in (tmp_path / "b").rglob("*") if "#" in path.name or path.name == MANIFEST)
    assert left == []


@pytest.mark.slow
def test_the_old_place_says_where_it_has_gone(two: tuple[LocalQueue, LocalQueue], tmp_path: Path) -> None:
    source, target = two
    first = source.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(source, first, lambda found, log: found.phase is Phase.RUNNING)
    waits = source.submit(job("true"))
    moved = move_job(source, waits, target, limited(), quiet)
    found = source.status(waits)
    assert (found.phase, found.reason) == (Phase.CANCELLED, f"moved to local:{tmp_path}/b as {moved.job_id}")
    assert [each.reason for each in source.jobs() if each.id == waits] == [found.reason]
    source.cancel(first)
    assert "moved" not in over(source, first).reason, "it was cancelled by a person"


@pytest.mark.slow
def test_a_move_that_was_cut_off_is_told_and_leaves_no_copy_when_it_goes_elsewhere(
    two: tuple[LocalQueue, LocalQueue], tmp_path: Path
) -> None:
    source, target = two
    job_id = source.submit(
        job("test -e made && exit 0; echo x >made; trap 'exit 75' TERM; echo begun; sleep 600 & wait")
    )
    until(source, job_id, lambda found, log: "begun" in log)
    with pytest.raises(Cut):
        move_job(source, job_id, target, limited(), cut)
    found = source.status(job_id)
    assert found.phase is Phase.CANCELLED
    assert f"its move to local:{tmp_path}/b was interrupted" in found.reason
    assert [path.name.startswith(".staged-") for path in (tmp_path / "b").iterdir()] == [True]
    third = LocalQueue(tmp_path / "c")
    moved = move_job(source, job_id, third, limited(), quiet)
    assert (over(third, moved.job_id).phase, moved.left_at) == (Phase.DONE, ())
    assert list((tmp_path / "b").iterdir()) == []
    assert source.status(job_id).reason == f"moved to local:{tmp_path}/c as {moved.job_id}"
    with pytest.raises(InputError, match="has moved to"):
        move_job(source, job_id, target, limited(), quiet)


@pytest.mark.slow
def test_files_of_every_name_travel_and_what_is_no_file_is_told(
    two: tuple[LocalQueue, LocalQueue], tmp_path: Path
) -> None:
    source, target = two
    script = (
        "test -e 'part#1' && exec cat 'part#1' 'in#2/#3'; mkdir 'in#2' none; echo one >'part#1'; echo two >'in#2/#3'; "
    )
    script += "echo three >'a#b'; ln -s /nowhere link; mkfifo pipe; trap 'exit 75' TERM; echo begun; sleep 600 & wait"
    job_id = source.submit(job(script))
    until(source, job_id, lambda found, log: "begun" in log)
    with pytest.raises(Cut):
        move_job(source, job_id, target, limited(), cut)
    (staged,) = (tmp_path / "b").iterdir()
    (staged / "run" / "half#1").write_text("by half")  # as a kill leaves it
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert target.log(moved.job_id)[0] == "one\ntwo\n"
    there = tmp_path / "b" / moved.job_id / "run"
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()) == [
        "a#b", "in#2/#3", "part#1",
    ]  # fmt: skip
    assert moved.copied is not None
    assert moved.copied.files == 3
    assert moved.copied.left_out == ("link (a link)", "none/ (empty)", "pipe (not a regular file)")


@pytest.mark.slow
def test_a_run_folder_with_links_in_a_circle_and_names_that_no_store_takes_travels(
    two: tuple[LocalQueue, LocalQueue], tmp_path: Path
) -> None:
    """A link to the folder itself, names with control characters and without UTF-8: as jobs leave them."""
    source, target = two
    names = {b"a\nb": "control", b"caf\xe9": "latin", b"tab\tin/plain": "below", b"x" * 255: "long", b"n": "plain"}
    script = "test -e moved && exit 0; touch moved; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    job_id = source.submit(job(script))
    until(source, job_id, lambda found, log: "begun" in log)
    run, elsewhere = tmp_path / "a" / job_id / "run", tmp_path / "elsewhere"
    for name, text in names.items():
        path = run / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    elsewhere.mkdir()
    (elsewhere / "odd#3").write_text("linked")
    (elsewhere / "back").symlink_to(run)
    links = {"self": ".", "up": "../..", "circle": "circle", "there": str(elsewhere), "one": "there/odd#3"}
    for link, to in links.items():
        (run / link).symlink_to(to)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    there = tmp_path / "b" / moved.job_id / "run"
    assert {name: (there / os.fsdecode(name)).read_text() for name in names} == names
    assert [(there / name).read_text() for name in ("there/odd#3", "one")] == ["linked"] * 2
    assert [path for path in there.rglob("*") if path.is_symlink()] == []
    assert moved.copied is not None
    assert [each.partition(" ")[0] for each in moved.copied.left_out] == ["circle", "self", "there/back", "up"]


def test_what_cannot_be_read_is_told_before_the_job_is_stopped(
    two: tuple[LocalQueue, LocalQueue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    job_id = source.submit(job("echo x >secret; echo begun; while [ ! -e end ]; do sleep 0.1; done"))
    until(source, job_id, lambda found, log: "begun" in log)
    access = os.access
    with monkeypatch.context() as refused:  # root reads everything
        refused.setattr(os, "access", lambda path, mode: Path(path).name != "secret" and access(path, mode))
        with pytest.raises(InputError, match="secret: cannot be read"):
            move_job(source, job_id, target, limited(), quiet)
    assert source.status(job_id).phase is Phase.RUNNING
    assert list((tmp_path / "b").glob("*")) == []
    (tmp_path / "a" / job_id / "run" / "end").touch()
    assert over(source, job_id).phase is Phase.DONE


@pytest.mark.slow
def test_to_a_bucket_what_it_has_no_names_for_is_told(
    tmp_path: Path, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in\tname").mkdir()
    for name in ("in\tname/x", "part#1", "n"):
        (tmp_path / name).write_text(name)
    stores = {"s3://runs": bucket}
    monkeypatch.setattr(copying, "object_store", lambda url, _: stores[url])
    copied = copying.copy_run(tmp_path.as_uri(), "s3://runs", quiet, whole=True)
    assert (copied.files, len(copied.left_out)) == (1, 2)
    assert list(files_of_run(bucket, whole=True)) == ["n"]


def test_a_store_that_fails_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "n").write_text("x")
    with pytest.raises(InputError, match="cannot be copied"):
        copying.copy_run((tmp_path / "a").as_uri(), (tmp_path / "missing").as_uri(), quiet, whole=True)


def test_a_copy_goes_on_where_it_was_and_sends_what_has_changed(tmp_path: Path) -> None:
    (tmp_path / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    names = ["n", "checkpoints/1.json", "checkpoints/1.pt", "checkpoints/2.json", "checkpoints/2.pt", "empty"]
    for name in names:
        (tmp_path / "a" / name).write_bytes(b"" if name == "empty" else name.encode() * 1000)
    source, target = folder_store(tmp_path / "a"), folder_store(tmp_path / "b")
    wanted = files_of_run(source, whole=False)
    assert sorted(wanted) == ["checkpoints/2.json", "checkpoints/2.pt", "empty", "n"], "the newest alone"
    first = copy_folder(source, target, wanted, quiet)
    assert (first.files, first.bytes, first.new_bytes) == (4, sum(wanted.values()), sum(wanted.values()))
    assert copy_folder(source, target, wanted, quiet).new_bytes == 0
    (tmp_path / "a" / "n").write_bytes(b"x" * 1000)
    (tmp_path / "b" / "checkpoints" / "2.json").unlink()
    wanted = files_of_run(source, whole=False)
    assert copy_folder(source, target, wanted, quiet).new_bytes == 1000 + wanted["checkpoints/2.json"]
    forget_copy(target)
    for name, size in wanted.items():
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
        assert (tmp_path / "b" / name).stat().st_size == size
    assert sorted(path.name for path in (tmp_path / "b").rglob("*") if path.is_file()) == [
        "2.json",
        "2.pt",
        "empty",
        "n",
    ]


@pytest.mark.slow
def test_a_trained_run_ends_in_the_same_bits(two: tuple[LocalQueue, LocalQueue], tmp_path: Path) -> None:
    """The bundled trainer, moved in the middle of a run, against one that was left alone."""
    source, target = two
    keys = {
        "name": "digits", "preset": "dcgan-digits", "kimg": 3, "seed": 7, "max_hours": 1, "checkpoint_kimg": 0.5,
        "settings": {"ngf": 4, "ndf": 4, "metrics": "none", "batch_size": 16, "stats_kimg": 0.1, "deterministic": True},
    }  # fmt: skip
    file = JobFile.model_validate(keys)
    alone = target.submit(file)
    assert over(target, alone).phase is Phase.DONE
    job_id = source.submit(file)
    until(source, job_id, lambda found, log: "kimg     1." in log)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert states(tmp_path / "b" / alone) == states(tmp_path / "b" / moved.job_id)
    record = json.loads((tmp_path / "b" / moved.job_id / "run" / "run.json").read_bytes())
    assert len(record["sessions"]) == 2


def states(folder: Path) -> dict[str, str]:
    """Digests of the last checkpoint's parts."""
    newest = sorted((folder / "run" / "checkpoints").glob("*.json"))[-1]
    found: dict[str, str] = json.loads(newest.read_bytes())["state_sha256"]
    return found


def test_the_first_engine_with_room_has_it(
    two: tuple[LocalQueue, LocalQueue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    file = job("while [ ! -e end ]; do sleep 0.1; done")
    placed = choose_engine(sites(*two), file)
    assert (placed.engine, placed.now) == (first, True)
    running = first.submit(file)
    placed = choose_engine(sites(*two), file)
    assert (placed.engine, placed.now, len(placed.lines)) == (second, True, 2)
    other = second.submit(file)
    placed = choose_engine(sites(*two), file)
    assert (placed.engine, placed.now) == (first, False)
    with pytest.raises(InputError, match="no engine accepts"):
        choose_engine(sites(*two), job("true", nodes={"min": 3, "max": 3}))
    all_three: list[Engine] = [SlurmEngine(tmp_path / "shared"), first, second]
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        asked = choose_engine(sites(*all_three), file)
    assert asked.engine is first
    assert "unavailable: sinfo" in asked.lines[0]
    for queue, job_id in ((first, running), (second, other)):
        queue.cancel(job_id)
        over(queue, job_id)


@pytest.fixture
def bucket() -> Iterator[S3Store]:
    """One of moto's, no AWS."""
    with mock_aws(), ThreadingHTTPServer(("127.0.0.1", 0), Moto) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="https://s3.amazonaws.com")
        client.create_bucket(Bucket="runs")
        yield S3Store(
            "runs", prefix="a run", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1",
            access_key_id="test", secret_access_key="test", client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )  # fmt: skip
        client.close()
        server.shutdown()


@pytest.mark.slow
def test_by_way_of_a_bucket(tmp_path: Path, bucket: S3Store) -> None:
    (tmp_path / "a" / "samples").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    content = {"samples/a b.png": os.urandom(20 << 20), "run.json": b"{}", "empty": b""}
    for name, each in content.items():
        (tmp_path / "a" / name).write_bytes(each)
    source, target = folder_store(tmp_path / "a"), folder_store(tmp_path / "b")
    copy_folder(source, bucket, files_of_run(source, whole=False), quiet)
    assert copy_folder(source, bucket, files_of_run(source, whole=False), quiet).new_bytes == 0
    assert sorted(files_of_run(bucket, whole=True)) == sorted(content)
    copy_folder(bucket, target, files_of_run(bucket, whole=True), quiet)
    assert {name: (tmp_path / "b" / name).read_bytes() for name in content} == content


def test_what_arrives_otherwise_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "n").write_bytes(b"sent")

    @contextmanager
    def wrong(store: FolderStore, name: str) -> Iterator[BytesIO]:
        yield BytesIO()
        (store.path / name).write_bytes(b"other")

    monkeypatch.setattr(FolderStore, "writer", wrong)
    with pytest.raises(CopyDamagedError, match="n: "):
        copy_folder(folder_store(tmp_path / "a"), folder_store(tmp_path / "b"), {"n": 4}, quiet)
