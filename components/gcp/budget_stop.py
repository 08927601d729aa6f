"""The budget's last alarm as an act: a workflow that empties the stack's groups and deletes its TPUs.

Budgets of Google Cloud only tell; what is told on Pub/Sub, Eventarc takes to Cloud Workflows, which needs no build and
no code of ours in a container: `stop_groups.yaml` beside this file. The head is stopped as well, for it would fill the
groups again. `up --refresh` starts it, and the groups, again: only a refresh sees that they are not as declared. Nodes
get the usual notice and save first.

Not a hard limit: Google brings billing data up to date a few times a day, so the stop comes hours late.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pulumi
from pulumi_gcp import eventarc, projects, pubsub, serviceaccount, workflows

from components.gcp.identity import RolePlan, declare_role
from components.gcp.names import account_id

__all__ = ["STOP_PERMISSIONS", "StopPlan", "declare_stop", "stop_source"]

STOP_PERMISSIONS = (
    "compute.instanceGroupManagers.get",
    "compute.instanceGroupManagers.list",
    "compute.instanceGroupManagers.update",
    "compute.instances.stop",
)
MESSAGE = "google.cloud.pubsub.topic.v1.messagePublished"


@dataclass(frozen=True)
class StopPlan:
    """What is stopped, and when.

    Attributes:
        percent: of the budget.
        groups: managed instance groups, as `projects/P/zones/Z/instanceGroupManagers/NAME`.
        heads: instances that fill groups, as `projects/P/zones/Z/instances/NAME`.
        queued_resources: TPUs, as `projects/P/locations/Z/queuedResources/NAME`.
    """

    percent: float
    groups: pulumi.Input[list[str]]
    heads: pulumi.Input[list[str]]
    queued_resources: pulumi.Input[list[str]]

    def environment(self) -> dict[str, pulumi.Input[str]]:
        """The workflow's variables; lists are JSON, for a variable is a string."""
        lists = {"GROUPS": self.groups, "HEADS": self.heads, "QUEUED_RESOURCES": self.queued_resources}
        return {
            "STOP_PERCENT": f"{self.percent:g}",
            **{key: pulumi.Output.from_input(names).apply(json.dumps) for key, names in lists.items()},
        }


def stop_source() -> str:
    """The workflow's source."""
    return Path(__file__).with_name("stop_groups.yaml").read_text("utf-8")


@dataclass(frozen=True)
class _Place:
    """Where everything is declared."""

    name: str
    stack: str
    project: pulumi.Input[str]
    region: str
    tags: dict[str, str]
    opts: pulumi.ResourceOptions


def declare_stop(
    name: str,
    plan: StopPlan,
    topic: pubsub.Topic,
    stack: str,
    project: pulumi.Input[str],
    region: str,
    kms_key_name: pulumi.Input[str] | None,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
    *,
    tpus: bool,
) -> None:
    """Declares the workflow, its account, and the trigger by which `topic` starts it. `tpus`: it deletes some, too."""
    place = _Place(f"{name}-stop", stack, project, region, tags, opts)
    account, grants = _account(place, tpus)
    # Started before its account may act, it would stop nothing.
    later = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=grants))
    workflow = workflows.Workflow(
        place.name,
        project=project,
        region=region,
        description=f"{stack}: budget used up, nodes end",
        source_contents=stop_source(),
        user_env_vars=plan.environment(),
        service_account=account.email,
        call_log_level="LOG_ERRORS_ONLY",
        crypto_key_name=kms_key_name,
        # It is the stack's, and goes with it.
        deletion_protection=False,
        labels=tags,
        opts=later,
    )
    _trigger(place, topic, workflow, account)


def _trigger(
    place: _Place, topic: pubsub.Topic, workflow: workflows.Workflow, account: serviceaccount.Account
) -> eventarc.Trigger:
    # Eventarc acts through an agent, which is made when first asked for: in a project new to it a trigger would fail.
    agent = projects.ServiceIdentity(
        f"{place.name}-eventarc", project=place.project, service="eventarc.googleapis.com", opts=place.opts
    )
    later = pulumi.ResourceOptions.merge(place.opts, pulumi.ResourceOptions(depends_on=[agent]))
    return eventarc.Trigger(
        place.name,
        project=place.project,
        location=place.region,
        matching_criterias=[eventarc.TriggerMatchingCriteriaArgs(attribute="type", value=MESSAGE)],
        transport=eventarc.TriggerTransportArgs(pubsub=eventarc.TriggerTransportPubsubArgs(topic=topic.id)),
        destination=eventarc.TriggerDestinationArgs(workflow=workflow.id),
        service_account=account.email,
        labels=place.tags,
        opts=later,
    )


def _account(place: _Place, tpus: bool) -> tuple[serviceaccount.Account, list[pulumi.Resource]]:
    """One account for the trigger, which starts the workflow, and for the workflow, which stops the stack."""
    account = serviceaccount.Account(
        place.name,
        project=place.project,
        account_id=account_id(place.stack, "stop"),
        display_name=f"Gangway {place.stack}: stop at the budget's end",
        opts=place.opts,
    )
    plan = RolePlan(f"Gangway {place.stack}: empty groups", STOP_PERMISSIONS)
    # A workflow logs its errors as its own account.
    roles = ("roles/workflows.invoker", "roles/logging.logWriter", *(("roles/tpu.admin",) if tpus else ()))
    members: list[pulumi.Resource] = [
        projects.IAMMember(
            f"{place.name}-{role.rpartition('/')[2].replace('.', '-')}",
            project=place.project,
            role=role,
            member=account.member,
            opts=place.opts,
        )
        for role in roles
    ]
    return account, [*members, declare_role(place.name, plan, account, place.project, place.opts)]
