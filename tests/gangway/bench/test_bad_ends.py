"""Runs that end badly inside their stacks, through the whole of a suite: told, destroyed, and the others go on.

The engine is the stand-in for Pulumi's CLI, the buckets are stand-ins by HTTP; what is between them is all there.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.bench.processes import Stop
from gangway.bench.session import Options, run_suite
from gangway.runs.run_store import ENDED_FILE, Failure, RunFailedError, RunStore, StoreFailedError, check_not_ended
from gangway.trainer.records.run_record import RunRecord

SUITE: dict[str, Any] = {
    "name": "there", "preset": "dcgan-digits", "kimg": 1, "seeds": [0, 1], "deadline_hours": 0.5,
    "stacks": [{"stack": "aws-g5-dev", "label": "aws"}], "budget": {"usd": 20},
}  # fmt: skip
END = {"code": 2, "reason": "bad-input", "time": "2026-01-01T00:00:00Z"}
Ran = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ran(
    tmp_path: Path, fake: Any, make_record: Callable[..., RunRecord], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> Ran:
    """Runs the suite whose first seed ends as told, and gives the rows of its results."""
    record = tmp_path / "record.json"
    record.write_text(make_record("x", 0).model_dump_json(), "utf-8")
    suite = tmp_path / "suite.yaml"
    suite.write_text(yaml.safe_dump(SUITE), "utf-8")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "x")
    monkeypatch.setattr(Stop, "pause", lambda self, seconds: None)

    def run(**first: Any) -> list[dict[str, Any]]:
        fake.orders(up={"record": str(record), "by_seed": {"0": first}})
        code = run_suite(suite, tmp_path / "runs", repo / "stacks", Options(backend_url="file:///state"))
        assert code == 1
        assert fake.stacks == [], "both are destroyed"
        (results,) = (tmp_path / "runs").glob("there-*/results.json")
        rows: list[dict[str, Any]] = json.loads(results.read_text("utf-8"))["items"]
        assert [(row["status"], row["standing"]) for row in rows] == [("failed", False), ("recorded", False)]
        return rows

    return run


@pytest.mark.slow
def test_a_trainer_that_has_failed_for_good_is_not_paid_until_the_deadline(ran: Ran, tmp_path: Path) -> None:
    (row, _) = ran(ended={**END, "time": "2099-01-01T00:00:00Z"})
    assert row["reason"] == (
        "the job ended on node-1, 2099-01-01 00:00 UTC: bad-input, exit code 2: its input is invalid, or "
        "does not work on these GPUs; see docs/troubleshooting.md, 'The job ended early'"
    )
    assert row["hours_up"] < 0.1
    (kept,) = (tmp_path / "runs").glob(f"there-*/{row['run_id']}/*")
    assert kept.name == ENDED_FILE, "what is there is brought here"


# where a run of a suite may report to, and what its first seed's bucket answers
REFUSALS = [
    ("s3://gone/x", 200, "s3://gone/x: no such bucket"),
    ("s3://runs/x", 403, "s3://runs/x: no permission to read it"),
    ("gs://runs/x", 404, "gs://runs/x: no such bucket"),
    ("gs://runs/x", 403, "gs://runs/x: no permission to read it"),
    ("https://account.blob.core.windows.net/runs/x", 404, "/runs/x: no such bucket"),
    ("https://account.blob.core.windows.net/runs/x", 403, "/runs/x: no permission to read it"),
]
FIXES = {"no such bucket": "create it", "no permission to read it": "log in with"}


def checked(row: dict[str, Any], said: str) -> None:
    assert said in row["reason"]
    (fix,) = (fix for problem, fix in FIXES.items() if problem in said)
    assert fix in row["reason"]
    assert "\n" not in row["reason"]
    assert row["hours_up"] < 0.1, "not until the deadline"


@pytest.mark.slow
@pytest.mark.parametrize(("place", "status", "said"), REFUSALS)
def test_a_bucket_that_is_missing_or_refuses_ends_its_item_alone(
    ran: Ran, s3: Any, place: str, status: int, said: str
) -> None:
    s3.status = status
    checked(ran(place=place)[0], said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("swift://gone/x", 200, "swift://gone/x: no such bucket"),
        ("swift://runs/x", 403, "swift://runs/x: no permission to read it"),
    ],
)
def test_so_does_a_container_of_openstack(
    ran: Ran, lab: Any, monkeypatch: pytest.MonkeyPatch, place: str, status: int, said: str
) -> None:
    for name, value in {"AUTH_URL": f"{lab.url}/v3", "USERNAME": "u", "PASSWORD": "p", "PROJECT_NAME": "gan"}.items():
        monkeypatch.setenv(f"OS_{name}", value)
    lab.status = status
    checked(ran(place=place)[0], said)


@pytest.fixture
def bucket(tmp_path: Path) -> tuple[Path, RunStore]:
    folder = tmp_path / "bucket"
    folder.mkdir()
    return folder / ENDED_FILE, RunStore(folder.as_uri())


GOOD = {"version": 1, "run_id": "r-1", "stack": "s", "node": "n", **END}


def test_only_this_runs_end_ends_it(bucket: tuple[Path, RunStore]) -> None:
    file, store = bucket
    check_not_ended(store, "r-1")
    file.write_text(json.dumps({**GOOD, "run_id": "r-0"}), "utf-8")
    check_not_ended(store, "r-1")
    file.write_text(json.dumps({**GOOD, "run_id": ""}), "utf-8")
    check_not_ended(store, "r-1")
    file.write_text(json.dumps({**GOOD, "code": 1, "reason": "something-new"}), "utf-8")
    with pytest.raises(RunFailedError, match="something-new, exit code 1: a reason unknown to this version"):
        check_not_ended(store, "r-1")


@pytest.mark.parametrize(
    ("ended_at", "heeded"),
    [("11:57:59", False), ("11:58:01", True), ("12:30:00", True), ("12:57:59+01:00", False)],
)
def test_the_end_of_an_attempt_before_is_none_of_this_ones(
    bucket: tuple[Path, RunStore], ended_at: str, heeded: bool
) -> None:
    """On machines of one's own the file is still there when a stopped run is begun anew. Clocks may differ a little."""
    file, store = bucket
    zone = "" if "+" in ended_at else "Z"
    file.write_text(json.dumps({**GOOD, "time": f"2026-01-02T{ended_at}{zone}"}), "utf-8")
    began = datetime(2026, 1, 2, 12, tzinfo=UTC)
    with pytest.raises(RunFailedError) if heeded else nullcontext():
        check_not_ended(store, "r-1", began)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{",
        b"null",
        json.dumps({**GOOD, "more": 1}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "reason"}).encode(),
        json.dumps({**GOOD, "version": 2}).encode(),
        json.dumps({**GOOD, "code": 0}).encode(),
        json.dumps({**GOOD, "code": "2"}).encode(),
        json.dumps({**GOOD, "reason": "bad\u001b[31m"}).encode(),
        json.dumps({**GOOD, "node": "[link=x]"}).encode(),
        json.dumps({**GOOD, "time": "yesterday"}).encode(),
        json.dumps(GOOD).encode() + b" " * 5000,
        b"[" * 4000,
    ],
)
def test_what_is_no_end_is_told(bucket: tuple[Path, RunStore], content: bytes) -> None:
    file, store = bucket
    file.write_bytes(content)
    with pytest.raises(StoreFailedError, match=r"/ended\.json: .*check what else writes there") as told:
        check_not_ended(store, "r-1")
    assert told.value.kind is Failure.ODD, "the run may be well"
    assert "\n" not in str(told.value)


