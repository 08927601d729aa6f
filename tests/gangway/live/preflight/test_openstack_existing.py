"""Checks of existing resources on OpenStack, with answers in the forms of its API reference."""

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from gangway.components.openstack.network import Rule
from gangway.live.preflight.check import Answer, NoAnswerError, State
from gangway.live.preflight.openstack_existing import allows, existing_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.openstack.existing import get_existing
from gangway.stacks.providers.openstack.plan import plan

CONFIG = from_file(Path(__file__).parents[4] / "stacks" / "Pulumi.openstack-existing.yaml")
EXISTING, PLANNED = get_existing(CONFIG), plan(CONFIG)
assert EXISTING.security_groups is not None
FABRIC, HEAD = EXISTING.security_groups.fabric, str(EXISTING.security_groups.head)
NETWORK, SUBNET = f"/v2.0/networks/{EXISTING.network_id}", f"/v2.0/subnets/{EXISTING.subnet_id}"
PORTS, SHARES = f"/v2.0/ports?network_id={EXISTING.network_id}", "/shares/detail?name=gan-share"
OF_FABRIC, OF_HEAD = f"/v2.0/security-groups/{FABRIC}", f"/v2.0/security-groups/{HEAD}"
CONTAINER = "/gan-runs?format=json&limit=1"


def rule(direction: str, ports: tuple[int, int] | None = None, **remote: Any) -> dict[str, Any]:
    low, high = ports or (None, None)
    protocol = "tcp" if ports else None
    held = {"direction": direction, "ethertype": "IPv4", "protocol": protocol}
    return {**held, "port_range_min": low, "port_range_max": high, **remote}


def group(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"security_group": {"security_group_rules": [{"direction": "egress", "ethertype": "IPv4"}, *rules]}}


def port(address: str, *tags: str) -> dict[str, Any]:
    return {"fixed_ips": [{"ip_address": address}, {"ip_address": "2001:db8::5"}], "tags": list(tags)}


GOOD: dict[str, Any] = {
    NETWORK: {"network": {"admin_state_up": True, "mtu": 9000}},
    SUBNET: {"subnet": {"network_id": EXISTING.network_id, "cidr": "10.20.0.0/20", "gateway_ip": "10.20.0.1"}},
    PORTS: {"ports": [port("10.20.0.2"), port("10.20.8.1", "gangway:stack=openstack-existing")]},
    OF_FABRIC: group(rule("ingress", remote_group_id=FABRIC), rule("ingress", (9400, 9400), remote_group_id=HEAD)),
    OF_HEAD: group(rule("ingress", (29000, 30000), remote_ip_prefix="10.20.0.0/16")),
    SHARES: {"shares": [{"status": "available", "share_proto": "NFS", "size": 4096}]},
    CONTAINER: [],
}


def checked(outcomes: Callable[..., dict[str, Answer]], changes: dict[str, Any]) -> dict[str, Answer]:
    answers = {**GOOD, **changes}

    def get(service: str, path: str) -> Any:
        if answers[path] == 404:
            raise NoAnswerError("status 404", code="404")
        return answers[path]

    return outcomes(list(existing_checks(CONFIG, PLANNED, get)))


def test_all_in_good_order(outcomes: Any) -> None:
    found = checked(outcomes, {})
    assert {name: one.result for name, one in found.items() if one.result.state is not State.OK} == {}
    assert len(found) == 6


@pytest.mark.parametrize(
    ("path", "answer", "key", "words"),
    [
        (NETWORK, 404, "network_id", "does not exist"),
        (NETWORK, {"network": {"admin_state_up": False}}, "network_id", "down"),
        (SUBNET, {"subnet": {**GOOD[SUBNET]["subnet"], "gateway_ip": None}}, "subnet_id", "no gateway"),
        (PORTS, {"ports": [port("10.20.8.4"), port("10.20.8.9")]}, "machine_cidr", "in use: 10.20.8.4"),
        (OF_FABRIC, group(), "security_groups", "self, metrics"),
        (OF_HEAD, group(rule("ingress", (29400, 29400), remote_ip_prefix="10.99.0.0/16")), "security_groups", "rendez"),
        (SHARES, {"shares": []}, "share_name", "0 shares"),
        (SHARES, {"shares": [{"status": "error", "share_proto": "NFS", "size": 1}]}, "share_name", "error"),
        (CONTAINER, 404, "run_container", "does not exist"),
    ],
)
def test_what_does_not_fit(outcomes: Any, path: str, answer: Any, key: str, words: str) -> None:
    found = [one for one in checked(outcomes, {path: answer}).values() if one.result.state is not State.OK]
    assert [one.check.path for one in found] == [f"gangway:openstack.existing.{key}"]
    assert found[0].result.state is State.ERROR
    assert words in found[0].result.answer
    assert found[0].result.fix


@pytest.mark.parametrize(
    ("changes", "is_allowed"),
    [
        ({}, True),
        ({"direction": "egress"}, False),
        ({"ethertype": "IPv6"}, False),
        ({"protocol": "udp"}, False),
        ({"protocol": None, "port_range_min": None, "port_range_max": None}, True),
        ({"port_range_min": 29401, "port_range_max": 29500}, False),
        ({"remote_group_id": "other"}, False),
        ({"remote_group_id": None, "remote_ip_prefix": "10.20.0.0/16"}, True),
        ({"remote_group_id": None, "remote_ip_prefix": "10.21.0.0/16"}, False),
        ({"remote_group_id": None, "remote_ip_prefix": None}, True),
    ],
)
def test_which_rules_allow_a_connection(changes: dict[str, Any], is_allowed: bool) -> None:
    held = {**rule("ingress", (29400, 29400), remote_group_id="nodes"), **changes}
    wanted = Rule("rendezvous", "head", "ingress", "fabric", "tcp", (29400, 29400))
    assert allows(held, wanted, {"fabric": "nodes", "head": "head"}, IPv4Network("10.20.8.0/28")) is is_allowed
