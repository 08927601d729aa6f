"""What has to stand before somebody relies on a role: Azure heeds a role assignment everywhere only after minutes
(Managed Lustre's prerequisites speak of five; Azure/bicep#16601, pulumi/pulumi#16893).
"""

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import authorization

from components.core.settling import Settling

__all__ = ["heeded"]


def heeded(
    name: str,
    what: str,
    grants: Sequence[authorization.RoleAssignment],
    seconds: float,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.CustomResource]:
    """What has to stand before somebody relies on role assignments: they, and a wait; they alone without `seconds`.

    Args:
        name: logical name of the wait.
        what: whose roles, in words.
        grants: the assignments.
        seconds: how long Azure gets.
        opts: parent of the wait; it is not kept when the stack is destroyed, whatever they are.
    """
    if not seconds:
        return list(grants)
    # Ours keep their ids when they are made anew: for whom, and where, tells one from the other.
    awaited = [pulumi.Output.concat(grant.id, " for ", grant.principal_id, " on ", grant.scope) for grant in grants]
    return [*grants, Settling(name, f"Azure heeds the roles of {what}", awaited, seconds, opts)]
