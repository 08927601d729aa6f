"""A copy at its end holds what its source holds, and nothing else; around it nothing is touched."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
from moto import mock_aws
from obstore.store import S3Store

from gangway.components.core.findings import InputError
from gangway.jobs import copying, moves
from gangway.jobs.base import Phase
from gangway.jobs.copying import MANIFEST, copy_run, files_of_run
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
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
