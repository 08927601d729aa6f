"""ImageRegistry: the Artifact Registry repository of the trainer's image, each push scanned. Tags may move: Artifact
Registry's immutable tags know no exception, and the build cache's have to move, as have the content tags of an `up`
that was interrupted between push and state; nodes and run records name images by digest. The images go with the stack,
as each can be built again from a run record's commit and lock.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import artifactregistry

__all__ = ["LOGIN_USER", "ImageRegistry", "ImageRegistryArgs"]

LOGIN_USER = "oauth2accesstoken"
"""Whom to log in to the registry as, with a short-lived access token for a password: there is no key to keep."""
IMAGE = "trainer"
KEPT_BUILDS = 10
# What each build pushes, all counted as versions: an index, the image, its provenance, the cache.
VERSIONS_PER_BUILD = 4
OLD_DAYS = 14


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_name` Artifact Registry encrypts with its own keys."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def _cleanup_policies() -> list[artifactregistry.RepositoryCleanupPolicyArgs]:
    """What is dropped: all that is older than two weeks save the newest ten builds, for keeping wins over deleting."""
    newest = artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs(keep_count=KEPT_BUILDS * VERSIONS_PER_BUILD)
    old = artifactregistry.RepositoryCleanupPolicyConditionArgs(tag_state="ANY", older_than=f"{OLD_DAYS * 86400}s")
    return [
        artifactregistry.RepositoryCleanupPolicyArgs(id="keep-newest", action="KEEP", most_recent_versions=newest),
        artifactregistry.RepositoryCleanupPolicyArgs(id="delete-old", action="DELETE", condition=old),
    ]


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository that keeps its newest images. `repository_url`: what image references begin with,
    the image's name included; `repository_id`: `projects/P/locations/R/repositories/NAME`, on which machines get to
    read; `registry_host`: host to log in to, as LOGIN_USER.
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
            # Pulumi makes up no name for this one.
            repository_id=f"{name}-trainer",
            description="The trainer's images and its build cache",
            format="DOCKER",
            mode="STANDARD_REPOSITORY",
            docker_config=artifactregistry.RepositoryDockerConfigArgs(immutable_tags=False),
            cleanup_policies=_cleanup_policies(),
            # There is no word for "on": what is inherited is on where the project has the scanning API, which the
            # stack's ProjectServices enable.
            vulnerability_scanning_config=artifactregistry.RepositoryVulnerabilityScanningConfigArgs(
                enablement_config="INHERITED"
            ),
            kms_key_name=args.get("kms_key_name"),
            labels=args["tags"],
            # Its name is fixed: the old one has to go first.
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
