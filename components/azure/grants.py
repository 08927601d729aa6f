"""Role assignments and roles of our own, as resources. Not a component: a part of several.

Azure calls an assignment by a GUID. Ours are made from the stack's name and what the assignment is for, so that an `up`
that was interrupted finds its own again instead of making a second; and from its place, since Azure refuses a GUID that
stands for another: that of a stack of this name before, which has outlived it, or of somebody else's. A role of our own
is called after the stack's resource group for the same reason. It is assigned only some time after it was made: Azure
does not know it everywhere at once, and refuses to assign one that it does not know (RoleDefinitionDoesNotExist,
hashicorp/terraform-provider-azurerm#19916).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization

from components.azure.names import guid
from components.azure.policies import group_id, role_id
from components.azure.settling import Settling
from components.order import after

__all__ = ["KNOWN_SEC", "Grantee"]

KNOWN_SEC = 60.0
"""How long Azure gets to know a role of our own, at most, before it is assigned: as Microsoft's own modules have it
(Azure/terraform-azurerm-caf-enterprise-scale, create_duration_delay).
"""


@dataclass(frozen=True)
class Grantee:
    """Somebody who gets rights.

    Attributes:
        name: begins the logical name of each assignment.
        kind: what it is in the stack: node, head, stop ...
        principal_id: object id of the identity.
        subscription_id: where roles are looked up.
        stack: makes the GUIDs.
        opts: parent of what is declared.
        wait_sec: how long a stack waits for roles to be heeded; for one of our own to be known KNOWN_SEC are enough.
    """

    name: str
    kind: str
    principal_id: pulumi.Input[str]
    subscription_id: str
    stack: str
    opts: pulumi.ResourceOptions
    wait_sec: float = 0

    def may(self, label: str, role: str, scope: pulumi.Input[str]) -> authorization.RoleAssignment:
        """Assigns a built-in role, by its GUID, on `scope`."""
        return self._assign(label, role_id(self.subscription_id, role), scope)

    def may_do(
        self, label: str, title: str, actions: Sequence[str], resource_group_name: pulumi.Input[str]
    ) -> list[pulumi.CustomResource]:
        """Makes a role of these actions alone and assigns it on the stack's resource group; nothing for no action."""
        if not actions:
            return []
        name = pulumi.Output.from_input(resource_group_name)
        group = name.apply(lambda known: group_id(self.subscription_id, known))
        parts = (self.subscription_id, self.stack, self.kind, label, "role")
        role = authorization.RoleDefinition(
            f"{self.name}-{self.kind}-{label}",
            role_definition_id=name.apply(lambda known: guid(*parts, known)),
            # A role's name is unique in the directory; the group's ends with digits of its own.
            role_name=pulumi.Output.concat("Gangway ", name, f" ({self.subscription_id[:8]}): {title}"),
            role_type="CustomRole",
            description=f"Made and removed by the stack {self.stack}",
            scope=group,
            assignable_scopes=[group],
            permissions=[authorization.PermissionArgs(actions=list(actions))],
            opts=self.opts,
        )
        return [role, self._assign(label, self._known(role, label, title), group)]

    def _known(self, role: authorization.RoleDefinition, label: str, title: str) -> pulumi.Input[str]:
        """The id of a role of our own, once Azure knows it everywhere."""
        if not self.wait_sec:
            return role.id
        name, seconds = f"{self.name}-{self.kind}-{label}-known", min(self.wait_sec, KNOWN_SEC)
        return after(role.id, Settling(name, f"the new role: {title}", [role.id], seconds, self.opts))

    def _assign(self, label: str, role: pulumi.Input[str], scope: pulumi.Input[str]) -> authorization.RoleAssignment:
        parts = (self.subscription_id, self.stack, self.kind, label)
        return authorization.RoleAssignment(
            f"{self.name}-{self.kind}-{label}",
            role_assignment_name=pulumi.Output.from_input(scope).apply(lambda known: guid(*parts, known)),
            role_definition_id=role,
            principal_id=self.principal_id,
            # Told, Azure does not look up an identity that not every directory server knows yet.
            principal_type="ServicePrincipal",
            scope=scope,
            opts=self.opts,
        )
