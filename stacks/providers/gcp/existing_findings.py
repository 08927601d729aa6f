"""Findings about the existing resources of a stack on Google Cloud: which it uses, and what they must allow."""

from collections.abc import Iterable, Iterator, Sequence

from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding
from gangway.components.gcp.existing import existing_flows
from gangway.components.gcp.fabric import MAIN
from gangway.components.gcp.gke import NODE_ROLE
from gangway.components.gcp.identity import (
    DATA_READER,
    GROUP_PERMISSIONS,
    IMAGE_READER,
    KEY_USER,
    PROJECT_ROLES,
    RUN_WRITER,
    get_bucket,
    head_permissions,
    key_users,
    node_permissions,
)
from gangway.components.gcp.network import ROLES, Flow, network_tag
from gangway.stacks.config.sections import NetworkConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import PATH, get_existing, provided
from gangway.stacks.providers.gcp.existing_outputs import existing_network_args
from gangway.stacks.providers.gcp.plan import GcpPlan, imports, key_services
from gangway.stacks.providers.gcp.settings import GcpConfig


def existing_findings(config: StackConfig, planned: GcpPlan) -> Iterator[Finding]:
    """Nothing without existing resources."""
    if names := provided(config):
        yield Finding.info(
            "existing.provided",
            PATH,
            f"used as they are, not created, labelled, deleted or in the estimate: {', '.join(names.values())}",
        )
    yield from _network(config, planned)
    yield from _file_system(config, planned)
    yield from _key(config, planned)
    yield from _buckets(config, planned)
    yield from _accounts(config, planned)


