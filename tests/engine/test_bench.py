"""`gangway bench` under the real Pulumi engine: stacks of its own go up, are waited for, and are gone after any end."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

# Each is a life or two under the engine, which shares two cores with another one.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[2]
BUCKET = "aws:s3/bucket:Bucket"
EMPTY_LIST = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated></ListBucketResult>"""
SUITE: dict[str, Any] = {
    "name": "there", "preset": "dcgan-digits", "kimg": 1, "seeds": [7], "deadline_hours": 0.5,
    "stacks": [{"stack": "aws-g5-dev", "label": "aws"}], "budget": {"usd": 20},
}  # fmt: skip


class RunBuckets:
    """S3 in small, for the run buckets of the stand-in's cloud: a run's record is there once its stack stands.

    Attributes:
        silent: labels of stacks whose runs never report.
        kept: whether each bucket that was asked would refuse to go while records are in it.
    """

    def __init__(self, engine: Any, out: Path, record: Callable[..., Any]) -> None:
        self.engine, self.out, self._record = engine, out, record
        self.silent: set[str] = set()
        self.kept: list[bool] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                bucket, _, key = self.path.partition("?")[0].lstrip("/").partition("/")
                status, body = outer.answer(bucket, key)
                self.send_response(status)
                for name, value in (("Content-Length", str(len(body))), ("ETag", '"0"'),
                                    ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")):  # fmt: skip
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self, bucket: str, key: str) -> tuple[int, bytes]:
        held = [one for one in self.engine.resources() if one["type"] == BUCKET and one["id"] == bucket]
        if not held:
            return 404, b"<Error><Code>NoSuchBucket</Code></Error>"
        record = self.get_record(key.partition("/")[0] or bucket.rpartition("-runs-")[0])
        if not key:
            listed = (
                f"<Contents><Key>{record[0]}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<Size>{len(record[1])}</Size></Contents></ListBucketResult>"
                if record
                else "</ListBucketResult>"
            )
            return 200, EMPTY_LIST.replace(b"</ListBucketResult>", listed.encode())
        if record is None or key != record[0]:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        self.kept.append(not held[0]["inputs"].get("forceDestroy", False))
        return 200, record[1]

    def get_record(self, stack: str) -> tuple[str, bytes] | None:
        """The key and the content of a stack's record."""
        (file,) = self.out.glob(f"*/work/*/Pulumi.{stack}.yaml")
        job = yaml.safe_load(file.read_text("utf-8"))["config"]["gangway:job"]
        if stack.rpartition("-b")[0] in self.silent:
            return None
        return f"{stack}/{stack}/run.json", self._record(job["run_id"], job["seed"]).model_dump_json().encode()


class Bench:
    """A suite of its own, and the command's processes, which end with the test."""

    def __init__(self, engine: Any, out: Path, buckets: RunBuckets) -> None:
        self.engine, self.out, self.buckets = engine, out, buckets
        self._processes: list[subprocess.Popen[str]] = []
        engine.env.update(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{buckets.server.server_port}", AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1",
        )  # fmt: skip

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gangway.cli", "bench", *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=self.engine.env, cwd=REPOSITORY, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        self._processes.append(process)
        return process

    def run(self, **changes: Any) -> subprocess.Popen[str]:
        suite = self.out.with_name("suite.yaml")
        suite.write_text(yaml.safe_dump({**SUITE, **changes}), "utf-8")
        return self.start("run", str(suite), "--out", str(self.out), "--backend-url", self.engine.state.as_uri())

    @property
    def run_dir(self) -> Path:
        (found,) = self.out.glob("there-*")
        return found

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.run_dir / "results.json").read_text("utf-8"))["items"]
        return rows

    def wait_until_something_stands(self) -> None:
        deadline = time.monotonic() + 200
        while len(self.engine.resources()) < 10:
            assert time.monotonic() < deadline
            assert self._processes[-1].poll() is None, self._processes[-1].communicate()[0]
            time.sleep(0.1)

    def stacks(self) -> set[str]:
        """Of the backend, beside the fixture's own."""
        told = json.loads(self.engine.plain("stack", "ls", "--json"))
        return {stack["name"] for stack in told} - {self.engine.stack}

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def bench(make_engine: Callable[[str], Any], tmp_path: Path, load_module: Callable[[Path], Any]) -> Iterator[Bench]:
    record = load_module(REPOSITORY / "tests/gangway/bench/conftest.py").a_record
    engine = make_engine("aws-g5-dev")
    buckets = RunBuckets(engine, tmp_path / "runs", record)
    thread = threading.Thread(target=buckets.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made = Bench(engine, tmp_path / "runs", buckets)
    yield made
    made.end()
    buckets.server.shutdown()
    thread.join()
    buckets.server.server_close()


def test_one_that_never_reports_is_destroyed_and_the_next_is_recorded(bench: Bench) -> None:
    bench.buckets.silent = {"mute"}
    mute = {"stack": "aws-g5-dev", "label": "mute", "deadline_hours": 0.02}
    process = bench.run(stacks=[mute, *SUITE["stacks"]])
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 1, told
    assert "Traceback" not in told
    first, second = bench.rows()
    assert (first["status"], first["reason"]) == ("failed", "no record within 0.02 h")
    assert (second["status"], second["reason"]) == ("recorded", "")
    record = json.loads((bench.run_dir / second["record"]).read_text("utf-8"))
    assert (record["id"], record["seed"]) == (second["run_id"], 7)
    assert bench.engine.resources() == []
    assert bench.stacks() == set()
    assert set(bench.buckets.kept) == {False}, "a bucket with records in it would have kept the stack from going"
    assert 0 < second["usd"]["value"] < 1


def test_ctrl_c_stops_the_engine_and_destroys(bench: Bench) -> None:
    process = bench.run()
    bench.wait_until_something_stands()
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 130, told
    (row,) = bench.rows()
    assert (row["status"], row["standing"], row["reason"]) == ("stopped", False, "stopped by SIGINT")
    assert bench.engine.resources() == []
    assert bench.stacks() == set()


def test_after_a_kill_resume_finds_what_was_left(bench: Bench) -> None:
    """The engine outlives its caller for a while; what it was making is found by the journal and by its state."""
    process = bench.run()
    bench.wait_until_something_stands()
    process.kill()
    process.wait()
    again = bench.start("resume", str(bench.run_dir))
    told, _ = again.communicate(timeout=600)
    assert again.returncode == 0, told
    (row,) = bench.rows()
    assert (row["status"], row["standing"]) == ("recorded", False)
    assert bench.engine.resources() == []
    assert bench.stacks() == set()
