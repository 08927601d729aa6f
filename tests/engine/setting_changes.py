"""Every setting of a stack file with other values, and what a change of it declares anew. Nothing here runs the engine.

The settings are read off the model of a stack file, so that a new one cannot be forgotten. Other values come from its
examples, its enumerations, the provider's examples, the table below, or from the value that stands there.
"""

import copy
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from components.core.findings import InputError, Severity
from stacks.config.loader import from_file
from stacks.config.stack_config import StackConfig
from stacks.planning.plan import run_program
from stacks.planning.recording import PlaceholderCloud, PlannedResource, _is_secret
from stacks.program import program_of
from stacks.providers.registry import all_providers, provider_of

DIGEST = f"@sha256:{'fedcba9876543210' * 4}"
# By setting, or by provider and setting: what neither the model nor the value that stands there can say.
OTHERS: Mapping[str, Sequence[Any]] = {
    "allow_replace": [["nothing-of-this-name"]],
    "aws:region": ["us-west-2", "us-east-1"],
    "gcp:region": ["us-east4", "us-east1"],
    "azure:region": ["southcentralus", "westeurope"],
    "openstack:region": ["RegionTwo"],
    "hosts:region": ["annex"],
    "aws:cluster.zone": ["us-east-2b"],
    "gcp:cluster.zone": ["us-central1-b", "us-central1-c"],
    "azure:cluster.zone": ["2"],
    "openstack:cluster.zone": ["nova"],
    "cluster.capacity": [[{"kind": "on-demand"}], [{"kind": "spot"}]],
    "cluster.accelerator": ["A100x8"],
    "aws:cluster.machine_type": ["p4d.24xlarge"],
    "gcp:cluster.machine_type": ["a3-highgpu-8g", "a2-ultragpu-8g"],
    "azure:cluster.machine_type": ["Standard_ND96amsr_A100_v4"],
    "storage.kind": ["filestore"],
    "aws:storage.deployment": ["scratch"],
    "aws:network.egress": ["endpoints"],
    "job": [{"preset": "dcgan-digits", "kimg": 300, "max_hours": 1}],
    "job.controller": [{"policy": "rules", "bounds": {"batch_size": [16, 512]}}],
    "engine.kind": ["slurm"],
    "job.preset": ["dcgan-celeba64"],
    "job.env": [{"LEVEL": "debug"}],
    "budget.emails": [["other@example.com"]],
    "budget.alert_percent": [[60, 90]],
    "network.cidr": ["10.44.0.0/16"],
    "image.signature.public_key": ["-----BEGIN PUBLIC KEY-----"],
    "hosts.private_key": ["${secret}"],
    "openstack.temp_url_key": ["${secret}"],
    "site.as_of": ["2026-11-02"],
}


@dataclass(frozen=True)
class Setting:
    """One setting of the model: its path, and the values that the model itself names for it."""

    path: tuple[str, ...]
    values: tuple[Any, ...]
    default: Any = None

    @property
    def name(self) -> str:
        """As people write it."""
        return ".".join(self.path)


def _parts(hint: Any) -> Iterator[Any]:
    """The alternatives of a type, without their annotations."""
    if typing.get_origin(hint) is typing.Annotated:
        yield from _parts(typing.get_args(hint)[0])
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _parts(part)
    else:
        yield hint


def _named(field: FieldInfo) -> Iterator[Any]:
    yield from field.examples or ()
    for part in _parts(field.annotation):
        if typing.get_origin(part) is typing.Literal:
            yield from typing.get_args(part)
        elif part is bool:
            yield from (True, False)
        elif isinstance(part, type) and issubclass(part, Enum):
            yield from (member.value for member in part)


