"""Checks of a stack on Google Cloud: project, APIs, quotas, zones, reservations, images, buckets, billing, names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangway.components.core.capacity import LADDER, Reservation
from gangway.components.core.findings import InputError
from gangway.components.core.limits import QuotaFinding, QuotaNeed
from gangway.components.gcp.capacity import rung_zone
from gangway.components.gcp.gke_plan import tpu_nodes
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, TpuError, open_session
from gangway.live.permissions.gcp import place_outside
from gangway.live.permissions.needs import actions_of_up
from gangway.live.preflight.check import OFFERS_FIX, ROLE_FIX, Check, NoAnswerError, Result, compare_quota, conflicts
from gangway.live.preflight.gcp_existing import existing_checks
from gangway.live.preflight.rest import Rest
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.program import get_program
from gangway.stacks.providers.gcp.plan import GcpPlan, head_type, reservation_name
from gangway.stacks.providers.gcp.settings import GcpConfig

COMPUTE, TPU, STORAGE, BILLING = (f"{name}.googleapis.com" for name in ("compute", "tpu", "storage", "cloudbilling"))
USAGE, PROJECTS, ASSETS = (f"{name}.googleapis.com" for name in ("serviceusage", "cloudresourcemanager", "cloudasset"))
_NAMES_PER_CALL = 20
_PERMISSIONS_PER_CALL = 100
_MISSING = "404"


def get_checks(plan: Plan, rest: Rest | None = None) -> list[Check]:
    """All checks of a stack. InputError: no credentials."""
    config = plan.config
    planned: GcpPlan = get_program("gcp").plan(config)
    stack = _Stack(plan, config, planned, rest or Rest(_session(planned.project)))
    needs = [one.need for one in plan.findings if isinstance(one, QuotaFinding)]
    return [
        _project(stack),
        _services(stack),
        _permissions(stack),
        *(_quota(stack, need) for need in needs),
        *_machines(stack),
        *_reservations(stack),
        *_image(stack),
        *_bucket(stack),
        *existing_checks(config, planned, stack.rest),
        _billing(stack),
        _names(stack),
    ]


def _session(project: str) -> Any:
    try:
        return open_session(GOOGLE_API_URL)
    except TpuError as problem:
        fix = "gcloud auth application-default login"
        raise InputError(f"Google Cloud, project {project}", str(problem), fix=fix) from None


@dataclass(frozen=True)
class _Stack:
    plan: Plan
    config: StackConfig
    planned: GcpPlan
    rest: Rest

    @property
    def compute(self) -> str:
        """The path of the project in Compute Engine's API."""
        return f"compute/v1/projects/{self.planned.project}"


def _project(stack: _Stack) -> Check:
    def run() -> Result:
        state = stack.rest.get(PROJECTS, f"v3/projects/{stack.planned.project}").get("state")
        if state != "ACTIVE":
            return Result.error(f"state {state}", "name another project, or undelete it")
        return Result.ok("active")

    return Check(f"project {stack.planned.project}", "cloudresourcemanager.projects.get", run, "gangway:gcp.project")


def _services(stack: _Stack) -> Check:
    resources = stack.plan.resources
    used = {str(one.inputs["service"]) for one in resources if kind(one.type) == "gcp:projects:Service"}
    names, project = sorted({COMPUTE, *used}), stack.planned.project

    def run() -> Result:
        rows: list[Mapping[str, Any]] = []
        for begin in range(0, len(names), _NAMES_PER_CALL):
            some = [f"projects/{project}/services/{name}" for name in names[begin : begin + _NAMES_PER_CALL]]
            rows += stack.rest.get(USAGE, f"v1/projects/{project}/services:batchGet", {"names": some})["services"]
        enabled = {row["name"].rpartition("/")[2] for row in rows if row.get("state") == "ENABLED"}
        if missing := [name for name in names if name not in enabled]:
            fix = f"gcloud services enable {' '.join(missing)} --project {project}"
            return Result.warning(f"not enabled, which `up` does if you may: {', '.join(missing)}", fix)
        return Result.ok(f"all {len(names)} are enabled")

    return Check("APIs", "serviceusage.services.batchGet", run)


