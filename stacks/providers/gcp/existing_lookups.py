"""Looks the existing resources of a stack up before its first resource, and refuses those that do not fit."""

from dataclasses import dataclass
from typing import TypeVar

import pulumi
import pulumi_gcp as gcp

from gangway.components.core.lookup import Lookup, look_up
from gangway.stacks.base.rule import UNKNOWN
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import PATH, get_existing
from gangway.stacks.providers.gcp.existing_facts import (
    BucketFacts,
    Facts,
    FileSystemFacts,
    KeyFacts,
    NetworkFacts,
    RepositoryFacts,
    SubnetworkFacts,
    problems,
)
from gangway.stacks.providers.gcp.plan import GcpPlan

T = TypeVar("T")


@dataclass(frozen=True)
class MountSource:
    """Where a file system is: its address, the share's name, and what clients mount."""

    address: str
    share: str
    mount_point: str


@dataclass(frozen=True)
class FoundExisting:
    """What the stack needs of the answers; UNKNOWN, or a reference, in an offline plan."""

    subnetwork_cidr: str
    mount: MountSource | None


def look_up_existing(config: StackConfig, planned: GcpPlan, provider: gcp.Provider) -> FoundExisting:
    """Asks for each existing resource. LookupFailedError: there is none, or no permission; ExceptionGroup of
    InputError: some do not fit.
    """
    ask, existing = _Requests(config, pulumi.InvokeOptions(provider=provider)), get_existing(config)
    rails = {f"fabric_subnetworks[{at}]": rail for at, rail in enumerate(existing.fabric_subnetworks)}
    # Backwards: of several NICs in one network the first is named.
    networks = {rail.network: f"{key}.network" for key, rail in reversed(rails.items())}
    subnetworks = {rail.subnetwork: f"{key}.subnetwork" for key, rail in rails.items()}
    if existing.network is not None and existing.subnetwork is not None:
        networks[existing.network], subnetworks[existing.subnetwork] = "network", "subnetwork"
    file_system, mount = ask.file_system(existing.file_system)
    facts = Facts(
        networks={name: ask.network(key, name) for name, key in networks.items()},
        subnetworks={name: ask.subnetwork(key, name) for name, key in subnetworks.items()},
        file_system=file_system,
        key=ask.key(existing.kms_key),
        disabled_accounts=ask.disabled_accounts(),
        repository=ask.repository(existing.repository),
        bucket=ask.bucket(existing.run_bucket),
    )
    if found := list(problems(config, planned, facts)):
        raise ExceptionGroup("existing resources do not fit", found)
    main = facts.subnetworks.get(existing.subnetwork or "", SubnetworkFacts())
    return FoundExisting(main.cidr or UNKNOWN, mount)


def _offline(value: T) -> T | None:
    """`value` as it is: None in an offline plan, though the SDK's types exclude that."""
    return value


def _number(text: str) -> int | None:
    return int(text) if _offline(text) is not None else None


