"""No user but root reaches a metadata service: close-metadata.sh with fake commands, and with a real firewall, real
users and namespaces, and services at the addresses that clouds use.
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
import socketserver, sys, threading, http.server
class Names(socketserver.BaseRequestHandler):
    def handle(self): self.request[1].sendto(b"name", self.client_address)
class Server(http.server.ThreadingHTTPServer):
    server_bind = socketserver.TCPServer.server_bind  # asks no resolver for its name
for address in sys.argv[1:]:
    for port in (53, 123, 67):
        threading.Thread(target=socketserver.UDPServer((address, port), Names).serve_forever, daemon=True).start()
    for port in (32526, 80):
        server = Server((address, port), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
print("up", flush=True)
threading.Event().wait()
"""
ASK_UDP = (
    "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(5); "
    f"s.sendto(b'?', ('{ADDRESS}', int(sys.argv[1]))); assert s.recv(9) == b'name'"
)
REAL = ("curl", "ip", "iptables", "ip6tables", "setpriv", "unshare", "nsenter")


@pytest.mark.parametrize("cloud", WORKERS)
def test_every_worker_is_closed_before_its_trainer_starts(cloud: str, request: pytest.FixtureRequest) -> None:
    machine = request.getfixturevalue(cloud)
    machine.fake("docker")
    machine.fake("iptables-restore", f"cat >{machine.root}/rules")
    result = machine.run("run-trainer.sh")
    assert result.returncode == 0, result.stderr
    names = [call[0] for call in machine.every_call()]
    assert "docker" in names
    assert names.index("iptables-restore") < names.index("setpriv") < names.index("docker")
    users = [line for line in (machine.root / "rules").read_text().splitlines() if "--uid-owner" in line]
    assert users == ["-A GANGWAY-METADATA -m owner --uid-owner 0 -j RETURN"]
    assert {call[call.index("--reuid") + 1] for call in machine.calls("setpriv")} == {"10001"}


@pytest.mark.parametrize(("user", "tried"), [("1234", "1234"), ("0", "65533")])
def test_a_prolog_tries_as_the_user_whose_job_begins(machine: Any, user: str, tried: str) -> None:
    machine.env["SLURM_JOB_UID"] = user
    before_network = machine._bash(["bash", str(machine.bin / "close-metadata.sh"), "rules"], None, {})
    assert (before_network.returncode, machine.calls("setpriv")) == (0, []), "there is no network yet to try"
    assert machine.calls("iptables-restore")
    assert machine.run("close-metadata.sh").returncode == 0
    assert {call[call.index("--reuid") + 1] for call in machine.calls("setpriv")} == {tried}


def test_a_machine_whose_job_still_reaches_it_runs_none(machine: Any) -> None:
    machine.fake("docker")
    machine.fake("setpriv", "exit 0")
    result = machine.run("run-trainer.sh")
    assert result.returncode == 1
    assert f"user 10001 can still reach {ADDRESS}" in result.stderr
    assert "docker" not in [call[0] for call in machine.every_call()]


@pytest.mark.parametrize("command", ["iptables-restore", "iptables"])
def test_a_firewall_that_refuses_its_rules_ends_it_too(gcp_machine: Any, command: str) -> None:
    gcp_machine.fake("docker")
    gcp_machine.fake(command, "exit 4")
    result = gcp_machine.run("run-trainer.sh")
    assert result.returncode == 1
    assert f"cannot block {ADDRESS}" in result.stderr


def test_a_machine_that_knows_ipv6_is_closed_there_too(openstack_machine: Any, tmp_path: Path) -> None:
    openstack_machine.fake("ip6tables-restore", f"cat >{tmp_path}/rules")
    assert openstack_machine.run("close-metadata.sh", IPV6="/nowhere").returncode == 0
    assert openstack_machine.calls("ip6tables-restore") == []
    assert openstack_machine.run("close-metadata.sh", IPV6=str(tmp_path)).returncode == 0
    assert "-d fe80::a9fe:a9fe -p tcp" in (tmp_path / "rules").read_text()


# A machine with two metadata services, and a container of root's own on a bridge, which has another network namespace.
WORLD = """
set -euo pipefail
folder=$1 python=$2 close=$3
ip link set lo up
for address in $4; do ip address add "$address/32" dev lo; done
# A kernel may lack a match or a table; then nothing can be shown here.
printf '*filter\\n-A OUTPUT -m owner --uid-owner 1 -j REJECT\\n-F OUTPUT\\nCOMMIT\\n*mangle\\n-F FORWARD\\nCOMMIT\\n' |
    iptables-restore --noflush || exit 77
cd "$folder/empty"
"$python" "$folder/service.py" $4 >"$folder/up" 2>/dev/null &
service=$!
unshare --net sleep 60 &
container=$!
trap 'kill $service $container' EXIT
until [ "$(readlink /proc/$container/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link add veth0 type veth peer name eth0 netns "$container"
ip address add 10.9.0.1/24 dev veth0
ip link set veth0 up
inside() { nsenter --net=/proc/$container/ns/net "$@"; }
inside ip address add 10.9.0.2/24 dev eth0
inside ip link set eth0 up
inside ip route add default via 10.9.0.1
until [ -s "$folder/up" ]; do sleep 0.05; done
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
ask() { "$@" curl --silent --output /dev/null --connect-timeout 1 --max-time 3 "http://$at/"; }
"""


