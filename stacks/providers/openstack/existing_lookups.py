"""Looks existing resources on OpenStack up before the first resource of a stack, and refuses those that do not fit."""

from dataclasses import dataclass, replace
from typing import TypeVar

import pulumi
import pulumi_openstack as openstack

from gangway.components.core.lookup import Lookup, look_up
from gangway.components.openstack.storage import export_path
from gangway.stacks.base.rule import UNKNOWN
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.existing import PATH, Facts, get_existing, problems
from gangway.stacks.providers.openstack.settings import OpenstackConfig

T = TypeVar("T")


def look_up_existing(config: StackConfig, provider: openstack.Provider) -> str | None:
    """The export location of the existing share, if any. LookupFailedError: a resource does not exist; ExceptionGroup
    of InputError: some do not fit.
    """
    ask, existing = _Requests(config, pulumi.InvokeOptions(provider=provider)), get_existing(config)
    facts, mount_source = ask.network(), None
    if (groups := existing.security_groups) is not None:
        ask.security_group("fabric", groups.fabric)
        ask.security_group("head", groups.head or groups.fabric)
    if existing.share_name is not None:
        facts, mount_source = ask.share(existing.share_name, facts)
    if found := list(problems(config, facts)):
        raise ExceptionGroup("existing resources do not fit", found)
    return mount_source


def _offline(value: T) -> T | None:
    """`value` as it is: None in an offline plan, though the SDK's types exclude that."""
    return value


@dataclass(frozen=True)
class _Requests:
    config: StackConfig
    opts: pulumi.InvokeOptions

    def _lookup(self, key: str, what: str, name: str) -> Lookup:
        cloud = self.config.section(OpenstackConfig).cloud
        where = f"cloud {cloud}" if cloud else "the cloud of OS_AUTH_URL"
        fix = f"correct {PATH}.{key}: `openstack {what} show {name}` must answer in the stack's project and region"
        return Lookup(f"the existing {what} {name}", where, f"{PATH}.{key}", fix)

    def network(self) -> Facts:
        existing = get_existing(self.config)
        if existing.network_id is None or existing.subnet_id is None:
            return Facts()
        lookup = self._lookup("network_id", "network", existing.network_id)
        function = openstack.networking.get_network
        network = look_up(lookup, function, network_id=existing.network_id, opts=self.opts)
        lookup = self._lookup("subnet_id", "subnet", existing.subnet_id)
        subnet = look_up(lookup, openstack.networking.get_subnet, subnet_id=existing.subnet_id, opts=self.opts)
        state = _offline(network.admin_state_up)
        return Facts(
            is_network_up=None if state is None else state == "true",
            subnet_network_id=subnet.network_id,
            subnet_cidr=subnet.cidr,
            gateway=subnet.gateway_ip,
        )

    def security_group(self, key: str, group: str) -> None:
        lookup = self._lookup(f"security_groups.{key}", "security group", group)
        look_up(lookup, openstack.networking.get_sec_group, secgroup_id=group, opts=self.opts)

    def share(self, name: str, facts: Facts) -> tuple[Facts, str]:
        lookup = self._lookup("share_name", "share", name)
        share = look_up(lookup, openstack.sharedfilesystem.get_share, name=name, opts=self.opts)
        places = _offline(share.export_locations) or []
        source = export_path([{"path": one.path, "preferred": one.preferred} for one in places])
        known = replace(facts, share_state=share.status, share_protocol=share.share_proto, share_gib=share.size)
        return known, source or UNKNOWN
