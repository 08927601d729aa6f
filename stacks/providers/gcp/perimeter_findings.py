"""Findings about a VPC Service Controls perimeter around the project, and about the ways out that it closes."""

from collections.abc import Iterable, Mapping

from gangway.components.core.findings import Finding
from gangway.components.gcp.perimeter import perimeter_name, plan_perimeter
from gangway.stacks.base.shared import image_place
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.provider_findings import ways_out
from gangway.stacks.providers.gcp.plan import GcpPlan
from gangway.stacks.providers.gcp.settings import GcpConfig, PerimeterConfig

__all__ = ["perimeter_findings"]

PATH = "gangway:gcp.service_perimeter"
_DNS = "Google's resolver resolves every name"
_OTHERS = "into other projects' buckets and registries"
_NO_PERIMETER = (
    "set gangway:gcp.service_perimeter, or ask your organisation's administrator to put the project into a VPC "
    "Service Controls perimeter; machines already use restricted.googleapis.com, which enforces it"
)


def perimeter_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """The remaining ways out, what the perimeter requires, and what is untested."""
    perimeter = config.section(GcpConfig).service_perimeter
    remaining, fix = _ways_out(perimeter)
    yield from ways_out(config, remaining, fix)
    if perimeter is None:
        return
    if perimeter.existing is not None:
        yield Finding.info(
            "network.perimeter",
            PATH,
            f"preview and `up` read {perimeter_name(perimeter.access_policy, perimeter.existing)}, and fail unless it "
            "contains the project and all services that machines call; its other rules are not checked. Untested on a "
            "real organisation",
            "to run `up` you need to read it (roles/accesscontextmanager.policyReader)",
        )
        return
    yield _new_perimeter(perimeter, planned)
    yield from _outside_sources(config, planned, perimeter)
    if perimeter.mode == "enforced" and (planned.tpu is not None or config.budget.stop_at_percent is not None):
        yield Finding.warning(
            "network.perimeter-workflow",
            PATH,
            "the workflow that requests slices again, or stops groups at the budget limit, calls Google's services "
            "from outside the project's networks; whether an enforced perimeter allows that is untested",
            "check the dry run's log first; if the workflow's account appears there, add it to operators",
        )


def _ways_out(perimeter: PerimeterConfig | None) -> tuple[Mapping[str, str], str]:
    """The ways out with `egress: endpoints`, with reasons, and the fix."""
    dns = {"by DNS": _DNS}
    if perimeter is None:
        return {**dns, _OTHERS: "only a service perimeter restricts projects, and the stack has none"}, _NO_PERIMETER
    if perimeter.existing is not None:
        why = f"the owner of {perimeter.existing} decides what it allows"
        return {**dns, "if the perimeter's rules allow it": why}, ""
    if perimeter.mode == "dry-run":
        why = "the perimeter's dry run refuses nothing"
        return {**dns, _OTHERS: why}, "check its log, then set mode: enforced"
    if perimeter.reads_from:
        numbers = ", ".join(map(str, perimeter.reads_from))
        return {**dns, f"into registries of {numbers}": "reads_from allows pulling images there, and so pushing"}, ""
    return dns, ""


def _new_perimeter(perimeter: PerimeterConfig, planned: GcpPlan) -> Finding:
    name = plan_perimeter(perimeter.access_policy, planned.project, perimeter.operators).name
    place = "from anywhere" if not perimeter.access_levels else f"from {', '.join(perimeter.access_levels)}"
    does = "refuses" if perimeter.mode == "enforced" else "would refuse (dry run: it only logs)"
    message = (
        f"{name} {does} all calls from outside to the project's storage, secrets, images, logs, metrics, machines and "
        f"TPUs, except by {', '.join(perimeter.operators)} {place}, and all calls from inside to other projects. A "
        "project can be in one perimeter only, so no other stack in it can have one; a change takes up to 30 minutes "
        "to take effect. Untested on a real organisation"
    )
    fix = (
        "to run `up` you must be Access Context Manager Editor (roles/accesscontextmanager.policyEditor) of the "
        "organisation; `gcloud access-context-manager lookup-configured-perimeter --resource=projects/NUMBER` shows "
        "whether the project is already in a perimeter"
    )
    return (Finding.warning if perimeter.mode == "enforced" else Finding.info)("network.perimeter", PATH, message, fix)


def _outside_sources(config: StackConfig, planned: GcpPlan, perimeter: PerimeterConfig) -> Iterable[Finding]:
    """Sources outside the perimeter that no rule allows."""
    if perimeter.reads_from:
        return
    of_image = None if planned.repository_id is None else planned.repository_id.split("/")[1]
    if of_image is not None and of_image != planned.project:
        yield Finding.warning(
            "network.perimeter-image",
            image_place(config),
            f"the image is in project {of_image}, outside the perimeter: once it is enforced, machines cannot pull it",
            f"add the number of {of_image} to gangway:gcp.service_perimeter.reads_from",
        )
    if config.storage is not None and config.storage.source is not None:
        yield Finding.info(
            "network.perimeter-source",
            "gangway:storage.source",
            "a bucket of another project is outside the perimeter: once it is enforced, machines cannot read it",
            "if it belongs to another project, add that project's number to gangway:gcp.service_perimeter.reads_from",
        )
