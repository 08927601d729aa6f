"""An `up` on Azure while nodes run that the head has asked for: the real engine, and a cloud that keeps state."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"


@pytest.fixture
def engine(
    make_engine: Callable[[str], Any], running_plugin: Callable[..., AbstractContextManager[Any]]
) -> Iterator[Any]:
    made = make_engine("azure-ndv5-spot")
    with running_plugin("azure-native", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"azure-native:{plugin.port}"
        yield made


def sizes(engine: Any) -> dict[str, int]:
    sets = [one for one in engine.resources() if one["type"] == SCALE_SET]
    return {one["outputs"]["name"]: one["inputs"]["sku"]["capacity"] for one in sets}


def head_asks(engine: Any, azure_vm: Any, name: str, size: int) -> None:
    """As the head does it, past the engine."""
    for file in engine.cloud.glob("*.json"):
        one = json.loads(file.read_text("utf-8"))
        if one["type"] == SCALE_SET and one["outputs"]["name"] == name:
            for part in ("inputs", "outputs"):
                one[part]["sku"]["capacity"] = size
            file.write_text(json.dumps(one), "utf-8")
    azure_vm.live[name] = size


def other_tag(config: dict[str, Any]) -> None:
    config["gangway:tags"]["cost_center"] = "4712"


def more_images(config: dict[str, Any]) -> None:
    """What nodes are told is another thing then."""
    config["gangway:job"]["kimg"] = 151


def test_running_nodes_are_kept(engine: Any, azure_vm: Any) -> None:
    engine.applied("up")
    azure_vm.live = sizes(engine)
    assert set(azure_vm.live.values()) == {0}
    first = min(azure_vm.live)
    for size, edit in ((2, other_tag), (3, more_images)):
        seen = int(sizes(engine)[first])
        head_asks(engine, azure_vm, first, size)
        running = sizes(engine)
        engine.applied("up", "--expect-no-changes")  # what changes no scale set asks for nothing
        engine.change(edit)
        preview = engine.run("preview")
        up = engine.run("up", "--yes", "--skip-preview")
        for refused in (preview, up):
            assert refused.status != 0
            assert f" has {size} nodes, but {seen} in Pulumi's state" in refused.text
            assert "run `pulumi up --refresh`" in refused.text
        assert sizes(engine) == running, "nothing was sent"
        engine.applied("up", "--refresh")
        assert sizes(engine) == running
        assert engine.applied("up", "--expect-no-changes")
