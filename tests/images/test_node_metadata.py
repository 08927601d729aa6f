"""No job reaches a metadata service: close-metadata.sh with fake commands, and with the real firewall of a network of
its own, real users and a service at the address that clouds use.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ADDRESS = "169.254.169.254"
WORKERS = ["machine", "gcp_machine", "azure_machine", "openstack_machine"]
SERVICE = """
import socketserver, threading, http.server
class Names(socketserver.BaseRequestHandler):
    def handle(self): self.request[1].sendto(b"name", self.client_address)
threading.Thread(target=socketserver.UDPServer((ADDRESS, 53), Names).serve_forever, daemon=True).start()
http.server.HTTPServer((ADDRESS, 80), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
ASK_NAME = (
    "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(5); "
    f"s.sendto(b'?', ('{ADDRESS}', 53)); assert s.recv(9) == b'name'"
)
REAL = ("curl", "ip", "iptables", "ip6tables", "setpriv", "unshare")


@pytest.mark.parametrize("cloud", WORKERS)
def test_every_worker_is_closed_before_its_trainer_starts(cloud: str, request: pytest.FixtureRequest) -> None:
    machine = request.getfixturevalue(cloud)
    machine.fake("docker")
    result = machine.run("run-trainer.sh")
    assert result.returncode == 0, result.stderr
    names = [call[0] for call in machine.every_call()]
    assert "docker" in names
    assert names.index("iptables") < names.index("setpriv") < names.index("docker")
    first = next(call for call in machine.every_call() if call[0] == "iptables")
    assert first[first.index("--uid-owner") + 1] == "10001"
    assert ADDRESS in first


def test_a_machine_whose_job_still_reaches_it_runs_none(machine: Any) -> None:
    machine.fake("docker")
    machine.fake("setpriv", "exit 0")
    result = machine.run("run-trainer.sh")
    assert result.returncode == 1
    assert f"the job's user still reaches {ADDRESS}" in result.stderr
    assert "docker" not in [call[0] for call in machine.every_call()]


def test_a_firewall_that_cannot_be_told_ends_it_too(gcp_machine: Any) -> None:
    gcp_machine.fake("docker")
    gcp_machine.fake("iptables", "exit 4")
    result = gcp_machine.run("run-trainer.sh")
    assert result.returncode == 1
    assert f"cannot keep the job from {ADDRESS}" in result.stderr


def test_a_machine_that_knows_ipv6_is_closed_there_too(openstack_machine: Any, tmp_path: Path) -> None:
    assert openstack_machine.run("close-metadata.sh", IPV6="/nowhere").returncode == 0
    assert openstack_machine.calls("ip6tables") == []
    assert openstack_machine.run("close-metadata.sh", IPV6=str(tmp_path)).returncode == 0
    assert {call[call.index("--destination") + 1] for call in openstack_machine.calls("ip6tables")} == {
        "fe80::a9fe:a9fe"
    }


@pytest.mark.attack("a job (uid 10001)", "asks the metadata service for the machine's token")
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, REAL)), reason="wants root, iptables and a network of its own"
)
def test_with_the_real_firewall_root_alone_gets_an_answer(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "service.py").write_text(SERVICE.replace("ADDRESS", repr(ADDRESS)))
    for name in ("iptables", "ip6tables", "setpriv"):
        (tmp_path / "fake" / name).unlink()
    machine.write_settings(None)
    job = "setpriv --reuid 10001 --regid 10001 --clear-groups"
    script = f"""
    set -euo pipefail
    ip link set lo up
    ip address add {ADDRESS}/32 dev lo
    # A kernel may lack the match; then nothing can be shown here.
    probe=(OUTPUT --match owner --uid-owner 1 --protocol tcp --match tcp --dport 1 --jump REJECT)
    {{ iptables --append "${{probe[@]}}" && iptables --delete "${{probe[@]}}"; }} || exit 77
    cd "$1/empty"
    "$2" "$1/service.py" 2>/dev/null &
    trap 'kill %1' EXIT
    ask() {{ curl --silent --fail --output /dev/null --max-time 5 http://{ADDRESS}/; }}
    until ask; do sleep 0.05; done
    {job} curl --silent --fail --output /dev/null http://{ADDRESS}/ || exit 78
    bash "$3/close-metadata.sh"
    bash "$3/close-metadata.sh"
    ask || exit 79
    code=0
    {job} curl --silent --output /dev/null --max-time 5 http://{ADDRESS}/ || code=$?
    [ "$code" = 7 ] || exit 80
    {job} {sys.executable} -c "{ASK_NAME}" || exit 81
    iptables --list-rules OUTPUT | grep --count {ADDRESS}
    """
    command = ["unshare", "--net", "bash", "-c", script, "bash", str(tmp_path), sys.executable, str(machine.bin)]
    env = {
        "PATH": f"{tmp_path}/fake:{os.environ['PATH']}",
        "GANGWAY_NODE_ENV": f"{tmp_path}/node.env",
        "GANGWAY_STATE_DIR": f"{tmp_path}/state",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no firewall here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, "2\n"), f"not twice, for tcp and for udp: {done.stderr}"
