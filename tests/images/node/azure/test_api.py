"""What a machine on Azure asks of the APIs, and how it says that it lives: against a stand-in with state."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from gangway.components.azure.launch import HEALTH_PATH, HEALTH_PORT
from gangway.components.azure.monitoring import ALIVE_EVENT, COLUMNS
from gangway.images.node.azure import api as azure_commands
from gangway.images.node.azure import heartbeat as azure_heartbeat
from gangway.images.node.azure.api import ARM, LOGS, STORAGE, AzureApi, log_row, main
from gangway.images.node.web import MAX_VALUE_CHARS, RefusedError

CLIENT = "11111111-2222-3333-4444-555555555555"
INGESTION = "https://d.westus-1.ingest.monitor.azure.com/dataCollectionRules/dcr-1/streams/Custom-Gangway?api-version=1"


@pytest.fixture(autouse=True)
def _machine(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the scripts give."""
    monkeypatch.setenv("GANGWAY_METADATA_URL", azure_vm.url)
    monkeypatch.setenv("GANGWAY_API_URL", azure_vm.url)
    monkeypatch.setenv("GANGWAY_CLIENT_ID", CLIENT)
    monkeypatch.setenv("GANGWAY_POLL_SEC", "0.01")
    # A proxy that is not there: the machine's own metadata must not go through it.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")


@pytest.fixture
def azure(azure_vm: Any) -> AzureApi:
    """The APIs as a machine of the stand-in sees them."""
    return AzureApi(CLIENT, azure_vm.url, azure_vm.url)


