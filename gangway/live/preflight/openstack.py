"""Checks of a stack on OpenStack: limits, flavours, images, networks, zone, volume and share types."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Check, NoAnswerError, Result, compare_quota
from gangway.live.preflight.openstack_existing import Get, existing_checks
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.program import get_program
from gangway.stacks.providers.openstack.plan import OpenstackPlan
from gangway.stacks.providers.openstack.settings import OpenstackConfig

TIMEOUT_SEC = 12.0
_UNLIMITED = -1


def get_checks(plan: Plan, get: Get | None = None) -> list[Check]:
    """All checks of a stack. InputError: no credentials."""
    config = plan.config
    planned: OpenstackPlan = get_program("openstack").plan(config)
    own = config.section(OpenstackConfig)
    stack = _Stack(config, planned, own, get or _log_in(own, config.region))
    own_checks = (_limits(stack), _flavours(stack), _images(stack), _networks(stack), _types(stack))
    return [*(check for checks in own_checks for check in checks), *existing_checks(config, planned, stack.get)]


def _log_in(own: OpenstackConfig, region: str) -> Get:
    import openstack
    from keystoneauth1.exceptions import ClientException

    fix = "log in: OS_CLOUD with clouds.yaml, or OS_* variables (an openrc file)"
    try:
        connection = openstack.connect(cloud=own.cloud, region_name=region)
        connection.authorize()
    except (openstack.exceptions.SDKException, ClientException) as problem:
        raise InputError("OpenStack", "no valid credentials", value=str(problem), fix=fix) from None

    def get(service: str, path: str) -> Any:
        where = {"service_type": service, "region_name": region, "interface": "public"}
        try:
            reply = connection.session.get(path, endpoint_filter=where, raise_exc=False, timeout=TIMEOUT_SEC)
        except ClientException as problem:
            raise NoAnswerError(f"{service}: {problem}", "look at the network, and the region's services") from None
        if reply.status_code != 200:
            denied = "no permission, " if reply.status_code in (401, 403) else ""
            raise NoAnswerError(f"{denied}status {reply.status_code}", code=str(reply.status_code))
        return reply.json()

    return get


@dataclass(frozen=True)
class _Stack:
    config: StackConfig
    planned: OpenstackPlan
    own: OpenstackConfig
    get: Get


def _limits(stack: _Stack) -> Iterator[Check]:
    machines = stack.planned.num_machines + stack.planned.head
    vcpus = stack.planned.machine.vcpus.value * stack.planned.num_machines
    yield _limit(stack, "compute", "instances", ("maxTotalInstances", "totalInstancesUsed"), machines)
    yield _limit(stack, "compute", "vCPUs of the nodes", ("maxTotalCores", "totalCoresUsed"), vcpus)
    if (size := stack.planned.boot_volume_gib) is not None:
        yield _limit(stack, "block-storage", "volumes", ("maxTotalVolumes", "totalVolumesUsed"), machines)
        names = ("maxTotalVolumeGigabytes", "totalGigabytesUsed")
        yield _limit(stack, "block-storage", "GiB of volumes", names, size * machines)


def _limit(stack: _Stack, service: str, what: str, names: tuple[str, str], amount: int) -> Check:
    def run() -> Result:
        rows = stack.get(service, "/limits")["limits"]["absolute"]
        limit, used = rows[names[0]], rows.get(names[1], 0)
        if limit == _UNLIMITED:
            return Result.ok(f"{amount} needed, no limit")
        return compare_quota(amount, limit, used, "", f"ask the cloud's administrator for a higher {names[0]}")

    return Check(f"quota of {what}", f"GET {service} /limits", run, "gangway:cluster.nodes.max")


def _flavours(stack: _Stack) -> Iterator[Check]:
    wanted = {stack.planned.machine.name: "gangway:cluster.machine_type"}
    if stack.planned.head and stack.config.head.machine_type is not None:
        wanted.setdefault(stack.config.head.machine_type, "gangway:head.machine_type")
    for name, path in wanted.items():
        yield _named(stack, "flavour", name, ("compute", "/flavors", "flavors"), path)


def _images(stack: _Stack) -> Iterator[Check]:
    wanted = {stack.own.image: "gangway:openstack.image"}
    if stack.planned.head and stack.own.head_image is not None:
        wanted.setdefault(stack.own.head_image, "gangway:openstack.head_image")
    for name, path in wanted.items():
        yield _named(stack, "image", name, ("image", "/v2/images?limit=1000", "images"), path)


def _networks(stack: _Stack) -> Iterator[Check]:
    source = ("network", "/v2.0/networks", "networks")
    if stack.own.external_network_id is not None:
        yield _named(
            stack, "external network", stack.own.external_network_id, source, "gangway:openstack.external_network_id"
        )
    if stack.own.rdma_network_id is not None:
        yield _named(stack, "RDMA network", stack.own.rdma_network_id, source, "gangway:openstack.rdma_network_id")


def _types(stack: _Stack) -> Iterator[Check]:
    if stack.own.volume_type is not None:
        source = ("block-storage", "/types", "volume_types")
        yield _named(stack, "volume type", stack.own.volume_type, source, "gangway:openstack.volume_type")
    if stack.config.storage is not None and stack.own.share_type is not None:
        source = ("shared-file-system", "/types", "share_types")
        yield _named(stack, "share type", stack.own.share_type, source, "gangway:openstack.share_type")
    if stack.planned.zone:
        yield _zone(stack, stack.planned.zone)


def _named(stack: _Stack, what: str, name: str, source: tuple[str, str, str], path: str) -> Check:
    service, url, key = source

    def run() -> Result:
        rows = stack.get(service, url)[key]
        found = [row for row in rows if name in (row.get("name"), row["id"])]
        if not found:
            return Result.error(f"not among {len(rows)}: {_some(rows)}", f"correct {path}")
        state = str(found[0].get("status", "")).lower()
        if state not in ("", "active"):
            return Result.error(state, f"name another {what}")
        if len(found) > 1:
            return Result.error(f"{len(found)} have this name", f"write the id of one of them in {path}")
        return Result.ok(f"id {found[0]['id']}")

    return Check(f"{what} {name}", f"GET {service} {url.partition('?')[0]}", run, path)


def _some(rows: Sequence[Any]) -> str:
    names = sorted(str(row.get("name") or row["id"]) for row in rows)
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _zone(stack: _Stack, zone: str) -> Check:
    def run() -> Result:
        rows = stack.get("compute", "/os-availability-zone")["availabilityZoneInfo"]
        zones = sorted(row["zoneName"] for row in rows if row["zoneState"]["available"])
        if zone not in zones:
            return Result.error(f"not available; there are {', '.join(zones)}", "correct gangway:cluster.zone")
        return Result.ok("available")

    return Check(f"zone {zone}", "GET compute /os-availability-zone", run, "gangway:cluster.zone")
