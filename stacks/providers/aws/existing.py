"""Resources that exist already: facts about them, and what must be true of them. `up` and `gangway preflight` look the
facts up, each in its own way, and judge them here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from gangway.components.aws.launch import plan_interfaces
from gangway.components.aws.network import ANYWHERE, ENDPOINT_SERVICES, LUSTRE_PORTS, RulePlan, plan_flows, plan_rules
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.stacks.base.shared import head_host
from gangway.stacks.config.sections import StorageConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.plan import AwsPlan, get_head_ports
from gangway.stacks.providers.aws.settings import EXISTING, ExistingConfig, arn_parts, get_existing

_EVERY_PORT = (0, 65535)
WEB_PORT = 443  # of AWS's APIs


@dataclass(frozen=True)
class VpcFacts:
    """A network. `endpoint_services`: short names, such as `ecr.api`, of its endpoints that are available."""

    owner: str
    cidrs: tuple[str, ...]
    dns_support: bool
    dns_hostnames: bool
    endpoint_services: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SubnetFacts:
    """A subnet. `default_route`: id of what 0.0.0.0/0 leads to; empty without such a route."""

    zone: str
    vpc_id: str
    free_addresses: int
    default_route: str


@dataclass(frozen=True)
class RuleFacts:
    """A rule of a security group. `ports`: None for all; `peer`: a group, an address range or a prefix list."""

    direction: str
    protocol: str
    ports: tuple[int, int] | None
    peer: str


@dataclass(frozen=True)
class GroupFacts:
    """A security group."""

    vpc_id: str
    rules: tuple[RuleFacts, ...]


@dataclass(frozen=True)
class ZoneFacts:
    """A Route 53 zone."""

    name: str
    is_private: bool


@dataclass(frozen=True)
class KeyFacts:
    """A KMS key. `state` and `use`: in AWS's words."""

    state: str
    spec: str
    use: str


@dataclass(frozen=True)
class ProfileFacts:
    """An instance profile's role. `trust`: its trust policy, JSON; empty without a role."""

    role: str
    trust: str


@dataclass(frozen=True)
class RepositoryFacts:
    """An ECR repository. `is_fixed`: whether it refuses to move a tag to another image."""

    is_fixed: bool


@dataclass(frozen=True)
class FileSystemFacts:
    """A file system. `kind`, `state` and `deployment`: in AWS's words; `links`: paths on it, with their buckets;
    `rules`: of the groups of its servers.
    """

    kind: str
    state: str
    vpc_id: str
    mount_name: str
    capacity_gib: int
    deployment: str
    throughput_mbps_per_tib: int | None
    has_efa: bool
    links: Mapping[str, str]
    rules: tuple[RuleFacts, ...]


@dataclass(frozen=True)
class Facts:
    """What a cloud answers about the provided resources. `subnets` by zone, `groups` by `fabric` or `head`, `profiles`
    by `node` or `head`; `bucket_region`: of the run bucket.
    """

    account: str
    vpc: VpcFacts | None = None
    subnets: Mapping[str, SubnetFacts] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    zone: ZoneFacts | None = None
    key: KeyFacts | None = None
    profiles: Mapping[str, ProfileFacts] = field(default_factory=dict)
    repository: RepositoryFacts | None = None
    bucket_region: str | None = None


def problems(config: StackConfig, planned: AwsPlan, facts: Facts) -> Iterator[InputError]:
    """Everything that is not as the stack needs it."""
    existing = get_existing(config)
    yield from account_problems(existing, facts.account)
    if facts.vpc is not None:
        yield from vpc_problems(config, planned, facts.vpc, facts.account)
    for zone, subnet in facts.subnets.items():
        yield from subnet_problems(config, planned, zone, subnet)
    if facts.vpc is not None and facts.subnets:
        yield from endpoint_problems(config, facts.vpc, facts.subnets)
    for role, group in facts.groups.items():
        yield from group_problems(config, planned, role, group)
    if facts.zone is not None:
        yield from zone_problems(config, facts.zone)
    if facts.key is not None:
        yield from key_problems(existing, facts.key)
    for role, profile in facts.profiles.items():
        yield from profile_problems(existing, role, profile)
    if facts.repository is not None:
        yield from repository_problems(existing, facts.repository)
    if facts.bucket_region is not None:
        yield from bucket_problems(config, facts.bucket_region)


