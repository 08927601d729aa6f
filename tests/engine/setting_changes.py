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
from pydantic_core import to_jsonable_python

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.base.registry import all_providers, get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file, stack_model
from gangway.stacks.plan.plan import run_program
from gangway.stacks.program import get_program
from gangway.stacks.providers.hosts.settings import HOST_KEY_EXAMPLE
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, _is_secret

OTHER_UUID = "22222222-0000-4000-8000-222222222222"
REGISTRY_ID = (
    "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/shared/providers/"
    "Microsoft.ContainerRegistry/registries/myregistry"
)
IMAGES = {
    "aws": "123456789012.dkr.ecr.us-east-2.amazonaws.com",
    "gcp": "us-central1-docker.pkg.dev/my-project",
    "azure": "myregistry.azurecr.io",
    "openstack": "registry.example.com",
    "hosts": "registry.example.com",
}
CONTROLLER = {"policy": "rules", "bounds": {"loader_threads": [1, 8]}}
TUNNELS = {"network": "10.88.0.0/24"}
NO_RDMA = {"site.fabric": {"kind": "none"}}
PERIMETER = {"access_policy": 123456789, "operators": ["user:you@example.com"]}


@dataclass(frozen=True)
class With:
    """A value that is accepted only where other settings change as well. Those are written first; None removes one."""

    value: Any
    others: Mapping[str, Any]


def image_of(provider: str, digits: str = "0123456789abcdef") -> str:
    """An image that the provider's nodes can pull."""
    return f"{IMAGES[provider]}/mine@sha256:{digits * 4}"


def own_command(provider: str) -> Mapping[str, Any]:
    """A job that is a command: it has an image of its own, and none of the trainer's."""
    job = {"command": ["python", "train.py"], "image": image_of(provider), "max_hours": 1}
    registry = {"azure.registry_id": REGISTRY_ID} if provider == "azure" else {}
    return {"job": job, "image": None, **registry}


