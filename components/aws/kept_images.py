"""KeptImages: deletes all but the newest AMIs of a stack, and at `destroy` all of them, with their snapshots.

Image Builder's own lifecycle policies see only images that it still lists; Pulumi deletes an image there when it
replaces it, which leaves its AMI.
"""

from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

STACK_TAG, ROLE_TAG = "gangway:stack", "gangway:role"
IMAGE_ROLE = "machine-image"


def delete_images(ec2: Any, stack: str, keep: int) -> list[str]:
    """Deletes all but the newest `keep` AMIs of the stack -> their ids. Instances that run from one continue."""
    filters = [
        {"Name": f"tag:{STACK_TAG}", "Values": [stack]},
        {"Name": f"tag:{ROLE_TAG}", "Values": [IMAGE_ROLE]},
    ]
    found = ec2.describe_images(Owners=["self"], Filters=filters)["Images"]
    old = sorted(found, key=lambda image: (image["CreationDate"], image["ImageId"]), reverse=True)[keep:]
    for image in old:
        ec2.deregister_image(ImageId=image["ImageId"])
        for disk in image.get("BlockDeviceMappings", ()):
            if "SnapshotId" in disk.get("Ebs", {}):
                ec2.delete_snapshot(SnapshotId=disk["Ebs"]["SnapshotId"])
    return [image["ImageId"] for image in old]


class KeptImagesProvider(ResourceProvider):
    """Deletes AMIs whenever there is another one, and with the stack."""

    # It contains no secret, and a secret would hide every difference in a preview.
    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        """AMIs of an earlier stack with this name may exist."""
        _delete(props, int(props["keep"]))
        return CreateResult(f"{props['stack']}/{IMAGE_ROLE}", props)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Another region or stack has other images."""
        others = [key for key in ("region", "stack") if olds.get(key) != news.get(key)]
        changed = bool(others) or any(olds.get(key) != news.get(key) for key in ("keep", "newest"))
        return DiffResult(changed, others, [], delete_before_replace=False)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """The newest stay."""
        _delete(news, int(news["keep"]))
        return UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """None stays."""
        _delete(props, 0)


def _delete(props: dict[str, Any], keep: int) -> None:
    import boto3

    for image in delete_images(boto3.client("ec2", region_name=props["region"]), props["stack"], keep):
        print(f"{image}: deleted with its snapshots", flush=True)


class KeptImages(Resource, module="gangway", name="KeptImages"):
    """The newest `keep` AMIs with the stack's tags. `newest`: the one that was built last."""

    def __init__(
        self, name: str, region: str, stack: str, keep: int, newest: pulumi.Input[str], opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {"region": region, "stack": stack, "keep": keep, "newest": newest}
        super().__init__(KeptImagesProvider(), name, inputs, opts)
