"""ClusterIdentity: the service account of a GKE cluster's nodes, and its grants. Pods get no grant: Google identifies a
pod by project, namespace and service account, so a grant would apply to every cluster of the project with such a
namespace.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, projects, serviceaccount

from gangway.components.core.dependencies import after
from gangway.components.gcp.identity import IMAGE_READER, account_id

__all__ = ["NODE_ROLE", "ClusterIdentity", "ClusterIdentityArgs"]

NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""GKE documentation, "Minimum permissions for nodes"."""


class ClusterIdentityArgs(TypedDict):
    """Inputs of ClusterIdentity. `repository_id`, for images: `projects/P/locations/R/repositories/NAME`."""

    project: pulumi.Input[str]
    stack: str
    repository_id: NotRequired[pulumi.Input[str] | None]


class ClusterIdentity(pulumi.ComponentResource):
    """The nodes' service account. `service_account_email` waits for the grants."""

    service_account_email: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ClusterIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = serviceaccount.Account(
            f"{name}-node",
            project=args["project"],
            account_id=account_id(args["stack"], "node"),
            display_name=f"Gangway {args['stack']}: nodes",
            opts=child,
        )
        grants: list[pulumi.CustomResource] = [
            projects.IAMMember(
                f"{name}-node-default",
                project=args["project"],
                role=NODE_ROLE,
                member=account.member,
                opts=child,
            )
        ]
        repository = args.get("repository_id")
        if repository is not None:
            grants.append(
                artifactregistry.RepositoryIamMember(
                    f"{name}-node-image",
                    repository=repository,
                    role=IMAGE_READER,
                    member=account.member,
                    opts=child,
                )
            )
        self.service_account_email = after(account.email, *grants)
        self.register_outputs({"service_account_email": self.service_account_email})
