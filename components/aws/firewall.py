"""The security groups of a stack's network: who may reach whom, as data and as resources.

Every rule is a resource of its own. The fabric's and the head's groups name each other, which inline rules cannot, and
inline rules beside separate ones on one group overwrite each other. Pulumi's provider takes EC2's default egress rule
away from each new group, so what is not written here does not pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypedDict

import pulumi
from pulumi_aws import ec2, vpc

__all__ = ["GROUPS", "HeadPortsArgs", "RulePlan", "declare_groups", "plan_rules"]

ANYWHERE = "0.0.0.0/0"
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "fabric": "EFA fabric and Lustre: all traffic within the group",
        "head": "Head node: rendezvous from the workers",
        "endpoints": "HTTPS from the VPC to the interface endpoints",
    }
)
"""The groups and their descriptions, which EC2 keeps for good."""


class HeadPortsArgs(TypedDict):
    """Where the head node and the workers listen: the rendezvous store, and the workers' metrics."""

    rendezvous_port: int
    metrics_port: int


@dataclass(frozen=True)
class RulePlan:
    """One rule. `peer` is a group of ours or an address range; no port means every port, protocol -1 every protocol."""

    group: str
    direction: str
    name: str
    peer: str
    protocol: str = "-1"
    port: int | None = None


def plan_rules(cidr: str, head: HeadPortsArgs | None, endpoints: bool) -> tuple[RulePlan, ...]:
    """Everything that may pass. The fabric's self-reference also covers Lustre's ports 988 and 1018 to 1023."""
    # EFA passes only where the group names itself in both directions, also beside a rule for 0.0.0.0/0.
    rules = [
        RulePlan("fabric", "ingress", "self", "fabric"),
        RulePlan("fabric", "egress", "self", "fabric"),
        RulePlan("fabric", "egress", "out", ANYWHERE),
    ]
    if head is not None:
        rules += [
            RulePlan("head", "ingress", "rendezvous", "fabric", "tcp", head["rendezvous_port"]),
            RulePlan("head", "egress", "out", ANYWHERE),
            RulePlan("fabric", "ingress", "metrics", "head", "tcp", head["metrics_port"]),
        ]
    if endpoints:
        rules.append(RulePlan("endpoints", "ingress", "https", cidr, "tcp", 443))
    return tuple(rules)


def declare_groups(
    name: str,
    vpc_id: pulumi.Input[str],
    rules: tuple[RulePlan, ...],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> dict[str, pulumi.Output[str]]:
    """Declares the groups that `rules` speak of.

    Returns:
        Group -> its id, known only when all its rules stand: a file system or a node that came earlier would fail.
    """
    groups = {
        key: ec2.SecurityGroup(
            f"{name}-{key}",
            description=GROUPS[key],
            vpc_id=vpc_id,
            tags={**tags, "Name": f"{name}-{key}"},
            opts=opts,
        )
        for key in dict.fromkeys(rule.group for rule in rules)
    }
    declared = [(rule.group, _declare(name, rule, groups, tags, opts)) for rule in rules]
    return {
        key: pulumi.Output.all(group.id, *[rule.id for owner, rule in declared if owner == key]).apply(
            lambda ids: str(ids[0])
        )
        for key, group in groups.items()
    }


def _declare(
    name: str,
    rule: RulePlan,
    groups: Mapping[str, ec2.SecurityGroup],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.CustomResource:
    kind = vpc.SecurityGroupIngressRule if rule.direction == "ingress" else vpc.SecurityGroupEgressRule
    peer = groups.get(rule.peer)
    logical_name = f"{name}-{rule.group}-{rule.direction}-{rule.name}"
    return kind(
        logical_name,
        security_group_id=groups[rule.group].id,
        ip_protocol=rule.protocol,
        from_port=rule.port,
        to_port=rule.port,
        referenced_security_group_id=None if peer is None else peer.id,
        cidr_ipv4=rule.peer if peer is None else None,
        tags={**tags, "Name": logical_name},
        opts=opts,
    )
