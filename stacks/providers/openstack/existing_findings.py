"""Findings about the existing resources of a stack on OpenStack."""

from collections.abc import Iterator

from gangway.components.core.findings import Finding
from gangway.components.openstack.machine_secrets import METHOD, access_paths
from gangway.components.openstack.network import Rule, plan_rules
from gangway.stacks.base.shared import head_ports
from gangway.stacks.config.sections import NetworkConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.existing import PATH, get_existing, provided
from gangway.stacks.providers.openstack.plan import OpenstackPlan, get_section


def existing_findings(config: StackConfig, planned: OpenstackPlan) -> Iterator[Finding]:
    """Nothing without existing resources."""
    existing = get_existing(config)
    if names := provided(config):
        yield Finding.info(
            "existing.provided",
            PATH,
            f"used as they are, not created, tagged or deleted: {', '.join(names.values())}",
        )
    if existing.network_id is not None:
        yield from _network(config, planned)
    if existing.share_name is not None:
        whom = existing.machine_cidr or "the address of the stack's router"
        yield Finding.info(
            "existing.share-access",
            f"{PATH}.share_name",
            f"the stack adds no access rule: existing ones must let {whom} read and write, without root squash",
            f"openstack share access list {existing.share_name}",
        )
    if existing.application_credential is not None:
        yield _credential(config)


def _network(config: StackConfig, planned: OpenstackPlan) -> Iterator[Finding]:
    if config.network.cidr != NetworkConfig.model_fields["cidr"].get_default():
        why = f"machines have addresses of {PATH}.machine_cidr"
        yield Finding.warning("existing.ignored-setting", "gangway:network.cidr", f"no effect: {why}", "remove cidr")
    yield Finding.info(
        "existing.checked-live",
        f"{PATH}.network_id",
        "only `gangway preflight` checks rules of security groups and which addresses are in use; `up` checks that "
        "network, subnet, groups and share exist and belong together",
        f"gangway preflight {config.stack_name}",
    )
    if get_existing(config).security_groups is not None:
        yield Finding.info(
            "existing.network-owner",
            f"{PATH}.security_groups",
            f"the stack adds no rules: existing ones must allow: {'; '.join(map(_describe, rules(config, planned)))}",
            "have rules made for these connections",
        )


def rules(config: StackConfig, planned: OpenstackPlan) -> tuple[Rule, ...]:
    """The connections that the existing security groups must allow."""
    own, head = get_section(config), head_ports(config) if planned.head else None
    return plan_rules(head, config.network.egress, planned.network.cidr, own.service_cidrs, own.dns_nameservers)


def _describe(rule: Rule) -> str:
    low, high = rule.ports or (0, 0)
    ports = "" if rule.ports is None else f" {low}" if low == high else f" {low} to {high}"
    way = f"from {rule.remote} to {rule.role}" if rule.direction == "ingress" else f"from {rule.role} to {rule.remote}"
    return f"{rule.protocol or 'all'}{ports} {way}"


def _credential(config: StackConfig) -> Finding:
    container = get_existing(config).run_container or "the run container"
    return Finding.info(
        "existing.role-permissions",
        f"{PATH}.application_credential",
        f"the stack changes nothing about it. It must allow {METHOD} {access_paths(container)[0]}, by the role "
        f"{get_section(config).object_role} or a narrower one",
        "openstack application credential show ID",
    )