def _permissions(stack: _Stack) -> Check:
    needed = [action for action in actions_of_up(stack.plan) if place_outside(action) is None]

    def run() -> Result:
        path = f"v3/projects/{stack.planned.project}:testIamPermissions"
        held: set[str] = set()
        for begin in range(0, len(needed), _PERMISSIONS_PER_CALL):
            some = needed[begin : begin + _PERMISSIONS_PER_CALL]
            held.update(stack.rest.post(PROJECTS, path, {"permissions": some}).get("permissions", ()))
        if missing := [each for each in needed if each not in held]:
            return Result.error(f"missing: {', '.join(missing)}", ROLE_FIX)
        return Result.ok(f"you have all {len(needed)} permissions of `up` in the project")

    return Check("permissions", "cloudresourcemanager.projects.testIamPermissions", run)


def _quota(stack: _Stack, need: QuotaNeed) -> Check:
    scope, _, metric = need.key.partition("/")
    path = f"{stack.compute}/regions/{stack.config.region}" if scope == "region" else stack.compute

    def run() -> Result:
        if not need.key:
            raise NoAnswerError("only the quota API shows this limit", need.command)
        rows = {row["metric"]: row for row in stack.rest.get(COMPUTE, path)["quotas"]}
        if metric not in rows:
            raise NoAnswerError(f"Compute Engine does not list {metric} here", need.command)
        row = rows[metric]
        fix = f"request {metric} in the console: IAM & Admin, Quotas"
        return compare_quota(need.amount, row["limit"], row.get("usage", 0), need.unit, fix)

    source = "compute.regions.get" if scope == "region" else "compute.projects.get"
    return Check(f"quota {need.name} in {need.place}", source, run, need.path)


def _machines(stack: _Stack) -> Iterator[Check]:
    planned, rungs = stack.planned, stack.config.cluster.capacity
    zones = tuple(dict.fromkeys([planned.zone, *(rung_zone(rung, planned.zone) for rung in rungs)]))
    if planned.queues_slices and planned.tpu is not None:
        yield _slice(stack, planned.tpu.accelerator_type)
    else:
        yield _machine(
            stack,
            planned.machine.name
            if planned.tpu is None
            else tpu_nodes(planned.tpu.accelerator_type, planned.tpu.topology).machine_type,
            zones,
        )
    if planned.head:
        yield _machine(stack, head_type(stack.config), (planned.zone,), "gangway:head.machine_type")


def _machine(stack: _Stack, name: str, zones: tuple[str, ...], path: str = "gangway:cluster.zone") -> Check:
    def run() -> Result:
        parameters = {"filter": f"name={name}"}
        items = stack.rest.get(COMPUTE, f"{stack.compute}/aggregated/machineTypes", parameters).get("items", {})
        offered = {scope.removeprefix("zones/") for scope, found in items.items() if found.get("machineTypes")}
        return _judge_zones(name, stack.config.region, zones, offered)

    return Check(f"machine type {name}", "compute.machineTypes.aggregatedList", run, path)


def _judge_zones(name: str, region: str, zones: tuple[str, ...], offered: set[str]) -> Result:
    here = sorted(zone for zone in offered if zone.startswith(f"{region}-"))
    missing = [zone for zone in zones if zone not in here]
    if not missing:
        return Result.ok(f"offered in {', '.join(here)}")
    if not here:
        others = ", ".join(sorted(offered)[:8]) or "none"
        return Result.error(f"no zone of {region} has {name}; zones with it: {others}", OFFERS_FIX)
    answer = f"not in {', '.join(missing)}; offered in {', '.join(here)}"
    return Result.error(answer, f"set gangway:cluster.zone: {here[0]}")


def _slice(stack: _Stack, accelerator: str) -> Check:
    region, zone = stack.planned.region, stack.planned.zone

    def run() -> Result:
        zones = dict.fromkeys([zone, *(f"{region.name}-{letter}" for letter in region.zones)])
        return _judge_zones(accelerator, region.name, (zone,), {one for one in zones if _offers(one)})

    def _offers(one: str) -> bool:
        path = f"v2/projects/{stack.planned.project}/locations/{one}/acceleratorTypes"
        rows = stack.rest.rows(TPU, path, "acceleratorTypes", {"pageSize": 200})
        try:
            return any(row.get("name", "").rpartition("/")[2] == accelerator for row in rows)
        except NoAnswerError as refusal:
            if refusal.code == _MISSING:
                return False
            raise

    return Check(f"TPU {accelerator}", "tpu.projects.locations.acceleratorTypes.list", run, "gangway:cluster.zone")


def _reservations(stack: _Stack) -> Iterator[Check]:
    for index, rung in enumerate(stack.config.cluster.capacity):
        if isinstance(rung, Reservation):
            zone = rung_zone(rung, stack.planned.zone)
            full = str(reservation_name(rung, stack.planned.project, zone)).partition("/reservationBlocks/")[0]
            yield _reservation(stack, full, f"{LADDER}[{index}]")


