"""TrainingNetwork: private subnets with access to AWS services but none from outside; security groups and flow logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import cloudwatch, ec2, route53, vpc

from gangway.components.aws.identity import (
    GROUP_ACTIONS,
    KEY_ACTIONS,
    LEAVE_ACTION,
    LOG_ACTIONS,
    OPEN_RESOURCES,
    PULL_ACTIONS,
    Statement,
    allow,
    declare_role,
    dns_suffix,
    document,
    get_account,
    parameter_name,
    partition_in,
    trust,
)
from gangway.components.core.fields import Egress
from gangway.components.core.keys import KEY_USES
from gangway.components.core.limits import HeadPortsArgs, SlurmPortsArgs, metrics_ports, private_network
from gangway.components.core.outputs import after, register_outputs

ANYWHERE = "0.0.0.0/0"
GROUPS: Mapping[str, str] = {
    "fabric": "EFA fabric and Lustre: all traffic within the group",
    "head": "Head node: rendezvous from the workers",
    "endpoints": "HTTPS from the VPC to the interface endpoints",
}  # the groups and their descriptions, which EC2 cannot change

# FSx for Lustre user guide, "File system access control with Amazon VPC": ports between file servers and clients,
# opened by both sides.
LUSTRE_PORTS: Mapping[str, tuple[int, int]] = {"lustre-988": (988, 988), "lustre-1018-1023": (1018, 1023)}
KEPT_DAYS = 30
# One record per flow and ten minutes; EC2's other choice, one minute, writes ten times as much.
AGGREGATION_SEC = 600


@dataclass(frozen=True)
class Flow:
    """An allowed connection between groups of ours or address ranges. `name`: unique between the same two ends;
    `protocol`: -1 for every protocol; `ports`: first and last of the target; None for every port.
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


def plan_flows(
    cidr: str, head: HeadPortsArgs | None, endpoints: bool, slurm: SlurmPortsArgs | None = None
) -> tuple[Flow, ...]:
    """All allowed connections. The fabric's flow to itself also covers Lustre between workers and file servers."""
    flows = [
        # EFA needs the group to name itself in both directions, even beside a rule for 0.0.0.0/0.
        Flow("self", "fabric", "fabric"),
        Flow("out", "fabric", ANYWHERE),
    ]
    if head is not None:
        store, metrics = head["rendezvous_port"], metrics_ports(head)
        flows += [
            Flow("rendezvous", "fabric", "head", "tcp", (store, store)),
            Flow("out", "head", ANYWHERE),
            Flow("metrics", "head", "fabric", "tcp", (metrics[0], metrics[-1])),
        ]
    if slurm is not None:
        first, last = slurm["client_ports"]
        flows += [
            Flow("slurmctld", "fabric", "head", "tcp", (slurm["controller_port"], slurm["controller_port"])),
            Flow("srun", "fabric", "head", "tcp", (first, last)),
            Flow("out", "head", ANYWHERE),
            Flow("slurmd", "head", "fabric", "tcp", (slurm["node_port"], slurm["node_port"])),
        ]
        if ports := slurm.get("metrics_ports"):
            flows.append(Flow("metrics", "head", "fabric", "tcp", (ports[0], ports[-1])))
    if any(ports is not None and ports.get("lustre", False) for ports in (head, slurm)):
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
    """The rules that allow `flows`: egress at sources, ingress at targets. Each flow keeps its own egress rule."""
    return tuple(
        RulePlan(group, direction, flow.name, peer, flow.protocol, *(flow.ports or (None, None)))
        for flow in flows
        for direction, group, peer in (("egress", flow.source, flow.target), ("ingress", flow.target, flow.source))
        if group in GROUPS
    )


