"""The programs under examples/: what they declare, and that each names what the components have."""

import inspect
import json
import re
import runpy
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components import aws
from gangway.stacks.recording import PlaceholderCloud, Recording, record

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = REPO / "examples"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """What the Python program declares, run as the plan runs Gangway's own."""
    monkeypatch.syspath_prepend(str(REPO / "tools" / "wheel"))

    def program() -> dict[str, Any]:
        return runpy.run_path(str(EXAMPLES / "python" / "__main__.py")) and {}

    return record(program, PlaceholderCloud(), "dev")


def test_the_python_program_declares_its_three_components(declared: Recording) -> None:
    components = sorted(each.type for each in declared.resources if each.type.startswith("gangway:"))
    assert components == ["gangway:aws:Budget", "gangway:aws:RunBucket", "gangway:aws:TrainingNetwork"]
    (budget,) = [r.inputs for r in declared.resources if r.type == "aws:budgets/budget:Budget"]
    assert budget["limitAmount"] == "2000.00"
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:gangway:stack$dev"]}]
    (gateway,) = [r.inputs for r in declared.resources if r.inputs.get("vpcEndpointType") == "Gateway"]
    assert "Bucket.dev-runs" in gateway["policy"], "no other bucket is reached"


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_the_typescript_program_names_inputs_and_outputs_that_there_are() -> None:
    """Its types are checked where a compiler is, in tests/engine/test_other_languages.py; its words are here."""
    program = (EXAMPLES / "typescript" / "index.ts").read_text("utf-8")
    offered = {name: getattr(aws, name) for name in aws.__all__}
    made = re.findall(r"const (\w+) = new gangway\.(\w+)\(stack, \{(.*?)\}\);", program, re.DOTALL)
    assert {component for _, component, _ in made} == {"RunBucket", "TrainingNetwork", "Budget"}
    for variable, component, body in made:
        args = typing.get_type_hints(offered[component].__init__)["args"]
        given = set(re.findall(r"^ {4}(\w+)[:,]", body, re.MULTILINE)) or {body.strip()}
        assert {camel(name) for name in args.__required_keys__} <= given
        assert given <= {camel(name) for name in args.__annotations__}
        outputs = {camel(name) for name in inspect.get_annotations(offered[component])}
        assert set(re.findall(rf"\b{variable}\.(\w+)", program)) <= outputs


def test_both_programs_say_the_same() -> None:
    python = (EXAMPLES / "python" / "__main__.py").read_text("utf-8")
    typescript = (EXAMPLES / "typescript" / "index.ts").read_text("utf-8")
    for said in ("10.42.0.0/16", "us-east-2b", "2000", "[50, 80, 100]", "110", "gangway:stack", "4711"):
        assert said in python
        assert said in typescript


@pytest.mark.parametrize("folder", ["python", "typescript"])
def test_each_is_a_project_that_says_what_it_needs(folder: str) -> None:
    project = yaml.safe_load((EXAMPLES / folder / "Pulumi.yaml").read_text("utf-8"))
    assert project["name"] == f"gangway-example-{folder}"
    if folder == "python":
        _, line = (EXAMPLES / folder / "requirements.txt").read_text("utf-8").splitlines()
        assert line.startswith("gangway-iac[aws]")
    else:
        package = json.loads((EXAMPLES / folder / "package.json").read_text("utf-8"))
        assert set(package["dependencies"]) == {"@pulumi/pulumi"}, "`pulumi package add` adds ours"