def _network(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    existing = get_existing(config)
    if existing.network is None:
        return
    for name, field in NetworkConfig.model_fields.items():
        if name in ("cidr", "flow_logs") and getattr(config.network, name) != field.get_default():
            path, why = f"gangway:network.{name}", "the existing subnetwork has its own"
            yield Finding.warning("existing.ignored-setting", path, f"no effect: {why}", f"remove {name}")
    yield Finding.info(
        "existing.checked-live",
        f"{PATH}.network",
        "only `gangway preflight` checks routes, Cloud NAT, MTU, firewall rules and free addresses; `up` checks that "
        f"the subnetworks exist, belong together and are large enough{_unchecked(config)}",
        f"gangway preflight {config.stack_name}",
    )
    given = [flow for flow, network in flows(config, planned) if not is_made(config, network)]
    rules = dict.fromkeys(_describe(config, flow) for flow in given)
    if rules:
        yield Finding.info(
            "existing.network-owner",
            f"{PATH}.network_tags" if existing.network_tags is not None else f"{PATH}.network",
            f"the stack makes no firewall rules there; existing ones must allow: {'; '.join(rules)}",
            "name network tags of such rules, or have rules made for those of the stack",
        )
    if existing.host_project != planned.project:
        yield from _host_project(config, planned)


def _unchecked(config: StackConfig) -> str:
    if config.network.egress is not Egress.ENDPOINTS:
        return ""
    return ". Not checked: DNS must lead the names of googleapis.com and pkg.dev to restricted.googleapis.com"


def flows(config: StackConfig, planned: GcpPlan) -> tuple[tuple[Flow, str], ...]:
    """The connections that rules must allow in the existing networks, each with its network."""
    args = existing_network_args(config, planned)
    machine = planned.gpu_machine if planned.tpu is None else None
    fabric = args["fabric_network_ids"]
    return existing_flows(machine, planned.zone, args["network"], fabric, args["head"], args["services_cidr"])


def machine_tags(config: StackConfig) -> dict[str, str]:
    """Role -> network tag of its machines."""
    tags = get_existing(config).network_tags
    if tags is None:
        return {role: network_tag(config.stack, role) for role in ROLES}
    return {"fabric": tags.fabric, "head": tags.head or tags.fabric}


def is_made(config: StackConfig, network: str) -> bool:
    """Whether the stack makes the firewall rules of this network."""
    own = network.startswith(f"projects/{config.section(GcpConfig).project}/")
    return own and get_existing(config).makes_rules


def _describe(config: StackConfig, flow: Flow) -> str:
    tags = machine_tags(config)
    ports = f" {', '.join(map(str, flow.ports))}" if flow.ports else ""
    where = "" if flow.network == MAIN else " in the networks of the other interfaces"
    return f"{flow.protocol}{ports} from {tags.get(flow.source, flow.source)} to {tags[flow.target]}{where}"


def _host_project(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """VPC documentation, "Provisioning Shared VPC": service project admins and the service accounts that act for them.
    Cloud DNS documentation, "Cross-project binding zones".
    """
    existing = get_existing(config)
    agents = ["NUMBER@cloudservices.gserviceaccount.com"]
    if planned.standing:
        agents.append(
            "service-NUMBER@container-engine-robot.iam.gserviceaccount.com (also "
            "Host Service Agent User, and Security Admin for its firewall rules)"
        )
    if planned.queues_slices:
        agents.append("service-NUMBER@cloud-tpu.iam.gserviceaccount.com")
    dns = (
        f", and dns.networks.bindPrivateDNSZone (roles/dns.admin) on {existing.host_project} for the head's name"
        if planned.head
        else ""
    )
    yield Finding.info(
        "existing.host-project",
        f"{PATH}.network",
        f"{existing.host_project} must share the subnetworks: roles/compute.networkUser for the user who runs `up` "
        f"and for {' and '.join(agents)} of {planned.project}{dns}",
        "ask the host project's administrator",
    )
    if config.section(GcpConfig).service_perimeter is not None:
        yield Finding.warning(
            "existing.perimeter",
            "gangway:gcp.service_perimeter",
            f"{existing.host_project} has the machines' network, and must be in the same perimeter",
            "name a perimeter with both projects as existing",
        )


def _file_system(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    existing, storage = get_existing(config), config.storage
    if storage is None:
        return
    if existing.file_system is None:
        if existing.network is not None and storage.kind == "lustre":
            yield Finding.info(
                "existing.private-services",
                f"{PATH}.network",
                "Managed Lustre needs private services access in this network, which the stack does not set up; "
                "`gangway preflight` checks it",
            )
        return
    zone = existing.file_system.split("/")[3]
    if zone != planned.zone:
        yield Finding.warning(
            "existing.other-zone",
            f"{PATH}.file_system",
            f"in {zone}, but the nodes are in {planned.zone}: slower, and traffic between zones costs",
            f"set gangway:cluster.zone: {zone}",
        )


def _key(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    existing = get_existing(config)
    if existing.kms_key is not None:
        users = ", ".join(key_users(key_services(config, planned)))
        yield Finding.info(
            "existing.key-policy",
            f"{PATH}.kms_key",
            f"the stack does not change the key's policy: {KEY_USER} is needed there by the service agents of "
            f"{planned.project} for {users}; `gangway preflight` checks it",
            "ask the key's owner; without it `up` fails at the first encrypted resource",
        )


def _buckets(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    existing = get_existing(config)
    if (
        existing.log_bucket is not None
        and config.observe.log_days != type(config.observe).model_fields["log_days"].get_default()
    ):
        yield Finding.warning(
            "existing.ignored-setting",
            "gangway:observe.log_days",
            "no effect: the existing log bucket has its own retention",
            "remove log_days",
        )
    if existing.run_bucket is not None and existing.log_bucket is None and config.job is not None:
        yield Finding.warning(
            "existing.log-name",
            f"{PATH}.run_bucket",
            "the stack's log bucket takes its suffix from the run bucket, and Google reserves its name for a week: "
            "after `destroy`, `up` fails for so long",
            "name an existing log_bucket too",
        )
    shared = {"run_bucket": existing.run_bucket, "repository": existing.repository}
    if existing.service_accounts is not None:
        # The workflow that requests slices again has an account of the stack, and reads whether the job has ended.
        shared = {"run_bucket": existing.run_bucket if planned.queues_slices else None}
    if names := [key for key, name in shared.items() if name is not None]:
        yield Finding.info(
            "existing.policies",
            f"{PATH}.{names[0]}",
            f"the IAM policy of {' and '.join(names)} gets an entry for the stack's own service accounts, which "
            "`destroy` removes",
            "to leave it as it is, name service_accounts that have access",
        )


def _accounts(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    needs = {"nodes": node_needs, "head": head_needs}
    for key, email in get_existing(config).accounts.items():
        if key == "head" and not planned.head:
            yield Finding.warning(
                "existing.ignored-setting",
                f"{PATH}.service_accounts.head",
                "no effect: the stack has no head node",
                "remove service_accounts.head",
            )
            continue
        yield Finding.info(
            "existing.role-permissions",
            f"{PATH}.service_accounts.{key}",
            f"the stack gives {email} access only to what it makes itself. It needs besides: "
            f"{'; '.join(needs[key](config, planned))}. To run `up` you need roles/iam.serviceAccountUser on it",
            "ask its owner for these roles",
        )


def node_needs(config: StackConfig, planned: GcpPlan) -> list[str]:
    """Roles and permissions of an existing service account of the nodes."""
    if planned.standing:
        return [f"{NODE_ROLE} on {planned.project}", *_image_needs(config, planned)]
    leaves, storage = config.nodes_leave, config.storage
    permissions = node_permissions(releases_slices=leaves and planned.tpu is not None)
    if leaves and planned.tpu is None:
        permissions += GROUP_PERMISSIONS
    needs = _usual_needs(config, planned, permissions)
    if storage is not None and storage.source is not None and not imports(config, planned):
        needs.append(f"{DATA_READER} on gs://{get_bucket(storage.source)}")
    return needs


def head_needs(config: StackConfig, planned: GcpPlan) -> list[str]:
    """The same for the head node."""
    several = len(config.cluster.capacity) > 1
    permissions = head_permissions(fills_groups=several, imports=imports(config, planned))
    return _usual_needs(config, planned, permissions + (GROUP_PERMISSIONS if several else ()))


def _usual_needs(config: StackConfig, planned: GcpPlan, permissions: Sequence[str]) -> list[str]:
    bucket = get_existing(config).run_bucket
    return [
        *(f"{role} on {planned.project}" for role in PROJECT_ROLES),
        *_image_needs(config, planned),
        *([] if bucket is None else [f"{RUN_WRITER} on gs://{bucket}"]),
        *([f"{', '.join(permissions)} on {planned.project}"] if permissions else []),
    ]


def _image_needs(config: StackConfig, planned: GcpPlan) -> list[str]:
    repository = get_existing(config).repository or planned.repository_id
    return [] if repository is None else [f"{IMAGE_READER} on {repository}"]
