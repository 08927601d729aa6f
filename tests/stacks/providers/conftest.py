"""Stacks of every provider with a custom command, and their user data."""

import base64
import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan

_DIGEST = "@sha256:" + "ab" * 32
_IMAGES = {
    "aws": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/mine{_DIGEST}",
    "gcp": f"us-central1-docker.pkg.dev/my-project/mine/train{_DIGEST}",
    "azure": f"myregistry.azurecr.io/mine/train{_DIGEST}",
    "openstack": f"registry.example.com/mine/train{_DIGEST}",
    "hosts": f"registry.example.com/mine/train{_DIGEST}",
}
_REGISTRY_ID = (
    "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/g/providers/"
    "Microsoft.ContainerRegistry/registries/myregistry"
)
_ALWAYS: dict[str, dict[str, Any]] = {
    "azure": {"azure": {"registry_id": _REGISTRY_ID}},
    "openstack": {"image": None},
    "hosts": {"image": None},
}
"""What a shipped stack has to say otherwise beside a command."""


@pytest.fixture
def command_images() -> dict[str, str]:
    """By provider, an image that its nodes may pull."""
    return _IMAGES


@pytest.fixture
def command_stack(repo: Path, tmp_path: Path) -> Callable[..., StackConfig]:
    """A shipped stack with a command, and other sections changed in their order; None removes."""

    def config(
        provider: str,
        shipped: str,
        job: dict[str, Any],
        changes: Iterable[tuple[str, dict[str, Any] | None]],
        edit: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> StackConfig:
        values = yaml.safe_load((repo / "stacks" / f"Pulumi.{shipped}.yaml").read_text("utf-8"))["config"]
        values["gangway:job"] = {"image": _IMAGES[provider], "max_hours": 4, **job}
        edit(values)
        for name, change in (*_ALWAYS.get(provider, {}).items(), *changes):
            there = values.pop(f"gangway:{name}", {})
            if change is not None:
                values[f"gangway:{name}"] = {key: new for key, new in {**there, **change}.items() if new is not None}
        path = tmp_path / "Pulumi.own.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return config


@pytest.fixture
def user_data() -> Callable[[Plan, str], dict[str, str]]:
    """Of a plan and a role, the files of the first machine whose cloud-init says so, by path."""

    def files(made: Plan, role: str) -> dict[str, str]:
        for text in _texts([one.inputs for one in made.resources]):
            try:
                document = gzip.decompress(base64.b64decode(text, validate=True)).decode()
            except (ValueError, OSError):
                continue
            if document.startswith("#cloud-config"):
                written = {entry["path"]: entry["content"] for entry in yaml.safe_load(document)["write_files"]}
                if f"ROLE={role}\n" in written["/etc/gangway/node.env"]:
                    return written
        pytest.fail(f"no {role}")

    return files


def _texts(value: Any) -> Iterator[str]:
    """All texts in inputs of resources."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
