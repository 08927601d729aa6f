"""Existing resources that a stack on Google Cloud uses: their names, and mistakes in the stack file."""

from collections.abc import Iterator

from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.findings import InputError
from gangway.components.gcp.fabric import MAIN, plan_interfaces
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.settings import ExistingConfig, GcpConfig

PATH = "gangway:gcp.existing"
MULTI_REGIONS = ("us", "europe", "asia")


def get_existing(config: StackConfig) -> ExistingConfig:
    """The section, empty by default."""
    return config.section(GcpConfig).existing


def provided(config: StackConfig) -> dict[str, str]:
    """Config path -> full name of each existing resource, without what only describes a network."""
    existing = get_existing(config)
    names = {
        "network": existing.network,
        "subnetwork": existing.subnetwork,
        **{f"fabric_subnetworks[{at}]": rail.subnetwork for at, rail in enumerate(existing.fabric_subnetworks)},
        "file_system": existing.file_system,
        "kms_key": existing.kms_key,
        **{f"service_accounts.{key}": email for key, email in existing.accounts.items()},
        "repository": existing.repository,
        "run_bucket": existing.run_bucket,
        "log_bucket": existing.log_bucket,
    }
    return {f"{PATH}.{key}": name for key, name in names.items() if name is not None}


def mistakes(config: StackConfig) -> Iterator[InputError]:
    """What is wrong with the section by itself and next to the rest of the file."""
    existing = get_existing(config)
    yield from _missing_parts(config, existing)
    yield from _other_places(config, existing)
    yield from _other_projects(config, existing)
    yield from _contradictions(config, existing)


