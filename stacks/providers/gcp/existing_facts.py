"""What must be true of existing resources on Google Cloud, by facts about them. Pure: `up` asks by Pulumi's functions,
`gangway preflight` by REST.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network

from gangway.components.catalog.schema import RoceFabric
from gangway.components.core.fields import Egress
from gangway.components.core.findings import InputError
from gangway.components.gcp.fabric import plan_fabric_networks, plan_interfaces
from gangway.components.gcp.gke_plan import POD_ADDRESSES, SYSTEM_NODES
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import PATH, get_existing
from gangway.stacks.providers.gcp.plan import GcpPlan

# VPC documentation, "Subnets": the first two and the last two addresses of a primary range cannot be used.
_UNUSABLE_ADDRESSES = 4
# Locations of buckets that contain regions (Cloud Storage documentation, "Bucket locations").
_BUCKET_MULTI_REGIONS: Mapping[str, str] = {"us": "US", "europe": "EU", "asia": "ASIA"}


@dataclass(frozen=True)
class SubnetworkFacts:
    """What the cloud knows about a subnetwork; None if unknown. `ranges`: secondary ones by name; `free_addresses`: of
    the primary range.
    """

    network: str | None = None
    cidr: str | None = None
    private_google_access: bool | None = None
    ranges: Mapping[str, str] | None = None
    free_addresses: int | None = None


@dataclass(frozen=True)
class NetworkFacts:
    """The same about a network. `profile`: of an RDMA network; `has_private_services`: whether it is connected to
    Google's managed services.
    """

    mtu_bytes: int | None = None
    profile: str | None = None
    has_private_services: bool | None = None


@dataclass(frozen=True)
class FileSystemFacts:
    """The same about a file system. `squashes_root`: whether the share maps root to another user."""

    network: str | None = None
    state: str | None = None
    capacity_gib: int | None = None
    throughput_mbps_per_tib: int | None = None
    squashes_root: bool = False


@dataclass(frozen=True)
class KeyFacts:
    """The same about a key. `state`: of its primary version."""

    purpose: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class RepositoryFacts:
    """The same about a repository."""

    format: str | None = None
    mode: str | None = None
    has_immutable_tags: bool = False


@dataclass(frozen=True)
class BucketFacts:
    """The same about a bucket. `retention_sec`: of its retention policy, 0 without one."""

    location: str | None = None
    retention_sec: int = 0


@dataclass(frozen=True)
class LogBucketFacts:
    """The same about a log bucket."""

    state: str | None = None
    days: int | None = None


@dataclass(frozen=True)
class Facts:
    """What the cloud says about the existing resources; unknown for what was not asked. `networks`, `subnetworks`: by
    full name; `disabled_accounts`: emails.
    """

    networks: Mapping[str, NetworkFacts] = field(default_factory=dict)
    subnetworks: Mapping[str, SubnetworkFacts] = field(default_factory=dict)
    file_system: FileSystemFacts = FileSystemFacts()
    key: KeyFacts = KeyFacts()
    disabled_accounts: frozenset[str] = frozenset()
    repository: RepositoryFacts = RepositoryFacts()
    bucket: BucketFacts = BucketFacts()
    log_bucket: LogBucketFacts = LogBucketFacts()


def full_name(link: str | None) -> str | None:
    """The full name in a link of Compute Engine.

    >>> full_name("https://www.googleapis.com/compute/v1/projects/p/global/networks/n")
    'projects/p/global/networks/n'
    """
    return link and link[link.index("projects/") :] if link and "projects/" in link else link


def problems(config: StackConfig, planned: GcpPlan, facts: Facts) -> Iterator[InputError]:
    """What must be different for the stack to work. Unknown facts are no problem."""
    yield from _subnetwork_problems(config, planned, facts)
    yield from _fabric_problems(config, planned, facts)
    yield from _file_system_problems(config, facts)
    yield from _key_problems(config, facts.key)
    yield from _bucket_problems(config, facts.bucket)
    yield from _repository_problems(config, facts.repository)
    yield from _log_problems(config, facts.log_bucket)
    yield from _account_problems(config, facts)


def _problem(key: str, value: object, problem: str, allowed: str, fix: str) -> InputError:
    return InputError(f"{PATH}.{key}", problem, value=value, allowed=allowed, fix=fix)


def num_addresses(planned: GcpPlan) -> int:
    """Addresses of the main subnetwork that the stack's machines need."""
    return planned.num_machines + (SYSTEM_NODES[1] if planned.standing else int(planned.head))