def problem(key: str, value: object, found: str, allowed: str, fix: str) -> InputError:
    """A provided resource that is not as the stack needs it."""
    return InputError(f"{EXISTING}.{key}", found, value=value, allowed=allowed, fix=fix)


def account_problems(existing: ExistingConfig, account: str) -> Iterator[InputError]:
    """ARNs of another account than the caller's."""
    for key, arn in existing.arns().items():
        if (its_account := arn_parts(arn)[1]) != account:
            yield problem(
                key,
                arn,
                f"it is in account {its_account}, and the stack in {account}",
                f"an ARN of account {account}",
                f"name one of {account}, or log in to {its_account}",
            )


def vpc_problems(config: StackConfig, planned: AwsPlan, vpc: VpcFacts, account: str) -> Iterator[InputError]:
    """DNS, and who may give the head its name.

    Route 53 developer guide, "Considerations when working with a private hosted zone": both attributes must be true.
    """
    existing = get_existing(config)
    attributes = {"enableDnsSupport": vpc.dns_support, "enableDnsHostnames": vpc.dns_hostnames}
    if missing := [name for name, is_on in attributes.items() if not is_on]:
        option = "--enable-dns-support" if missing[0] == "enableDnsSupport" else "--enable-dns-hostnames"
        yield problem(
            "vpc_id",
            existing.vpc_id,
            f"{' and '.join(missing)} is off: machines find neither each other nor AWS's endpoints by name",
            "a VPC with enableDnsSupport and enableDnsHostnames",
            f"aws ec2 modify-vpc-attribute --vpc-id {existing.vpc_id} {option}",
        )
    if planned.head and existing.private_zone_id is None and vpc.owner != account:
        yield problem(
            "vpc_id",
            existing.vpc_id,
            f"account {vpc.owner} owns it: {account} cannot create a private zone in it for the head's name",
            "a VPC of the stack's account, or private_zone_id",
            f"add private_zone_id: a zone that holds {head_host(config)} and is associated with the VPC",
        )


def needed_addresses(config: StackConfig, planned: AwsPlan, zone: str) -> int:
    """Addresses in the subnet of `zone`. EFA-only interfaces have none (EC2 user guide, "Elastic Fabric Adapter")."""
    interfaces = plan_interfaces(planned.machine)
    per_node = max(1, sum(interface.interface_type != "efa-only" for interface in interfaces))
    head = planned.head and zone == planned.zones[0]
    return config.cluster.nodes.max * per_node + head


def subnet_problems(config: StackConfig, planned: AwsPlan, zone: str, subnet: SubnetFacts) -> Iterator[InputError]:
    """Network, zone, free addresses and the way out of one subnet."""
    existing, key = get_existing(config), f"subnets.{zone}"
    value, region = existing.subnets[zone], config.region
    if subnet.vpc_id != existing.vpc_id:
        allowed = f"a subnet of {existing.vpc_id}"
        yield problem(key, value, f"it is in {subnet.vpc_id}", allowed, f"name {allowed}")
    if subnet.zone != zone:
        yield problem(
            key,
            value,
            f"it is in {subnet.zone}",
            f"a subnet in {zone}",
            f"write it as {subnet.zone}, and name a subnet of {zone}",
        )
    needed = needed_addresses(config, planned, zone)
    if subnet.free_addresses < needed:
        yield problem(
            key,
            value,
            f"{subnet.free_addresses} of its addresses are free, and the stack needs {needed}",
            f"at least {needed} free addresses",
            "name a larger subnet, or set a smaller gangway:cluster.nodes.max",
        )
    if config.network.egress is Egress.NAT:
        yield from _way_out(key, value, subnet, f"aws ec2 describe-route-tables --region {region}")


