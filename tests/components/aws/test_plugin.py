"""The components as a plugin for other languages: what it offers, what it needs, and what it says of itself over gRPC.

That the analyzer takes each component is a part of the contract (test_contract); the engine's side is tests/engine.
"""

import inspect
import json
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
import pulumi
import pytest
import yaml
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto.provider_pb2_grpc import ResourceProviderStub

from gangway.components import aws
from gangway.components.core.image import TrainerImage

REPOSITORY = Path(__file__).resolve().parents[3]
PLUGIN = REPOSITORY / "components" / "aws"
OFFERED = [*(getattr(aws, name) for name in aws.__all__), TrainerImage]
every_offered = pytest.mark.parametrize("component", OFFERED, ids=lambda component: component.__name__)


@pytest.fixture(scope="module")
def stub() -> Iterator[Any]:
    """The plugin, started as the engine does: its only argument is the engine's address, its first line the port."""
    with subprocess.Popen([sys.executable, PLUGIN, "127.0.0.1:1"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            with grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}") as channel:
                yield ResourceProviderStub(channel)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def schema(stub: Any) -> dict[str, Any]:
    """What `pulumi package get-schema ./components/aws` prints."""
    answer: dict[str, Any] = json.loads(stub.GetSchema(pb.GetSchemaRequest(), timeout=120).schema)
    return answer


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@pytest.mark.slow
def test_the_plugin_offers_them_all(schema: dict[str, Any]) -> None:
    assert schema["name"] == "gangway-aws"
    assert set(schema["resources"]) == {f"gangway-aws:index:{component.__name__}" for component in OFFERED}
    assert all(resource["isComponent"] for resource in schema["resources"].values())


@every_offered
def test_inputs_outputs_and_description_reach_the_schema(
    schema: dict[str, Any], component: type[pulumi.ComponentResource]
) -> None:
    said = schema["resources"][f"gangway-aws:index:{component.__name__}"]
    args = typing.get_type_hints(component.__init__)["args"]
    assert set(said["inputProperties"]) == {camel(name) for name in args.__annotations__}
    assert set(said.get("requiredInputs", [])) == {camel(name) for name in args.__required_keys__}
    assert set(said["properties"]) == {camel(name) for name in inspect.get_annotations(component)}
    for words in (inspect.getdoc(component), inspect.getdoc(args)):
        assert words
        assert words in said["description"]


def test_the_plugin_needs_no_more_than_the_project() -> None:
    """Same versions, too: the components are tested with those."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    offered = {*project["dependencies"], *project["optional-dependencies"]["aws"]}
    lines = (PLUGIN / "requirements.txt").read_text("utf-8").splitlines()
    needed = [line for line in lines if not line.startswith("#")]
    assert needed
    assert set(needed) <= offered


def test_the_engine_is_kept_out_of_the_projects_environment() -> None:
    """It upgrades pip and more in the environment named here, whenever a package is added."""
    options = yaml.safe_load((PLUGIN / "PulumiPlugin.yaml").read_text("utf-8"))["runtime"]["options"]
    environment = (PLUGIN / options["virtualenv"]).resolve()
    assert environment != REPOSITORY / ".venv"
    # Ignored by git, removed by `make clean`, and no package of ours: nothing walks into it.
    assert environment.parent == REPOSITORY / ".venv"
