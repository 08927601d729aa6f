"""Declares Azure's components, and holds what they declare against Microsoft's own management models."""

import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stacks import recording

# What Azure's resources tell, and no input. A plan names them instead of knowing them.
AZURE_OUTPUTS = ("clientId", "immutableId", "keyUriWithVersion", "loginServer", "principalId", "vaultUri")


@pytest.fixture(autouse=True)
def azure_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the recording answer for Azure's resources too."""
    monkeypatch.setattr(recording, "_COMPUTED", (*recording._COMPUTED, *AZURE_OUTPUTS))
    echo = recording.PlaceholderCloud.__call__

    def answer(self: Any, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """A set of identities goes in as a list of their ids, and comes back as an object by them."""
        identifier, outputs = echo(self, type_token, name, inputs)
        identity = outputs.get("identity") or {}
        if isinstance(identity.get("userAssignedIdentities"), list):
            told: dict[str, Any] = {one: {} for one in identity["userAssignedIdentities"]}
            outputs = {**outputs, "identity": {**identity, "userAssignedIdentities": told}}
        return identifier, outputs

    monkeypatch.setattr(recording.PlaceholderCloud, "__call__", answer)


@pytest.fixture
def make(declare: Callable[..., Any]) -> Callable[..., Any]:
    """Declares one component, called demo, with these arguments."""

    def run(component: Callable[..., object], args: Mapping[str, Any]) -> Any:
        return declare(lambda: component("demo", args))

    return run


@pytest.fixture
def tags() -> dict[str, str]:
    return {"team": "ml", "gangway-stack": "demo"}


SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def place(tags: dict[str, str]) -> dict[str, Any]:
    """Where everything is, and what it carries: the arguments that all components share."""
    return {
        "subscription_id": SUBSCRIPTION,
        "resource_group_name": "gangway-demo",
        "location": "eastus",
        "zone": "1",
        "stack": "demo",
        "tags": tags,
    }


def _arm_models() -> ModuleType:
    """The module beside this file: with pytest's import mode there is no package to import it from."""
    name = "gangway_arm_models"
    if name not in sys.modules:
        spec = spec_from_file_location(name, Path(__file__).with_name("arm_models.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def arm_models() -> ModuleType:
    """The table of models, and the walk along one."""
    return _arm_models()


@pytest.fixture(scope="session")
def as_model() -> Callable[[Any, Mapping[str, Any]], Any]:
    """Makes an instance of a management model from inputs as they are on the wire; fails on what it does not know."""
    found: Callable[[Any, Mapping[str, Any]], Any] = _arm_models().as_model
    return found


@pytest.fixture(scope="session")
def arm_mistakes() -> Callable[[Any], list[str]]:
    """What Microsoft's models say against the resources of a declaration. A type that no table knows is one of them."""
    models = _arm_models()

    def find(made: Any) -> list[str]:
        wrong: list[str] = []
        for resource in made.resources:
            if not resource.type.startswith("azure-native:"):
                continue
            key = models.key_of(resource.type)
            if key in models.TABLE:
                _, mistakes = models.body_of(resource.type, resource.inputs)
                wrong += [f"{resource.name}: {mistake}" for mistake in mistakes]
            elif key not in models.WITHOUT_MODEL:
                wrong.append(f"{resource.name}: {key} is in no table")
        return wrong

    return find
