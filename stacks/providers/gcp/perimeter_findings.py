"""What a plan says of a perimeter of VPC Service Controls around the project, and of the ways out that it closes."""

from collections.abc import Iterable, Mapping

from components.core.findings import Finding
from components.gcp.perimeter import perimeter_name, plan_perimeter
from stacks.base.shared import image_place
from stacks.config.stack_config import StackConfig
from stacks.estimates.provider_findings import ways_out
from stacks.providers.gcp.plan import GcpPlan
from stacks.providers.gcp.settings import GcpConfig, PerimeterConfig

__all__ = ["perimeter_findings"]

PATH = "gangway:gcp.service_perimeter"
_DNS = "Google's resolver answers every name"
_OTHERS = "into other projects' buckets and registries"
_NO_PERIMETER = (
    "set gangway:gcp.service_perimeter, or have the organisation's administrator put the project into a perimeter of "
    "VPC Service Controls; names go to restricted.googleapis.com already, which enforces it"
)


def perimeter_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """The ways out that remain, and what the perimeter asks for and has not shown."""
    perimeter = config.section(GcpConfig).service_perimeter
    remaining, fix = _remaining(perimeter)
    yield from ways_out(config, remaining, fix)
    if perimeter is None:
        return
    if perimeter.existing is not None:
        yield Finding.info(
            "network.perimeter",
            PATH,
            f"{perimeter_name(perimeter.access_policy, perimeter.existing)} is read by a preview and by `up`, which "
            "ends where it does not hold the project and all services that machines call; its other rules are not "
            "looked at. Never tried on a real organisation",
            "have whoever runs `up` read it (roles/accesscontextmanager.policyReader)",
        )
        return
    yield _made(perimeter, planned)
    yield from _reads(config, planned, perimeter)
    if perimeter.mode == "enforced" and (planned.tpu is not None or config.budget.stop_at_percent is not None):
        yield Finding.warning(
            "network.perimeter-workflow",
            PATH,
            "the workflow that brings slices back or empties groups at the budget's stop calls Google's services from "
            "outside the project's networks, and nobody has tried whether an enforced perimeter lets it",
            "look into the dry run's log first, and name the workflow's account under operators where it is there",
        )


def _remaining(perimeter: PerimeterConfig | None) -> tuple[Mapping[str, str], str]:
    """The ways that `egress: endpoints` leaves open, with reasons, and what closes them."""
    dns = {"by DNS": _DNS}
    if perimeter is None:
        return {**dns, _OTHERS: "only a service perimeter says whose, and the stack has none"}, _NO_PERIMETER
    if perimeter.existing is not None:
        why = f"what {perimeter.existing} lets out is its owner's choice"
        return {**dns, "where the perimeter's own rules let it": why}, ""
    if perimeter.mode == "dry-run":
        why = "the perimeter's dry run refuses nothing"
        return {**dns, _OTHERS: why}, "look into its log, then set mode: enforced"
    if perimeter.reads_from:
        numbers = ", ".join(map(str, perimeter.reads_from))
        return {**dns, f"into registries of {numbers}": "reads_from lets images be pulled there, and so pushed"}, ""
    return dns, ""


def _made(perimeter: PerimeterConfig, planned: GcpPlan) -> Finding:
    name = plan_perimeter(perimeter.access_policy, planned.project, perimeter.operators).name
    place = "from anywhere" if not perimeter.access_levels else f"from {', '.join(perimeter.access_levels)}"
    does = "refuses" if perimeter.mode == "enforced" else "would refuse (a dry run: it logs, and refuses nothing)"
    said = (
        f"{name} {does} all calls to the project's storage, secrets, images, logs, metrics, machines and TPUs from "
        f"outside but those of {', '.join(perimeter.operators)} {place}, and all calls from inside to anything else. A "
        "project can be in one perimeter only, so other stacks in it can have none of their own; Google takes up to 30 "
        "minutes to heed one. Never tried on a real organisation"
    )
    fix = (
        "whoever runs `up` has to be Access Context Manager Editor (roles/accesscontextmanager.policyEditor) of the "
        "organisation; `gcloud access-context-manager lookup-configured-perimeter --resource=projects/NUMBER` says "
        "whether the project is in one already"
    )
    return (Finding.warning if perimeter.mode == "enforced" else Finding.info)("network.perimeter", PATH, said, fix)


def _reads(config: StackConfig, planned: GcpPlan, perimeter: PerimeterConfig) -> Iterable[Finding]:
    """What machines read from elsewhere, and no rule lets them."""
    if perimeter.reads_from:
        return
    of_image = None if planned.repository_id is None else planned.repository_id.split("/")[1]
    if of_image is not None and of_image != planned.project:
        yield Finding.warning(
            "network.perimeter-image",
            image_place(config),
            f"the image is of {of_image}, which is outside the perimeter: enforced, no machine could pull it",
            f"write the number of {of_image} into gangway:gcp.service_perimeter.reads_from",
        )
    if config.storage is not None and config.storage.source is not None:
        yield Finding.info(
            "network.perimeter-source",
            "gangway:storage.source",
            "a bucket of another project is outside the perimeter: enforced, no machine could read it",
            "write that project's number into gangway:gcp.service_perimeter.reads_from, if it is another",
        )
