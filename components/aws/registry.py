"""ImageRegistry: the ECR repository that holds the trainer's image. Tags are immutable, every push is scanned.

Building the image is a component of its own; this one only keeps it.
"""

from typing import TypedDict

import pulumi
from pulumi_aws import ecr

__all__ = ["ImageRegistry", "ImageRegistryArgs"]


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry."""

    tags: dict[str, str]


class ImageRegistry(pulumi.ComponentResource):
    """A private container repository."""

    repository_url: pulumi.Output[str]
    repository_arn: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:ImageRegistry", name, None, opts)
        repository = ecr.Repository(
            f"{name}-trainer",
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            force_delete=True,
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.repository_url = repository.repository_url
        self.repository_arn = repository.arn
        self.register_outputs({"repository_url": self.repository_url, "repository_arn": self.repository_arn})