def _way_out(key: str, value: str, subnet: SubnetFacts, listing: str) -> Iterator[InputError]:
    allowed = "a subnet whose route table leads 0.0.0.0/0 to a NAT gateway, a transit gateway or a firewall"
    if not subnet.default_route:
        yield problem(
            key,
            value,
            "its route table has no route for 0.0.0.0/0: machines reach neither packages nor AWS",
            allowed,
            f"add the route ({listing} shows them), or set gangway:network.egress: endpoints",
        )
    elif subnet.default_route.startswith("igw-"):
        yield problem(
            key,
            value,
            f"0.0.0.0/0 leads to {subnet.default_route}, through which only machines with public addresses get out",
            allowed,
            "name a private subnet: the stack's machines have no public addresses",
        )


def endpoint_problems(config: StackConfig, vpc: VpcFacts, subnets: Mapping[str, SubnetFacts]) -> Iterator[InputError]:
    """Without another way out, machines need an endpoint for each service that they call."""
    if config.network.egress is not Egress.ENDPOINTS or all(subnet.default_route for subnet in subnets.values()):
        return
    missing = sorted({"s3", *ENDPOINT_SERVICES} - vpc.endpoint_services)
    if missing:
        existing = get_existing(config)
        yield problem(
            "vpc_id",
            existing.vpc_id,
            f"it has no endpoint for {', '.join(missing)}, and its subnets have no route for 0.0.0.0/0",
            f"endpoints for s3, {', '.join(ENDPOINT_SERVICES)}; or a way out to the internet",
            f"aws ec2 create-vpc-endpoint --vpc-id {existing.vpc_id} --service-name "
            f"com.amazonaws.{config.region}.{missing[0]}",
        )


def needed_rules(config: StackConfig, planned: AwsPlan) -> tuple[RulePlan, ...]:
    """The rules that the stack's own groups would have."""
    ports = get_head_ports(config, planned)
    return plan_rules(plan_flows("", ports.job, endpoints=False, slurm=ports.slurm))


def group_problems(config: StackConfig, planned: AwsPlan, role: str, group: GroupFacts) -> Iterator[InputError]:
    """Network and rules of a security group."""
    existing, key = get_existing(config), f"security_groups.{role}"
    assert existing.security_groups is not None, "its facts were looked up"
    value = str(getattr(existing.security_groups, role))
    if group.vpc_id != existing.vpc_id:
        allowed = f"a group of {existing.vpc_id}"
        yield problem(key, value, f"it is in {group.vpc_id}", allowed, f"name {allowed}")
    ids = {"fabric": existing.security_groups.fabric, "head": existing.security_groups.head or ""}
    lacking = [
        rule
        for rule in needed_rules(config, planned)
        if rule.group == role and not any(_allows(given, rule, ids) for given in group.rules)
    ]
    if lacking:
        yield problem(
            key,
            value,
            f"it does not allow {'; '.join(_rule_text(rule, ids) for rule in lacking)}",
            "a group with these rules, or none: the stack then creates its own",
            "add the rules, or remove security_groups",
        )


def _allows(given: RuleFacts, rule: RulePlan, ids: Mapping[str, str]) -> bool:
    """Whether a rule is enough. EFA needs the group itself as peer, even beside a rule for 0.0.0.0/0 (EC2 user guide,
    "Prepare an EFA-enabled security group"). Of the way out, HTTPS is enough: who owns the network limits the rest.
    """
    if given.direction != rule.direction:
        return False
    if rule.peer == ANYWHERE:
        return given.protocol in ("-1", "tcp") and _covers(given.ports, (WEB_PORT, WEB_PORT))
    if given.protocol not in ("-1", rule.protocol):
        return False
    if rule.protocol != "-1" and not _covers(given.ports, (rule.from_port or 0, rule.to_port or 0)):
        return False
    return given.peer == ids[rule.peer] or (rule.name != "self" and _is_range(given.peer))


