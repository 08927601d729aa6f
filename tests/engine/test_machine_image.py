"""Machine images of nodes and the builder of the trainer's image under the real Pulumi engine, in simulated clouds."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import moto
import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

BUILT, KEPT = "aws:imagebuilder/image:Image", "pulumi-python:dynamic/gangway:KeptImages"
TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
PROJECT = "aws:codebuild/project:Project"
REPOSITORY = Path(__file__).resolve().parents[2]
BUILDER = """
from gangway.components.aws import ImageBuilder, ImageRegistry

tags = {"team": "ml"}
registry = ImageRegistry("gan", {"tags": tags})
ImageBuilder("gan", {"repository_arn": registry.repository_arn, "region": "us-east-2", "tags": tags})
"""


@pytest.fixture
def account(load_module: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """EC2 by moto over HTTP, for the provider of ours that deletes AMIs. It gets an AMI for each that was built."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with moto.mock_aws():
        made = Account(boto3.client("ec2", region_name="us-east-2"))
        handler = load_module(REPOSITORY / "tests/moto_http.py").query_services(made.catch_up)
        with serving(handler) as made.url:
            yield made


@contextmanager
def serving(handler: type) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Account:
    """The AMIs of one account: Image Builder, which is a stand-in, makes none."""

    def __init__(self, ec2: Any) -> None:
        self.ec2, self.url = ec2, ""
        self.engine: Any = None
        self.known: set[str] = set()

    def catch_up(self, action: str, _: Any) -> bool:
        built = [one for one in self.engine.resources() if one["type"] == BUILT]
        for one in built if action == "DescribeImages" else ():
            if one["id"] not in self.known:
                self.known.add(one["id"])
                self.add(one["inputs"]["tags"])
        return False

    def add(self, tags: dict[str, str]) -> None:
        base = self.ec2.describe_instances()["Reservations"]
        if not base:
            self.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
            base = self.ec2.describe_instances()["Reservations"]
        instance = base[0]["Instances"][0]["InstanceId"]
        image = self.ec2.create_image(InstanceId=instance, Name=f"image-{len(self.known)}")["ImageId"]
        self.ec2.create_tags(Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])

    @property
    def images(self) -> int:
        return len(self.ec2.describe_images(Owners=["self"])["Images"])


@pytest.fixture
def engine(make_engine: Callable[[str], Any], account: Any) -> Any:
    made = make_engine("aws-demo")
    account.engine = made
    made.env["AWS_ENDPOINT_URL_EC2"] = account.url
    made.change(lambda config: config["gangway:cluster"].update(machine_image={"keep": 2}))
    return made


def nodes_image(engine: Any) -> str:
    """The AMI of the nodes' launch templates."""
    templates = [one["inputs"] for one in engine.resources() if one["type"] == TEMPLATE]
    (image,) = {one["imageId"] for one in templates if "instanceType" in one}
    return str(image)


def refresh(engine: Any, number: int) -> Any:
    """Newer base images appear, and the stack takes them."""
    (engine.cloud / "newest").write_text(str(number + 1))
    engine.change(lambda config: config["gangway:cluster"].update(image_refresh=number))
    return engine.applied("up")


def test_nodes_start_from_an_image_that_the_stack_builds_keeps_and_deletes(engine: Any, account: Any) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    up = engine.applied("up")
    assert up.types("create") == preview.types("create") > {BUILT, KEPT, "gangway:aws:MachineImage"}
    first = nodes_image(engine)
    assert json.loads(engine.plain("stack", "output", "--json"))["machine_images"]["nodes"] == first
    (built,) = (one for one in engine.resources() if one["type"] == BUILT)
    assert built["outputs"]["outputResources"][0]["amis"][0]["image"] == first

    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}

    moved = refresh(engine, 1)
    assert BUILT in moved.types("replace")
    assert GROUP not in moved.types("replace"), "nodes that run stay; new ones start from the new image"
    assert nodes_image(engine) != first
    assert account.images == 2
    refresh(engine, 2)
    assert (len(account.known), account.images) == (3, 2)

    gone = engine.applied("destroy")
    order = gone.ended("delete")
    places = {urn.rpartition("::")[0].rpartition("$")[2]: place for urn, place in order.items()}
    assert places[GROUP] < places[KEPT] < places[BUILT]
    assert account.images == 0
    assert [one["type"] for one in engine.resources() if one["type"].startswith("aws:imagebuilder/")] == []


def test_the_image_builder_lives_apart_from_stacks(make_program_engine: Callable[[str, dict[str, Any]], Any]) -> None:
    engine = make_program_engine(BUILDER, {})
    assert PROJECT in engine.applied("up").types("create")
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    (project,) = (one for one in engine.resources() if one["type"] == PROJECT)
    assert project["inputs"]["name"] == "gangway-image-builder"
    engine.applied("destroy")
    assert engine.resources() == []
