"""ImageRegistry: the ECR repository that holds the trainer's image. Tags are immutable, every push is scanned.

Building the image is a component of its own; this one only keeps it. The images go with the stack: each can be built
again from the commit and the lock that a run record names, while a repository that outlives its stack is paid for and
belongs to nobody. A stack that must keep its images is protected (`pulumi state protect`) or pushes elsewhere.
"""

import re
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import ecr

from components.findings import InputError

__all__ = ["ImageRegistry", "ImageRegistryArgs", "digest_reference", "lifecycle_policy"]

KEPT_IMAGES = 20
UNTAGGED_DAYS = 14
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. Without `kms_key_arn` ECR encrypts with its own keys (AES256)."""

    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


def digest_reference(repository_url: str, digest: str, place: str = "gangway:job.image_digest") -> str:
    """The image by its content: every node of every restart pulls the same bytes.

    >>> digest_reference("123.dkr.ecr.us-east-2.amazonaws.com/x", "sha256:" + "0" * 64)[-12:]
    '000000000000'

    Raises:
        InputError: `digest` is none.
    """
    if not _DIGEST.fullmatch(digest):
        raise InputError(
            place,
            "not the digest of an image",
            value=digest,
            allowed="sha256: and 64 hexadecimal digits",
            fix="take it from `docker buildx imagetools inspect IMAGE`, or from the push's output",
        )
    return f"{repository_url}@{digest}"


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
            image_tag_mutability="IMMUTABLE",
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
