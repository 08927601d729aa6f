"""An `up` that ended between doing something and writing it down, under the real engine: the next one goes on."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.engine

IMAGE = "docker-build:index:Image"


def forget(engine: Any, type_token: str) -> str:
    """Takes the only resource of a type out of the engine's state, as if it had never been written; returns its URN."""
    state = json.loads(engine.plain("stack", "export", "--show-secrets"))
    resources = state["deployment"]["resources"]
    (lost,) = [resource for resource in resources if resource["type"] == type_token]
    resources.remove(lost)
    for resource in resources:
        resource["dependencies"] = [urn for urn in resource.get("dependencies", []) if urn != lost["urn"]]
        named = resource.get("propertyDependencies", {})
        resource["propertyDependencies"] = {
            key: [urn for urn in urns or [] if urn != lost["urn"]] for key, urns in named.items()
        }
    file = engine.project / "edited-state.json"
    file.write_text(json.dumps(state), "utf-8")
    engine.plain("stack", "import", "--file", str(file))
    return str(lost["urn"])


def test_an_image_that_was_pushed_and_forgotten_is_pushed_again(make_engine: Any) -> None:
    engine = make_engine("aws-g5-dev")
    engine.applied("up")
    (pushed,) = [resource for resource in engine.resources() if resource["type"] == IMAGE]
    forget(engine, IMAGE)

    again = engine.applied("up")
    assert again.changes["create"] == 1
    assert again.types("create") == {IMAGE}
    images = [resource for resource in engine.resources() if resource["type"] == IMAGE]
    (tags,) = {tuple(image["inputs"]["tags"]) for image in images}
    assert ":content-" in tags[0]
    (new,) = {image["outputs"]["digest"] for image in images} - {pushed["outputs"]["digest"]}
    assert engine.plain("stack", "output", "image").strip().endswith(f"@{new}"), "the nodes get what was pushed last"
    engine.applied("up", "--expect-no-changes")
    engine.applied("destroy")
