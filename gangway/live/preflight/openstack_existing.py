"""Checks of existing resources on OpenStack, among them what `up` cannot look up: rules and addresses in use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Any

from gangway.components.core.tags import tag_words
from gangway.components.openstack.network import Rule
from gangway.live.preflight.check import Check, Result
from gangway.live.preflight.existing import existing_check, judge, judge_rules
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.existing import PATH, Facts, get_existing, problems
from gangway.stacks.providers.openstack.existing_findings import rules
from gangway.stacks.providers.openstack.plan import OpenstackPlan
from gangway.stacks.providers.openstack.settings import SecurityGroupsConfig

Get = Callable[[str, str], Any]
"""The answer of a service, such as `compute`, to a path."""
_NETWORK = "/v2.0"


def existing_checks(config: StackConfig, planned: OpenstackPlan, get: Get) -> Iterator[Check]:
    """One per existing resource; none without."""
    asks, existing = _Asks(config, planned, get), get_existing(config)
    if existing.network_id is not None and existing.subnet_id is not None:
        yield asks.network(existing.network_id)
        yield asks.subnet(existing.subnet_id)
        yield asks.addresses(existing.network_id)
    if existing.security_groups is not None:
        yield asks.security_groups(existing.security_groups)
    if existing.share_name is not None:
        yield asks.share(existing.share_name)
    if existing.run_container is not None:
        yield asks.container(existing.run_container)


class _Asks:
    """One method per check."""

    def __init__(self, config: StackConfig, planned: OpenstackPlan, get: Get) -> None:
        self._config, self._planned, self._get = config, planned, get

    def _check(self, key: str, what: str, source: str, run: Callable[[], Result]) -> Check:
        return existing_check(f"{PATH}.{key}", what, f"GET {source}", run)

    def _judge(self, facts: Facts, good: str) -> Result:
        return judge(problems(self._config, facts), good)

    def network(self, id_: str) -> Check:
        def run() -> Result:
            row = self._get("network", f"{_NETWORK}/networks/{id_}")["network"]
            return self._judge(Facts(is_network_up=row["admin_state_up"]), f"MTU {row.get('mtu')}")

        return self._check("network_id", f"existing network {id_}", "network /v2.0/networks", run)

    def _subnet(self, id_: str) -> Facts:
        row = self._get("network", f"{_NETWORK}/subnets/{id_}")["subnet"]
        return Facts(subnet_network_id=row["network_id"], subnet_cidr=row["cidr"], gateway=row["gateway_ip"] or "")

    def subnet(self, id_: str) -> Check:
        def run() -> Result:
            facts = self._subnet(id_)
            return self._judge(facts, f"{facts.subnet_cidr}, gateway {facts.gateway}")

        return self._check("subnet_id", f"existing subnet {id_}", "network /v2.0/subnets", run)

    def addresses(self, network: str) -> Check:
        """Ports of the stack, if it is up, have its tag."""
        first = IPv4Address(self._planned.network.head)
        own = {first + at for at in range(self._planned.num_machines + 1)}
        (tag,) = tag_words({"gangway:stack": self._config.stack})

        def run() -> Result:
            ports = self._get("network", f"{_NETWORK}/ports?network_id={network}")["ports"]
            others = [port for port in ports if tag not in port.get("tags", ())]
            used = {IPv4Address(one["ip_address"]) for port in others for one in _ipv4(port)}
            facts = replace(Facts(), foreign_addresses=tuple(map(str, sorted(used & own))))
            return self._judge(facts, f"{len(own)} addresses from {first} on are free")

        what = f"addresses in {self._planned.network.cidr}"
        return self._check("machine_cidr", what, "network /v2.0/ports", run)

    def security_groups(self, groups: SecurityGroupsConfig) -> Check:
        ids = {"fabric": groups.fabric, "head": groups.head or groups.fabric}

        def run() -> Result:
            held = {role: self._rules(id_) for role, id_ in ids.items()}
            needed = rules(self._config, self._planned)
            cidr = IPv4Network(self._planned.network.cidr)
            missing = [rule.name for rule in needed if not any(allows(one, rule, ids, cidr) for one in held[rule.role])]
            return judge_rules(self._config, missing, f"rules allow all {len(needed)} connections")

        return self._check("security_groups", "existing security groups", "network /v2.0/security-groups", run)

    def _rules(self, id_: str) -> Sequence[Mapping[str, Any]]:
        group = self._get("network", f"{_NETWORK}/security-groups/{id_}")["security_group"]
        held: Sequence[Mapping[str, Any]] = group["security_group_rules"]
        return held

    def share(self, name: str) -> Check:
        def run() -> Result:
            rows = self._get("shared-file-system", f"/shares/detail?name={name}")["shares"]
            if len(rows) != 1:
                return Result.error(f"{len(rows)} shares have this name", f"correct {PATH}.share_name")
            (row,) = rows
            facts = Facts(share_state=row["status"], share_protocol=row["share_proto"], share_gib=row["size"])
            return self._judge(facts, f"{row['share_proto']}, {row['size']} GiB")

        return self._check("share_name", f"existing share {name}", "shared-file-system /shares/detail", run)

    def container(self, name: str) -> Check:
        def run() -> Result:
            self._get("object-store", f"/{name}?format=json&limit=1")
            return Result.ok("readable")

        return self._check("run_container", f"existing container {name}", "object-store /CONTAINER", run)


def _ipv4(port: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    return [one for one in port["fixed_ips"] if ":" not in one["ip_address"]]


def allows(held: Mapping[str, Any], rule: Rule, groups: Mapping[str, str], machines: IPv4Network) -> bool:
    """Whether a security group's rule allows a connection. `machines`: their addresses."""
    if held["direction"] != rule.direction or held.get("ethertype") != "IPv4":
        return False
    if held.get("protocol") not in (None, rule.protocol):
        return False
    low, high = held.get("port_range_min"), held.get("port_range_max")
    if low is not None and high is not None and (rule.ports is None or low > rule.ports[0] or high < rule.ports[1]):
        return False
    group, prefix = held.get("remote_group_id"), held.get("remote_ip_prefix")
    if group is not None:
        return bool(group == groups.get(rule.remote))
    source = machines if rule.remote in groups else IPv4Network(rule.remote)
    return prefix is None or source.subnet_of(IPv4Network(ip_network(prefix)))
