"""Old machine images are deleted with their snapshots, and only those of the stack; on moto."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import moto
import pytest

from gangway.components.aws.kept_images import KeptImagesProvider, delete_images

REGION = "us-east-2"
BASE = "ami-12c6146b"  # one that moto knows


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with moto.mock_aws():
        yield boto3.client("ec2", region_name=REGION)


@pytest.fixture
def build(ec2: Any) -> Callable[..., str]:
    """Makes an AMI as Image Builder does, from a builder's disk."""

    def make(name: str, stack: str = "demo", role: str = "machine-image") -> str:
        builder = ec2.run_instances(ImageId=BASE, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
        image: str = ec2.create_image(InstanceId=builder, Name=name)["ImageId"]
        tags = {"gangway:stack": stack, "gangway:role": role}
        ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return image

    return make


def own_images(ec2: Any) -> set[str]:
    return {image["ImageId"] for image in ec2.describe_images(Owners=["self"])["Images"]}


def own_snapshots(ec2: Any) -> set[str]:
    return {
        disk["Ebs"]["SnapshotId"]
        for image in ec2.describe_images(Owners=["self"])["Images"]
        for disk in image["BlockDeviceMappings"]
        if "SnapshotId" in disk.get("Ebs", {})
    }


def test_the_newest_stay_and_the_others_go_with_their_snapshots(
    ec2: Any, build: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [build(f"image-{number}") for number in range(4)]
    others = {build("other", stack="demo-2"), build("head", role="head")}
    dates = {image: f"2026-11-0{number + 1}T00:00:00.000Z" for number, image in enumerate(images)}
    describe = ec2.describe_images

    def dated(**question: Any) -> Any:
        found = describe(**question)
        return {"Images": [{**one, "CreationDate": dates.get(one["ImageId"], "")} for one in found["Images"]]}

    monkeypatch.setattr(ec2, "describe_images", dated)
    snapshots = own_snapshots(ec2)
    assert delete_images(ec2, "demo", 2) == [images[1], images[0]]
    assert own_images(ec2) == {*images[2:], *others}
    gone = snapshots - own_snapshots(ec2)
    assert gone
    left = {one["SnapshotId"] for one in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}
    assert not gone & left


def test_the_stack_takes_its_images_with_it(ec2: Any, build: Callable[..., str]) -> None:
    build("image-1")
    build("image-2")
    other = build("other", stack="demo-2")
    props = {"region": REGION, "stack": "demo", "keep": 2, "newest": "ami-1"}
    KeptImagesProvider().create(props)
    assert len(own_images(ec2)) == 3
    KeptImagesProvider().delete("demo/machine-image", props)
    assert own_images(ec2) == {other}


def test_another_image_is_no_reason_to_replace() -> None:
    provider, props = KeptImagesProvider(), {"region": REGION, "stack": "demo", "keep": 2, "newest": "ami-1"}
    assert not provider.diff("", props, props).changes
    changed = provider.diff("", props, {**props, "newest": "ami-2"})
    assert (changed.changes, changed.replaces) == (True, [])
    assert provider.diff("", props, {**props, "stack": "demo-2"}).replaces == ["stack"]
