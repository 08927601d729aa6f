"""The stand-in for systemd by itself: what the contract test of engines takes for granted of it."""

import threading
import time
from pathlib import Path

import pytest

from tests.systemd_unit import Service

TOLD = "ExecStopPost=/bin/sh -c 'echo $$SERVICE_RESULT $$EXIT_CODE $$EXIT_STATUS'".replace("$$", "$")


def service(folder: Path, script: str, *lines: str) -> Service:
    (folder / "main.sh").write_text(f"#!/bin/sh\necho begun\n{script}\n")
    (folder / "main.sh").chmod(0o755)
    text = "\n".join(["[Unit]", "[Service]", "Type=exec", f"ExecStart={folder}/main.sh", TOLD, "RestartSec=1", *lines])
    return Service(text, {"PATH": "/usr/bin:/bin"}, folder / "journal")


def journal(folder: Path) -> list[str]:
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def stopped(folder: Path, one: Service) -> list[str]:
    """What it leaves that is stopped once its main process has begun."""
    thread = threading.Thread(target=one.run)
    thread.start()
    until = time.monotonic() + 60
    while "begun" not in journal(folder):
        assert time.monotonic() < until
        time.sleep(0.02)
    one.stop()
    thread.join(60)
    return journal(folder)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 0", "success exited 0"),
        ("exit 3", "exit-code exited 3"),
        ("kill -KILL $$", "signal killed KILL"),
        ("kill -TERM $$", "success killed TERM"),
    ],
)
def test_what_follows_the_main_process_is_told_how_that_has_ended(tmp_path: Path, script: str, told: str) -> None:
    assert service(tmp_path, script).run() == told.startswith("success")
    assert journal(tmp_path) == ["begun", told]


@pytest.mark.parametrize(
    ("code", "lines", "starts"),
    [
        (1, [], 1),
        (1, ["Restart=on-failure"], 2),
        (1, ["Restart=on-failure", "RestartPreventExitStatus=1 4"], 1),
        (1, ["Restart=on-failure", "SuccessExitStatus=1"], 1),
        (1, ["Restart=no", "RestartForceExitStatus=1"], 2),
        (0, ["Restart=on-failure"], 1),
    ],
)
def test_it_begins_again_as_the_unit_has_it(tmp_path: Path, code: int, lines: list[str], starts: int) -> None:
    service(tmp_path, f"test -e {tmp_path}/seen && exit 0; touch {tmp_path}/seen; exit {code}", *lines).run()
    assert journal(tmp_path).count("begun") == starts


def test_a_stop_is_a_signal_and_then_a_kill_and_the_end(tmp_path: Path) -> None:
    deaf = service(tmp_path, "trap '' TERM; while :; do sleep 0.05; done", "Restart=always", "TimeoutStopSec=0.3")
    assert stopped(tmp_path, deaf) == ["begun", "timeout killed KILL"]


def test_a_stop_of_one_that_listens(tmp_path: Path) -> None:
    script = "trap 'exit 75' USR1; while :; do sleep 0.05; done"
    listens = service(tmp_path, script, "KillMode=mixed", "KillSignal=SIGUSR1")
    assert stopped(tmp_path, listens) == ["begun", "exit-code exited 75"]


def test_nothing_outlives_the_main_process(tmp_path: Path) -> None:
    service(tmp_path, f"setsid sleep 600 & echo $! >{tmp_path}/pid").run()
    command = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    assert not command.exists() or command.read_bytes() == b"", "it is gone, or nobody has asked for its end yet"


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ExecReload"):
        service(tmp_path, "exit 0", "ExecReload=/bin/true")