def _missing_parts(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    """Keys that need another one."""
    kubernetes = config.engine.kind == "kubernetes"
    lustre = config.storage is not None and config.storage.kind == "lustre"
    needs = {
        "network": ("subnetwork", existing.subnetwork),
        "subnetwork": ("network", existing.network),
        "fabric_subnetworks": ("network", existing.network),
        "network_tags": ("network", existing.network),
        "services_cidr": ("network", existing.network),
        "pods_range": ("services_range", existing.services_range),
        "services_range": ("pods_range", existing.pods_range),
    }
    for key, (needed, value) in needs.items():
        if getattr(existing, key) and value is None:
            yield _missing(needed, f"it is required with {key}", f"add {needed}, or leave {key} out")
    if kubernetes and existing.network is not None and existing.pods_range is None:
        allowed = "it is required with engine.kind: kubernetes and an existing network, with services_range"
        fix = "add pods_range and services_range, the names of two secondary ranges of the subnetwork"
        yield _missing("pods_range", allowed, fix)
    if not kubernetes and existing.pods_range is not None:
        yield InputError(
            f"{PATH}.pods_range",
            "of no effect without Kubernetes",
            value=existing.pods_range,
            allowed="only with engine.kind: kubernetes",
            fix="leave pods_range and services_range out",
        )
    if lustre and existing.network is not None and existing.services_cidr is None:
        allowed = "it is required with a Lustre file system, whose servers call the machines back"
        fix = "add services_cidr: 10.60.0.0/20, with the range of the network's private services access"
        yield _missing("services_cidr", allowed, fix)


def _missing(key: str, allowed: str, fix: str) -> InputError:
    return InputError(f"{PATH}.{key}", "missing", allowed=allowed, fix=fix)


def _other_places(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    """Names that contain another region than the stack's."""
    region = config.region
    rails = {f"fabric_subnetworks[{at}].subnetwork": one for at, one in enumerate(existing.fabric_subnetworks)}
    names: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "subnetwork": (existing.subnetwork, (region,)),
        **{key: (rail.subnetwork, (region,)) for key, rail in rails.items()},
        "kms_key": (existing.kms_key, (region,)),
        "repository": (existing.repository, (region, *MULTI_REGIONS)),
        "log_bucket": (existing.log_bucket, (region, "global")),
    }
    for key, (name, allowed) in names.items():
        if name is not None and name.split("/")[3] not in allowed:
            yield _elsewhere(config, key, name, f"a name with {' or '.join(allowed)}")
    zone = "" if existing.file_system is None else existing.file_system.split("/")[3]
    if zone and not zone.startswith(f"{region}-"):
        yield _elsewhere(config, "file_system", str(existing.file_system), f"an instance in a zone of {region}")


def _elsewhere(config: StackConfig, key: str, name: str, allowed: str) -> InputError:
    return InputError(
        f"{PATH}.{key}",
        f"in another place than the stack, which is in {config.region}",
        value=name,
        allowed=allowed,
        fix=f"name one in {config.region}, or set gangway:region to its region",
    )


def _other_projects(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    """Names in a project from which the stack cannot use them."""
    project, host = config.section(GcpConfig).project, existing.host_project
    names: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "subnetwork": (existing.subnetwork, (host,)),
        "file_system": (existing.file_system, (project, host)),
        "log_bucket": (existing.log_bucket, (project,)),
    }
    for at, rail in enumerate(existing.fabric_subnetworks):
        names[f"fabric_subnetworks[{at}].network"] = (rail.network, (project, host))
        names[f"fabric_subnetworks[{at}].subnetwork"] = (rail.subnetwork, (rail.network.split("/")[1],))
    found = {key: (name, name.split("/")[1], allowed) for key, (name, allowed) in names.items() if name is not None}
    found |= {
        f"service_accounts.{key}": (email, email.partition("@")[2].partition(".")[0], (project,))
        for key, email in existing.accounts.items()
    }
    for key, (name, owner, allowed) in found.items():
        if owner not in allowed and allowed != ("",):
            yield InputError(
                f"{PATH}.{key}",
                f"in project {owner}, from which the stack cannot use it",
                value=name,
                allowed=f"one in project {' or '.join(dict.fromkeys(filter(None, allowed)))}",
                fix=f"name one in {allowed[0]}",
            )


def _contradictions(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    """Keys that contradict others of the file."""
    storage, shared = config.storage, existing.host_project not in ("", config.section(GcpConfig).project)
    if existing.file_system is not None and storage is None:
        yield InputError(
            f"{PATH}.file_system",
            "gangway:storage must describe it",
            value=existing.file_system,
            allowed="only with gangway:storage, which has its kind and capacity_gib",
            fix="add gangway:storage: {kind: filestore, capacity_gib: 2560}, with the instance's values",
        )
    if existing.kms_key is not None and config.encryption != "customer-key":
        yield InputError(
            f"{PATH}.kms_key",
            "of no effect with Google's own keys",
            value=existing.kms_key,
            allowed="only with gangway:encryption: customer-key",
            fix="set gangway:encryption: customer-key",
        )
    if existing.run_bucket is not None and not config.work.keep_runs:
        setting = "gangway:job.keep_runs" if config.job is not None else "gangway:engine.keep_runs"
        yield InputError(
            setting,
            f"`destroy` never empties an existing bucket ({PATH}.run_bucket)",
            value=False,
            allowed="true with an existing bucket",
            fix=f"set {setting}: true",
        )
    if existing.repository is not None and config.ready_image is not None:
        yield InputError(
            f"{PATH}.repository",
            "of no effect, as the image exists already",
            value=existing.repository,
            allowed="only without a ready image, for the one that `up` builds",
            fix="leave repository out",
        )
    # Filestore documentation, "Architecture": service projects cannot create instances on a shared VPC network.
    if storage is not None and storage.kind == "filestore" and shared and existing.file_system is None:
        yield InputError(
            f"{PATH}.file_system",
            "missing: a service project cannot create a Filestore instance in a Shared VPC",
            allowed="an instance that the host project's administrator made",
            fix=f"add file_system: projects/{existing.host_project}/locations/{config.region}-a/instances/NAME",
        )


def check_fabric(config: StackConfig, machine: GcpMachineType | None) -> None:
    """InputError: not one subnetwork for each GPU NIC, or not in the networks that the NICs need. `machine`: None for
    slices, which have no further NICs.
    """
    existing, interfaces = get_existing(config), () if machine is None else plan_interfaces(machine)[1:]
    name = "a host of a slice" if machine is None else machine.name
    rails, place = existing.fabric_subnetworks, f"{PATH}.fabric_subnetworks"
    if existing.network is None:
        return
    if len(rails) != len(interfaces):
        raise InputError(
            place,
            f"{name} has {len(interfaces)} network interfaces besides the first one",
            value=f"{len(rails)} subnetworks",
            allowed=f"{len(interfaces)}, each with its network, in the order of the interfaces",
            fix="leave fabric_subnetworks out" if not interfaces else f"name {len(interfaces)} subnetworks",
        )
    by_name, by_network = {MAIN: existing.network}, {existing.network: MAIN}
    for at, (rail, interface) in enumerate(zip(rails, interfaces, strict=True)):
        joins = by_name.setdefault(interface.network, rail.network) == rail.network
        if not joins or by_network.setdefault(rail.network, interface.network) != interface.network:
            raise InputError(
                f"{place}[{at}].network",
                f"interface {interface.index} of {name} cannot be in this network",
                value=rail.network,
                allowed="one network for all MRDMA NICs, and a separate one for each gVNIC",
                fix="name another network" if joins else f"name {by_name[interface.network]}",
            )


def check_kubernetes(config: StackConfig) -> None:
    """InputError: GPU NICs in networks of a host project, whose names GKE's network objects do not hold."""
    existing = get_existing(config)
    project = config.section(GcpConfig).project
    for at, rail in enumerate(existing.fabric_subnetworks):
        if rail.network.split("/")[1] != project:
            raise InputError(
                f"{PATH}.fabric_subnetworks[{at}].network",
                "with Kubernetes, networks of GPU NICs in a host project are not supported so far",
                value=rail.network,
                allowed=f"a network of {project}",
                fix=f"name one of {project}",
            )