def _subnetwork_problems(config: StackConfig, planned: GcpPlan, facts: Facts) -> Iterator[InputError]:
    existing = get_existing(config)
    name = existing.subnetwork or ""
    known = facts.subnetworks.get(name, SubnetworkFacts())
    yield from _membership("subnetwork", name, existing.network, known)
    yield from _space("subnetwork", name, known, num_addresses(planned))
    if known.private_google_access is False and config.network.egress is Egress.ENDPOINTS:
        yield _problem(
            "subnetwork",
            name,
            "Private Google Access is off, so that machines without a way to the internet reach no API of Google",
            "a subnetwork with Private Google Access, with egress: endpoints",
            f"gcloud compute networks subnets update {_gcloud_place(name)} --enable-private-ip-google-access",
        )
    if existing.pods_range is None or known.ranges is None:
        return
    for key, least in (("pods_range", (planned.num_machines + SYSTEM_NODES[1]) * POD_ADDRESSES), ("services_range", 1)):
        yield from _range_problems(key, getattr(existing, key), known.ranges, least)


def _gcloud_place(subnetwork: str) -> str:
    """A subnetwork as arguments of gcloud."""
    _, project, _, region, _, name = subnetwork.split("/")
    return f"{name} --project {project} --region {region}"


def _membership(key: str, name: str, network: str | None, known: SubnetworkFacts) -> Iterator[InputError]:
    if known.network is not None and full_name(known.network) != network:
        yield _problem(
            key,
            name,
            f"in the network {full_name(known.network)}",
            f"a subnetwork of {network}",
            "name a subnetwork of that network, or the network of this one",
        )


def _space(key: str, name: str, known: SubnetworkFacts, needed: int) -> Iterator[InputError]:
    """Whether all machines fit. The range is known to `up`, the addresses in use only to `gangway preflight`."""
    usable = known.free_addresses
    if usable is None and known.cidr is not None:
        usable = ip_network(known.cidr).num_addresses - _UNUSABLE_ADDRESSES
    if usable is not None and usable < needed:
        yield _problem(
            key,
            name,
            f"{usable} addresses of {known.cidr or 'its range'} are free, but the machines need {needed}",
            f"at least {needed} free addresses, apart from those of this stack if it is up",
            "expand its range, name a larger subnetwork, or set a smaller gangway:cluster.nodes.max",
        )


def _range_problems(key: str, name: str, ranges: Mapping[str, str], least: int) -> Iterator[InputError]:
    if name not in ranges:
        yield _problem(
            key,
            name,
            "the subnetwork has no such secondary range",
            ", ".join(sorted(ranges)) or "none: it has no secondary range",
            "name one of these, or have its owner add it",
        )
    elif ip_network(ranges[name]).num_addresses < least:
        yield _problem(
            key,
            name,
            f"{ranges[name]} is too small",
            f"at least {least} addresses: {POD_ADDRESSES} per node",
            "name a larger range, or set a smaller gangway:cluster.nodes.max",
        )


def _fabric_problems(config: StackConfig, planned: GcpPlan, facts: Facts) -> Iterator[InputError]:
    rails = get_existing(config).fabric_subnetworks
    if not rails:
        return
    machine = planned.gpu_machine
    interfaces = plan_interfaces(machine)[1:]
    networks = {network.name: network for network in plan_fabric_networks(machine, planned.zone)}
    for at, (rail, interface) in enumerate(zip(rails, interfaces, strict=True)):
        key, wanted = f"fabric_subnetworks[{at}]", networks[interface.network]
        known = facts.subnetworks.get(rail.subnetwork, SubnetworkFacts())
        yield from _membership(f"{key}.subnetwork", rail.subnetwork, rail.network, known)
        yield from _space(f"{key}.subnetwork", rail.subnetwork, known, planned.num_machines)
        network = facts.networks.get(rail.network, NetworkFacts())
        if network.mtu_bytes is not None and network.mtu_bytes < wanted.mtu_bytes:
            yield _problem(
                f"{key}.network",
                rail.network,
                f"its MTU is {network.mtu_bytes} bytes, too small for the GPU NICs of {machine.name}",
                f"an MTU of {wanted.mtu_bytes}",
                "name another network: machines in one must stop for another MTU",
            )
        profile = (network.profile or "").rpartition("/")[2]
        if network.profile is not None and isinstance(machine.gpu_fabric, RoceFabric):
            yield from _profile_problems(f"{key}.network", rail.network, profile, wanted.profile or "")


def _profile_problems(key: str, network: str, profile: str, wanted: str) -> Iterator[InputError]:
    if profile != wanted:
        yield _problem(
            key,
            network,
            f"its network profile is {profile or 'none'}",
            f"the profile {wanted}" if wanted else "a network without a profile, for a gVNIC",
            "name another network: a profile cannot be changed",
        )


