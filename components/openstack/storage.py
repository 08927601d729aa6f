"""RunBucket, where run records outlive the nodes; and ManilaShare, which has a module of its own.

A container of the object store, in no access list: whoever reads or writes it has a role in the project. It stays when
the stack is destroyed, with what is in it.
"""

from typing import TypedDict

import pulumi
from pulumi_openstack import objectstorage

from components.openstack.file_system import ManilaShare, ManilaShareArgs
from components.openstack.names import header_tags

__all__ = ["ManilaShare", "ManilaShareArgs", "RunBucket", "RunBucketArgs"]


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket: nothing but the tags, which become metadata."""

    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private container. `bucket_url` is `swift://NAME`: the account is that of who asks."""

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:RunBucket", name, None, opts)
        container = objectstorage.Container(
            f"{name}-runs",
            metadata=header_tags(args["tags"]),
            force_destroy=False,
            # The object store would refuse to delete it, and `destroy` fail, as soon as a run is in it.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        self.bucket_name = container.name
        self.bucket_url = pulumi.Output.concat("swift://", container.name)
        self.register_outputs({"bucket_name": self.bucket_name, "bucket_url": self.bucket_url})
