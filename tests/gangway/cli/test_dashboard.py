"""`gangway dashboard`: its options' mistakes, where it listens, and that it serves."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.live.dashboard.server import bind


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gangway", "dashboard", "--no-browser", *words]
    environment = {**os.environ, "HOME": str(folder), "GANGWAY_ENGINES": ""}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_port_in_use_is_named_with_the_fix() -> None:
    with bind(0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError) as mistake, bind(port):
            pass
    assert str(mistake.value) == (
        f"--port: in use by another program\n  got:     {port}\n  allowed: a free port from 1024 to 65535\n"
        "  fix:     --port 0"
    )


@pytest.mark.attack("another machine on the network", "reaches the dashboard")
def test_it_listens_on_this_machine_only() -> None:
    with bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        others = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for address in others - {"127.0.0.1"}:
            with pytest.raises(OSError, match=r"refused|timed out"):
                socket.create_connection((str(address), listener.getsockname()[1]), timeout=1).close()


@pytest.mark.slow
def test_it_prints_its_url_and_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    server = start(tmp_path, "--port", "0")
    try:
        assert server.stdout is not None
        found = re.fullmatch(r"dashboard: http://127\.0\.0\.1:(\d+)(/\?token=[\w-]{43})\n", server.stdout.readline())
        assert found is not None
        host = f"127.0.0.1:{found[1]}"
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("GET", found[2])
        entered = connection.getresponse()
        entered.read()
        assert (entered.status, entered.headers["location"]) == (303, "/")
        connection.request("GET", "/", headers={"cookie": entered.headers["set-cookie"].partition(";")[0]})
        page = connection.getresponse()
        assert (page.status, b"Newest runs" in page.read()) == (200, True)
        assert "server" not in page.headers
        connection.close()
        with socket.create_connection(("127.0.0.1", int(found[1]))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nhost: " + host.encode() + b"\r\nx: " + b"y" * 100_000)
            assert b" 400 " in raw.recv(100)
        busy = start(tmp_path, "--port", found[1])
        assert "in use by another program" in busy.communicate(timeout=60)[1]
        assert busy.returncode == 2
    finally:
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert found[2] not in out + err, "no log has the token"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--runs", "nowhere"), "--runs: no such folder"),
        (("--suite", "nowhere"), "--suite: no such folder"),
        (("--on", "nowhere"), "--on: no engine"),
    ],
)
@pytest.mark.slow
def test_a_mistake_ends_it_with_2(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = start(tmp_path, *words)
    assert said in done.communicate(timeout=60)[1]
    assert done.returncode == 2