def _covers(given: tuple[int, int] | None, needed: tuple[int, int]) -> bool:
    first, last = given or _EVERY_PORT
    return first <= needed[0] and needed[1] <= last


def _is_range(peer: str) -> bool:
    """Whether a peer is a range of private addresses, which hold the stack's machines."""
    try:
        network = ip_network(peer)
    except ValueError:
        return False
    return network.is_private or network.prefixlen == 0


def _rule_text(rule: RulePlan, ids: Mapping[str, str]) -> str:
    what = "all traffic" if rule.from_port is None else f"{rule.protocol} {rule.from_port} to {rule.to_port}"
    if rule.peer == ANYWHERE:
        what = f"tcp {WEB_PORT}"
    peer = rule.peer if rule.peer == ANYWHERE else f"{ids[rule.peer]} ({rule.peer})"
    return f"{what} {'from' if rule.direction == 'ingress' else 'to'} {peer}"


def zone_problems(config: StackConfig, zone: ZoneFacts) -> Iterator[InputError]:
    """Whether a private zone can hold the head's name."""
    host, name = head_host(config), zone.name.rstrip(".")
    if not zone.is_private or not host.endswith(f".{name}"):
        yield problem(
            "private_zone_id",
            get_existing(config).private_zone_id,
            f"it is the {'private' if zone.is_private else 'public'} zone {name}",
            f"a private zone that holds {host}",
            f"name one called {host.partition('.')[2]} or gangway.internal, associated with the VPC",
        )


def key_problems(existing: ExistingConfig, key: KeyFacts) -> Iterator[InputError]:
    """Whether services can encrypt with the key."""
    wanted = KeyFacts("Enabled", "SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT")
    if key != wanted:
        yield problem(
            "kms_key_arn",
            existing.kms_key_arn,
            f"it is {key.state}, {key.spec}, for {key.use}",
            f"{wanted.state}, {wanted.spec}, for {wanted.use}",
            "enable it, or name another key",
        )


def profile_problems(existing: ExistingConfig, role: str, profile: ProfileFacts) -> Iterator[InputError]:
    """Whether EC2 may give a machine the profile's role."""
    key, value = f"instance_profiles.{role}", getattr(existing.instance_profiles, role)
    if not profile.role:
        yield problem(
            key, value, "it has no role", "a profile with a role", "aws iam add-role-to-instance-profile adds one"
        )
    elif not _trusts_ec2(profile.trust):
        yield problem(
            key,
            value,
            f"its role {profile.role} does not trust EC2: no machine gets its permissions",
            "a role that ec2.amazonaws.com may assume",
            f"aws iam update-assume-role-policy --role-name {profile.role}, with the principal ec2.amazonaws.com",
        )


def _trusts_ec2(trust: str) -> bool:
    statements = json.loads(trust)["Statement"]
    for statement in [statements] if isinstance(statements, dict) else statements:
        principal = statement.get("Principal")
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        names = [services] if isinstance(services, str) else services
        if statement["Effect"] == "Allow" and any(name.startswith("ec2.amazonaws.com") for name in names):
            return True
    return False


def repository_problems(existing: ExistingConfig, repository: RepositoryFacts) -> Iterator[InputError]:
    """Whether `up` can push: its build cache and content tags move."""
    if repository.is_fixed:
        yield problem(
            "repository_arn",
            existing.repository_arn,
            "its tags are immutable: the second `up` could not push its build cache",
            "a repository with mutable tags",
            "aws ecr put-image-tag-mutability --image-tag-mutability MUTABLE, or set gangway:image.prebuilt",
        )


def bucket_problems(config: StackConfig, region: str) -> Iterator[InputError]:
    """The region of the run bucket: machines reach only their own region's S3 without a NAT gateway."""
    if region != config.region:
        yield problem(
            "run_bucket",
            get_existing(config).run_bucket,
            f"it is in {region}, and the stack in {config.region}",
            f"a bucket in {config.region}",
            f"name a bucket of {config.region}",
        )


