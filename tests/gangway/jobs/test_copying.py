"""A copy at its end holds what its source holds, and nothing else; around it nothing is touched."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import boto3
import pytest
from moto import mock_aws
from obstore.store import S3Store

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import Place, read_place
from gangway.jobs import copying, moves
from gangway.jobs.base import Phase, data_source_findings, refusals
from gangway.jobs.copying import MANIFEST, copy_run, files_of_run, has_data, with_data
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.remote import RemoteEngine
from gangway.jobs.sites import Nodes, Site, charge
from gangway.jobs.slurm.script import node_env
from gangway.runs.run_store import object_store
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, limited, over, until
from tests.moto_http import Moto

OLDER, NEWER = ("000000001024", "000000001280")


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


class Cut(Exception):  # noqa: N818  # a kill, not an error
    """In the middle of the copy."""


def cut(done: int, total: int) -> None:
    if done == total:
        raise Cut


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_the_source_no_longer_has_goes_from_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_SAVE_EVERY_SEC", -1.0)
    source, target, beside = (tmp_path / name for name in ("source", "target", "beside"))
    for name in ("classes/old/1", "part", "folder/1", "odd\tin/1", "n#1", "kept"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    target.mkdir()
    beside.mkdir()
    (beside / "theirs").write_text("stays")
    with pytest.raises(Cut):
        copy_run(source.as_uri(), target.as_uri(), cut, whole=True)
    assert (target / MANIFEST).exists(), "it goes on with that"
    (target / "link").symlink_to(beside)
    for name in ("classes/old/1", "folder/1", "part", "odd\tin/1", "n#1"):
        (source / name).unlink()
    for name in ("classes/old", "folder", "odd\tin"):
        (source / name).rmdir()
    (source / "folder").write_text("a file now")
    (source / "part").mkdir()
    (source / "part" / "1").write_text("a folder now")
    copied = copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
    assert names_in(target) == ["folder", "kept", "part", "part/1"]
    assert (target / "folder").read_text() == "a file now"
    assert copied.new_bytes == copied.bytes - len("kept"), "what had arrived is not sent again"
    assert (beside / "theirs").read_text() == "stays"


def test_what_had_arrived_and_is_no_longer_that_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that crashed may keep a file's name and size alone."""
    monkeypatch.setattr(copying, "_SAVE_EVERY_SEC", -1.0)
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target):
        folder.mkdir()
    for name in ("kept", "lost"):
        (source / name).write_text(name)
    with pytest.raises(Cut):
        copy_run(source.as_uri(), target.as_uri(), cut, whole=True)
    (target / "lost").write_bytes(bytes(len("lost")))
    assert copy_run(source.as_uri(), target.as_uri(), quiet, whole=True).new_bytes == len("lost")
    assert {name: (target / name).read_text() for name in names_in(target)} == {"kept": "kept", "lost": "lost"}


