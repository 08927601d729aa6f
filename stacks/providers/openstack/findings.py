"""Findings of stacks on OpenStack. `gangway.components.catalog.site` has those about the site."""

from collections.abc import Iterable

from gangway.components.catalog.site import site_findings
from gangway.components.core.capacity import LADDER, Reservation
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostEstimate
from gangway.components.openstack.capacity import RESERVED_FLAVOUR
from gangway.components.openstack.machine_secrets import VALID_HOURS
from gangway.stacks.base.shared import get_site, rendezvous_findings
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates import provider_findings
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.provider_findings import CLUSTER
from gangway.stacks.providers.openstack.existing_findings import existing_findings
from gangway.stacks.providers.openstack.plan import OpenstackPlan, fabric_min_gbps, get_section

_PLACE = "gangway:openstack"


def findings(config: StackConfig, planned: OpenstackPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    return (
        *common_findings(config, planned.machine, cost),
        *site_findings(get_site(config), planned.machine),
        *(provider_findings.trainable if config.trains else provider_findings.runs_commands)(planned.machine),
        *_fabric(config, planned),
        *_placement(config, planned),
        *_image(config),
        *_egress(config, planned),
        *_storage(config),
        *existing_findings(config, planned),
        *_encryption(config),
        *_identity(config),
        *_secrets(config),
        *provider_findings.member_key_refreshed(config, has_key=planned.member_key),
        *rendezvous_findings(config),
        *_lines(config, planned),
        *_money(config),
    )


def _fabric(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    if planned.rdma_ports:
        yield Finding.info(
            "fabric.sr-iov",
            f"{_PLACE}.rdma_network_id",
            f"{planned.rdma_ports} SR-IOV ports per node: Neutron does not filter them, so every machine on that "
            "network can reach the nodes",
            "use a network with only this project's machines",
        )
    elif planned.fabric.num_devices:
        yield Finding.info(
            "fabric.by-flavour",
            "gangway:site.fabric",
            f"the flavour must provide {planned.fabric.num_devices} adapters per node, with an alias for PCI "
            "passthrough",
            f"ask your administrator, or set {_PLACE}.rdma_network_id for SR-IOV ports",
        )
    least = fabric_min_gbps(config, planned)
    yield from provider_findings.ignored_check(config, least, f"{planned.machine.name}, without a fabric,")
    yield from provider_findings.fabric_check(config, least)


def _placement(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    own, nodes, rung = get_section(config), config.cluster.nodes, config.cluster.capacity[0]
    if isinstance(rung, Reservation):
        yield Finding.warning(
            "capacity.lease-ends",
            f"{LADDER}[0]",
            "Blazar deletes the nodes at the end of the lease, without notice: the job loses its progress since the "
            "last checkpoint. Before the lease starts, `up` fails",
            "choose gangway:job.max_hours so that the job ends before the lease",
        )
        if not planned.machine.name.startswith(RESERVED_FLAVOUR):
            yield Finding.info(
                "capacity.reserved-hosts",
                f"{LADDER}[0].id",
                f"assumed to be a reservation of hosts for {planned.machine.name}: Nova gets its id",
                f"for a reserved flavour set machine_type: {RESERVED_FLAVOUR}{rung.id}",
            )
        if "placement" in own.model_fields_set:
            yield Finding.warning(
                "placement.ignored",
                f"{_PLACE}.placement",
                f"{own.placement} has no effect: the reservation determines the hosts",
                "remove placement",
            )
        return
    if own.placement == "affinity" and nodes.max > 1:
        yield Finding.warning(
            "placement.one-host",
            f"{_PLACE}.placement",
            f"affinity puts all {nodes.max} nodes on one host: `up` fails if they do not fit",
            "set placement: soft-affinity, which uses as few hosts as possible",
        )
    if nodes.min < nodes.max:
        yield Finding.info(
            "capacity.all-or-none",
            f"{CLUSTER}.nodes",
            f"`up` creates all {nodes.max} nodes or fails, since nothing in OpenStack adds nodes later; after that "
            f"the job continues with at least {nodes.min}",
        )


def _image(config: StackConfig) -> Iterable[Finding]:
    own, release = get_section(config), " 580 or later" if config.trains else ""
    yield Finding.info(
        "image.own",
        f"{_PLACE}.image",
        f"{own.image} must contain NVIDIA's driver{release}, its container toolkit and cloud-init: otherwise nodes "
        "stop at boot",
        "build it, for example with diskimage-builder, and put the version into its name",
    )


def _egress(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    if config.network.egress is Egress.ENDPOINTS:
        yield Finding.info(
            "network.no-packages",
            "gangway:network.egress",
            "machines reach only the cloud's services, so their images must contain docker and the share's client"
            + (
                "; Prometheus is not started" if planned.head and config.trains and config.head.prometheus_image else ""
            ),
            "set egress: nat if an image lacks them",
        )
    yield from provider_findings.ways_out(
        config,
        {
            "by DNS": "the network's resolvers may resolve every name",
            "into any project's containers": "service_cidrs selects a service, not a project",
        },
    )


def _storage(config: StackConfig) -> Iterable[Finding]:
    own, storage = get_section(config), config.storage
    if storage is None or own.existing.share_name is not None:
        return
    if own.share_protocol == "NFS" and not own.share_network:
        yield Finding.info(
            "storage.by-router",
            f"{_PLACE}.share_network",
            "the share's server is assumed to be outside the stack's network: it admits only the address of the "
            "router, which all machines of this stack share",
            "set share_network: true if the share type's driver handles share servers",
        )
    if own.share_protocol == "CEPHFS":
        yield Finding.info(
            "storage.ceph-reached",
            f"{_PLACE}.share_protocol",
            "machines connect to Ceph's monitors and servers: the router must reach their network",
        )


def _encryption(config: StackConfig) -> Iterable[Finding]:
    own = get_section(config)
    disks = f"volumes of type {own.volume_type}" if own.boot == "volume" and own.volume_type else None
    yield Finding.info(
        "encryption.not-known",
        f"{_PLACE}.volume_type",
        f"whether {disks or 'disks'}, share and run container are encrypted at rest is unknown: the administrator "
        "manages the keys, in Barbican or Ceph",
        "" if disks else "for encrypted disks set boot: volume and a volume_type that your administrator encrypts",
    )


def _identity(config: StackConfig) -> Iterable[Finding]:
    own = get_section(config)
    if own.existing.application_credential is not None:
        return
    if own.access_rules:
        yield Finding.info(
            "identity.access-rules",
            f"{_PLACE}.access_rules",
            "machines upload runs with a credential for the run container only, which needs Keystone from Train on, "
            "and Swift with service_type set; Ceph's object gateway refuses such credentials",
            "if records do not arrive, see docs/private-cloud.md; access_rules: false restricts it to the role "
            f"{own.object_role}",
        )
    else:
        yield Finding.warning(
            "identity.whole-project",
            f"{_PLACE}.access_rules",
            f"machines have a credential with all permissions of the role {own.object_role} in the whole project, and "
            "root on a machine can read it",
            "set access_rules: true if the object store is Swift, or set object_role to a role with no other "
            "permissions",
        )


def _secrets(config: StackConfig) -> Iterable[Finding]:
    if get_section(config).temp_url_key is None:
        yield Finding.info(
            "secrets.by-swift",
            f"{_PLACE}.temp_url_key",
            f"machines fetch their secrets from a URL in their metadata, within {VALID_HOURS} hours after `up`; Swift "
            "has a key for such URLs per container, Ceph's object gateway only per account",
            "with Ceph's gateway set this to the account's Temp-URL-Key, see docs/private-cloud.md",
        )


def _lines(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    scraped = planned.member_key and config.head.prometheus_image is not None and config.network.egress is Egress.NAT
    yield Finding.info(
        "observe.no-logs",
        "gangway:observe",
        "OpenStack has no log service and no alarms: logs are in the machines' journals and on their "
        f"consoles{'; metrics are in Prometheus on the head' if scraped else ''}",
        "run `openstack console log show NODE`, with NODE from the export group_names",
    )


def _money(config: StackConfig) -> Iterable[Finding]:
    hours = config.work.max_hours
    yield Finding.warning(
        "budget.not-enforced",
        "gangway:budget",
        f"OpenStack has no budgets, and CloudKitty neither notifies nor stops: {config.budget.monthly_usd:,.2f} USD "
        "is only compared with the plan, and no mails are sent",
        f"the job stops after max_hours, {hours:g} h; destroy the stack then",
    )
    if config.work.terminate_when_done:
        yield Finding.info(
            "job.nodes-stay",
            "gangway:job.terminate_when_done",
            "nodes shut down when the job is done, the head after max_hours; they stay allocated and count against "
            "the quota, since machines cannot delete themselves",
            "destroy the stack then",
        )
    else:
        yield from provider_findings.nodes_stay(config, can_leave=False)