def in_world(tmp_path: Path, machine: Any, script: str, addresses: str = ADDRESS) -> subprocess.CompletedProcess[str]:
    """Runs the script on such a machine, whose firewall is the kernel's."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "service.py").write_text(SERVICE)
    for name in ("iptables", "ip6tables", "iptables-restore", "ip6tables-restore", "setpriv"):
        (tmp_path / "fake" / name).unlink()
    machine.write_settings(None)
    close = str(machine.bin / "close-metadata.sh")
    command = ["unshare", "--net", "bash", "-c", WORLD + script]
    command += ["bash", str(tmp_path), sys.executable, close, addresses]
    env = {
        "PATH": f"{tmp_path}/fake:{os.environ['PATH']}:/usr/sbin:/sbin",
        "GANGWAY_NODE_ENV": f"{tmp_path}/node.env",
        "GANGWAY_STATE_DIR": f"{tmp_path}/state",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no firewall here: {done.stderr}")
    return done


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, REAL)), reason="wants root, iptables and a network of its own"
)


@pytest.mark.attack("a job or user of a node", "wants the node's token")
@needs_root
def test_with_the_real_firewall_root_alone_gets_an_answer(machine: Any, tmp_path: Path) -> None:
    """Other users, a subuid that is root of its own user namespace, and root of a container; twice is once."""
    script = """
    at=169.254.169.254
    for user in 1234 10001 65534 100000; do ask as $user || exit 78; done
    bash "$close" rules
    bash "$close"
    ask || exit 79
    for at in 169.254.169.254 169.254.169.254:32526 169.254.170.2; do
        for user in 1234 10001 65534 100000; do
            code=0; ask as $user || code=$?
            [ "$code" = 7 ] || exit 80
        done
        for user in 1234 100000; do
            code=0; ask as $user unshare --user --map-root-user || code=$?
            [ "$code" = 7 ] || exit 81
        done
    done
    for port in 53 123 67; do as 1234 "$python" -c "$ASK_UDP" $port || exit 82; done
    iptables --list-rules OUTPUT | grep --count GANGWAY
    iptables --list-rules GANGWAY-METADATA | grep --count -- '-A'
    bash "$close" remove
    at=169.254.169.254
    ask as 1234 || exit 83
    { iptables-save; } | grep --count GANGWAY || true
    """
    done = in_world(tmp_path, machine, f"ASK_UDP={ASK_UDP!r}\n{script}", f"{ADDRESS} 169.254.170.2")
    assert (done.returncode, done.stdout) == (0, "1\n7\n0\n"), done.stderr


@pytest.mark.attack("a job or user of a node", "wants the node's token")
@needs_root
def test_what_the_machine_forwards_reaches_none(machine: Any, tmp_path: Path) -> None:
    """Root of another network namespace, as of a container on a bridge: another machine is what forwards to it."""
    script = """
    echo 1 >/proc/sys/net/ipv4/ip_forward
    # The service is beyond this machine, as a cloud's is.
    kill $service; wait $service || true
    ip address del 169.254.169.254/32 dev lo
    unshare --net sleep 60 &
    cloud=$!
    trap 'kill $container $cloud' EXIT
    until [ "$(readlink /proc/$cloud/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
    ip link add veth1 type veth peer name eth0 netns "$cloud"
    ip address add 169.254.0.1/16 dev veth1
    ip link set veth1 up
    beyond() { nsenter --net=/proc/$cloud/ns/net "$@"; }
    beyond ip address add 169.254.169.254/16 dev eth0
    beyond ip link set eth0 up
    beyond ip route add default via 169.254.0.1
    : >"$folder/up"
    nsenter --net=/proc/$cloud/ns/net "$python" "$folder/service.py" 169.254.169.254 >"$folder/up" 2>/dev/null &
    service=$!
    trap 'kill $service $container $cloud' EXIT
    until [ -s "$folder/up" ]; do sleep 0.05; done
    at=169.254.169.254
    ask || exit 78
    ask inside || exit 79
    bash "$close"
    ask || exit 80
    code=0; ask inside || code=$?
    [ "$code" = 28 ] || exit 81
    inside "$python" -c "$ASK_UDP" 53 || exit 82
    code=0; ask as 1234 || code=$?
    [ "$code" = 7 ] || exit 83
    """
    done = in_world(tmp_path, machine, f"ASK_UDP={ASK_UDP!r}\n{script}")
    assert done.returncode == 0, (done.returncode, done.stderr)


@needs_root
def test_users_that_a_head_names_get_an_answer(machine: Any, tmp_path: Path) -> None:
    """Slurm's own on its head, and one whose package is not installed yet."""
    script = """
    echo "METADATA_USERS='nobody nosuchuser'" >>"$GANGWAY_NODE_ENV"
    bash "$close"
    at=169.254.169.254
    ask as 65534 || exit 78
    ! ask as 1234 || exit 79
    """
    done = in_world(tmp_path, machine, script)
    assert done.returncode == 0, (done.returncode, done.stderr)


@needs_root
def test_without_a_firewall_a_machine_on_which_an_answer_comes_runs_no_job(machine: Any, tmp_path: Path) -> None:
    script = """
    mkdir "$folder/few"
    for name in bash cat setpriv curl dirname printf id cut; do ln -s "$(command -v $name)" "$folder/few/"; done
    ! PATH=$folder/few bash "$close" || exit 78
    kill $service; wait $service || true
    PATH=$folder/few bash "$close" || exit 79
    """
    done = in_world(tmp_path, machine, script)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "no iptables" in done.stderr
    assert f"user 10001 can still reach {ADDRESS}" in done.stderr