def test_a_token_is_for_one_service_and_kept_while_it_is_good(
    azure_vm: Any, azure: AzureApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {resource: azure.token(resource) for resource in (ARM, LOGS, STORAGE)}
    assert {resource: azure_vm.tokens[token] for resource, token in first.items()} == {
        resource: resource for resource in first
    }
    assert azure.token(ARM) == first[ARM]
    monkeypatch.setattr("gangway.images.node.azure.api.time.clock_gettime", lambda _clock: 4e9)
    assert azure.token(ARM) != first[ARM]


def test_who_runs_as_nobody_gets_no_token(azure_vm: Any) -> None:
    with pytest.raises(RefusedError, match=r"400: GET .*Identity not found"):
        AzureApi("", azure_vm.url, azure_vm.url).token(ARM)


def test_a_row_is_as_the_table_wants_it() -> None:
    made = log_row("demo_3", "worker", "gangway-trainer", {"event": "checkpoint", "step": 7}, at=1_700_000_000)
    assert list(made) == [name for name, _ in COLUMNS]
    assert made == {
        "TimeGenerated": "2023-11-14T22:13:20+00:00",
        "Node": "demo_3",
        "Role": "node",
        "Unit": "gangway-trainer",
        "Event": "checkpoint",
        "Line": {"event": "checkpoint", "step": 7},
    }
    assert log_row("h", "head", "u", {"step": 7})["Event"] == "", "a statistics line: alarms count those"


def test_an_event_is_the_fields_of_a_row(azure_vm: Any) -> None:
    words = ["job-ended", "exit_status", "75", "reason", "x" * 9000]
    assert main(["event", INGESTION, "head", *words]) == 0
    (sent,) = azure_vm.rows
    assert (sent["Role"], sent["Event"]) == ("head", "job-ended")
    assert (sent["Line"]["exit_status"], sent["Line"]["reason"]) == (75, "x" * MAX_VALUE_CHARS)


def test_an_answer_that_is_an_error_is_one_line_and_1(azure_vm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    azure_vm.denied.add("management.azure.com")
    assert main(["leave"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gangway: leave: 403: DELETE ")


def test_a_machine_without_its_metadata_service_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWAY_METADATA_URL", "http://127.0.0.1:9")
    assert main(["leaving"]) == 1
    assert "gangway: leaving: " in capsys.readouterr().err


def test_a_registry_that_gives_no_token_is_told(
    azure_vm: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(azure_vm, "api", lambda call: (200, b"{}"))
    assert main(["registry-token", "gangway.azurecr.io"]) == 1
    assert "gangway.azurecr.io returned no token" in capsys.readouterr().err


def test_a_secret_comes_with_a_token_for_vaults_alone(azure_vm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    azure_vm.secrets["demo-members/member-key"] = "PEM"
    assert main(["secret", "https://demo-members.vault.azure.net/secrets/member-key"]) == 0
    assert capsys.readouterr().out == "PEM"
    azure_vm.denied.add("vault.azure.net")
    assert main(["secret", "https://demo-members.vault.azure.net/secrets/member-key"]) == 1
    assert "403" in capsys.readouterr().err


def test_the_exchange_for_a_registrys_token_is_a_form(azure_vm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry-token", "gangway.azurecr.io"]) == 0
    assert capsys.readouterr().out == "refresh-gangway.azurecr.io\n"
    (call,) = azure_vm.calls
    assert (call.method, call.path) == ("POST", "/gangway.azurecr.io/oauth2/exchange")
    assert call.body.startswith(b"grant_type=access_token&service=gangway.azurecr.io&access_token=token-")


def test_what_is_in_the_container_is_found_and_what_is_not_is_told(
    azure_vm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ä b").write_bytes(b"content")
    place = "https://gwdemo.blob.core.windows.net/runs/k"
    assert main(["put", str(tmp_path / "ä b"), f"{place}/ä b"]) == 0
    assert azure_vm.blobs == {"gwdemo/runs/k/ä b": b"content"}
    assert main(["exists", f"{place}/ä b"]) == 0
    assert main(["exists", f"{place}/c"]) == 1
    assert capsys.readouterr().err == ""
    azure_vm.denied.add("blob.core.windows.net")
    assert main(["exists", f"{place}/c"]) == 1
    assert "403" in capsys.readouterr().err


def test_a_folder_is_put_with_all_that_is_in_it(azure_vm: Any, tmp_path: Path) -> None:
    for name, text in {"a.pt": "0" * 100_000, "samples/0 ä.png": "1", "empty": ""}.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(text)
    assert main(["put-folder", str(tmp_path / "run"), "https://gwdemo.blob.core.windows.net/runs/job/"]) == 0
    there = {"a.pt": b"0" * 100_000, "empty": b"", "samples/0 ä.png": b"1"}
    assert azure_vm.blobs == {f"gwdemo/runs/job/{name}": content for name, content in there.items()}


def test_a_restart_that_never_comes_is_not_waited_for_for_ever(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_commands, "RESTART_SEC", 0.2)
    event = azure_vm.schedule("Redeploy")
    assert main(["outlast"]) == 1
    assert azure_vm.started == [event], "once"


def test_a_restart_that_has_begun_is_waited_for(azure_vm: Any) -> None:
    azure_vm.schedule("Redeploy")

    def begin() -> None:
        azure_vm.events[0]["EventStatus"] = "Started"
        threading.Timer(0.1, azure_vm.events.clear).start()

    azure_vm.on_start = begin
    before = time.monotonic()
    assert main(["outlast"]) == 0
    assert time.monotonic() - before >= 0.1


@pytest.fixture
def living(azure_vm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts the unit that says so, and gives its health probe's answer."""
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("GANGWAY_ALIVE_SEC", "0.05")
    server = azure_heartbeat.serve(tmp_path / "given-up", 0)

    def probe(path: str = HEALTH_PATH) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{server.server_port}{path}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=5) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, None

    yield probe
    server.shutdown()
    server.server_close()


def test_the_probe_is_told_who_has_given_itself_up(living: Callable[..., Any], tmp_path: Path) -> None:
    assert living() == (200, {"ApplicationHealthState": "Healthy"})
    (tmp_path / "given-up").touch()
    assert living() == (200, {"ApplicationHealthState": "Unhealthy"})
    assert living("/other") == (404, None)
    assert azure_heartbeat.PORT == HEALTH_PORT


def test_a_machine_says_again_and_again_that_it_lives(
    azure_vm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("GANGWAY_ALIVE_SEC", "0.02")
    monkeypatch.setenv("GANGWAY_HEALTH_PORT", "0")
    over = threading.Event()
    unit = threading.Thread(target=azure_heartbeat.main, args=(["worker", INGESTION], over))
    unit.start()
    deadline = time.monotonic() + 20
    while len(azure_vm.rows) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    over.set()
    unit.join(20)
    assert not unit.is_alive()
    assert {(sent["Role"], sent["Event"], sent["Node"]) for sent in azure_vm.rows} == {
        ("node", ALIVE_EVENT, "demo-0-spot_3")
    }


def test_who_has_no_log_still_turns_scheduled_events_on(
    azure_vm: Any, azure: AzureApi, capsys: pytest.CaptureFixture[str]
) -> None:
    azure_heartbeat.send_heartbeat(azure, "worker", "", 5)
    assert (azure_vm.rows, capsys.readouterr().err) == ([], "")
    azure_vm.metadata_status = 500
    azure_heartbeat.send_heartbeat(azure, "worker", "", 5)
    assert "cannot send the heartbeat: 500: GET " in capsys.readouterr().err


def test_a_machine_lets_its_end_begin_and_leaves(azure_vm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([command]) for command in ("leaving", "waiting")] == [1, 1]
    event = azure_vm.schedule("Terminate")
    assert [main([command]) for command in ("leaving", "waiting", "let-go")] == [0, 0, 0]
    assert azure_vm.started == [event]
    assert main(["scale-set"]) == 0
    assert capsys.readouterr().out == "demo-0-spot\n"
    assert main(["leave"]) == 0
    (call,) = azure_vm.asked("management.azure.com")
    assert (call.method, call.path.rpartition("/")[2]) == ("DELETE", "3")
    assert azure_vm.sets["demo-0-spot"]["capacity"] == 1
