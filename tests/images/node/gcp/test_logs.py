"""The journal's lines on their way to Cloud Logging: a fake journalctl, the API in small."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gangway.images.node.gcp import logs as ship
from gangway.images.node.gcp.api import GoogleApi
from gangway.images.node.gcp.logs import get_entry, main, make_shipper


def line(number: int, message: Any, unit: str = "gangway-trainer.service") -> str:
    """A record of `journalctl --output json`."""
    cursor = f"s=a;i={number:x};b=boot;m=1;t=2;x=3"
    record = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + number), "MESSAGE": message}
    return json.dumps({**record, "_SYSTEMD_UNIT": unit}) + "\n"


def send(google: GoogleApi, cursor_file: Path, lines: Iterable[str]) -> None:
    """All of these lines, to the log of a stack."""
    to_entry = functools.partial(get_entry, "acme-ml", "gangway-demo")
    make_shipper(google, "acme-ml", cursor_file, flush_sec=0.01).ship(lines, to_entry)


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        ('{"event": "tick", "images_per_sec": 7.5}', {"printed": {"event": "tick", "images_per_sec": 7.5}}),
        # It cannot speak for its node: alarms go by `event`.
        ('{"event": "node-given-up", "instance_id": "x"}', {"printed": {"event": "node-given-up", "instance_id": "x"}}),
        ("no JSON", {"message": "no JSON"}),
        # What Python alone takes for JSON, and what is too deep for anybody.
        ('{"x": NaN}', {"message": '{"x": NaN}'}),
        ('{"x": 1e999}', {"message": '{"x": 1e999}'}),
        ("[" * 16_000, {"message": "[" * 16_000}),
        ('{"x": ' + "[" * 40 + "]" * 40 + "}", {"message": '{"x": ' + "[" * 40 + "]" * 40 + "}"}),
        ('{"x": [[[1]]]}', {"printed": {"x": [[[1]]]}}),
        ("[1, 2]", {"message": "[1, 2]"}),
        ("7", {"message": "7"}),
        (list(b"\xff\xe4"), {"message": "\ufffd\ufffd"}),
        (None, {"message": ""}),
    ],
)
def test_a_line_of_json_is_the_fields_of_its_entry(message: Any, payload: dict[str, Any]) -> None:
    entry = get_entry("acme-ml", "gangway-demo", json.loads(line(10, message)))
    assert entry == {
        "logName": "projects/acme-ml/logs/gangway-demo",
        "timestamp": "2023-11-14T22:13:20.000010+00:00",
        "insertId": "boot-a",
        "labels": {"unit": "gangway-trainer"},
        "jsonPayload": payload,
    }


def test_what_fills_the_groups_speaks_for_itself() -> None:
    said = '{"event": "ladder-not-kept", "reason": "a quota"}'
    entry = get_entry("acme-ml", "gangway-demo", json.loads(line(10, said, "gangway-fill.service")))
    assert entry["jsonPayload"] == {"event": "ladder-not-kept", "reason": "a quota"}


def test_all_lines_arrive_in_their_order_and_the_last_cursor_is_kept(
    gce: Any, google: GoogleApi, tmp_path: Path
) -> None:
    number = ship.MAX_BATCH[0] + 3
    send(google, tmp_path / "state/cursor", [line(index, f'{{"n": {index}}}') for index in range(number)])
    assert [entry["jsonPayload"]["printed"]["n"] for entry in gce.entries] == list(range(number))
    assert max(len(call.body["entries"]) for call in gce.asked("logging")) <= ship.MAX_BATCH[0]
    assert (tmp_path / "state/cursor").read_text().startswith(f"s=a;i={number - 1:x};")


def test_what_cannot_be_sent_now_is_sent_later(
    gce: Any, google: GoogleApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gce.denied.add("logging")
    more = threading.Event()

    def lines() -> Any:
        yield line(1, "first")
        assert more.wait(20)
        yield line(2, "second")

    def open_up() -> None:
        gce.denied.clear()
        more.set()

    threading.Timer(0.3, open_up).start()
    send(google, tmp_path / "cursor", lines())
    assert [entry["jsonPayload"]["message"] for entry in gce.entries] == ["first", "second"]
    assert "gangway: could not send 1 lines: 403" in capsys.readouterr().err


def test_what_is_refused_for_ever_does_not_hold_up_the_rest(
    gce: Any, google: GoogleApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ship, "MAX_BATCH", (1, 1))
    gce.refused_entries.add("boot-1")
    send(google, tmp_path / "cursor", [line(1, "bad"), line(2, "good")])
    assert [entry["jsonPayload"]["message"] for entry in gce.entries] == ["good"]
    assert "could not send 1 lines: 400" in capsys.readouterr().err


def test_one_entry_that_is_refused_loses_itself_alone(gce: Any, google: GoogleApi, tmp_path: Path) -> None:
    bad = {7, 8, 200, 499}
    gce.refused_entries |= {f"boot-{number:x}" for number in bad}
    send(google, tmp_path / "cursor", [line(number, str(number)) for number in range(600)])
    arrived = [int(entry["jsonPayload"]["message"]) for entry in gce.entries]
    assert arrived == [number for number in range(600) if number not in bad]
    assert len(gce.asked("logging")) < 100, "the others are not sent one by one"
    assert "i=257;" in (tmp_path / "cursor").read_text()


def test_a_line_that_nobody_can_read_is_left_out(
    gce: Any, google: GoogleApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(google, tmp_path / "cursor", [line(1, "first"), "cut off\n", "[" * 16_000, line(2, "last")])
    assert [entry["jsonPayload"]["message"] for entry in gce.entries] == ["first", "last"]
    assert "i=2;" in (tmp_path / "cursor").read_text(), "the next start does not meet them again"
    assert capsys.readouterr().err.count("skipping an unreadable line") == 2


def test_a_metadata_server_that_is_away_loses_nothing(
    gce: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    google = GoogleApi("http://127.0.0.1:9", gce.url)
    send(google, tmp_path / "cursor", [line(1, "first")])
    assert "could not send 1 lines" in capsys.readouterr().err
    assert not (tmp_path / "cursor").exists(), "the next start sends it"


@pytest.mark.parametrize("known", [False, True])
def test_the_journal_is_followed_from_where_it_was_left(
    gce: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    (tmp_path / "lines").write_text(line(5, '{"event": "tick"}') + line(6, "bye"))
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\ncat {tmp_path}/lines\n')
    fake.chmod(0o755)
    (tmp_path / "state").mkdir()
    if known:
        (tmp_path / "state/cursor").write_text("s=a;i=4")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("GANGWAY_METADATA_URL", gce.url)
    monkeypatch.setenv("GANGWAY_API_URL", gce.url)
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path / "state"))
    assert main(["acme-ml", "gangway-demo", "a.service", "b.service"]) == 1, "systemd starts it again"
    since = "--after-cursor=s=a;i=4" if known else "--boot"
    argv = ["--follow", "--no-tail", "--output=json", since, "--unit=a.service", "--unit=b.service"]
    assert (tmp_path / "argv").read_text().splitlines() == argv
    assert [entry["jsonPayload"] for entry in gce.entries] == [{"printed": {"event": "tick"}}, {"message": "bye"}]


def test_a_unit_that_is_stopped_sends_the_last_lines(gce: Any, tmp_path: Path) -> None:
    """Stopping a unit signals all its processes."""
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    (tmp_path / "lines").write_text(line(5, "this node gives up"))
    fake.write_text(f"#!/bin/sh\ncat {tmp_path}/lines\ntouch {tmp_path}/said\nexec sleep 60\n")
    fake.chmod(0o755)
    env = {
        "GANGWAY_API_URL": gce.url,
        "GANGWAY_METADATA_URL": gce.url,
        "GANGWAY_STATE_DIR": str(tmp_path / "state"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    command = [sys.executable, "-m", "gangway.images.node.gcp.logs", "acme-ml", "gangway-demo", "a.service"]
    with subprocess.Popen(command, env=env, start_new_session=True) as unit:
        while not (tmp_path / "said").exists():
            assert unit.poll() is None
            time.sleep(0.01)
        os.killpg(unit.pid, signal.SIGTERM)
        assert unit.wait(timeout=30) == 1
    assert [entry["jsonPayload"] for entry in gce.entries] == [{"message": "this node gives up"}]
