"""A file that was copied was written when its source was, and may be read, written and run by the same."""

import json
import os
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import boto3
import pytest
from moto import mock_aws
from obstore.store import S3Store

from gangway.jobs import copying
from gangway.jobs.base import Phase
from gangway.jobs.copying import MANIFEST, copy_run
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.runs.run_store import object_store
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, limited, over, until
from tests.gangway.jobs.test_copying import quiet
from tests.moto_http import Moto

OLD, NEW = 1_700_000_000_123_456_789, 1_700_000_100_987_654_321


def made(folder: Path) -> Path:
    """By name the newest of the checkpoints comes first, and its folder too; one name is of no bucket's."""
    (folder / "steps" / "1000").mkdir(parents=True)
    (folder / "steps" / "200").mkdir()
    for name, at, mode in (
        ("ckpt-200", OLD, 0o640), ("ckpt-1000", NEW, 0o444), ("odd#1", OLD, 0o500), ("tool 100%", OLD, 0o755),
        ("steps/1000/n", NEW, 0o600), ("steps/200/n", OLD, 0o600),
    ):  # fmt: skip
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
        os.utime(folder / name, ns=(at, at))
    for name, at in (("steps/1000", NEW), ("steps/200", OLD), ("steps", OLD)):
        os.utime(folder / name, ns=(at, at))
    (folder / "steps").chmod(0o750)
    return folder


def marks(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.name != MANIFEST
    }


def test_from_folder_to_folder_and_once_more(tmp_path: Path) -> None:
    source, target = made(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    assert copy_run(source.as_uri(), target.as_uri(), quiet, whole=True).left_out == ()
    assert marks(target) == marks(source)
    (source / "ckpt-1000").chmod(0o644)
    (source / "ckpt-1000").write_text("longer than before")
    os.utime(source / "ckpt-1000", ns=(NEW + 1, NEW + 1))
    copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
    assert marks(target) == marks(source)


def test_what_had_arrived_has_the_mode_that_its_source_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_SAVE_EVERY_SEC", -1.0)
    source, target = made(tmp_path / "source"), tmp_path / "target"
    target.mkdir()

    def cut(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_run(source.as_uri(), target.as_uri(), cut, whole=True)
    known = json.loads((target / MANIFEST).read_text())
    earlier = {name: {key: each[key] for key in ("source", "sha256")} for name, each in known.items()}
    (target / MANIFEST).write_text(json.dumps(earlier))  # as an earlier release has left it
    (source / "ckpt-200").chmod(0o755)
    os.utime(target / "ckpt-200")
    copied = copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
    assert copied.new_bytes == 0, "what had arrived is not sent again"
    assert marks(target) == marks(source)


def test_whoever_copies_can_read_the_copy_and_nobody_else_may_more(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "program").write_text("made")
    (source / "program").chmod(0o4755)
    copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
    assert (target / "program").stat().st_mode & 0o7777 == 0o755


def test_a_file_system_that_takes_no_modes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = made(tmp_path / "source"), tmp_path / "target"
    target.mkdir()

    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refused)
    copied = copy_run(source.as_uri(), target.as_uri(), quiet, whole=True)
    assert copied.left_out == ("times and modes of 9 files and folders (Operation not permitted)",)
    assert (target / "ckpt-200").read_text() == "ckpt-200"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """One of moto's, which `s3://runs` names."""
    with mock_aws(), ThreadingHTTPServer(("127.0.0.1", 0), Moto) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = boto3.client("s3", region_name="us-east-1", endpoint_url="https://s3.amazonaws.com")
        client.create_bucket(Bucket="runs")
        store = S3Store(
            "runs", prefix="a run", endpoint=f"http://127.0.0.1:{server.server_address[1]}", region="us-east-1",
            access_key_id="test", secret_access_key="test", client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )  # fmt: skip
        monkeypatch.setattr(
            copying, "object_store", lambda url, region: store if url == "s3://runs" else object_store(url, region)
        )
        yield store
        client.close()
        server.shutdown()


@pytest.mark.slow
def test_through_a_bucket(tmp_path: Path, bucket: S3Store) -> None:
    source, target = made(tmp_path / "source"), tmp_path / "target"
    (source / "odd#1").unlink()
    target.mkdir()
    copy_run(source.as_uri(), "s3://runs", quiet, whole=True)
    copy_run("s3://runs", target.as_uri(), quiet, whole=True)
    files = {name: each for name, each in marks(source).items() if (source / name).is_file()}
    assert {name: each for name, each in marks(target).items() if (target / name).is_file()} == files
    assert not (target / MANIFEST).exists()


def test_in_a_bucket_what_was_written_there_since_has_its_own_time(tmp_path: Path, bucket: S3Store) -> None:
    """And so has all of a bucket to which no copy has come, or one of an earlier release."""
    source, target = made(tmp_path / "source"), tmp_path / "target"
    (source / "odd#1").unlink()
    target.mkdir()
    copy_run(source.as_uri(), "s3://runs", quiet, whole=True)
    bucket.put("ckpt-200", b"written since")
    copy_run("s3://runs", target.as_uri(), quiet, whole=True)
    stored = bucket.head("ckpt-200")["last_modified"].timestamp()
    assert (target / "ckpt-200").stat().st_mtime == pytest.approx(stored, abs=1e-3)
    assert (target / "ckpt-1000").stat().st_mtime_ns == NEW
    bucket.delete(MANIFEST)
    copy_run("s3://runs", target.as_uri(), quiet, whole=True)
    assert (target / "ckpt-1000").stat().st_mtime > NEW / 1e9


@pytest.mark.slow
def test_a_job_that_was_moved_finds_its_newest_checkpoint_and_its_program(tmp_path: Path) -> None:
    """By name the newest one comes first, as it does for a copy."""
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    script = (
        "test -e tool && { ls -t | grep ckpt | head -n 1; exec ./tool; }; printf '#!/bin/sh\\necho ran\\n' >tool; "
        "chmod 755 tool; echo >ckpt-200; touch -d @1700000000 ckpt-200; echo >ckpt-1000; "
        "touch -d @1700000100 ckpt-1000; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    )
    job_id = source.submit(job(script))
    until(source, job_id, lambda found, log: "begun" in log)
    moved = move_job(source, job_id, target, limited(), quiet)
    found = over(target, moved.job_id)
    assert (found.phase, target.log(moved.job_id)[0]) == (Phase.DONE, "ckpt-1000\nran\n")


def test_a_program_of_a_data_set_runs_and_its_mode_alone_makes_no_other_set(tmp_path: Path) -> None:
    (source := tmp_path / "set").mkdir()
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    queue = LocalQueue(tmp_path / "queue")
    data = {"region": "aws:eu-central-1", "gib": 1, "source": source.as_uri()}
    file: JobFile = job('exec "$GANGWAY_DATA_DIR/run.sh"', data=data)
    first = queue.submit(file)
    assert (over(queue, first).phase, queue.log(first)[0]) == (Phase.DONE, "ran\n")
    (source / "run.sh").chmod(0o700)
    os.utime(source / "run.sh")
    assert queue.bring_data(file, quiet) is None, "it is the same set"
