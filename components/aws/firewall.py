"""The security groups of a stack's network: who may reach whom, as data and as resources.

One table of flows says what may pass; the rules of both sides are made from it, so that none is written on one side
only.

Every rule is a resource of its own. The fabric's and the head's groups name each other, which inline rules cannot, and
inline rules beside separate ones on one group overwrite each other. Pulumi's provider takes EC2's default egress rule
away from each new group, so what is not written here does not pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pulumi
from pulumi_aws import ec2, vpc

from components.firewall import HeadPortsArgs
from components.order import after

__all__ = ["GROUPS", "Flow", "RulePlan", "declare_groups", "plan_flows", "plan_rules"]

ANYWHERE = "0.0.0.0/0"
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "fabric": "EFA fabric and Lustre: all traffic within the group",
        "head": "Head node: rendezvous from the workers",
        "endpoints": "HTTPS from the VPC to the interface endpoints",
    }
)
"""The groups and their descriptions, which EC2 keeps for good."""

# FSx for Lustre user guide, "File system access control with Amazon VPC": the ports between file servers and clients,
# which both sides open.
LUSTRE_PORTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"lustre-988": (988, 988), "lustre-1018-1023": (1018, 1023)}
)


@dataclass(frozen=True)
class Flow:
    """Who may open connections to whom. Each end is a group of ours or an address range.

    Attributes:
        name: tells it from the others between the same two.
        source: who opens the connection.
        target: who answers it.
        protocol: -1 for every protocol.
        ports: first and last port of the target; None for every port.
    """

    name: str
    source: str
    target: str
    protocol: str = "-1"
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class RulePlan:
    """One side of a flow, as EC2 keeps it. `peer` is the other side: a group of ours or an address range."""

    group: str
    direction: str
    name: str
    peer: str
    protocol: str = "-1"
    from_port: int | None = None
    to_port: int | None = None


def plan_flows(cidr: str, head: HeadPortsArgs | None, endpoints: bool) -> tuple[Flow, ...]:
    """Everything that may pass. The fabric's flow to itself also covers Lustre between workers and file servers."""
    flows = [
        # EFA passes only where the group names itself in both directions, also beside a rule for 0.0.0.0/0.
        Flow("self", "fabric", "fabric"),
        Flow("out", "fabric", ANYWHERE),
    ]
    if head is not None:
        store, metrics = head["rendezvous_port"], head["metrics_port"]
        flows += [
            Flow("rendezvous", "fabric", "head", "tcp", (store, store)),
            Flow("out", "head", ANYWHERE),
            Flow("metrics", "head", "fabric", "tcp", (metrics, metrics)),
        ]
        if head.get("lustre", False):
            both_ways = (("head", "fabric"), ("fabric", "head"))
            flows += [
                Flow(name, source, target, "tcp", ports)
                for name, ports in LUSTRE_PORTS.items()
                for source, target in both_ways
            ]
    if endpoints:
        flows.append(Flow("https", cidr, "endpoints", "tcp", (443, 443)))
    return tuple(flows)


def plan_rules(flows: Iterable[Flow]) -> tuple[RulePlan, ...]:
    """The rules that let `flows` pass: egress where a group of ours opens, ingress where one answers.

    Egress to one group stands also beside a group's way out to everywhere: a flow is whole by itself.
    """
    return tuple(
        RulePlan(group, direction, flow.name, peer, flow.protocol, *(flow.ports or (None, None)))
        for flow in flows
        for direction, group, peer in (("egress", flow.source, flow.target), ("ingress", flow.target, flow.source))
        if group in GROUPS
    )


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
    return {key: after(group.id, *[rule for owner, rule in declared if owner == key]) for key, group in groups.items()}


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
        from_port=rule.from_port,
        to_port=rule.to_port,
        referenced_security_group_id=None if peer is None else peer.id,
        cidr_ipv4=rule.peer if peer is None else None,
        tags={**tags, "Name": logical_name},
        opts=opts,
    )
