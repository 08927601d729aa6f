"""The job's ports of a machine that is there: its stack's machines reach them and nobody else, by the real firewall of
networks of our own.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.hosts import HostSpec, host_files

REAL = ("ip", "iptables", "ip6tables", "iptables-restore", "ip6tables-restore", "unshare", "nsenter")


def rules(host: Any, tmp_path: Path, tables: str) -> list[str]:
    """What the script hands over for one family."""
    host.fake(f"{tables}-restore", f"cat >'{tmp_path}/rules'")
    done = host.run("close-ports.sh", IPV6=str(tmp_path))
    assert done.returncode == 0, done.stderr
    return (tmp_path / "rules").read_text().splitlines()


def test_each_family_has_its_own_machines_and_networks(host: Any, tmp_path: Path) -> None:
    start, end = ["*filter", ":GANGWAY - [0:0]", "-A GANGWAY -i lo -j RETURN"], ["-A GANGWAY -j REJECT", "COMMIT"]
    four = [f"-A GANGWAY -s {source} -j RETURN" for source in ("10.30.0.11", "10.99.0.0/16")]
    assert rules(host, tmp_path, "iptables") == [*start, *four, *end]
    assert rules(host, tmp_path, "ip6tables") == [*start, "-A GANGWAY -s fd00::12 -j RETURN", *end]
    hook = host.calls("iptables")[0]
    assert hook[hook.index("--dports") + 1] == "9400,29400"


def test_a_machine_that_holds_no_store_closes_its_metrics(host: Any, tmp_path: Path) -> None:
    host.plan(port=None, prometheus_image=None, workers=())
    rules(host, tmp_path, "iptables")
    hook = host.calls("iptables")[0]
    assert hook[hook.index("--dports") + 1] == "9400"


def test_where_it_cannot_be_closed_nothing_is_trained(host: Any, given_up: Any) -> None:
    host.fake("iptables-restore", "exit 2")
    assert "cannot limit ports 9400,29400" in given_up(host, "close-ports.sh")


def test_who_asks_for_open_ports_has_them(first: HostSpec) -> None:
    script = "/opt/gangway/bin/close-ports.sh"
    assert script in [file.path for file in host_files(first)]
    assert script not in [file.path for file in host_files(replace(first, allowed=None))]


NEIGHBOURS = """
set -euo pipefail
mkdir "$1/held"
host() { nsenter --net="$1/held/$2" "${@:3}"; }
for name in machine peer stranger; do
    touch "$1/held/$name"
    unshare --net="$1/held/$name" true
done
trap 'kill %1 2>/dev/null; umount "$1"/held/*' EXIT
number=0
for name in peer stranger; do
    number=$((number + 1))
    ip link add "gwt$number" type veth peer name eth0 netns "$1/held/$name"
    ip link set "gwt$number" netns "$1/held/machine"
    host "$1" machine ip address add "10.77.$number.1/24" dev "gwt$number"
    host "$1" machine ip link set "gwt$number" up
    host "$1" "$name" ip address add "10.77.$number.2/24" dev eth0
    host "$1" "$name" ip link set eth0 up
done
host "$1" machine ip link set lo up
# A kernel may lack the match; then nothing can be shown here.
probe=(INPUT --protocol tcp --match multiport --dports 1,2 --jump REJECT)
{ host "$1" machine iptables --append "${probe[@]}" && host "$1" machine iptables --delete "${probe[@]}"; } || exit 77
nsenter --net="$1/held/machine" "$2" -c "
import socket, time
doors = [socket.create_server(('', port)) for port in (29400, 9400, 22)]
time.sleep(60)
" &
reach() { timeout 3 nsenter --net="$1/held/$2" bash -c "exec 3<>/dev/tcp/$3/$4" 2>/dev/null; }
until reach "$1" machine 127.0.0.1 22; do sleep 0.05; done
say() { if reach "$@"; then echo "$2 $4 yes"; else echo "$2 $4 no"; fi; }
reach "$1" stranger 10.77.2.1 29400 || exit 78
host "$1" machine bash "$3/close-ports.sh"
host "$1" machine bash "$3/close-ports.sh"
for port in 29400 9400 22; do
    say "$1" peer 10.77.1.1 "$port"
    say "$1" stranger 10.77.2.1 "$port"
    say "$1" machine 127.0.0.1 "$port"
done
host "$1" machine bash "$3/close-ports.sh" remove
say "$1" stranger 10.77.2.1 29400
host "$1" machine iptables --list-rules
"""


@pytest.mark.slow
@pytest.mark.attack("a network neighbour", "connects to the job's ports on machines of one's own")
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, REAL)), reason="wants root, iptables and networks of its own"
)
def test_with_the_real_firewall_strangers_are_refused(host: Any, tmp_path: Path) -> None:
    host.plan(allowed=("10.77.1.2",))
    host.write_settings(None)
    for name in REAL:
        (tmp_path / "fake" / name).unlink(missing_ok=True)
    env = {
        "PATH": f"{tmp_path}/fake:{os.environ['PATH']}",
        "GANGWAY_NODE_ENV": f"{tmp_path}/node.env",
        "GANGWAY_STATE_DIR": f"{tmp_path}/state",
    }
    command = ["unshare", "--net", "--mount", "bash", "-c", NEIGHBOURS, "bash", str(tmp_path), sys.executable]
    done = subprocess.run([*command, str(host.bin)], env=env, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no firewall here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:9] == [
        *("peer 29400 yes", "stranger 29400 no", "machine 29400 yes"),
        *("peer 9400 yes", "stranger 9400 no", "machine 9400 yes"),
        *("peer 22 yes", "stranger 22 yes", "machine 22 yes"),
    ]
    assert lines[9:] == ["stranger 29400 yes", "-P INPUT ACCEPT", "-P FORWARD ACCEPT", "-P OUTPUT ACCEPT"]


def test_it_joins_anew_at_each_boot(host: Any) -> None:
    host.plan(wireguard="gangway")
    host.fake("wg-quick", '[ "$1" = up ]')
    assert host.run("join-wireguard.sh").returncode == 0
    assert host.calls("wg-quick") == [["down", "gangway"], ["up", "gangway"]]


def test_without_tunnels_nothing_is_trained(host: Any, given_up: Any) -> None:
    host.plan(wireguard="gangway")
    host.fake("wg-quick", "exit 1")
    assert "WireGuard does not start" in given_up(host, "join-wireguard.sh")


def test_what_it_needs_is_asked_for_and_taken_away_again(owned: Any, first: HostSpec) -> None:
    asked = replace(first, wireguard="gangway")
    (owned.small.root / "fake" / "wg-quick").unlink(missing_ok=True)
    owned.small.fake("wg-quick")
    assert owned.install(asked).returncode == 0
    assert "/opt/gangway/bin/join-wireguard.sh" in owned.files()
    prepare = (owned.root / "etc/systemd/system/gangway-prepare.service").read_text()
    assert prepare.index("join-wireguard.sh") < prepare.index("close-ports.sh") < prepare.index("fetch-key.sh")
    assert owned.remove().returncode == 0
    assert owned.small.calls("wg-quick") == [["down", "gangway"]]
