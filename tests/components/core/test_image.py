"""TrainerImage: what BuildKit is told, what stays secret, and a reference by digest."""

from collections.abc import Callable
from typing import Any

import pulumi
from pulumi.runtime import rpc

from gangway.components.core.image import CACHE_TAG, TrainerImage
from gangway.stacks.recording import PlaceholderCloud, record

Declare = Callable[[Callable[[], object]], Any]

ARGS: Any = {
    "repository_url": "123456789012.dkr.ecr.us-east-2.amazonaws.com/demo-trainer",
    "registry": {
        "address": "https://123456789012.dkr.ecr.us-east-2.amazonaws.com",
        "username": "AWS",
        "password": "pass",
    },
    "dockerfile": "FROM scratch\n",
    "context": "..",
    "platform": "linux/amd64",
    "tag": "0123456789abcdef",
}
CACHE = f"{ARGS['repository_url']}:{CACHE_TAG}"


def test_the_build_is_told_exactly_this(declare: Declare) -> None:
    image = declare(lambda: TrainerImage("demo", ARGS)).one("Image")
    assert (image.type, image.name) == ("docker-build:index:Image", "demo-trainer")
    inputs = dict(image.inputs)
    del inputs["registries"]
    cache_to = inputs.pop("cacheTo")
    assert inputs == {
        "push": True,
        "exec": True,
        "buildOnPreview": False,
        "context": {"location": ".."},
        "dockerfile": {"inline": "FROM scratch\n"},
        "buildArgs": {"REVISION": "0123456789abcdef"},
        "platforms": ["linux/amd64"],
        "tags": [f"{ARGS['repository_url']}:0123456789abcdef"],
        "cacheFrom": [{"registry": {"ref": CACHE}}],
        "network": "default",
    }
    (registry,) = [target["registry"] for target in cache_to]
    wanted = {"ref": CACHE, "mode": "max", "imageManifest": True, "ociMediaTypes": True}
    assert wanted.items() <= registry.items(), "what ECR can store"


def test_the_registrys_password_is_a_secret_in_the_state(declare: Declare) -> None:
    (registry,) = declare(lambda: TrainerImage("demo", ARGS)).one("Image").inputs["registries"]
    assert registry["password"][rpc._special_sig_key] == rpc._special_secret_sig
    assert {**registry, "password": registry["password"]["value"]} == ARGS["registry"]


def test_the_image_is_named_by_its_digest() -> None:
    def program() -> dict[str, pulumi.Output[str]]:
        made = TrainerImage("demo", ARGS)
        return {"image": made.image, "digest": made.digest}

    done = record(program, PlaceholderCloud(), "test")
    assert done.result["digest"] == "${Image.demo-trainer.digest}"
    assert done.result["image"] == f"{ARGS['repository_url']}@{done.result['digest']}"
    (outputs,) = [names for urn, names in done.outputs.items() if "TrainerImage" in urn]
    assert outputs == {"image", "digest"}


def test_the_build_hangs_below_the_component(declare: Declare) -> None:
    made = declare(lambda: TrainerImage("demo", ARGS))
    (component,) = [resource for resource in made.resources if not resource.custom]
    assert component.type == "gangway:image:TrainerImage"
    assert made.one("Image").parent == component.urn
