"""Machine images of nodes on Azure under the real Pulumi engine: a simulated cloud, and a simulated Image Builder."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

TEMPLATE = "azure-native:virtualmachineimages:VirtualMachineImageTemplate"
SET, GROUP = "azure-native:compute:VirtualMachineScaleSet", "azure-native:resources:ResourceGroup"


@pytest.fixture
def engine(make_engine: Callable[[str], Any]) -> Any:
    made = make_engine("azure-nc-dev")
    made.change(lambda config: config["gangway:cluster"].update(machine_image={"keep": 2}))
    return made


def nodes_image(engine: Any) -> str:
    """The image of the scale sets."""
    sets = [one["inputs"] for one in engine.resources() if one["type"] == SET]
    (image,) = {one["virtualMachineProfile"]["storageProfile"]["imageReference"]["id"] for one in sets}
    return str(image)


def refresh(engine: Any, azure_vm: Any, number: int) -> Any:
    """Newer base images appear, and the stack takes them."""
    azure_vm.versions.append(f"22.04.{10 + number}")
    engine.change(lambda config: config["gangway:cluster"].update(image_refresh=number))
    return engine.applied("up")


def test_nodes_start_from_an_image_that_the_stack_builds_keeps_and_deletes(engine: Any, azure_vm: Any) -> None:
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert azure_vm.runs == {}, "a preview builds nothing"
    up = engine.applied("up")
    assert up.types("create") == preview.types("create") > {TEMPLATE, "gangway:azure:MachineImage"}
    first = nodes_image(engine)
    assert json.loads(engine.plain("stack", "output", "--json"))["machine_images"]["nodes"] == first
    assert list(azure_vm.images) == [first]

    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    assert len(azure_vm.runs) == 1

    engine.change(lambda config: config["gangway:tags"].update(floor="3"))
    assert TEMPLATE not in engine.applied("up").types("replace"), "other tags are no reason for another image"
    assert nodes_image(engine) == first

    moved = refresh(engine, azure_vm, 1)
    assert TEMPLATE in moved.types("replace")
    assert SET in moved.types("update")
    assert SET not in moved.types("replace"), "running nodes stay"
    assert nodes_image(engine) != first
    refresh(engine, azure_vm, 2)
    assert (len(azure_vm.runs), len(azure_vm.images)) == (3, 2)
    assert nodes_image(engine) in azure_vm.images

    group = next(one["id"] for one in engine.resources() if one["id"].split("/")[-1].find("gangway-images") > 0)
    assert all(image.startswith(group) for image in azure_vm.images), "which Azure deletes with the group"
    engine.applied("destroy")
    left = {one["type"] for one in engine.resources()}
    assert not left & {TEMPLATE, "azure-native:compute:Gallery"}
    assert not any("gangway-images" in one["id"] for one in engine.resources())


def test_a_failed_build_stops_up_and_the_next_up_builds_again(engine: Any, azure_vm: Any) -> None:
    azure_vm.next_run = "Failed"
    failed = engine.run("up", "--yes")
    assert failed.status != 0
    assert "the build of the machine image ended with Failed: as the test wants" in failed.text
    assert not any(one["type"] == SET for one in engine.resources()), "no nodes without their image"
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    azure_vm.next_run = "Succeeded"
    engine.applied("up")
    assert nodes_image(engine) in azure_vm.images


def test_a_stack_gives_up_its_image(engine: Any) -> None:
    engine.applied("up")
    engine.change(lambda config: config["gangway:cluster"].pop("machine_image"))
    engine.applied("up")
    types = {one["type"] for one in engine.resources()}
    assert TEMPLATE not in types
