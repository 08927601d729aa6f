"""The schema that editors have for settings, held against what the stack files and suites here say."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from gangway.components.core.findings import InputError
from gangway.stacks.config.job_settings import check_settings
from gangway.trainer.config.editor_schema import settings_schema

SCHEMA = json.loads(settings_schema())
REPO = Path(__file__).resolve().parents[3]


def _findings(schema: Any, written: Any) -> list[str]:
    known = Registry[Any]().with_resource("settings.schema.json", Resource.from_contents(SCHEMA))
    return [error.message for error in Draft202012Validator(schema, registry=known).iter_errors(written)]


def test_the_keys_that_settings_take_are_offered() -> None:
    with pytest.raises(InputError) as caught:
        check_settings("dcgan-digits", {"batch_sise": 1})
    assert sorted(SCHEMA["$defs"]["settings"]["properties"]) == str(caught.value.allowed).split(", ")


@pytest.mark.parametrize("path", sorted((REPO / "gangway" / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_suites_pass(path: Path) -> None:
    suite = yaml.safe_load(path.read_text("utf-8"))
    assert _findings(SCHEMA, suite) == []
    assert _findings(SCHEMA, {**suite, "settings": {"batch_sise": 1}})


def _of_a_stack(load_module: Callable[[Path], ModuleType]) -> Any:
    """As the page has it."""
    pages = load_module(REPO / "tests" / "docs" / "test_commands.py")
    blocks = pages.get_blocks((REPO / "docs" / "own-images.md").read_text("utf-8"))
    (schema,) = [block.text for block in blocks if block.marks.get("file") == "stack.schema.json"]
    return json.loads(schema)


@pytest.mark.parametrize("path", sorted((REPO / "stacks").glob("Pulumi.*.yaml")), ids=lambda path: path.stem)
def test_shipped_stack_files_pass_and_a_setting_of_another_family_does_not(
    path: Path, load_module: Callable[[Path], ModuleType]
) -> None:
    schema, stack = _of_a_stack(load_module), yaml.safe_load(path.read_text("utf-8"))
    assert _findings(schema, stack) == []
    # Of a cluster with a queue there is none.
    job = stack["config"].setdefault("gangway:job", {"preset": "dcgan-digits"})
    job["settings"] = {"architecture": "dcgan", "stable_kimg": 1}
    assert "0 was expected" in _findings(schema, stack)


def test_a_controller_is_offered_and_a_wrong_bound_marked(load_module: Callable[[Path], ModuleType]) -> None:
    schema = _of_a_stack(load_module)

    def marked(controller: dict[str, Any]) -> list[str]:
        return _findings(schema, {"config": {"gangway:job": {"preset": "dcgan-digits", "controller": controller}}})

    assert marked({"policy": "model", "bounds": {"batch_size": [64, 512], "precision": ["bf16"]}}) == []
    assert marked({"policy": "modl"})
    assert marked({"bounds": {"batch_size": [64]}})
    assert marked({"bounds": {"batchsize": [64, 512]}})