@pytest.mark.slow
def test_a_job_that_was_moved_finds_no_file_that_it_had_removed(tmp_path: Path) -> None:
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    script = "test -e made && { ls; exit 0; }; touch lock made; trap 'exit 75' TERM; echo begun; sleep 600 & wait"
    job_id = source.submit(job(script))
    until(source, job_id, lambda found, log: "begun" in log)
    with pytest.raises(Cut):
        move_job(source, job_id, target, limited(), cut)
    (tmp_path / "a" / job_id / "run" / "lock").unlink()
    moved = move_job(source, job_id, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert target.log(moved.job_id)[0] == "made\n"


def test_a_source_that_is_empty_now_takes_nothing_from_an_earlier_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    assert copy_run(source.as_uri(), target.as_uri(), quiet, whole=True).files == 0, "it never had any"
    (source / "n").write_text("n")
    with pytest.raises(Cut):
        copy_run(source.as_uri(), target.as_uri(), cut, whole=True)
    source.rename(tmp_path / "away")
    for folder in ("missing", "empty"):
        if folder == "empty":
            source.mkdir()
        with pytest.raises(InputError, match="is empty now" if folder == "empty" else "cannot be copied"):
            copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
        assert (target / "n").read_text() == "n"
    (target / "n").unlink()
    assert copy_run(source.as_uri(), target.as_uri(), quiet, whole=True).files == 0


@pytest.mark.slow
def test_a_run_folder_that_is_gone_leaves_its_job_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job that waits the first copy is made before it is taken out of its queue."""
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    first = source.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    waits = source.submit(job("cat part"))
    part, away = tmp_path / "a" / waits / "run" / "part", tmp_path / "part"
    part.write_text("made\n")

    def once(*args: Any, **kwargs: Any) -> Any:
        copied = copy_run(*args, **kwargs)
        if not away.exists():
            part.rename(away)
        return copied

    monkeypatch.setattr(moves, "copy_run", once)
    with pytest.raises(InputError, match="is empty now"):
        move_job(source, waits, target, limited(), quiet)
    (copy,) = (tmp_path / "b").glob(".staged-*/run/part")
    assert copy.read_text() == "made\n"
    part.write_text(away.read_text())
    moved = move_job(source, waits, target, limited(), quiet)
    assert over(target, moved.job_id).phase is Phase.DONE
    assert target.log(moved.job_id)[0] == "made\n"
    source.cancel(first)
    over(source, first)


@pytest.fixture
def bucket() -> Iterator[S3Store]:
    """A folder in one of moto's, beside which another run has a file."""
    with mock_aws(), ThreadingHTTPServer(("127.0.0.1", 0), Moto) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="https://s3.amazonaws.com")
        client.create_bucket(Bucket="runs")
        client.put_object(Bucket="runs", Key="another/n", Body=b"theirs")
        client.put_object(Bucket="runs", Key="a run/old", Body=b"of a copy that was cut off")
        yield S3Store(
            "runs", prefix="a run", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1",
            access_key_id="test", secret_access_key="test", client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )  # fmt: skip
        assert client.get_object(Bucket="runs", Key="another/n")["Body"].read() == b"theirs"
        client.close()
        server.shutdown()