def _reservation(stack: _Stack, full: str, path: str) -> Check:
    _, project, _, zone, _, name = full.split("/", 5)

    def run() -> Result:
        try:
            row = stack.rest.get(COMPUTE, f"compute/v1/projects/{project}/zones/{zone}/reservations/{name}")
        except NoAnswerError as refusal:
            if refusal.code == _MISSING and not stack.planned.queues_slices:
                fix = f"gcloud compute reservations list --project {project}"
                return Result.error(f"{name} does not exist in {zone} of {project}", fix)
            raise
        specific = row.get("specificReservation", {})
        free = int(specific.get("count", 0)) - int(specific.get("inUseCount", 0))
        machine = specific.get("instanceProperties", {}).get("machineType", "")
        answer = f"{row.get('status', 'no status')}, {free} of {specific.get('count', 0)} {machine} free"
        if row.get("status") not in (None, "READY"):
            return Result.error(answer, "wait until it is READY, or name another one")
        if machine and machine != stack.planned.machine.name:
            return Result.error(answer, f"set gangway:cluster.machine_type: {machine}")
        if specific and free < stack.config.cluster.nodes.max:
            return Result.warning(answer, "free some of it, unless this stack's own nodes use it")
        return Result.ok(answer)

    return Check(f"reservation {name}", "compute.reservations.get", run, path)


def _image(stack: _Stack) -> Iterator[Check]:
    image = stack.config.cluster.image_id
    if image is None:
        return

    def run() -> Result:
        try:
            row = stack.rest.get(COMPUTE, f"compute/v1/{image}")
        except NoAnswerError as refusal:
            if refusal.code == _MISSING:
                return Result.error("does not exist", "gcloud compute images list --project PROJECT")
            raise
        if row.get("status", "READY") != "READY" or row.get("deprecated", {}).get("state") in ("OBSOLETE", "DELETED"):
            return Result.error(f"{row.get('status')}, {row.get('deprecated')}", "use another image")
        return Result.ok(str(row.get("name", "")))

    yield Check(f"machine image {image}", "compute.images.get", run, "gangway:cluster.image_id")


def _bucket(stack: _Stack) -> Iterator[Check]:
    storage = stack.config.storage
    if storage is None or storage.source is None:
        return
    bucket, _, prefix = storage.source.removeprefix("gs://").partition("/")

    def run() -> Result:
        try:
            page = stack.rest.get(STORAGE, f"storage/v1/b/{bucket}/o", {"prefix": prefix, "maxResults": 1})
        except NoAnswerError as refusal:
            if refusal.code == _MISSING:
                return Result.error("the bucket does not exist", "name another one")
            raise
        if not page.get("items"):
            return Result.warning(f"no object begins with {prefix!r}" if prefix else "empty", "upload the data first")
        return Result.ok("readable, and not empty")

    yield Check(f"data {storage.source}", "storage.objects.list", run, "gangway:storage.source")


def _billing(stack: _Stack) -> Check:
    own = stack.config.section(GcpConfig)
    account = own.billing_account

    def run() -> Result:
        name = f"v1/billingAccounts/{account}"
        row = stack.rest.get(BILLING, name)
        if not row.get("open"):
            return Result.error("closed", "name an open billing account")
        asked = {"permissions": ["billing.budgets.create"]}
        if not stack.rest.post(BILLING, f"{name}:testIamPermissions", asked).get("permissions"):
            return Result.error("you lack billing.budgets.create", "ask for the role Costs Manager on it")
        return Result.ok("open, and you may create budgets")

    source = "cloudbilling.billingAccounts.get"
    return Check(f"billing account {account}", source, run, "gangway:gcp.billing_account")


def _names(stack: _Stack) -> Check:
    name = stack.config.stack

    def run() -> Result:
        parameters = {"query": f"labels.gangway-stack={name}", "readMask": "name,labels", "pageSize": 100}
        path = f"v1/projects/{stack.planned.project}:searchAllResources"
        rows = stack.rest.rows(ASSETS, path, "results", parameters)
        found = [row["name"].rpartition("/")[2] for row in rows if row.get("labels", {}).get("gangway-stack") == name]
        why = "this stack is up, it left what it keeps, or another stack has its identity"
        return conflicts(found, why, stack.config.stack_name)

    return Check(f"resources with the label {name}", "cloudasset.searchAllResources", run, "gangway:identity")
