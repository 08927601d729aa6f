"""Google Cloud: a custom role of the project."""

import re
from collections.abc import Sequence

from gangway.live.permissions.needs import Document, Need, Use
from gangway.live.permissions.roles import role_needs
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.gcp.settings import GcpConfig

# Of the billing account and of the organisation: a role of a project cannot contain them.
_ELSEWHERE = {
    "billing.": "on the billing account, for the budget: roles/billing.costsManager has",
    "accesscontextmanager.": "on the organisation, for the perimeter: roles/accesscontextmanager.policyEditor has",
}
_LIMIT = "a custom role applies to its whole project, and conditions know few types: one project per stack is narrower"


def needs(plan: Plan, uses: Sequence[Use]) -> list[Need]:
    """One per permission."""
    return role_needs(uses, f"projects/{_project(plan)}", _LIMIT)


def documents(plan: Plan, needs: Sequence[Need]) -> list[Document]:
    """One role."""
    stack = plan.config.stack
    content = {
        "title": f"Gangway {stack}",
        "description": f"What gangway needs for the stack {stack}; written by gangway permissions",
        "stage": "GA",
        "includedPermissions": [need.action for need in needs if place_outside(need.action) is None],
    }
    role = "gangway_" + re.sub(r"\W", "_", stack)
    return [Document(content, f"gcloud iam roles create {role} --project {_project(plan)} --file FILE")]


def notes(plan: Plan, needs: Sequence[Need]) -> list[str]:
    """Permissions that the role cannot contain."""
    apart: dict[str, list[str]] = {}
    for need in needs:
        if (place := place_outside(need.action)) is not None:
            apart.setdefault(place, []).append(need.action)
    return [f"{place} {', '.join(actions)}" for place, actions in apart.items()]


def _project(plan: Plan) -> str:
    return plan.config.section(GcpConfig).project


def place_outside(action: str) -> str | None:
    """Where else a permission is granted, and by which role; None if the project grants it."""
    return next((place for start, place in _ELSEWHERE.items() if action.startswith(start)), None)
