"""A machine joins the others by WireGuard before anything of the job starts, and leaves them when all is taken away."""

from dataclasses import replace
from typing import Any

from gangway.images.hosts import HostSpec


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
