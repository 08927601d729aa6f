"""ProjectServices: the Google APIs a stack needs, enabled; and the agents by which Google's services act for us.

Enabling is idempotent, and destroying the stack leaves every API as it is: others in the project may use it. Whatever
takes `project` from here waits until all are enabled. Not a place for quotas, which no API gives.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

import pulumi
from pulumi_gcp import projects

from components.order import after

__all__ = ["AGENT_DOMAINS", "ProjectServices", "ProjectServicesArgs", "agent_of", "plan_services"]

ALWAYS = (
    "artifactregistry",
    "billingbudgets",
    "cloudresourcemanager",
    "compute",
    "containerscanning",
    "dns",
    "iam",
    "iap",
    "logging",
    "monitoring",
    "pubsub",
    "serviceusage",
    "storage",
)
ON_REQUEST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lustre": ("lustre", "servicenetworking"),
        "filestore": ("file",),
        "tpu": ("tpu",),
        "encryption": ("cloudkms",),
        "stop": ("eventarc", "workflows", "workflowexecutions"),
    }
)
"""What a stack may have besides, and the APIs behind it."""

AGENT_DOMAINS: Mapping[str, str] = MappingProxyType(
    {
        "compute": "compute-system",
        "filestore": "cloud-filer",
        "lustre": "gcp-sa-lustre",
        "artifactregistry": "gcp-sa-artifactregistry",
        "pubsub": "gcp-sa-pubsub",
        "tpu": "cloud-tpu",
        "workflows": "gcp-sa-workflows",
    }
)
"""Services that act in a project through `service-<number>@<domain>.iam.gserviceaccount.com`."""


def plan_services(*parts: str) -> list[str]:
    """The full names of all APIs of a stack that has these `parts` (keys of ON_REQUEST) besides the usual ones."""
    names = {*ALWAYS, *(name for part in parts for name in ON_REQUEST[part])}
    return [f"{name}.googleapis.com" for name in sorted(names)]


def agent_of(service: str, project_number: str) -> str:
    """A service agent as a member of an IAM policy.

    >>> agent_of("lustre", "123456789012")
    'serviceAccount:service-123456789012@gcp-sa-lustre.iam.gserviceaccount.com'
    """
    return f"serviceAccount:service-{project_number}@{AGENT_DOMAINS[service]}.iam.gserviceaccount.com"


class ProjectServicesArgs(TypedDict):
    """Inputs of ProjectServices. `services` are full names, as `plan_services` gives them."""

    project: str
    services: list[str]


class ProjectServices(pulumi.ComponentResource):
    """The enabled APIs of one project. `project` is its id, known once they are."""

    project: pulumi.Output[str]

    def __init__(self, name: str, args: ProjectServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ProjectServices", name, None, opts)
        enabled = [
            projects.Service(
                f"{name}-{service.partition('.')[0]}",
                project=args["project"],
                service=service,
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in args["services"]
        ]
        self.project = after(args["project"], *enabled)
        self.register_outputs({"project": self.project})
