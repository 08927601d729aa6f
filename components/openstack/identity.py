"""NodeIdentity: the application credential machines use, which opens one thing: putting runs into their container.
Keystone's access rules name method and path of each request, heeded by services that run keystonemiddleware with a
service_type (Swift; Ceph's object gateway refuses such credentials: ceph/ceph pull request 66866 is open). Without
rules it opens whatever its role does in the project. Whoever runs `up` must have that role, and be no application
credential: Keystone lets none make another.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_openstack import identity

from components.core.dependencies import after

__all__ = ["NodeIdentity", "NodeIdentityArgs", "access_paths"]

SERVICE = "object-store"
METHOD = "PUT"


class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity. `run_bucket` is RunBucket's name, `role` what the object store asks of who writes.
    `access_rules` (true) restricts the credential to that container.
    """

    run_bucket: pulumi.Input[str]
    role: str
    access_rules: NotRequired[bool]


def access_paths(container: str) -> tuple[str, ...]:
    """Paths of the objects in a container of the project, as Swift serves them, and as Ceph's gateway does. Keystone
    API, "Application credentials": `*` is one step of a path, `**` any number.

    >>> access_paths("runs")[0]
    '/v1/*/runs/**'
    """
    return (f"/v1/*/{container}/**", f"/swift/v1/*/{container}/**")


class NodeIdentity(pulumi.ComponentResource):
    """The machines' credential: `credential_id` to ask Keystone for a token, `credential_secret` the other half, a
    secret of the state.
    """

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
        # Whoever logs in by it goes before the container does.
        self.credential_id = after(credential.id, container)
        self.credential_secret = pulumi.Output.secret(credential.secret)
        self.register_outputs({"credential_id": self.credential_id, "credential_secret": self.credential_secret})


def _rules(container: str) -> list[identity.ApplicationCredentialAccessRuleArgs]:
    return [
        identity.ApplicationCredentialAccessRuleArgs(service=SERVICE, method=METHOD, path=path)
        for path in access_paths(container)
    ]