def every_setting(model: type[BaseModel] = StackConfig, above: tuple[str, ...] = ()) -> dict[str, Setting]:
    """All settings by their names, sections that may be left out among them; not the stack's name."""
    found: dict[str, Setting] = {}
    for key, field in model.model_fields.items():
        path = (*above, key)
        if path == ("stack",):
            continue
        sections = [one for one in _parts(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        if not sections or field.default is None:
            found[".".join(path)] = Setting(path, tuple(_named(field)), field.get_default(call_default_factory=True))
        for section in sections:
            for name, setting in every_setting(section, path).items():
                before = found.get(name)
                found[name] = replace(setting, values=(*(before.values if before else ()), *setting.values))
    return found


def _mutated(value: Any) -> Iterator[Any]:
    """Values much like this one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value * 2, value + 1, value + 10, value // 2)
    elif isinstance(value, str):
        for place in (match.start() for match in reversed(list(re.finditer(r"[0-9a-f]", value)))):
            yield value[:place] + ("2" if value[place] != "2" else "1") + value[place + 1 :]
        yield f"{value}2"
    elif isinstance(value, Mapping) and value:
        key = next(iter(value))
        yield from ({**value, "gangway_extra": "x"}, {**value, key: next(_mutated(value[key]), None)})
    elif isinstance(value, Sequence) and value:
        yield from ([next(_mutated(value[0]), None), *value[1:]], value[:-1])


def _at(tree: Any, path: Sequence[str]) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else getattr(tree, key, None)
    return tree.value if isinstance(tree, Enum) else tree


@dataclass(frozen=True)
class Change:
    """A stack file with one setting changed.

    Attributes:
        settings: the whole file's.
        refusal: why Gangway does not take it; empty where it does.
        signature: where what is declared differs; to the engine and its plugins two changes of one signature are one.
    """

    settings: dict[str, Any]
    refusal: str = ""
    signature: str = ""


class Changes:
    """One stack file, changed setting by setting."""

    def __init__(self, stack: str, settings: dict[str, Any], folder: Path) -> None:
        self._file = folder / f"Pulumi.{stack}.yaml"
        self._settings = settings
        self._config = self._read(settings)
        self._declared = self._record(self._config)

    def reads(self, setting: Setting) -> bool:
        """Whether the setting is not in the section of another provider."""
        sections = {one.settings.own.name for one in all_providers() if one.settings.own}
        own = provider_of(self._config.provider).settings
        others = sections - {own.own.name if own.own else ""} | (set() if own.reads_site else {"site"})
        return setting.path[0] not in others

    def of(self, setting: Setting) -> Change | None:
        """The first other value that is taken, or the first one that is refused. None: there is no other value."""
        refused = None
        for value in self._values(setting):
            change = self._changed(setting, self._with(setting, value))
            if change is not None and not change.refusal:
                return change
            refused = refused or change
        return refused

    def _changed(self, setting: Setting, settings: dict[str, Any]) -> Change | None:
        """None: the value means what stood there before."""
        change = None
        try:
            config = self._read(settings)
            if _at(config, setting.path) != _at(self._config, setting.path):
                signature = repr(sorted(_differences(self._declared, self._record(config))))
                change = Change(settings, signature=signature)
        except* InputError as mistakes:
            change = Change(settings, str(mistakes.exceptions[0]).partition("\n")[0])
        return change

    def _values(self, setting: Setting) -> Iterator[Any]:
        provider, current = self._config.provider, _at(self._config, setting.path)
        yield from OTHERS.get(f"{provider}:{setting.name}", ())
        yield from OTHERS.get(setting.name, ())
        if (example := provider_of(provider).settings.examples.get(setting.name)) is not None:
            yield example
        yield from setting.values
        yield from _mutated(_at(self._plain(), setting.path) if current is not None else None)
        yield from _mutated(current)
        yield from _mutated(setting.default)
        if current is None:
            yield from (1, 2, 8, 100, [1], [8], [64, 128], "x")

    def _plain(self) -> dict[str, Any]:
        return {key.removeprefix("gangway:"): value for key, value in self._settings.items()}

    def _with(self, setting: Setting, value: Any) -> dict[str, Any]:
        """The file with the value; a section that it lacks comes with its example."""
        settings = copy.deepcopy(self._settings)
        place, prefix = settings, "gangway:"
        for depth, key in enumerate(setting.path[:-1], start=1):
            if not isinstance(place.get(prefix + key), dict):
                example: dict[str, Any] = next(iter(every_setting_of_sections().get(setting.path[:depth], ())), {})
                place[prefix + key] = copy.deepcopy(example)
            place, prefix = place[prefix + key], ""
        place[prefix + setting.path[-1]] = value
        if setting.name == "cluster.accelerator":
            place.pop("machine_type", None)
        if setting.name == "cluster.machine_type":
            place.pop("accelerator", None)
        return settings

    def _read(self, settings: dict[str, Any]) -> StackConfig:
        self._file.write_text(yaml.safe_dump({"config": settings}), "utf-8")
        return from_file(self._file)

    def _record(self, config: StackConfig) -> Sequence[PlannedResource]:
        program = program_of(config.provider)
        planned = program.plan(config)
        for finding in program.findings(config, planned, None):
            if finding.severity is Severity.ERROR:
                raise InputError(finding.path, finding.message)
        return run_program(config, PlaceholderCloud(), planned).resources


def every_setting_of_sections() -> dict[tuple[str, ...], tuple[Any, ...]]:
    """The examples of each section that may be left out."""
    return {setting.path: setting.values for setting in every_setting().values()}


def _comparable(value: Any) -> Any:
    """Without secrets, which are made anew each time."""
    if isinstance(value, pulumi.AssetArchive):
        return {name: _comparable(asset) for name, asset in value.assets.items()}
    if isinstance(value, pulumi.StringAsset):
        return value.text
    if isinstance(value, dict):
        return "[secret]" if _is_secret(value) else {key: _comparable(item) for key, item in value.items()}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def _differences(before: Sequence[PlannedResource], after: Sequence[PlannedResource]) -> Iterator[str]:
    old, new = ({one.urn: _comparable(one.inputs) for one in resources} for resources in (before, after))
    for urn in {*old, *new}:
        if urn not in old or urn not in new:
            yield f"{'+' if urn in new else '-'} {urn}"
        else:
            yield from (f"{urn} {place}" for place in _places(old[urn], new[urn], ""))


def _places(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {*old, *new}:
            yield from _places(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _places(before, after, f"{path}[{index}]")
    elif old != new:
        yield path