def file_system_problems(config: StackConfig, planned: AwsPlan, found: FileSystemFacts) -> Iterator[InputError]:
    """State, network, ports and links of the file system, and whether `gangway:storage` describes it."""
    existing, storage = get_existing(config), config.storage
    given = existing.file_system
    assert given is not None, "its facts were looked up"
    assert storage is not None, "the loader requires it"
    if (found.kind, found.state) != ("LUSTRE", "AVAILABLE"):
        yield problem(
            "file_system.id",
            given.id,
            f"it is {found.kind}, {found.state}",
            "a file system of FSx for Lustre that is available",
            "wait until it is available, or name another one",
        )
    if found.vpc_id != existing.vpc_id:
        allowed = f"a file system in {existing.vpc_id}"
        yield problem("file_system.id", given.id, f"it is in {found.vpc_id}", allowed, f"name {allowed}")
    if found.mount_name != given.mount_name:
        yield problem(
            "file_system.mount_name",
            given.mount_name,
            f"its mount name is {found.mount_name}",
            found.mount_name,
            f"set mount_name: {found.mount_name}",
        )
    yield from _described(storage, found)
    yield from _reachable(config, planned, found)
    if storage.source is not None and found.links.get("/data", "").rstrip("/") != storage.source.rstrip("/"):
        linked = ", ".join(f"{path} to {bucket}" for path, bucket in found.links.items()) or "nothing"
        yield InputError(
            "gangway:storage.source",
            f"the file system links {linked}: nodes would not find the data",
            value=storage.source,
            allowed="the bucket that the file system links to /data",
            fix=f"aws fsx create-data-repository-association --file-system-id {given.id} --file-system-path /data",
        )


def _described(storage: StorageConfig, found: FileSystemFacts) -> Iterator[InputError]:
    """Values of `gangway:storage` that the file system does not have: the plan's figures would be wrong."""
    deployment = "scratch" if found.deployment.startswith("SCRATCH") else "persistent"
    described: list[tuple[str, object, object]] = [
        ("capacity_gib", storage.capacity_gib, found.capacity_gib),
        ("deployment", storage.deployment.value, deployment),
        ("efa", storage.efa, found.has_efa),
    ]
    if storage.throughput_mbps_per_tib is not None:
        described.append(("throughput_mbps_per_tib", storage.throughput_mbps_per_tib, found.throughput_mbps_per_tib))
    for name, written, its in described:
        if written != its:
            yield InputError(
                f"gangway:storage.{name}",
                f"the file system that exists has {its}",
                value=written,
                allowed=str(its),
                fix=f"set {name}: {str(its).lower()}",
            )


def _reachable(config: StackConfig, planned: AwsPlan, found: FileSystemFacts) -> Iterator[InputError]:
    """The ports of the file system's own groups, for each group of ours that is known and mounts it."""
    groups = get_existing(config).security_groups
    if groups is None:
        return
    clients = {"fabric": groups.fabric}
    if groups.head is not None and any(rule.name in LUSTRE_PORTS for rule in needed_rules(config, planned)):
        clients["head"] = groups.head
    for role, group in clients.items():
        wanted = [RulePlan(role, "ingress", name, role, "tcp", *ports) for name, ports in LUSTRE_PORTS.items()]
        lacking = [rule for rule in wanted if not any(_allows(given, rule, clients) for given in found.rules)]
        if lacking:
            yield problem(
                "file_system",
                group,
                f"the file system's groups do not allow {'; '.join(_rule_text(rule, clients) for rule in lacking)}",
                "TCP 988 and 1018 to 1023 from the nodes and the head",
                "add the rules to a group of the file system's network interfaces",
            )


def raise_problems(found: Iterable[InputError]) -> None:
    """ExceptionGroup: all of them, if there are any."""
    if errors := list(found):
        raise ExceptionGroup("provided resources", errors)
