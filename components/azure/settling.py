"""Waits for role assignments: Azure applies them everywhere only after minutes (Managed Lustre's prerequisites say
five; Azure/bicep#16601, pulumi/pulumi#16893).
"""

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization

from gangway.components.core.settling import Settling

__all__ = ["heeded"]


def heeded(
    name: str,
    what: str,
    grants: Sequence[authorization.RoleAssignment],
    seconds: float,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """Role assignments and a wait for them, for `depends_on`; without `seconds` only the assignments. `what`: whose
    roles, as text; `opts`: parent of the wait, which is not retained.
    """
    if not seconds:
        return list(grants)
    # Ours keep their ids when replaced: principal and scope tell them apart.
    awaited = [pulumi.Output.concat(grant.id, " for ", grant.principal_id, " on ", grant.scope) for grant in grants]
    return [*grants, Settling(name, f"Azure heeds the roles of {what}", awaited, seconds, opts)]