# Other values, by setting or by provider and setting, where neither the model nor the present value names one.
OTHERS: Mapping[str, Sequence[Any]] = {
    "allow_replace": [["nothing-of-this-name"]],
    "aws:region": ["us-west-2", "us-east-1"],
    "gcp:region": ["us-east4", "us-east1"],
    "azure:region": ["southcentralus", "westeurope"],
    "openstack:region": ["RegionTwo"],
    "hosts:region": ["annex"],
    "aws:cluster.zone": ["us-east-2b"],
    "gcp:cluster.zone": ["us-central1-b", "us-central1-c", "us-west4-b"],
    "azure:cluster.zone": ["2"],
    "openstack:cluster.zone": ["nova"],
    "cluster.capacity": [[{"kind": "on-demand"}], [{"kind": "spot"}]],
    "cluster.accelerator": ["A100x8", "v5litepod-128"],
    "aws:cluster.machine_type": ["p4d.24xlarge"],
    "gcp:cluster.machine_type": ["a3-highgpu-8g", "a2-ultragpu-8g"],
    "azure:cluster.machine_type": ["Standard_ND96amsr_A100_v4"],
    "cluster.breaker.given_up": [5],
    "aws:head.machine_type": ["t3.large"],
    "gcp:head.machine_type": ["e2-standard-2"],
    "azure:head.machine_type": ["Standard_D4s_v5"],
    "openstack:head.machine_type": ["m1.large"],
    "storage.kind": ["filestore"],
    "aws:storage.deployment": [With("scratch", {"storage.throughput_mbps_per_tib": None})],
    "storage.metadata_iops": [12000],
    "storage.tier": ["ZONAL", "REGIONAL", "ENTERPRISE"],
    "openstack:network.egress": [With("endpoints", {"openstack.service_cidrs": ["192.0.2.0/24"]})],
    "job": [{"preset": "dcgan-digits", "kimg": 300, "max_hours": 1}],
    "job.preset": ["dcgan-celeba64"],
    "job.controller": [CONTROLLER],
    **{
        f"job.controller.bounds.{name}": [With(bounds, {"job.controller": CONTROLLER})]
        for name, bounds in {
            "loader_threads": [1, 8],
            "prefetch": [1, 8],
            "threads": [1, 8],
            "batch_gpu": [8, 64],
            "watts": [300, 700],
            "nodes": [2, 2],
            "usd_per_hour": 100,
            "precision": ["fp32", "bf16"],
            "compile": True,
            "batch_size": [64, 512],
        }.items()
    },
    **{
        f"{provider}:job.{name}": [With(value, own_command(provider))]
        for provider in IMAGES
        for name, value in {
            "command": ["python", "other.py"],
            "image": image_of(provider, "fedcba9876543210"),
            "env": {"LEVEL": "debug"},
            "workdir": "/work",
            "exit_codes.interrupted": [76],
            "exit_codes.bad_input": [3],
            "exit_codes.unfit": [5],
            "processes_per_node": 8,
            "outputs": ["/work/results"],
        }.items()
    },
    "gcp:image.prebuilt": [f"us-west4-docker.pkg.dev/my-project/gan/trainer@sha256:{'ab' * 32}"],
    "azure:image.prebuilt": [With(image_of("azure"), {"azure.registry_id": REGISTRY_ID})],
    "engine.kind": [With("slurm", {"job": None}), With("kubernetes", {"engine.accounting": None})],
    "engine.version": ["1.34", "1.33"],
    "budget.emails": [["other@example.com"]],
    "budget.alert_percent": [[60, 90]],
    "network.cidr": ["10.44.0.0/16"],
    "aws:regions.allow": [["aws:us-"]],
    "gcp:regions.allow": [["gcp:us-"]],
    "azure:regions.allow": [["azure:eastus"]],
    "openstack:regions.allow": [["openstack:RegionOne"]],
    "hosts:regions.allow": [["hosts:lab"]],
    "regions.residency": [["US"]],
    "gcp.currency": [With("EUR", {"gcp.monthly_amount": 25000})],
    "gcp.monthly_amount": [With(25000, {"gcp.currency": "EUR"})],
    **{
        f"gcp.service_perimeter{name}": [With(value, {"gcp.service_perimeter": PERIMETER})]
        for name, value in {
            "": {**PERIMETER, "mode": "dry-run"},
            ".access_policy": 987654321,
            ".mode": "enforced",
            ".operators": ["user:other@example.com"],
            ".access_levels": ["corp_network"],
            ".reads_from": [123456789012],
        }.items()
    },
    "gcp.service_perimeter.existing": [With("theirs", {"gcp.service_perimeter": {"access_policy": 987654321}})],
    "azure.subscription_id": [With(OTHER_UUID, {"azure.source_account_id": None, "storage.source": None})],
    "openstack.boot": [With("volume", {"openstack.image": OTHER_UUID, "openstack.head_image": OTHER_UUID})],
    "hosts.private_key": ["${secret}"],
    "openstack.temp_url_key": ["${secret}"],
    "hosts.machines": [
        With(
            [{"name": "dgx-1", "address": "10.20.0.11", "cluster_address": "10.30.0.11", "host_key": HOST_KEY_EXAMPLE}],
            {"cluster.nodes": {"min": 1, "max": 1}},
        )
    ],
    "hosts.wireguard": [With(TUNNELS, NO_RDMA)],
    "hosts.wireguard.network": [With("10.89.0.0/24", NO_RDMA)],
    "hosts.wireguard.port": [With(51821, {**NO_RDMA, "hosts.wireguard": TUNNELS})],
    "site.as_of": ["2026-11-02"],
    "site.country": ["FR"],
    "site.fabric.hcas": [[f"mlx5_{number}" for number in range(8)]],
    "site.fabric.gid_index": [With(3, {"site.fabric": {"kind": "roce", "devices": 8, "gbps": 400}})],
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


def every_setting(model: type[BaseModel] | None = None, above: tuple[str, ...] = ()) -> dict[str, Setting]:
    """All settings by their names, sections that may be left out among them; not the stack's names."""
    found: dict[str, Setting] = {}
    for key, field in (model or stack_model()).model_fields.items():
        path = (*above, key)
        if path in (("stack",), ("stack_name",)):
            continue
        sections = [one for one in _parts(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        if key == "existing" and sections:
            continue  # a change to a resource that exists already: the cloud of these tests has none
        if not sections or field.default is None:
            default = (
                None if field.default_factory_takes_validated_data else field.get_default(call_default_factory=True)
            )
            found[".".join(path)] = Setting(path, tuple(_named(field)), default)
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
        yield from ({**value, "gangway_owner": "ann"}, {**value, key: next(_mutated(value[key]), None)})
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
        self._examples = {setting.path: setting.values for setting in every_setting().values()}

    def reads(self, setting: Setting) -> bool:
        """Whether the setting is not in the section of another provider."""
        sections = {one.settings.own.name for one in all_providers() if one.settings.own}
        own = get_provider(self._config.provider).settings
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
                signature = repr(sorted(differences(self._declared, self._record(config))))
                change = Change(settings, signature=signature)
        except* InputError as mistakes:
            change = Change(settings, str(mistakes.exceptions[0]).partition("\n")[0])
        return change

    def _values(self, setting: Setting) -> Iterator[Any]:
        provider, current = self._config.provider, to_jsonable_python(_at(self._config, setting.path))
        yield from OTHERS.get(f"{provider}:{setting.name}", ())
        yield from OTHERS.get(setting.name, ())
        if (example := get_provider(provider).settings.examples.get(setting.name)) is not None:
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
        if isinstance(value, With):
            for name, other in value.others.items():
                self._write(settings, tuple(name.split(".")), other)
            value = value.value
        self._write(settings, setting.path, value)
        if setting.name in (names := {"cluster.accelerator", "cluster.machine_type"}):
            [other] = names - {setting.name}
            self._write(settings, tuple(other.split(".")), None)
        return settings

    def _write(self, settings: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
        place, prefix = settings, "gangway:"
        for depth, key in enumerate(path[:-1], start=1):
            if not isinstance(place.get(prefix + key), dict):
                ours = [one for one in OTHERS.get(".".join(path[:depth]), ()) if not isinstance(one, With)]
                place[prefix + key] = copy.deepcopy(next(iter((*ours, *self._examples.get(path[:depth], ()))), {}))
            place, prefix = place[prefix + key], ""
        if value is None:
            place.pop(prefix + path[-1], None)
        else:
            place[prefix + path[-1]] = copy.deepcopy(value)

    def _read(self, settings: dict[str, Any]) -> StackConfig:
        self._file.write_text(yaml.safe_dump({"config": settings}), "utf-8")
        return from_file(self._file)

    def _record(self, config: StackConfig) -> Sequence[PlannedResource]:
        program = get_program(config.provider)
        planned = program.plan(config)
        for finding in program.findings(config, planned, None):
            if finding.severity is Severity.ERROR:
                raise InputError(finding.path, finding.message)
        return run_program(config, PlaceholderCloud(), planned).resources


def _comparable(value: Any) -> Any:
    """Without secrets, which are made anew each time."""
    if isinstance(value, pulumi.AssetArchive):
        return {name: _comparable(asset) for name, asset in value.assets.items()}
    if isinstance(value, pulumi.StringAsset):
        return value.text
    if isinstance(value, dict):
        return "[secret]" if _is_secret(value) else {key: _comparable(item) for key, item in value.items()}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def differences(before: Sequence[PlannedResource], after: Sequence[PlannedResource]) -> Iterator[str]:
    """Where two recordings of a program differ: a URN and the input's path, or + or - and a URN."""
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
