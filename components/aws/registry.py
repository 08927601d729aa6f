"""ImageRegistry: the ECR repository of the trainer's image. Pushes are scanned; tags are immutable except for ours.

Ours are all that `up` pushes (the build cache's and the content tags): after an `up` interrupted between push and state
the same content gets another digest, which ECR would refuse at every `up` until the tag is deleted
(moby/buildkit#3776). Nodes, launch templates and run records use digests; an untagged digest is kept for UNTAGGED_DAYS.
The images are deleted with the stack, as each can be rebuilt from a run record's commit and lock; `pulumi state
protect` keeps them.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import ecr

from gangway.components.core.image import CACHE_TAG, CONTENT_PREFIX

__all__ = ["ImageRegistry", "ImageRegistryArgs", "lifecycle_policy"]

KEPT_IMAGES = 20
UNTAGGED_DAYS = 14


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_arn` ECR encrypts with its own keys (AES256)."""

    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def lifecycle_policy() -> dict[str, Any]:
    """Drop untagged images after two weeks, and all but the newest. ECR wants the rule for any tag last."""
    untagged = {"tagStatus": "untagged", "countType": "sinceImagePushed", "countUnit": "days"}
    newest = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": KEPT_IMAGES}
    rules = [
        (f"untagged for {UNTAGGED_DAYS} days", {**untagged, "countNumber": UNTAGGED_DAYS}),
        (f"all but the newest {KEPT_IMAGES}", newest),
    ]
    return {
        "rules": [
            {"rulePriority": priority, "description": text, "selection": selection, "action": {"type": "expire"}}
            for priority, (text, selection) in enumerate(rules, start=1)
        ]
    }


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository that keeps its newest images."""

    repository_url: pulumi.Output[str]
    repository_arn: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:ImageRegistry", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = args.get("kms_key_arn")
        encryption = ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=key)
        repository = ecr.Repository(
            f"{name}-trainer",
            image_tag_mutability="IMMUTABLE_WITH_EXCLUSION",
            image_tag_mutability_exclusion_filters=[
                ecr.RepositoryImageTagMutabilityExclusionFilterArgs(filter=tags, filter_type="WILDCARD")
                for tags in (CACHE_TAG, f"{CONTENT_PREFIX}*")
            ],
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=None if key is None else [encryption],
            force_delete=True,
            tags=args["tags"],
            opts=child,
        )
        ecr.LifecyclePolicy(
            f"{name}-trainer",
            repository=repository.name,
            policy=pulumi.Output.json_dumps(lifecycle_policy()),
            opts=child,
        )
        self.repository_url = repository.repository_url
        self.repository_arn = repository.arn
        self.register_outputs({"repository_url": self.repository_url, "repository_arn": self.repository_arn})