def test_in_a_bucket_too(tmp_path: Path, bucket: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n").write_text("n")
    stores = {"s3://runs": bucket}
    monkeypatch.setattr(copying, "object_store", lambda url, _: stores[url])
    copy_run(tmp_path.as_uri(), "s3://runs", quiet, whole=True)
    assert list(files_of_run(bucket, whole=True)) == ["n"]
    (tmp_path / "n").unlink()
    with pytest.raises(InputError, match="is empty now"):
        copy_run(tmp_path.as_uri(), "s3://runs", quiet, whole=True)
    assert list(files_of_run(bucket, whole=True)) == ["n"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two checkpoints in parts, as the trainer writes them."""
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "stats.jsonl").write_text("{}\n")
    for name in (OLDER, NEWER):
        sums = {}
        for file in (f"{name}.pt", f"{name}.part-0-of-1"):
            (folder / file).write_bytes(file.encode() * 100)
            sums[file] = sha256((folder / file).read_bytes()).hexdigest()
        state, part = sums.items()
        manifest = {"images": 1, "sha256": state[1], "parts": [{"file": part[0], "sha256": part[1], "bytes": 1}]}
        (folder / f"{name}.json").write_text(json.dumps(manifest))
    return tmp_path / "run"


def copied(run: Path) -> tuple[set[str], tuple[str, ...]]:
    """Which checkpoints there are in a copy, and what is said to have stayed."""
    target = run.with_name("copy")
    target.mkdir()
    left_out = copy_run(run.as_uri(), target.as_uri(), quiet, whole=False).left_out
    assert (target / "stats.jsonl").exists()
    found = {path.name for path in (target / "checkpoints").iterdir()}
    names = {name.partition(".")[0] for name in found}
    for name in names:
        wanted = {path.name for path in (run / "checkpoints").glob(f"{name}.*")}
        assert {each for each in found if each.startswith(name)} == wanted
    return names, left_out


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".pt", zeroed),
        (".part-0-of-1", zeroed),
        (".part-0-of-1", Path.unlink),
        (".json", zeroed),
        (".json", Path.unlink),
        (".pt", Path.unlink),
    ],
)
def test_the_newest_that_is_intact_goes_along(run: Path, ending: str, damage: Callable[[Path], None]) -> None:
    damage(run / "checkpoints" / f"{NEWER}{ending}")
    names, left_out = copied(run)
    assert names == {OLDER}
    is_one = (ending, damage) != (".pt", Path.unlink)  # the trainer sees none there either
    assert [NEWER in line for line in left_out] == [True] * is_one


@pytest.mark.parametrize("damaged", [(), (OLDER,), (OLDER, NEWER)])
def test_the_newest_does_where_it_is_intact_or_none_is(run: Path, damaged: tuple[str, ...]) -> None:
    for name in damaged:
        zeroed(run / "checkpoints" / f"{name}.pt")
    assert copied(run) == ({NEWER}, ())


@pytest.mark.slow
def test_a_trained_run_goes_on_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    keys = {
        "name": "digits", "preset": "dcgan-digits", "kimg": 3, "seed": 7, "max_hours": 1, "checkpoint_kimg": 0.5,
        "settings": {"ngf": 4, "ndf": 4, "metrics": "none", "batch_size": 16, "stats_kimg": 0.1},
    }  # fmt: skip
    job_id = source.submit(JobFile.model_validate(keys))
    checkpoints = tmp_path / "a" / job_id / "run" / "checkpoints"
    until(source, job_id, lambda found, log: len(list(checkpoints.glob("*.pt"))) > 1)

    def after_a_crash(*args: Any, **kwargs: Any) -> Any:
        zeroed(max(checkpoints.glob("*.pt")))
        return copy_run(*args, **kwargs)

    monkeypatch.setattr(moves, "copy_run", after_a_crash)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert moved.copied is not None
    (line,) = moved.copied.left_out
    assert max(checkpoints.glob("*.pt")).name in line
    assert over(target, moved.job_id).phase is Phase.DONE
    record = json.loads((tmp_path / "b" / moved.job_id / "run" / "run.json").read_bytes())
    assert len(record["sessions"]) == 2


FRANKFURT, OREGON = "aws:eu-central-1", "aws:us-west-2"
SHOWS = 'cat "$GANGWAY_DATA_DIR/train/one"; ls "$GANGWAY_DATA_DIR"'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "set" / "train").mkdir(parents=True)
    for name, text in {"train/one": "the first\n", "train/two": "the second\n", "index.json": "{}"}.items():
        (tmp_path / "set" / name).write_text(text)
    return tmp_path / "set"


def reading(source: str | Path, script: str = SHOWS, **keys: object) -> JobFile:
    url = source.as_uri() if isinstance(source, Path) else source
    return job(script, data={"region": FRANKFURT, "gib": 40, "source": url}, **keys)


def place(name: str) -> Place:
    return read_place(name, "")


@pytest.fixture
def source_bucket(source: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The data set's URL, in one of moto's buckets, no AWS."""
    with mock_aws(), ThreadingHTTPServer(("127.0.0.1", 0), Moto) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="https://s3.amazonaws.com")
        client.create_bucket(Bucket="sets")
        for path in source.rglob("*"):
            if path.is_file():
                client.put_object(Bucket="sets", Key=f"mine/{path.relative_to(source)}", Body=path.read_bytes())
        store = S3Store(
            "sets", prefix="mine", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1",
            access_key_id="test", secret_access_key="test", client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )  # fmt: skip
        plain = object_store
        monkeypatch.setattr(
            copying, "object_store", lambda url, region: store if url == "s3://sets/mine" else plain(url, region)
        )
        yield "s3://sets/mine"
        client.close()
        server.shutdown()


@pytest.mark.slow
def test_jobs_read_one_copy_of_a_bucket(source_bucket: str, tmp_path: Path) -> None:
    queue, file = LocalQueue(tmp_path / "queue"), reading(source_bucket)
    copied = queue.bring_data(file, quiet)
    assert copied is not None
    assert (copied.files, copied.bytes) == (3, len("the first\nthe second\n{}"))
    assert queue.bring_data(file, quiet) is None, "it is there"
    for _ in range(2):
        job_id = queue.submit(file)
        assert over(queue, job_id).phase is Phase.DONE
        assert queue.log(job_id)[0].split() == ["the", "first", "index.json", "train"]
    assert len(list(tmp_path.glob("queue/.data-*/*/files"))) == 1


def test_a_copy_that_was_cut_off_goes_on_and_counts_for_nothing_meanwhile(source: Path, tmp_path: Path) -> None:
    queue, file = LocalQueue(tmp_path / "queue"), reading(source)

    def stops(done: int, total: int) -> None:
        if done > len("{}"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.bring_data(file, stops)
    assert not queue.has_data(file)
    assert over(queue, queue.submit(file)).phase is Phase.DONE
    assert queue.has_data(file)


def test_a_copy_that_was_cut_off_keeps_nothing_that_the_source_no_longer_has(source: Path, tmp_path: Path) -> None:
    queue, file = LocalQueue(tmp_path / "queue"), reading(source)

    def stops(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queue.bring_data(file, stops)
    shutil.rmtree(source / "train")
    queue.bring_data(file, quiet)
    (copy,) = tmp_path.glob("queue/.data-*/*/files")
    assert [path.name for path in copy.rglob("*")] == ["index.json"]


@pytest.mark.slow
def test_a_copy_out_of_a_bucket_is_a_source_too(source: Path, tmp_path: Path) -> None:
    """Which holds what says of a source_bucket's files when they were written."""
    (source / copying.MANIFEST).write_text("{}")
    queue, file = LocalQueue(tmp_path / "queue"), reading(source)
    for _ in range(2):
        job_id = queue.submit(file)
        assert over(queue, job_id).phase is Phase.DONE
    assert not list(tmp_path.glob(f"queue/.data-*/*/files/{copying.MANIFEST}"))


def test_a_submit_waits_for_another_that_copies_the_same(source: Path, tmp_path: Path) -> None:
    queue, file, is_copying, is_said = LocalQueue(tmp_path / "queue"), reading(source), Event(), Event()

    def tell(done: int, total: int) -> None:
        is_copying.set()
        assert is_said.wait(60)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(queue.bring_data, file, tell)
        assert is_copying.wait(60)
        second = queue.bring_data(file, quiet, lambda line: is_said.set())
        assert first.result() is not None
    assert second is None, "it is there"
    assert queue.has_data(file)


@pytest.mark.parametrize("then", ["emptied", "changed"])
def test_what_has_become_of_the_source_during_a_long_wait_counts(source: Path, tmp_path: Path, then: str) -> None:
    queue, file, is_copying, is_said = LocalQueue(tmp_path / "queue"), reading(source), Event(), Event()

    def cut_off(done: int, total: int) -> None:
        is_copying.set()
        assert is_said.wait(60)
        if then == "emptied":
            shutil.rmtree(source)
            source.mkdir()
        else:
            (source / "train" / "three").write_text("the third\n")
        raise Cut

    with ThreadPoolExecutor() as pool:
        first = pool.submit(queue.bring_data, file, cut_off)
        assert is_copying.wait(60)
        if then == "emptied":
            with pytest.raises(InputError, match="is empty"):
                queue.bring_data(file, quiet, lambda line: is_said.set())
        else:
            assert queue.bring_data(file, quiet, lambda line: is_said.set()) is not None
        assert isinstance(first.exception(), Cut)
    (copy,) = tmp_path.glob("queue/.data-*/*/files")
    assert (copy / "index.json").read_text() == "{}", "what had arrived is there"
    assert queue.has_data(file) == (then == "changed")
    if then == "changed":
        assert queue.bring_data(file, quiet) is None, "it is what was copied"


@pytest.mark.parametrize("to", ["another", "nothing"])
def test_a_source_that_changes_after_it_was_listed_is_never_called_whole(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    queue, file, copy_run = LocalQueue(tmp_path / "queue"), reading(source), copying.copy_run

    def late(*args: Any, **kwargs: Any) -> Any:
        if to == "another":
            (source / "train" / "two").write_text("another second\n")
        else:
            source.rename(source.with_name("away"))
            source.mkdir()
        return copy_run(*args, **kwargs)

    with monkeypatch.context() as changes:
        changes.setattr(copying, "copy_run", late)
        with pytest.raises(InputError, match="changed while it was copied"):
            queue.submit(file)
    assert not queue.has_data(file)
    if to == "nothing":
        source.rmdir()
        source.with_name("away").rename(source)
    assert over(queue, queue.submit(file)).phase is Phase.DONE


@pytest.mark.slow
@pytest.mark.parametrize("change", ["larger", "more", "fewer"])
def test_what_jobs_may_be_reading_is_never_changed(source: Path, tmp_path: Path, change: str) -> None:
    queue, file = LocalQueue(tmp_path / "queue"), reading(source)
    over(queue, queue.submit(file))
    match change:
        case "larger":
            (source / "train" / "one").write_text("another first\n")
        case "more":
            (source / "three").write_text("")
        case "fewer":
            (source / "train" / "two").unlink()
    with pytest.raises(InputError, match="has changed since it was copied"):
        queue.submit(file)
    assert len(queue.jobs()) == 1, "nothing is submitted by half"
    (place,) = tmp_path.glob("queue/.data-*/*")
    shutil.rmtree(place)
    assert over(queue, queue.submit(file)).phase is Phase.DONE


@pytest.mark.parametrize("what", ["empty", "missing", "another's"])
def test_what_cannot_be_copied_is_told_and_nothing_is_submitted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    queue, file = LocalQueue(tmp_path / "queue"), reading(source)
    if what == "another's":
        over(queue, queue.submit(file))
        (own,) = tmp_path.glob("queue/.data-*")
        monkeypatch.setattr("os.geteuid", lambda: 54321)
        own.rename(own.with_name(".data-54321"))
    else:
        shutil.rmtree(source)
    if what == "empty":
        source.mkdir()
    before = len(queue.jobs())
    with pytest.raises(InputError):
        queue.submit(file)
    assert len(queue.jobs()) == before


@pytest.mark.slow
def test_a_move_takes_it_along_before_the_job_is_stopped(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    script = f"{SHOWS}; test -e once && exit 0; touch once; trap 'exit 75' TERM; while :; do sleep 0.1; done"
    job_id = here.submit(reading(source, script))
    until(here, job_id, lambda found, log: "the first" in log)
    with monkeypatch.context() as broken:
        broken.setattr(there, "bring_data", _write_error)
        with pytest.raises(InputError, match="No space"):
            move_job(here, job_id, there, limited(), quiet)
    assert here.status(job_id).phase is Phase.RUNNING
    (source / "index.json").write_text('{"another": 1}')
    with pytest.raises(InputError, match="has changed since it was copied"):
        move_job(here, job_id, there, limited(), quiet)
    assert not there.has_data(here.job(job_id)), "it would read something else there"
    (source / "index.json").write_text("{}")
    moved = move_job(here, job_id, there, limited(), quiet)
    assert over(there, moved.job_id).phase is Phase.DONE
    (move,) = there.status(moved.job_id).moves
    assert move.bytes >= sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    assert "its data set" in move.why_usd
    (copy,) = tmp_path.glob("b/.data-*/*/files")
    assert (copy / "train" / "one").read_text() in there.log(moved.job_id)[0]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in the data set", "after it"])
def test_what_was_sent_of_it_is_counted_once_where_the_move_was_cut_off(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(copying, "_SAVE_EVERY_SEC", -1.0)
    here, there = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    first = here.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    waits = here.submit(reading(source))
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())

    def stops(done: int, total: int) -> None:
        if done > len("{}"):
            raise KeyboardInterrupt

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        if when == "after it":
            cut.setattr(moves, "copy_run", dies)
        with pytest.raises(KeyboardInterrupt):
            move_job(here, waits, there, limited(), stops if when == "in the data set" else quiet)
    moved = move_job(here, waits, there, limited(), quiet)
    assert moved.move is not None
    assert moved.copied is not None
    assert moved.move.bytes == moved.copied.bytes + size
    assert "its data set" in moved.move.why_usd
    over(there, moved.job_id)
    here.cancel(first)
    over(here, first)


def _write_error(*_: object) -> None:
    raise InputError("the target", "No space left on device")


@pytest.mark.slow
def test_a_move_says_whom_it_waits_for(source: Path, tmp_path: Path) -> None:
    here, there = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    first = here.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    waits = here.submit(reading(source))
    is_copying, is_said = Event(), Event()

    def tell(done: int, total: int) -> None:
        is_copying.set()
        assert is_said.wait(60)

    with ThreadPoolExecutor() as pool:
        other = pool.submit(there.bring_data, reading(source), tell)
        assert is_copying.wait(60)
        moved = move_job(here, waits, there, limited(), quiet, lambda line: is_said.set())
        assert other.result() is not None
    assert over(there, moved.job_id).phase is Phase.DONE
    here.cancel(first)
    over(here, first)


def test_what_is_there_costs_no_way(source: Path, tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue", region=place(OREGON))
    site, file = Site(queue, nodes=Nodes(2.0, "told")), reading(source, max_hours=1)
    before = charge(site, file).usd
    queue.bring_data(file, quiet)
    after = charge(site, file)
    assert before is not None
    assert after.usd == 2.0 < before
    assert "already been copied" in after.why


def test_a_preset_and_a_node_of_slurm_read_it_too(source: Path, tmp_path: Path) -> None:
    data = {"region": FRANKFURT, "gib": 1, "source": source.as_uri()}
    preset = JobFile.model_validate({"name": "a", "preset": "dcgan-celeba64", "kimg": 1, "max_hours": 1, "data": data})
    folder = with_data(preset, tmp_path).data_dir
    assert folder is not None
    text = node_env(with_data(preset, tmp_path), tmp_path / "a-1", "/bin/python")
    assert f"--data {folder}" in text
    text = node_env(with_data(reading(source), tmp_path), tmp_path / "a-1", "/bin/python")
    assert f"export GANGWAY_DATA_DIR={folder}\n" in text
    assert with_data(job("true"), tmp_path) == job("true")
    assert not has_data(job("true"), tmp_path)


def test_engines_out_of_reach_refuse_it(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteEngine, "_ask", lambda *_: [])
    assert [finding.code for finding in refusals(RemoteEngine("login", "local"), reading(source))] == [
        "job.data-source"
    ]
    assert not list(data_source_findings(job("true")))


@pytest.mark.parametrize("source", ["s3://", "ftp://a/b", "file://host/a", "set", "s3://a b", "s3://a?b"])
def test_other_places_are_no_source(source: str) -> None:
    with pytest.raises(ValueError, match=r"data\.source|source"):
        reading(source)


def test_a_folder_of_the_nodes_and_a_source_are_one_too_many() -> None:
    data = {"region": FRANKFURT, "gib": 1, "source": "s3://a/b"}
    keys = {"name": "a", "preset": "dcgan-celeba64", "kimg": 1, "max_hours": 1, "data": data, "data_dir": "/shared"}
    with pytest.raises(ValueError, match=r"one of data_dir and data\.source"):
        JobFile.model_validate(json.loads(json.dumps(keys)))