def declare_groups(
    name: str,
    vpc_id: pulumi.Input[str],
    flows: Iterable[Flow],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> dict[str, pulumi.Output[str]]:
    """Security groups that allow `flows`, by their key in GROUPS. Their ids are known only once all rules exist: an
    earlier file system or node would fail.
    """
    rules = plan_rules(flows)
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
    declared = [(rule.group, _declare_rule(name, rule, groups, tags, opts)) for rule in rules]
    return {key: after(group.id, *[rule for owner, rule in declared if owner == key]) for key, group in groups.items()}


def _declare_rule(
    name: str,
    rule: RulePlan,
    groups: Mapping[str, ec2.SecurityGroup],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.CustomResource:
    kind = vpc.SecurityGroupIngressRule if rule.direction == "ingress" else vpc.SecurityGroupEgressRule
    label, peer = f"{name}-{rule.group}-{rule.direction}-{rule.name}", groups.get(rule.peer)
    return kind(
        label,
        security_group_id=groups[rule.group].id,
        ip_protocol=rule.protocol,
        from_port=rule.from_port,
        to_port=rule.to_port,
        referenced_security_group_id=None if peer is None else peer.id,
        cidr_ipv4=rule.peer if peer is None else None,
        tags={**tags, "Name": label},
        opts=opts,
    )


def zone_name(name: str) -> str:
    """The private zone of a stack's machines.

    >>> zone_name("demo")
    'demo.gangway.internal'
    """
    return f"{name}.gangway.internal"


def declare_zone(
    name: str, vpc_id: pulumi.Input[str], region: str, tags: Mapping[str, str], opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """The id of a zone of this VPC only, so that workers find a replaced head node by name."""
    zone = route53.Zone(
        f"{name}-private",
        name=zone_name(name),
        comment=f"{name}: the head node's fixed name",
        vpcs=[route53.ZoneVpcArgs(vpc_id=vpc_id, vpc_region=region)],
        tags={**tags, "Name": f"{name}-private"},
        opts=opts,
    )
    return zone.id


def delivery_trust(account: str, region: str) -> dict[str, Any]:
    """Let the flow log service assume the role, for this account's flow logs only."""
    condition = {
        "StringEquals": {"aws:SourceAccount": account},
        "ArnLike": {"aws:SourceArn": f"arn:{partition_in(region)}:ec2:{region}:{account}:vpc-flow-log/*"},
    }
    return trust("vpc-flow-logs.amazonaws.com", condition)


def delivery_policy(log_group_arn: str) -> dict[str, Any]:
    """Let it write to the one group; it asks both questions before each delivery."""
    actions = ["logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    return document([allow("Deliver", actions, f"{log_group_arn}:*")])


class TrainingNetworkArgs(TypedDict):
    """Inputs of TrainingNetwork. `head`, or else `slurm`, creates a security group for a head node and a private DNS
    zone `<name>.gangway.internal`. `s3_bucket_arns` closes all other buckets (except for ECR's layers and Amazon
    Linux's packages); by default all are open. The other endpoints allow the machines' calls in their own account, and
    images from `repository_arn`, possibly of another account; by default from all of their own. Without a NAT gateway
    the resolver answers only needed names, unless `dns_firewall` is false. Flow logs are kept unless `flow_logs` is
    false.
    """

    cidr: str
    region: str
    zones: list[str]
    egress: Egress
    head: NotRequired[HeadPortsArgs | None]
    slurm: NotRequired[SlurmPortsArgs | None]
    s3_bucket_arns: NotRequired[list[pulumi.Input[str]] | None]
    repository_arn: NotRequired[pulumi.Input[str] | None]
    dns_firewall: NotRequired[bool]
    flow_logs: NotRequired[bool]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


@dataclass(frozen=True)
class NetworkPlan:
    """Address ranges: one private subnet a zone and a small public one for the NAT gateway."""

    private_cidrs: tuple[str, ...]
    public_cidr: str


def plan_network(cidr: str, num_zones: int, place: str = "gangway:network.cidr") -> NetworkPlan:
    """One eighth of `cidr` a zone, the NAT gateway's small subnet from the last. InputError: no private /16 to /20."""
    network = private_network(cidr, place)
    *private, last = network.subnets(prefixlen_diff=3)
    return NetworkPlan(tuple(str(subnet) for subnet in private[:num_zones]), str(next(last.subnets(prefixlen_diff=4))))


class TrainingNetwork(pulumi.ComponentResource):
    """A VPC with private subnets, routes, and the security group for EFA. `private_subnet_ids` wait for the routes, so
    that machines have them all their life. `head_security_group_id` and `private_zone_id` are empty without a head
    node.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]

    def __init__(self, name: str, args: TrainingNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:TrainingNetwork", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plan = plan_network(args["cidr"], len(args["zones"]))
        self._vpc = ec2.Vpc(
            f"{name}-vpc",
            cidr_block=args["cidr"],
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tags("vpc"),
            opts=self._child,
        )
        routes = ec2.RouteTable(f"{name}-private", vpc_id=self._vpc.id, tags=self._tags("private"), opts=self._child)
        subnets, way_out = self._private_subnets(plan, routes)
        groups = self._security_groups()
        way_out.append(self._endpoint("s3", "Gateway", route_table_ids=[routes.id], policy=self._s3_policy()))
        if args["egress"] == Egress.NAT:
            way_out += self._nat(plan, routes)
        else:
            way_out += self._interface_endpoints(subnets, groups["endpoints"])
            way_out += self._dns_firewall()
        if args.get("flow_logs", True):
            self._flow_logs()
        nothing = pulumi.Output.from_input("")
        self.vpc_id = self._vpc.id
        self.private_subnet_ids = after(pulumi.Output.all(*[subnet.id for subnet in subnets]), *way_out)
        self.fabric_security_group_id = groups["fabric"]
        self.head_security_group_id = groups.get("head", nothing)
        self.private_zone_id = self._zone() if self._has_head else nothing
        register_outputs(self)

    @property
    def _has_head(self) -> bool:
        return any(self._args.get(kind) is not None for kind in ("head", "slurm"))

    def _tags(self, suffix: str) -> dict[str, str]:
        return {**self._args["tags"], "Name": f"{self._name}-{suffix}"}

    def _private_subnets(
        self, plan: NetworkPlan, routes: ec2.RouteTable
    ) -> tuple[list[ec2.Subnet], list[pulumi.CustomResource]]:
        subnets: list[ec2.Subnet] = []
        ties: list[pulumi.CustomResource] = []
        for zone, cidr in zip(self._args["zones"], plan.private_cidrs, strict=True):
            subnet = ec2.Subnet(
                f"{self._name}-private-{zone}",
                vpc_id=self._vpc.id,
                cidr_block=cidr,
                availability_zone=zone,
                map_public_ip_on_launch=False,
                tags=self._tags(f"private-{zone}"),
                opts=self._child,
            )
            tie = ec2.RouteTableAssociation(
                f"{self._name}-private-{zone}", subnet_id=subnet.id, route_table_id=routes.id, opts=self._child
            )
            subnets.append(subnet)
            ties.append(tie)
        return subnets, ties

    def _security_groups(self) -> dict[str, pulumi.Output[str]]:
        """Our groups, and the VPC's default group without rules: whatever uses it reaches nothing. The ids are known
        only once all rules exist: an earlier file system or node would fail.
        """
        ec2.DefaultSecurityGroup(
            f"{self._name}-default", vpc_id=self._vpc.id, tags=self._tags("default"), opts=self._child
        )
        endpoints = self._args["egress"] != Egress.NAT
        flows = plan_flows(self._args["cidr"], self._args.get("head"), endpoints, self._args.get("slurm"))
        return declare_groups(self._name, self._vpc.id, flows, self._args["tags"], self._child)

    def _flow_logs(self) -> None:
        label, args, tags, child = f"{self._name}-flow-logs", self._args, self._args["tags"], self._child
        key = args.get("kms_key_arn")
        group = cloudwatch.LogGroup(label, retention_in_days=KEPT_DAYS, kms_key_id=key, tags=tags, opts=child)
        trusted = group.arn.apply(lambda arn: delivery_trust(get_account(arn), args["region"]))
        role, _ = declare_role(label, trusted, group.arn.apply(delivery_policy), tags, child)
        ec2.FlowLog(
            label,
            vpc_id=self._vpc.id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=AGGREGATION_SEC,
            tags=self._tags("flow-logs"),
            opts=child,
        )

    def _zone(self) -> pulumi.Output[str]:
        args = self._args
        return declare_zone(self._name, self._vpc.id, args["region"], args["tags"], self._child)

    def _s3_policy(self) -> pulumi.Output[str] | None:
        region, arns = self._args["region"], self._args.get("s3_bucket_arns")
        if arns is None:
            return None
        known = pulumi.Output.all(self._vpc.arn, *arns)
        policy = known.apply(lambda known: s3_endpoint_policy(region, known[1:], get_account(known[0])))
        return pulumi.Output.json_dumps(policy)

    def _endpoint_policy(self, service: str) -> pulumi.Output[str]:
        known = pulumi.Output.all(self._vpc.arn, self._args.get("repository_arn"))
        return pulumi.Output.json_dumps(
            known.apply(lambda arns: endpoint_policy(service, get_account(arns[0]), arns[1]))
        )

    def _interface_endpoints(
        self, subnets: list[ec2.Subnet], security_group_id: pulumi.Output[str]
    ) -> list[ec2.VpcEndpoint]:
        return [
            self._endpoint(
                service,
                "Interface",
                subnet_ids=[subnet.id for subnet in subnets],
                security_group_ids=[security_group_id],
                private_dns_enabled=True,
                policy=self._endpoint_policy(service),
            )
            for service in ENDPOINT_SERVICES
        ]

    def _dns_firewall(self) -> list[pulumi.CustomResource]:
        if not self._args.get("dns_firewall", True):
            return []
        zone = zone_name(self._name) if self._has_head else None
        answered = answered_names(self._args["region"], self._args["cidr"], zone)
        return [declare_dns_firewall(self._name, self._vpc.id, answered, self._args["tags"], self._child)]

    def _endpoint(
        self,
        service: str,
        kind: str,
        *,
        route_table_ids: list[pulumi.Output[str]] | None = None,
        subnet_ids: list[pulumi.Output[str]] | None = None,
        security_group_ids: list[pulumi.Output[str]] | None = None,
        private_dns_enabled: bool | None = None,
        policy: pulumi.Output[str] | None = None,
    ) -> ec2.VpcEndpoint:
        return ec2.VpcEndpoint(
            f"{self._name}-{service}",
            vpc_id=self._vpc.id,
            service_name=f"com.amazonaws.{self._args['region']}.{service}",
            vpc_endpoint_type=kind,
            route_table_ids=route_table_ids,
            subnet_ids=subnet_ids,
            security_group_ids=security_group_ids,
            private_dns_enabled=private_dns_enabled,
            policy=policy,
            tags=self._tags(service),
            opts=self._child,
        )

    def _nat(self, plan: NetworkPlan, routes: ec2.RouteTable) -> list[pulumi.CustomResource]:
        name, tags, child = self._name, self._tags("nat"), self._child
        gateway = ec2.InternetGateway(f"{name}-nat", vpc_id=self._vpc.id, tags=tags, opts=child)
        public = ec2.Subnet(
            f"{name}-nat",
            vpc_id=self._vpc.id,
            cidr_block=plan.public_cidr,
            availability_zone=self._args["zones"][0],
            map_public_ip_on_launch=False,
            tags=tags,
            opts=child,
        )
        outside = ec2.RouteTable(f"{name}-nat", vpc_id=self._vpc.id, tags=tags, opts=child)
        tie = ec2.RouteTableAssociation(f"{name}-nat", subnet_id=public.id, route_table_id=outside.id, opts=child)
        to_internet = ec2.Route(
            f"{name}-nat-out",
            route_table_id=outside.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=child,
        )
        # Neither refers to the internet gateway, yet AWS refuses both until it is attached.
        attached = pulumi.ResourceOptions(parent=self, depends_on=[gateway])
        address = ec2.Eip(f"{name}-nat", domain="vpc", tags=tags, opts=attached)
        nat = ec2.NatGateway(f"{name}-nat", allocation_id=address.id, subnet_id=public.id, tags=tags, opts=attached)
        to_nat = ec2.Route(
            f"{name}-private-out",
            route_table_id=routes.id,
            destination_cidr_block="0.0.0.0/0",
            nat_gateway_id=nat.id,
            opts=child,
        )
        return [tie, to_internet, to_nat]


# Egress of an AWS network without a NAT gateway: its endpoints, their policies, and the names its resolver answers.

ENDPOINT_SERVICES: Mapping[str, str] = {
    "autoscaling": "a node's word about itself to its group",
    "ec2messages": "Session Manager",
    "ecr.api": "login for the image pull",
    "ecr.dkr": "the image pull; its layers come from S3",
    "logs": "Docker's log driver",
    "ssm": "Session Manager, and the keys of a stack",
    "ssmmessages": "Session Manager",
}
"""The services that machines call, each by an interface endpoint billed per hour, and their uses.

S3 has a free gateway endpoint. Not EC2: only Prometheus on the head node calls it, and runs only with a NAT gateway,
since its image is outside AWS. Not KMS: S3 and EBS call it themselves.
"""

EVERYTHING = "*."
# The first position of a VPC's rule groups: AssociateFirewallRuleGroup takes values between 100 and 9900.
PRIORITY = 101


def endpoint_policy(service: str, account: str, repository_arn: str | None = None) -> dict[str, Any]:
    """The policy of an interface endpoint: the calls that our machines' roles allow, by identities of `account` on
    resources of `account`. `repository_arn`: the only source of images, possibly of another account; None for all of
    the account's.

    An endpoint's policy grants nothing: it is the upper limit. AWS's examples restrict both ends by these keys
    (aws-samples/data-perimeter-policy-examples, vpc_endpoint_policies); ECR's user guide has one policy for both of its
    endpoints ("Create a VPC endpoint policy for your Amazon ECR VPC endpoints"); Systems Manager's three have one in
    awslabs/landing-zone-accelerator-on-aws. aws:ResourceAccount is checked only for actions with a resource: IAM's user
    guide promises it for "most".
    """
    own = {"aws:PrincipalAccount": account}
    both = {**own, "aws:ResourceAccount": account}
    prefix = f"{service.partition('.')[0]}:"
    # These name no resource: they act in the caller's own account.
    statements = [_pass("OwnCallers", [action for action in OPEN_RESOURCES if action.startswith(prefix)], "*", own)]
    match service:
        case "autoscaling":
            statements.append(_pass("OwnGroups", [*GROUP_ACTIONS, LEAVE_ACTION], "*", both))
        case "ssm":
            keys = [f"arn:*:ssm:*:{account}:parameter{parameter_name('*', what)}" for what in KEY_USES]
            statements.append(_pass("StackKeys", KEY_ACTIONS, keys, both))
        case "logs":
            statements.append(_pass("OwnLogs", LOG_ACTIONS, "*", both))
        case "ecr.api" | "ecr.dkr" if repository_arn is None:
            statements.append(_pass("OwnImages", PULL_ACTIONS, "*", both))
        case "ecr.api" | "ecr.dkr":
            statements.append(_pass("OneRepository", PULL_ACTIONS, repository_arn, own))
    return document([statement for statement in statements if statement["Action"]])


def s3_endpoint_policy(region: str, bucket_arns: list[str], account: str) -> dict[str, Any]:
    """Open the S3 gateway to `account`'s identities for these buckets of its own, and to everybody, read-only, for
    AWS's buckets that a machine reads without our identities: ECR's layers by presigned links, and Amazon Linux 2023's
    packages with the Lustre client. Bucket and role policies decide the rest.
    """
    buckets = f"arn:{partition_in(region)}:s3:::"
    own = {"aws:PrincipalAccount": account, "aws:ResourceAccount": account}
    ours = [part for arn in bucket_arns for part in (arn, f"{arn}/*")]
    return document(
        [
            _pass("OurBuckets", ["s3:*"], ours, own),
            _pass("ImageLayers", ["s3:GetObject"], f"{buckets}prod-{region}-starport-layer-bucket/*"),
            _pass("Packages", ["s3:GetObject"], f"{buckets}al2023-repos-{region}-de612dc2/*"),
        ]
    )


def _pass(sid: str, actions: Sequence[str], resource: Any, equal: Mapping[str, str] | None = None) -> Statement:
    condition = {"StringEquals": dict(equal)} if equal else None
    return {**allow(sid, list(actions), resource, condition), "Principal": "*"}


def answered_names(region: str, cidr: str, zone: str | None) -> tuple[str, ...]:
    """The names that machines may look up, for DNS Firewall, with the root's dot (without it every refresh finds a
    difference: hashicorp/terraform-provider-aws#23543): endpoints, S3 and FSx in `region`, the machines, and their
    private `zone` if any. AWS answers them all, so no query reaches a name server of a third party.
    """
    suffix = f"{region}.{dns_suffix(region)}"
    # `ecr.dkr` is the endpoint's service and `dkr.ecr` the host's name, which begins with the account.
    hosts = [".".join(reversed(service.split("."))) for service in ENDPOINT_SERVICES]
    own = ["*.dkr.ecr" if host == "dkr.ecr" else host for host in hosts]
    # Amazon Linux fetches its packages by the dual-stack name.
    own += ["s3", "*.s3", "*.s3.dualstack", "*.fsx"]
    inside = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    high, low, *_ = str(IPv4Network(cidr).network_address).split(".")
    names = [
        *(f"{host}.{suffix}" for host in own),
        # Older AWS command lines use this for that region's S3.
        *(["s3.amazonaws.com", "*.s3.amazonaws.com"] if region == "us-east-1" else []),
        f"*.{inside}",
        f"*.{low}.{high}.in-addr.arpa",
        *([] if zone is None else [f"*.{zone}"]),
    ]
    return tuple(f"{name}." for name in names)


def declare_dns_firewall(
    name: str,
    vpc_id: pulumi.Input[str],
    answered: Sequence[str],
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> pulumi.CustomResource:
    """Have the VPC's resolver answer only these names; nothing if the firewall fails. Returns what a machine awaits."""
    group = route53.ResolverFirewallRuleGroup(f"{name}-dns", tags={**tags, "Name": f"{name}-dns"}, opts=opts)
    rules: list[pulumi.CustomResource] = []
    for priority, (key, domains) in enumerate({"answered": list(answered), "refused": [EVERYTHING]}.items(), 1):
        label, refused = f"{name}-dns-{key}", key == "refused"
        listed = route53.ResolverFirewallDomainList(label, domains=domains, tags={**tags, "Name": label}, opts=opts)
        rule = route53.ResolverFirewallRule(
            label,
            firewall_rule_group_id=group.id,
            firewall_domain_list_id=listed.id,
            priority=priority * 100,
            action="BLOCK" if refused else "ALLOW",
            block_response="NXDOMAIN" if refused else None,
            # If an AWS name is an alias of another AWS name, that is AWS's choice.
            firewall_domain_redirection_action=None if refused else "TRUST_REDIRECTION_DOMAIN",
            opts=opts,
        )
        rules.append(rule)
    # With the second rule alone nothing would be answered.
    whole: pulumi.Output[str] = after(group.id, *rules)
    return route53.ResolverFirewallRuleGroupAssociation(
        f"{name}-dns",
        firewall_rule_group_id=whole,
        vpc_id=vpc_id,
        priority=PRIORITY,
        tags={**tags, "Name": f"{name}-dns"},
        opts=opts,
    )