def _file_system_problems(config: StackConfig, facts: Facts) -> Iterator[InputError]:
    existing, storage, known = get_existing(config), config.storage, facts.file_system
    name = existing.file_system
    if name is None or storage is None:
        return
    if known.network is not None and existing.network is not None and not _same(known.network, existing.network):
        yield _problem(
            "file_system",
            name,
            f"in the network {full_name(known.network)}",
            f"one in {existing.network}, from which machines mount it",
            "name another instance, or that network",
        )
    if known.state not in (None, "ACTIVE", "READY"):
        yield _problem("file_system", name, f"its state is {known.state}", "ACTIVE or READY", "repair it, or wait")
    if known.squashes_root:
        fix = "have its owner set squash_mode: NO_ROOT_SQUASH for the machines' addresses"
        yield _problem("file_system", name, "its share maps root to another user", "a share without that", fix)
    for setting, found, written in (
        ("capacity_gib", known.capacity_gib, storage.capacity_gib),
        ("throughput_mbps_per_tib", known.throughput_mbps_per_tib, storage.throughput_mbps_per_tib),
    ):
        if found is not None and written not in (None, found):
            yield InputError(
                f"gangway:storage.{setting}",
                f"not that of the existing file system {name}",
                value=written,
                allowed=str(found),
                fix=f"set {setting}: {found}",
            )


def _same(network: str, wanted: str) -> bool:
    """Filestore may give the name only, if the network is in the instance's project."""
    return full_name(network) == wanted or network == wanted.rpartition("/")[2]


def _key_problems(config: StackConfig, known: KeyFacts) -> Iterator[InputError]:
    name = get_existing(config).kms_key
    if known.purpose not in (None, "ENCRYPT_DECRYPT"):
        yield _problem("kms_key", name, f"its purpose is {known.purpose}", "ENCRYPT_DECRYPT", "name a symmetric key")
    if known.state not in (None, "ENABLED"):
        fix = "enable its primary version, or name another key"
        yield _problem("kms_key", name, f"its primary version is {known.state}", "ENABLED", fix)


def _bucket_problems(config: StackConfig, known: BucketFacts) -> Iterator[InputError]:
    name, region = get_existing(config).run_bucket, config.region
    wide = next((name for place, name in _BUCKET_MULTI_REGIONS.items() if region.startswith(place)), "")
    if known.location is not None and known.location.upper() not in (region.upper(), wide):
        yield _problem(
            "run_bucket",
            name,
            f"in {known.location.lower()}, another place than the stack's",
            f"a bucket in {region}" + (f" or {wide}" if wide else ""),
            f"name a bucket in {region}",
        )
    if known.retention_sec:
        yield _problem(
            "run_bucket",
            name,
            f"it keeps every object for {known.retention_sec} s, but machines overwrite records",
            "a bucket without a retention policy",
            "name another bucket; versioning keeps what is overwritten",
        )


def _repository_problems(config: StackConfig, known: RepositoryFacts) -> Iterator[InputError]:
    name = get_existing(config).repository
    for what, found, wanted in (
        ("format", known.format, "DOCKER"),
        ("mode", known.mode, "STANDARD_REPOSITORY"),
    ):
        if found not in (None, wanted):
            fix = "name a standard Docker repository"
            yield _problem("repository", name, f"its {what} is {found}", wanted, fix)
    if known.has_immutable_tags:
        problem, fix = "its tags are immutable, but those of the build cache move", "name another repository"
        yield _problem("repository", name, problem, "a repository whose tags may move", fix)


def _log_problems(config: StackConfig, known: LogBucketFacts) -> Iterator[InputError]:
    name, days = get_existing(config).log_bucket, config.observe.log_days
    if known.state not in (None, "ACTIVE"):
        yield _problem("log_bucket", name, f"its state is {known.state}", "ACTIVE", "name another log bucket")
    if known.days is not None and known.days < days:
        yield InputError(
            "gangway:observe.log_days",
            f"the existing log bucket keeps lines for {known.days} days only",
            value=days,
            allowed=f"at most {known.days}",
            fix=f"set log_days: {known.days}",
        )


def _account_problems(config: StackConfig, facts: Facts) -> Iterator[InputError]:
    for key, email in get_existing(config).accounts.items():
        if email in facts.disabled_accounts:
            fix = f"gcloud iam service-accounts enable {email}"
            yield _problem(f"service_accounts.{key}", email, "it is disabled", "an enabled service account", fix)
