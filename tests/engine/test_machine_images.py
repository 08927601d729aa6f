"""The image that the first `up` found stays: under the real engine, while newer ones appear."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

STASH = "pulumi:index:Stash"
MACHINES = (
    "aws:ec2/launchTemplate:LaunchTemplate",
    "gcp:compute/instanceTemplate:InstanceTemplate",
    "gcp:compute/instance:Instance",
    "azure-native:compute:VirtualMachineScaleSet",
    "azure-native:compute:VirtualMachine",
)


@pytest.fixture(params=["aws-demo", "gcp-a3-spot", "azure-nc-dev"])
def engine(
    request: pytest.FixtureRequest,
    make_engine: Callable[[str], Any],
    running_plugin: Callable[..., AbstractContextManager[Any]],
) -> Iterator[Any]:
    made = make_engine(request.param)
    package = {"azure": "azure-native"}.get(provider := request.param.partition("-")[0], provider)
    with running_plugin(package, made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"{package}:{plugin.port}"
        yield made


def images(engine: Any) -> dict[str, str]:
    found: dict[str, str] = json.loads(engine.plain("stack", "output", "--json"))["machine_images"]
    return found


def used(engine: Any) -> str:
    """All that machines are made of, as text."""
    return json.dumps([one["inputs"] for one in engine.resources() if one["type"] in MACHINES])


def test_newer_images_are_for_who_asks_for_them(engine: Any, azure_vm: Any) -> None:
    engine.applied("up")
    first = images(engine)
    assert first.keys() == {"nodes", "head"}
    assert all(image in used(engine) for image in first.values())
    if engine.stack.startswith("azure-"):
        assert first["nodes"] == "22.04.10", "of numbers, not of words"
    assert not [word for word in ("resolve:ssm", "/family/", '"latest"') if word in used(engine)]

    (engine.cloud / "newest").write_text("2")
    azure_vm.versions.append("22.04.11")
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    assert images(engine) == first

    engine.change(lambda config: config["gangway:cluster"].update(image_refresh=1))
    moved = engine.applied("up")
    assert moved.types("create") >= {STASH}
    newer = images(engine)
    assert all(newer[what] != first[what] for what in first)
    assert all(image in used(engine) for image in newer.values())
    assert not [image for image in first.values() if f'"{image}"' in used(engine)]
