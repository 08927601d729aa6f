"""Machine images of nodes on Google Cloud under the real Pulumi engine, in a simulated cloud."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

BUILT = "pulumi-python:dynamic/gangway:BuiltImage"
TEMPLATE, GROUP = (
    "gcp:compute/instanceTemplate:InstanceTemplate",
    "gcp:compute/instanceGroupManager:InstanceGroupManager",
)


@pytest.fixture
def engine(make_engine: Callable[[str], Any], compute: Any) -> Any:
    made = make_engine("gcp-a3-spot")
    made.env["GANGWAY_API_URL"] = compute.url
    made.change(lambda config: config["gangway:cluster"].update(machine_image={"keep": 2}))
    return made


def nodes_image(engine: Any) -> str:
    """The image of the groups' templates."""
    templates = [one["inputs"] for one in engine.resources() if one["type"] == TEMPLATE]
    (image,) = {disk["sourceImage"] for one in templates for disk in one["disks"] if disk["boot"]}
    return str(image).rpartition("/")[2]


def refresh(engine: Any, number: int) -> Any:
    """Newer base images appear, and the stack takes them."""
    (engine.cloud / "newest").write_text(str(number + 1))
    engine.change(lambda config: config["gangway:cluster"].update(image_refresh=number))
    return engine.applied("up")


def test_nodes_start_from_an_image_that_the_stack_builds_keeps_and_deletes(engine: Any, compute: Any) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert compute.calls == [], "a preview builds nothing"
    up = engine.applied("up")
    assert up.types("create") == preview.types("create") > {BUILT, "gangway:gcp:MachineImage"}
    first = nodes_image(engine)
    assert json.loads(engine.plain("stack", "output", "--json"))["machine_images"]["nodes"].endswith(f"/{first}")
    assert list(compute.images) == [first]
    assert compute.instances == {}

    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    assert compute.made() == [first]

    moved = refresh(engine, 1)
    assert BUILT in moved.types("update")
    assert GROUP not in moved.types("replace"), "running nodes stay; new ones start from the new image"
    assert nodes_image(engine) != first
    refresh(engine, 2)
    assert (len(compute.made()), len(compute.images)) == (3, 2)
    assert nodes_image(engine) in compute.images

    gone = engine.applied("destroy")
    places = {urn.rpartition("::")[0].rpartition("$")[2]: place for urn, place in gone.ended("delete").items()}
    assert places[GROUP] < places[TEMPLATE] < places[BUILT]
    assert compute.images == {}


def test_a_script_that_fails_stops_up_and_the_next_up_builds_again(engine: Any, compute: Any) -> None:
    compute.result = "failed: cannot pull the container"
    failed = engine.run("up", "--yes")
    assert failed.status != 0
    assert "the machine image was not built: failed: cannot pull the container" in failed.text
    assert compute.instances == {}
    assert not any(one["type"] == GROUP for one in engine.resources()), "no nodes without their image"
    compute.result = "done"
    engine.applied("up")
    assert nodes_image(engine) in compute.images
