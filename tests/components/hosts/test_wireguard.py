"""What machines of one's own are told of the tunnels between them, as wg and wg-quick read it."""

import base64
import shutil
import subprocess
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path

import pytest

from gangway.components.hosts.wireguard import Peer, config_text, new_private_key, public_key, tunnel_addresses

PORT = 51820
PEERS = [
    Peer("one", "10.20.0.11", "10.88.0.1"),
    Peer("two", "node-2.example", "10.88.0.2"),
    Peer("three", "fd00::13", "10.88.0.3"),
]


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    return {peer.name: new_private_key() for peer in PEERS}


def sections(text: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    for line in text.splitlines():
        if line.startswith("["):
            found.append((line, {}))
        elif line:
            name, _, value = line.partition(" = ")
            found[-1][1][name] = value
    return found


@pytest.mark.parametrize(("network", "last"), [("10.88.0.0/24", "10.88.0.254"), ("172.30.4.0/22", "172.30.4.254")])
def test_machines_have_the_first_addresses_of_the_network(network: str, last: str) -> None:
    addresses = tunnel_addresses(network, 254)
    assert addresses[0].endswith(".1")
    assert addresses[-1] == last
    assert len(set(addresses)) == 254


def test_every_two_machines_know_each_others_key_and_address(keys: Mapping[str, str]) -> None:
    told = {peer.name: sections(config_text(PEERS, keys, peer.name, PORT)) for peer in PEERS}
    for name, ((kind, own), *others) in told.items():
        (me,) = [peer for peer in PEERS if peer.name == name]
        assert kind == "[Interface]"
        assert own == {"PrivateKey": keys[name], "Address": f"{me.address}/32", "ListenPort": "51820"}
        assert [section for section, _ in others] == ["[Peer]"] * 2
    for one, other in combinations(PEERS, 2):
        for here, there in ((one, other), (other, one)):
            (said,) = [peer for _, peer in told[here.name][1:] if peer["AllowedIPs"] == f"{there.address}/32"]
            assert said["PublicKey"] == public_key(keys[there.name])
            host, _, port = said["Endpoint"].rpartition(":")
            assert (host.strip("[]"), port) == (there.endpoint, "51820")


def test_nobody_is_told_anothers_private_key(keys: Mapping[str, str]) -> None:
    for peer in PEERS:
        text = config_text(PEERS, keys, peer.name, PORT)
        assert [name for name, key in keys.items() if key in text] == [peer.name]


def test_keys_are_of_the_kind_that_wg_makes(tmp_path: Path, keys: Mapping[str, str]) -> None:
    assert {len(base64.b64decode(key)) for key in keys.values()} == {32}
    assert len(set(keys.values())) == 3
    if not (wg := shutil.which("wg")):
        pytest.skip("no wg on this machine")
    for private in keys.values():
        done = subprocess.run([wg, "pubkey"], input=private, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == public_key(private)


def test_wg_quick_takes_it(tmp_path: Path, keys: Mapping[str, str]) -> None:
    if not (quick := shutil.which("wg-quick")):
        pytest.skip("no wg-quick on this machine")
    path = tmp_path / "gangway.conf"
    path.write_text(config_text(PEERS, keys, "two", PORT))
    path.chmod(0o600)
    done = subprocess.run([quick, "strip", str(path)], capture_output=True, text=True, check=True)
    left = sections(done.stdout)
    assert left[0][1] == {"PrivateKey": keys["two"], "ListenPort": "51820"}, "the address is wg-quick's own"
    assert [ip_address(peer["AllowedIPs"].partition("/")[0]).is_private for _, peer in left[1:]] == [True, True]
