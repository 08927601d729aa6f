"""Azure: a custom role of the subscription."""

from collections.abc import Sequence

from gangway.components.catalog.permissions import load_permissions
from gangway.live.permissions.needs import Document, Need, Use
from gangway.live.permissions.roles import role_needs
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.azure.settings import AzureConfig, get_existing, provided

GRANTS = "Microsoft.Authorization/roleAssignments/write"
_LIMIT = "the stack creates its resource group, so that no narrower scope exists before the first `up`"


def needs(plan: Plan, uses: Sequence[Use]) -> list[Need]:
    """One per operation."""
    return role_needs(
        uses, _scope(plan), "existing resources are in several groups" if provided(plan.config) else _LIMIT
    )


def documents(plan: Plan, needs: Sequence[Need]) -> list[Document]:
    """One role."""
    data = load_permissions("azure").actions
    content = {
        "Name": f"Gangway {plan.config.stack}",
        "IsCustom": True,
        "Description": f"What gangway needs for the stack {plan.config.stack}; written by gangway permissions",
        "Actions": [need.action for need in needs if need.action not in data],
        "NotActions": [],
        "DataActions": [need.action for need in needs if need.action in data],
        "NotDataActions": [],
        "AssignableScopes": [_scope(plan)],
    }
    return [Document(content, "az role definition create --role-definition @FILE")]


def notes(plan: Plan, needs: Sequence[Need]) -> list[str]:
    """What a role cannot limit."""
    lines = []
    if groups := sorted({id_.partition("/providers/")[0] for id_ in provided(plan.config).values()}):
        lines.append(f"`up` looks existing resources up: the role Reader on {', '.join(groups)}")
    registry = get_existing(plan.config).registry_id
    if registry is not None and not registry.startswith(f"{_scope(plan)}/"):
        lines.append(f"`up` pushes the image, and this role is not assignable there: AcrPush on {registry}")
    if any(need.action == GRANTS for need in needs):
        lines.append(f"{GRANTS} lets the caller grant any role: limit it by a condition when you assign this role")
    return lines


def _scope(plan: Plan) -> str:
    return f"/subscriptions/{plan.config.section(AzureConfig).subscription_id}"
