"""What every component keeps to: names, arguments, outputs, parents, other languages."""

import importlib
import inspect
import pkgutil
import typing
from typing import Any

import pulumi
from pulumi.provider.experimental.analyzer import Analyzer, is_output

import gangway.components.hosts
from gangway.components.hosts.node_pool import HostPool, HostPoolArgs
from tests.components.fixture_types import Make

MACHINE: dict[str, Any] = {
    "name": "dgx-1",
    "address": "10.20.0.11",
    "port": 22,
    "user": "gangway",
    "host_key": "ssh-ed25519 AAAA",
    "installer": "#!/usr/bin/env bash\n",
}
EVERYTHING: dict[str, Any] = {"machines": [MACHINE], "private_key": "nobody's"}


def test_the_walk_finds_what_stacks_are_made_of() -> None:
    found = []
    for info in pkgutil.iter_modules(gangway.components.hosts.__path__):
        module = importlib.import_module(f"gangway.components.hosts.{info.name}")
        found += [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if issubclass(member, pulumi.ComponentResource) and member.__module__ == module.__name__
        ]
    assert found == [HostPool]


def test_the_signature_is_name_args_opts() -> None:
    assert list(inspect.signature(HostPool.__init__).parameters) == ["self", "name", "args", "opts"]
    assert typing.get_type_hints(HostPool.__init__)["args"] is HostPoolArgs
    assert HostPoolArgs.__doc__


def test_what_it_declares_is_its_own(declare: Make) -> None:
    made = declare(lambda: HostPool("demo", typing.cast("HostPoolArgs", EVERYTHING)))
    (own,) = [r for r in made.resources if r.type == "gangway:hosts:HostPool"]
    children = [r for r in made.resources if r is not own]
    assert {child.parent for child in children} == {own.urn}
    assert all(child.name.startswith("demo-dgx-1-") for child in children)
    annotated = inspect.get_annotations(HostPool, eval_str=True)
    assert all(is_output(annotation) for annotation in annotated.values())
    assert made.outputs[own.urn] == set(annotated)


def test_other_languages_can_use_it() -> None:
    definition = Analyzer("gangway").analyze_component(HostPool)
    assert set(definition.inputs_mapping.values()) == HostPoolArgs.__required_keys__ | HostPoolArgs.__optional_keys__
    assert set(definition.outputs_mapping.values()) == set(inspect.get_annotations(HostPool))
