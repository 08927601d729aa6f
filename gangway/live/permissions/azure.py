"""Azure: a custom role of the subscription."""

from collections.abc import Sequence

from gangway.components.catalog.permissions import load_permissions
from gangway.live.permissions.needs import Document, Need, Use
from gangway.live.permissions.roles import role_needs
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.azure.settings import AzureConfig

GRANTS = "Microsoft.Authorization/roleAssignments/write"
_LIMIT = "the stack creates its resource group, so that no narrower scope exists before the first `up`"


def needs(plan: Plan, uses: Sequence[Use]) -> list[Need]:
    """One per operation."""
    return role_needs(uses, _scope(plan), _LIMIT)


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
    if not any(need.action == GRANTS for need in needs):
        return []
    return [f"{GRANTS} lets the caller grant any role: limit it by a condition when you assign this role"]


def _scope(plan: Plan) -> str:
    return f"/subscriptions/{plan.config.section(AzureConfig).subscription_id}"
