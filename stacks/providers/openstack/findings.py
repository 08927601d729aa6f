"""What a person should know before `up` on OpenStack: what it cannot do, and every automatic choice with its reason.
What is about the site is `components.catalog.site`'s; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.catalog.site import site_findings
from components.core.capacity import Reservation
from components.core.fields import Egress
from components.core.findings import Finding
from components.estimate.cost import CostEstimate
from components.openstack.capacity import LADDER, RESERVED_FLAVOUR
from components.openstack.machine_secrets import VALID_HOURS
from stacks.base.command_nodes import rendezvous_findings
from stacks.base.shared import get_site
from stacks.config.stack_config import StackConfig
from stacks.estimates import provider_findings
from stacks.estimates.common_findings import common_findings
from stacks.estimates.provider_findings import CLUSTER
from stacks.providers.openstack.plan import OpenstackPlan, fabric_min_gbps, get_section

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
        *_encryption(config),
        *_identity(config),
        *_secrets(config),
        *provider_findings.member_key_refreshed(config, has_key=planned.member_key),
        *rendezvous_findings(config),
        *_lines(config, planned),
        *_money(config),
    )


def _fabric(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    """Where the adapters come from, and the test before the job."""
    if planned.rdma_ports:
        yield Finding.info(
            "fabric.sr-iov",
            f"{_PLACE}.rdma_network_id",
            f"{planned.rdma_ports} SR-IOV ports a node: Neutron puts no firewall before them, so everybody on that "
            "network reaches the nodes by it",
            "use a network that only this project's machines are on",
        )
    elif planned.fabric.num_devices:
        yield Finding.info(
            "fabric.by-flavour",
            "gangway:site.fabric",
            f"the flavour has to bring {planned.fabric.num_devices} adapters a node, by an alias for PCI passthrough",
            f"ask your administrator, or write {_PLACE}.rdma_network_id to have SR-IOV ports made",
        )
    least = fabric_min_gbps(config, planned)
    yield from provider_findings.ignored_check(config, least, f"{planned.machine.name}, without a fabric,")
    yield from provider_findings.fabric_check(config, least)


def _placement(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    """Reservation or server group: who decides which hosts."""
    own, nodes, rung = get_section(config), config.cluster.nodes, config.cluster.capacity[0]
    if isinstance(rung, Reservation):
        yield Finding.warning(
            "capacity.lease-ends",
            f"{LADDER}[0]",
            "when the lease of a reservation ends Blazar deletes the nodes, without notice to the job: what was "
            "trained since the last checkpoint is lost; and before the lease begins `up` fails",
            "have gangway:job.max_hours end before the lease does",
        )
        if not planned.machine.name.startswith(RESERVED_FLAVOUR):
            yield Finding.info(
                "capacity.reserved-hosts",
                f"{LADDER}[0].id",
                f"taken for a reservation of hosts, on which {planned.machine.name} is to run: Nova is told its id",
                f"of a reserved flavour write machine_type: {RESERVED_FLAVOUR}{rung.id}",
            )
        if "placement" in own.model_fields_set:
            yield Finding.warning(
                "placement.ignored",
                f"{_PLACE}.placement",
                f"{own.placement} is of no effect: a reservation's hosts are chosen already",
                "remove placement",
            )
        return
    if own.placement == "affinity" and nodes.max > 1:
        yield Finding.warning(
            "placement.one-host",
            f"{_PLACE}.placement",
            f"affinity has all {nodes.max} nodes on one host: `up` fails where the flavour takes most of a host",
            "set placement: soft-affinity, which asks for as few hosts as possible",
        )
    if nodes.min < nodes.max:
        yield Finding.info(
            "capacity.all-or-none",
            f"{CLUSTER}.nodes",
            f"`up` makes all {nodes.max} nodes or fails: nothing in OpenStack makes more of them later; once they are "
            f"there the job goes on with {nodes.min}",
        )


def _image(config: StackConfig) -> Iterable[Finding]:
    own, release = get_section(config), " 580 or later" if config.trains else ""
    yield Finding.info(
        "image.own",
        f"{_PLACE}.image",
        f"{own.image} has to bring NVIDIA's driver{release}, its container toolkit and cloud-init; what it lacks a "
        "node finds out at boot, and stops",
        "build it once, for example with diskimage-builder, and name it by its version",
    )


def _egress(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    if config.network.egress is Egress.ENDPOINTS:
        yield Finding.info(
            "network.no-packages",
            "gangway:network.egress",
            "machines reach the cloud's own services alone, so docker and the share's client have to be in their images"
            + (
                ", and nobody fetches Prometheus"
                if planned.head and config.trains and config.head.prometheus_image
                else ""
            ),
            "set egress: nat where an image lacks them",
        )
    yield from provider_findings.ways_out(
        config,
        {
            "by DNS": "the network's resolvers answer what they like",
            "into any project's containers": "service_cidrs says where a service is, and not whose",
        },
    )


def _storage(config: StackConfig) -> Iterable[Finding]:
    own, storage = get_section(config), config.storage
    if storage is None:
        return
    if own.share_protocol == "NFS" and not own.share_network:
        yield Finding.info(
            "storage.by-router",
            f"{_PLACE}.share_network",
            "the share's server is taken to be outside the stack's network: it admits the router's address, behind "
            "which all machines of this stack are, and nobody else",
            "set share_network: true where the share type's driver handles share servers",
        )
    if own.share_protocol == "CEPHFS":
        yield Finding.info(
            "storage.ceph-reached",
            f"{_PLACE}.share_protocol",
            "machines speak to Ceph's monitors and servers themselves, whose network the router has to lead to",
        )


def _encryption(config: StackConfig) -> Iterable[Finding]:
    own = get_section(config)
    disks = f"volumes of type {own.volume_type}" if own.boot == "volume" and own.volume_type else None
    yield Finding.info(
        "encryption.not-known",
        f"{_PLACE}.volume_type",
        f"whether {disks or 'disks'}, share and run container are encrypted at rest, the cloud does not say to a "
        "project's member: keys are its administrator's, in Barbican or in Ceph",
        "" if disks else "for encrypted disks write boot: volume and a volume_type of which your administrator says so",
    )


def _identity(config: StackConfig) -> Iterable[Finding]:
    own = get_section(config)
    if own.access_rules:
        yield Finding.info(
            "identity.access-rules",
            f"{_PLACE}.access_rules",
            "machines put runs with a credential that opens the run container alone, as Keystone knows it from Train "
            "on and Swift heeds it with service_type set; Ceph's object gateway refuses such a credential",
            "where records do not arrive, see docs/private-cloud.md; access_rules: false restricts it to "
            f"the role {own.object_role}",
        )
    else:
        yield Finding.warning(
            "identity.whole-project",
            f"{_PLACE}.access_rules",
            f"machines hold a credential that may do whatever the role {own.object_role} may do in the whole project, "
            "and root on a machine can read it",
            "set access_rules: true where the object store is Swift, or write an object_role that opens nothing else",
        )


def _secrets(config: StackConfig) -> Iterable[Finding]:
    """How machines have what their user data do not say."""
    if get_section(config).temp_url_key is None:
        yield Finding.info(
            "secrets.by-swift",
            f"{_PLACE}.temp_url_key",
            f"machines fetch their secrets by a URL in their metadata, for {VALID_HOURS} hours after an `up`; in Swift "
            "a container has a key for such URLs, in Ceph's object gateway only an account",
            "behind Ceph's gateway write the account's Temp-URL-Key here, see docs/private-cloud.md",
        )


def _lines(config: StackConfig, planned: OpenstackPlan) -> Iterable[Finding]:
    """Where to look, where nobody keeps lines."""
    scraped = planned.member_key and config.head.prometheus_image is not None and config.network.egress is Egress.NAT
    yield Finding.info(
        "observe.no-logs",
        "gangway:observe",
        "OpenStack has no log service and sends no alarms: what machines say is in their journals and on their "
        f"consoles{'; Prometheus on the head keeps the figures' if scraped else ''}",
        "read `openstack console log show NODE`, NODE being one of the export group_names",
    )


def _money(config: StackConfig) -> Iterable[Finding]:
    """No budget; and nodes that stay."""
    hours = config.work.max_hours
    yield Finding.warning(
        "budget.not-enforced",
        "gangway:budget",
        "OpenStack has no budget: CloudKitty rates what was used, where a cloud has it, and neither mails nor stops; "
        f"{config.budget.monthly_usd:,.2f} USD is compared with the plan alone, and nobody is written to",
        f"the job is stopped after max_hours, {hours:g} h; destroy the stack then",
    )
    if config.work.terminate_when_done:
        yield Finding.info(
            "job.nodes-stay",
            "gangway:job.terminate_when_done",
            "machines shut themselves down when the job is done, the head when its hours are over; they stay "
            "allocated, and count against the quota, for a machine may not delete itself",
            "destroy the stack then",
        )
    else:
        yield from provider_findings.nodes_stay(config, can_leave=False)
