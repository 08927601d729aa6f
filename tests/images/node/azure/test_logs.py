"""The journal's lines on their way to Log Analytics: a fake journalctl, the API in small."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gangway.images.node.azure import logs as azure_logs
from gangway.images.node.azure.api import AzureApi
from gangway.images.node.azure.logs import get_row, main
from gangway.images.node.log_shipper import LogShipper

CLIENT = "11111111-2222-3333-4444-555555555555"
INGESTION = "https://d.westus-1.ingest.monitor.azure.com/dataCollectionRules/dcr-1/streams/Custom-Gangway?api-version=1"


def line(number: int, message: Any, unit: str = "gangway-trainer.service") -> str:
    """A record of `journalctl --output json`."""
    cursor = f"s=a;i={number:x};b=boot;m=1;t=2;x=3"
    record = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + number), "MESSAGE": message}
    return json.dumps({**record, "_SYSTEMD_UNIT": unit}) + "\n"


def shipped(azure_vm: Any, cursor: Path, lines: list[str], most: tuple[int, int] = azure_logs.MAX_BATCH) -> list[int]:
    """Sends lines, and says how many rows each call had."""
    azure = AzureApi(CLIENT, azure_vm.url, azure_vm.url)
    shipper = LogShipper(lambda rows: azure.write_rows(INGESTION, rows), cursor, most, flush_sec=0.01)
    shipper.ship(lines, lambda record: get_row("demo_3", "worker", record))
    return [len(call.body) for call in azure_vm.asked("monitor.azure.com")]


@pytest.mark.parametrize(
    ("message", "event", "content"),
    [
        ('{"event": "tick", "images_per_sec": 7.5}', "", {"printed": {"event": "tick", "images_per_sec": 7.5}}),
        ('{"step": 3}', "", {"printed": {"step": 3}}),
        ('{"x": NaN}', "", {"message": '{"x": NaN}'}),
        ("[" * 15_000, "", {"message": "[" * 15_000}),
        ("no JSON", "", {"message": "no JSON"}),
        ("[1, 2]", "", {"message": "[1, 2]"}),
        (list(b"\xff\xe4"), "", {"message": "\ufffd\ufffd"}),
        (None, "", {"message": ""}),
        ("x" * 20_000, "", {"message": "x" * azure_logs.MAX_MESSAGE_CHARS}),
    ],
)
def test_a_line_of_json_is_the_line_of_its_row(message: Any, event: str, content: dict[str, Any]) -> None:
    assert get_row("demo_3", "worker", json.loads(line(10, message))) == {
        "TimeGenerated": "2023-11-14T22:13:20.000010+00:00",
        "Node": "demo_3",
        "Role": "node",
        "Unit": "gangway-trainer",
        "Event": event,
        "Line": content,
    }


def test_all_lines_arrive_in_their_order_and_the_last_cursor_is_kept(azure_vm: Any, tmp_path: Path) -> None:
    number = azure_logs.MAX_BATCH[0] + 3
    calls = shipped(azure_vm, tmp_path / "state/cursor", [line(n, f'{{"n": {n}}}') for n in range(number)])
    assert [sent["Line"]["printed"]["n"] for sent in azure_vm.rows] == list(range(number))
    assert max(calls) <= azure_logs.MAX_BATCH[0]
    assert (tmp_path / "state/cursor").read_text().startswith(f"s=a;i={number - 1:x};")


def test_no_call_is_larger_than_the_api_takes(azure_vm: Any, tmp_path: Path) -> None:
    lines = [line(n, "x" * size) for n, size in enumerate((10, 5000, 10, 10))]
    calls = shipped(azure_vm, tmp_path / "cursor", lines, most=(500, 1000))
    assert [len(sent["Line"]["message"]) for sent in azure_vm.rows] == [10, 5000, 10, 10]
    assert 1 in calls, "the long one goes alone"
    for call in azure_vm.asked("monitor.azure.com"):
        assert len(call.body) == 1 or len(json.dumps(call.body)) <= 1000


def test_what_is_refused_for_ever_does_not_hold_up_the_rest(
    azure_vm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.bad_rows.add("bad")
    shipped(azure_vm, tmp_path / "cursor", [line(1, "bad"), line(2, "good")], most=(1, 1000))
    assert [sent["Line"]["message"] for sent in azure_vm.rows] == ["good"]
    assert "could not send 1 lines: 400" in capsys.readouterr().err


def test_one_row_that_is_refused_loses_itself_alone(azure_vm: Any, tmp_path: Path) -> None:
    azure_vm.bad_rows.add("bad")
    shipped(azure_vm, tmp_path / "cursor", [line(n, "bad" if n == 40 else str(n)) for n in range(100)])
    assert [int(sent["Line"]["message"]) for sent in azure_vm.rows] == [n for n in range(100) if n != 40]


def test_what_fills_the_scale_sets_speaks_for_itself() -> None:
    said = json.loads(line(10, '{"event": "ladder-looked", "reason": ""}', "gangway-fill.service"))
    row = get_row("demo-head", "head", said)
    assert (row["Event"], row["Line"]) == ("ladder-looked", {"event": "ladder-looked", "reason": ""})


def test_what_cannot_be_sent_is_kept_for_the_next_start(
    azure_vm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    azure_vm.denied.add("ingest.monitor.azure.com")
    shipped(azure_vm, tmp_path / "cursor", [line(1, "first")])
    assert "could not send 1 lines: 403" in capsys.readouterr().err
    assert not (tmp_path / "cursor").exists()


@pytest.mark.parametrize("known", [False, True])
def test_the_journal_is_followed_from_where_it_was_left(
    azure_vm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    fake = tmp_path / "bin/journalctl"
    fake.parent.mkdir()
    (tmp_path / "lines").write_text(line(5, '{"event": "tick"}') + line(6, "bye"))
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\ncat {tmp_path}/lines\n')
    fake.chmod(0o755)
    (tmp_path / "state").mkdir()
    if known:
        (tmp_path / "state/cursor").write_text("s=a;i=4")
    environment = {
        "GANGWAY_API_URL": azure_vm.url,
        "GANGWAY_CLIENT_ID": CLIENT,
        "GANGWAY_FLUSH_SEC": "0.01",
        "GANGWAY_METADATA_URL": azure_vm.url,
        "GANGWAY_STATE_DIR": str(tmp_path / "state"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main([INGESTION, "worker", "a.service", "b.service"]) == 1, "systemd starts it again"
    since = "--after-cursor=s=a;i=4" if known else "--boot"
    argv = ["--follow", "--no-tail", "--output=json", since, "--unit=a.service", "--unit=b.service"]
    assert (tmp_path / "argv").read_text().splitlines() == argv
    assert [sent["Line"] for sent in azure_vm.rows] == [{"printed": {"event": "tick"}}, {"message": "bye"}]


def test_who_does_not_know_its_own_name_sends_nothing_under_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWAY_METADATA_URL", "http://127.0.0.1:9")
    assert main([INGESTION, "worker", "a.service"]) == 1
    assert "cannot read this machine" in capsys.readouterr().err
