"""HeadFiles: a private bucket for what `up` writes and the head reads once there are nodes; it goes with the stack.

Apart from the run bucket, which keeps every version of everything and so refuses to go as long as anything was ever in
it: nothing in this one is anybody's to lose. Not a place for what a job makes.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import storage

__all__ = ["HeadFiles", "HeadFilesArgs"]


class HeadFilesArgs(TypedDict):
    """Inputs of HeadFiles. Without `kms_key_name` Cloud Storage encrypts with its own keys."""

    project: pulumi.Input[str]
    region: str
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class HeadFiles(pulumi.ComponentResource):
    """A private bucket without versions, deleted with whatever is in it."""

    bucket_name: pulumi.Output[str]

    def __init__(self, name: str, args: HeadFilesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:HeadFiles", name, None, opts)
        key = args.get("kms_key_name")
        bucket = storage.Bucket(
            f"{name}-head",
            project=args["project"],
            location=args["region"],
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            force_destroy=True,
            # What `up` wrote, it can write again.
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            encryption=None if key is None else storage.BucketEncryptionArgs(default_kms_key_name=key),
            labels=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bucket_name = bucket.name
        self.register_outputs({"bucket_name": self.bucket_name})
