"""ClusterIdentity: what nodes of a GKE cluster are, and what pods of a team's namespace may do besides: write its runs.
Pods have no key and no account of their own: Google knows them by namespace (workload identity federation).
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry, projects, serviceaccount, storage

from components.core.dependencies import after
from components.gcp.identity import DATA_READER, IMAGE_READER, RUN_WRITER, account_id, bucket_of

__all__ = ["NODE_ROLE", "ClusterIdentity", "ClusterIdentityArgs", "pods_of"]

NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""GKE documentation, "Minimum permissions for nodes"."""


class ClusterIdentityArgs(TypedDict):
    """Inputs of ClusterIdentity. `project_number` is that of `project`; `namespaces` are those whose pods write to
    `run_bucket_name`, and read the bucket of `data_source` (`gs://bucket/prefix`). `repository_id` is of the images
    that nodes pull: `projects/P/locations/R/repositories/NAME`. An account takes no labels.
    """

    project: pulumi.Input[str]
    project_number: pulumi.Input[str]
    stack: str
    namespaces: list[str]
    run_bucket_name: pulumi.Input[str]
    repository_id: NotRequired[pulumi.Input[str] | None]
    data_source: NotRequired[str | None]


def pods_of(project: str, project_number: str, namespace: str) -> str:
    """All pods of a namespace as a member of an IAM policy: of every cluster in the project that has such a one.

    >>> pods_of("lab", "123", "vision")[:73]
    'principalSet://iam.googleapis.com/projects/123/locations/global/workload'
    """
    pool = f"projects/{project_number}/locations/global/workloadIdentityPools/{project}.svc.id.goog"
    return f"principalSet://iam.googleapis.com/{pool}/namespace/{namespace}"


class ClusterIdentity(pulumi.ComponentResource):
    """The nodes' service account, and the grants of pods. `service_account_email`: waits for the nodes' grants;
    `pods_may`: the namespaces, once their pods have what they need.
    """

    service_account_email: pulumi.Output[str]
    pods_may: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ClusterIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ClusterIdentity", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        account = serviceaccount.Account(
            f"{name}-node",
            project=args["project"],
            account_id=account_id(args["stack"], "node"),
            display_name=f"Gangway {args['stack']}: nodes",
            opts=self._child,
        )
        grants: list[pulumi.CustomResource] = [
            projects.IAMMember(
                f"{name}-node-default",
                project=args["project"],
                role=NODE_ROLE,
                member=account.member,
                opts=self._child,
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
                    opts=self._child,
                )
            )
        pods = [grant for namespace in args["namespaces"] for grant in self._pods(namespace)]
        self.service_account_email = after(account.email, *grants)
        self.pods_may = after(args["namespaces"], *pods)
        self.register_outputs({"service_account_email": self.service_account_email, "pods_may": self.pods_may})

    def _pods(self, namespace: str) -> list[storage.BucketIAMMember]:
        args = self._args
        both = pulumi.Output.all(args["project"], args["project_number"])
        member = both.apply(lambda known: pods_of(known[0], known[1], namespace))
        wanted = {"runs": (args["run_bucket_name"], RUN_WRITER)}
        if source := args.get("data_source"):
            wanted["data"] = (bucket_of(source), DATA_READER)
        return [
            storage.BucketIAMMember(
                f"{self._name}-{namespace}-{what}", bucket=bucket, role=role, member=member, opts=self._child
            )
            for what, (bucket, role) in wanted.items()
        ]
