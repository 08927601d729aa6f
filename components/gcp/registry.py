"""ImageRegistry: the Artifact Registry repository of the trainer's image, with each push scanned. Tags may move:
immutability has no exceptions, and the build cache's tags must move, as must content tags after an `up` interrupted
between push and state; nodes and run records use digests. The images are deleted with the stack, as each can be rebuilt
from a run record's commit and lock.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry

__all__ = ["LOGIN_USER", "ImageRegistry", "ImageRegistryArgs"]

LOGIN_USER = "oauth2accesstoken"
"""The user for a short-lived access token."""
IMAGE = "trainer"
KEPT_BUILDS = 10
# Versions per build: an index, the image, its provenance, the cache.
VERSIONS_PER_BUILD = 4
OLD_DAYS = 14


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_name` Artifact Registry encrypts with its own keys."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def _cleanup_policies() -> list[artifactregistry.RepositoryCleanupPolicyArgs]:
    """Drop what is older than two weeks except the newest ten builds: keeping wins over deleting."""
    newest = artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs(keep_count=KEPT_BUILDS * VERSIONS_PER_BUILD)
    old = artifactregistry.RepositoryCleanupPolicyConditionArgs(tag_state="ANY", older_than=f"{OLD_DAYS * 86400}s")
    return [
        artifactregistry.RepositoryCleanupPolicyArgs(id="keep-newest", action="KEEP", most_recent_versions=newest),
        artifactregistry.RepositoryCleanupPolicyArgs(id="delete-old", action="DELETE", condition=old),
    ]


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository that keeps its newest images. `repository_url`: prefix of image references;
    `repository_id`: `projects/P/locations/R/repositories/NAME`, for grants; `registry_host`: for logging in as
    LOGIN_USER.
    """

    repository_url: pulumi.Output[str]
    repository_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:ImageRegistry", name, None, opts)
        repository = artifactregistry.Repository(
            f"{name}-trainer",
            project=args["project"],
            location=args["region"],
            # Pulumi generates no name for this type.
            repository_id=f"{name}-trainer",
            description="The trainer's images and its build cache",
            format="DOCKER",
            mode="STANDARD_REPOSITORY",
            docker_config=artifactregistry.RepositoryDockerConfigArgs(immutable_tags=False),
            cleanup_policies=_cleanup_policies(),
            # There is no value for "on": the inherited one is on if the project has the scanning API, which
            # ProjectServices enable.
            vulnerability_scanning_config=artifactregistry.RepositoryVulnerabilityScanningConfigArgs(
                enablement_config="INHERITED"
            ),
            kms_key_name=args.get("kms_key_name"),
            labels=args["tags"],
            # The name is fixed.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.repository_url = pulumi.Output.concat(repository.registry_uri, "/", IMAGE)
        self.repository_id = repository.id
        self.registry_host = pulumi.Output.from_input(f"{args['region']}-docker.pkg.dev")
        self.register_outputs(
            {
                "repository_url": self.repository_url,
                "repository_id": self.repository_id,
                "registry_host": self.registry_host,
            }
        )