def test_a_container_is_not_read_to_its_end_either(lab: Any) -> None:
    lab.objects["runs"] = {"s/ended.json": json.dumps(GOOD).encode(), "s/large": b"x" * 5000}
    store = RunStore("swift://runs/s", "one", "lab")
    with pytest.raises(RunFailedError, match="bad-input"):
        check_not_ended(store, "r-1")
    with pytest.raises(StoreFailedError, match="more than 4,096 bytes"):
        store.read("large", 4096)
    assert store.read("large", 5000) == b"x" * 5000


def test_an_end_in_a_bucket(s3: Any) -> None:
    s3.objects["runs"] = {"s/ended.json": json.dumps(GOOD).encode()}
    with pytest.raises(RunFailedError, match="bad-input"):
        check_not_ended(RunStore("s3://runs/s", "us-east-1"), "r-1")


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"version": 2, "run_id": "r-0"}).encode(),
        json.dumps({**GOOD, "run_id": "r-0", "node": "node one"}).encode(),
        json.dumps({**GOOD, "run_id": "../r", "time": "yesterday"}).encode(),
    ],
)
def test_an_end_of_another_run_is_not_even_looked_at(bucket: tuple[Path, RunStore], content: bytes) -> None:
    file, store = bucket
    file.write_bytes(content)
    check_not_ended(store, "r-1")
    file.write_bytes(content + b" " * 5000)
    with pytest.raises(StoreFailedError, match="more than 4,096 bytes") as told:
        check_not_ended(store, "r-1")
    assert told.value.kind is Failure.ODD
