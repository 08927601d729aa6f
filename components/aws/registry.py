"""ImageRegistry: the ECR repository of the trainer's image. Each push is scanned; tags are immutable but for our own.

Our own are all that `up` pushes, so the setting guards only tags that people add: the build cache's, and the content
tags. After an `up` that was interrupted between push and state the same content is built again, and never gives the
same digest; ECR would refuse the push (moby/buildkit#3776), and every `up` would fail until somebody deletes the tag by
hand. What cannot move is the digest, and nodes, launch templates and run records name images by nothing else. The
digest before it is untagged then, and kept for UNTAGGED_DAYS more.

Building the image is a component of its own; this one only keeps it. The images go with the stack: each can be built
again from the commit and the lock that a run record names, while a repository that outlives its stack is paid for and
belongs to nobody. A stack that must keep its images is protected (`pulumi state protect`) or pushes elsewhere.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import ecr

from components.core.image import CACHE_TAG, CONTENT_PREFIX

__all__ = ["ImageRegistry", "ImageRegistryArgs", "lifecycle_policy"]

KEPT_IMAGES = 20
UNTAGGED_DAYS = 14


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_arn` ECR encrypts with its own keys (AES256)."""

    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def lifecycle_policy() -> dict[str, Any]:
    """What is dropped: untagged images after two weeks, and all but the newest. ECR wants the rule for any tag last."""
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
