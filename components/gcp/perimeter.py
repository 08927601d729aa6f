"""ServicePerimeter: the stack's project in a perimeter of VPC Service Controls. Untested on a real organisation.
Google's services then serve machines only resources inside, and outside callers only by rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, cast

import pulumi
from pulumi_gcp import accesscontextmanager

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs

RESTRICTED = tuple(
    f"{service}.googleapis.com"
    for service in ("artifactregistry", "compute", "logging", "monitoring", "secretmanager", "storage", "tpu")
)  # services of a perimeter: all that machines call (VPC Service Controls, "Supported products and limitations")

# "Supported service method restrictions": Cloud Storage has methods; Artifact Registry has none.
READ_METHODS = {
    "storage.googleapis.com": (
        "google.storage.buckets.get",
        "google.storage.objects.get",
        "google.storage.objects.list",
    ),
    "artifactregistry.googleapis.com": ("*",),
}
# "Ingress and egress rules": any source; only the rule's identities count.
ANYWHERE = "*"


class ServicePerimeterArgs(TypedDict):
    """Inputs of ServicePerimeter. `access_policy`: the organisation's number; `operators`: may call from outside, such
    as `user:ops@example.com`; `access_levels`: from where, by names in that policy, or anywhere; `reads_from`: numbers
    of outside projects whose buckets and images machines read; `enforced`: false is a dry run that only logs.
    """

    access_policy: int
    project: str
    project_number: pulumi.Input[str]
    operators: list[str]
    access_levels: NotRequired[list[str]]
    reads_from: NotRequired[list[int]]
    enforced: bool


@dataclass(frozen=True)
class PerimeterPlan:
    """The perimeter's short name, derived from the project (which can be in only one), and its rules as data."""

    name: str
    ingress: dict[str, object]
    egress: tuple[dict[str, object], ...]


def perimeter_name(access_policy: int, short_name: str) -> str:
    """The full name.

    >>> perimeter_name(330193482019, "gangway_lab")
    'accessPolicies/330193482019/servicePerimeters/gangway_lab'
    """
    return f"accessPolicies/{access_policy}/servicePerimeters/{short_name}"


def plan_perimeter(
    access_policy: int,
    project: str,
    operators: Sequence[str],
    access_levels: Sequence[str] = (),
    reads_from: Sequence[int] = (),
) -> PerimeterPlan:
    """Allow operators from outside, and service accounts to read from the named projects."""
    levels = [f"accessPolicies/{access_policy}/accessLevels/{level}" for level in access_levels] or [ANYWHERE]
    ingress: dict[str, object] = {
        "title": "Whoever runs up",
        "ingress_from": {"identities": list(operators), "sources": [{"access_level": level} for level in levels]},
        "ingress_to": {"resources": ["*"], "operations": [{"service_name": "*"}]},
    }
    reading: dict[str, object] = {
        "title": "Data and images of other projects",
        "egress_from": {"identity_type": "ANY_SERVICE_ACCOUNT"},
        "egress_to": {
            "resources": [f"projects/{number}" for number in reads_from],
            "operations": [
                {"service_name": service, "method_selectors": [{"method": method} for method in methods]}
                for service, methods in READ_METHODS.items()
            ],
        },
    }
    # Names of perimeters have letters, digits and `_`.
    return PerimeterPlan(f"gangway_{project.replace('-', '_')}", ingress, (reading,) if reads_from else ())


class ServicePerimeter(pulumi.ComponentResource):
    """A regular perimeter around one project, whose networks can call only RESTRICTED services."""

    perimeter_name: pulumi.Output[str]

    def __init__(self, name: str, args: ServicePerimeterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ServicePerimeter", name, None, opts)
        policy, project = args["access_policy"], args["project"]
        levels, reads_from = args.get("access_levels", []), args.get("reads_from", [])
        plan = plan_perimeter(policy, project, args["operators"], levels, reads_from)
        holds = {
            "resources": [pulumi.Output.concat("projects/", args["project_number"])],
            "restricted_services": list(RESTRICTED),
            "vpc_accessible_services": {"enable_restriction": True, "allowed_services": ["RESTRICTED-SERVICES"]},
            "ingress_policies": [plan.ingress],
            "egress_policies": list(plan.egress),
        }
        enforced = args["enforced"]
        made = accesscontextmanager.ServicePerimeter(
            f"{name}-perimeter",
            parent=f"accessPolicies/{policy}",
            name=perimeter_name(policy, plan.name),
            title=plan.name,
            description=f"The project {project}, made by Gangway",
            perimeter_type="PERIMETER_TYPE_REGULAR",
            use_explicit_dry_run_spec=None if enforced else True,
            status=cast("accesscontextmanager.ServicePerimeterStatusArgsDict", holds) if enforced else None,
            spec=None if enforced else cast("accesscontextmanager.ServicePerimeterSpecArgsDict", holds),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.perimeter_name = made.name
        register_outputs(self)


def missing_from(resources: Sequence[str], services: Sequence[str], project_number: str) -> list[str]:
    """What an enforced perimeter with these members and restricted services lacks for the stack's project."""
    missing = [] if f"projects/{project_number}" in resources else [f"projects/{project_number}"]
    return missing + [service for service in RESTRICTED if service not in services]


def read_perimeter(
    name: str, access_policy: int, short_name: str, project_number: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """An existing perimeter's full name, checked in a preview or `up`. InputError: it does not hold the project."""
    full_name = perimeter_name(access_policy, short_name)
    found = accesscontextmanager.ServicePerimeter.get(f"{name}-perimeter", full_name, opts=opts)

    def check(known: list[object]) -> str:
        title, status, number = known
        if title is None:
            return full_name
        held = cast("accesscontextmanager.outputs.ServicePerimeterStatus | None", status)
        resources, services = (held.resources or [], held.restricted_services or []) if held else ([], [])
        missing = missing_from(resources, services, str(number))
        if missing:
            raise InputError(
                "gangway:gcp.service_perimeter.existing",
                "this perimeter, as enforced, does not hold all that the stack needs held",
                value=full_name,
                allowed=f"a perimeter with {', '.join(missing)}",
                fix="have its administrator add that, or leave existing out and let the stack make one",
            )
        return full_name

    return pulumi.Output.all(found.title, found.status, project_number).apply(check)