@dataclass(frozen=True)
class _Requests:
    """One method per kind of resource, without facts if the stack file names none."""

    config: StackConfig
    opts: pulumi.InvokeOptions

    def _lookup(self, key: str, name: str, permission: str) -> Lookup:
        project = name.split("/")[1] if name.startswith("projects/") else "the cloud"
        place = project if project == "the cloud" else f"project {project}"
        fix = f"correct {PATH}.{key}: it must exist, and the user who runs `up` needs {permission} on it"
        return Lookup(f"the existing {name}", place, f"{PATH}.{key}", fix)

    def network(self, key: str, name: str) -> NetworkFacts:
        lookup = self._lookup(key, name, "compute.networks.get")
        _, project, *_, short = name.split("/")
        found = look_up(lookup, gcp.compute.get_network, name=short, project=project, opts=self.opts)
        return NetworkFacts(profile=None if _offline(found.self_link) is None else found.network_profile or "")

    def subnetwork(self, key: str, name: str) -> SubnetworkFacts:
        lookup = self._lookup(key, name, "compute.subnetworks.get")
        _, project, _, region, _, short = name.split("/")
        function = gcp.compute.get_subnetwork
        found = look_up(lookup, function, name=short, project=project, region=region, opts=self.opts)
        ranges = _offline(found.secondary_ip_ranges)
        return SubnetworkFacts(
            network=found.network,
            cidr=found.ip_cidr_range,
            private_google_access=found.private_ip_google_access,
            ranges=None if ranges is None else {one.range_name: one.ip_cidr_range for one in ranges},
        )

    def file_system(self, name: str | None) -> tuple[FileSystemFacts, MountSource | None]:
        if name is None or self.config.storage is None:
            return FileSystemFacts(), None
        return self._lustre(name) if self.config.storage.kind == "lustre" else self._filestore(name)

    def _lustre(self, name: str) -> tuple[FileSystemFacts, MountSource]:
        lookup = self._lookup("file_system", name, "lustre.instances.get")
        _, project, _, zone, _, short = name.split("/")
        function = gcp.lustre.get_instance
        found = look_up(lookup, function, instance_id=short, project=project, zone=zone, opts=self.opts)
        address, _, share = found.mount_point.partition("@tcp:/")
        facts = FileSystemFacts(
            network=found.network,
            state=found.state,
            capacity_gib=_number(found.capacity_gib),
            throughput_mbps_per_tib=_number(found.per_unit_storage_throughput),
        )
        return facts, MountSource(address, share, found.mount_point)

    def _filestore(self, name: str) -> tuple[FileSystemFacts, MountSource]:
        lookup = self._lookup("file_system", name, "file.instances.get")
        _, project, _, zone, _, short = name.split("/")
        function = gcp.filestore.get_instance
        found = look_up(lookup, function, name=short, project=project, location=zone, opts=self.opts)
        if _offline(found.networks) is None:
            return FileSystemFacts(), MountSource(UNKNOWN, UNKNOWN, UNKNOWN)
        network, share = found.networks[0], found.file_shares[0]
        facts = FileSystemFacts(
            network=network.network,
            capacity_gib=share.capacity_gb,
            squashes_root=any(option.squash_mode == "ROOT_SQUASH" for option in share.nfs_export_options),
        )
        address = network.ip_addresses[0]
        return facts, MountSource(address, share.name, f"{address}:/{share.name}")

    def key(self, name: str | None) -> KeyFacts:
        if name is None:
            return KeyFacts()
        lookup, (ring, _, short) = self._lookup("kms_key", name, "cloudkms.cryptoKeys.get"), name.rsplit("/", 2)
        found = look_up(lookup, gcp.kms.get_kms_crypto_key, key_ring=ring, name=short, opts=self.opts)
        return KeyFacts(found.purpose, next((version.state for version in found.primaries or ()), None))

    def disabled_accounts(self) -> frozenset[str]:
        emails = get_existing(self.config).accounts
        return frozenset(email for key, email in emails.items() if self._is_disabled(key, email))

    def _is_disabled(self, key: str, email: str) -> bool:
        lookup = self._lookup(f"service_accounts.{key}", email, "iam.serviceAccounts.get")
        return look_up(lookup, gcp.serviceaccount.get_account, account_id=email, opts=self.opts).disabled is True

    def repository(self, name: str | None) -> RepositoryFacts:
        if name is None:
            return RepositoryFacts()
        lookup = self._lookup("repository", name, "artifactregistry.repositories.get")
        _, project, _, location, _, short = name.split("/")
        function = gcp.artifactregistry.get_repository
        found = look_up(lookup, function, repository_id=short, project=project, location=location, opts=self.opts)
        immutable = any(docker.immutable_tags for docker in found.docker_configs or ())
        return RepositoryFacts(found.format, found.mode, immutable)

    def bucket(self, name: str | None) -> BucketFacts:
        if name is None:
            return BucketFacts()
        lookup = self._lookup("run_bucket", name, "storage.buckets.get")
        found = look_up(lookup, gcp.storage.get_bucket, name=name, opts=self.opts)
        kept_sec = max((int(policy.retention_period) for policy in found.retention_policies or ()), default=0)
        return BucketFacts(found.location, kept_sec)
