"""NodeIdentity: the machines' application credential, which may only write runs to their container.

Keystone's access rules list method and path of each request; services enforce them if they run keystonemiddleware with
a service_type (Swift; Ceph's object gateway refuses such credentials: ceph/ceph pull request 66866 is open). Without
rules the credential has all of its role in the project. `up` needs that role, and not an application credential:
Keystone does not let one create another.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_openstack import identity

from gangway.components.core.dependencies import after

__all__ = ["NodeIdentity", "NodeIdentityArgs", "access_paths"]

SERVICE = "object-store"
METHOD = "PUT"


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity. `run_bucket` is RunBucket's name, `role` the object store's role for writing.
    `access_rules` (true) restricts the credential to that container.
    """

    run_bucket: pulumi.Input[str]
    role: str
    access_rules: NotRequired[bool]


def access_paths(container: str) -> tuple[str, ...]:
    """Paths of a container's objects in Swift and in Ceph's gateway. Keystone API, "Application credentials": `*` is
    one path segment, `**` any number.

    >>> access_paths("runs")[0]
    '/v1/*/runs/**'
    """
    return (f"/v1/*/{container}/**", f"/swift/v1/*/{container}/**")


class NodeIdentity(pulumi.ComponentResource):
    """The machines' credential: `credential_id` to request a Keystone token, and `credential_secret`, a secret."""

    credential_id: pulumi.Output[str]
    credential_secret: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:NodeIdentity", name, None, opts)
        container = pulumi.Output.from_input(args["run_bucket"])
        credential = identity.ApplicationCredential(
            f"{name}-node",
            description=f"Gangway: machines of {name} put their runs",
            roles=[args["role"]],
            unrestricted=False,
            access_rules=container.apply(_rules) if args.get("access_rules", True) else None,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Users of the credential are deleted before the container.
        self.credential_id = after(credential.id, container)
        self.credential_secret = pulumi.Output.secret(credential.secret)
        self.register_outputs({"credential_id": self.credential_id, "credential_secret": self.credential_secret})


def _rules(container: str) -> list[identity.ApplicationCredentialAccessRuleArgs]:
    return [
        identity.ApplicationCredentialAccessRuleArgs(service=SERVICE, method=METHOD, path=path)
        for path in access_paths(container)
    ]
