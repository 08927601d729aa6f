"""The tables of permissions by type of resource. They come from the providers' and services' own models (written by
`python -m tools.permissions`).
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import yaml
from pydantic import Field

from gangway.components.catalog.schema import Frozen

Verb: TypeAlias = Literal["create", "read", "update", "delete"]


class Extra(Frozen):
    """An action that a request depends on, or that a command makes. `to`: services that get the role; `resource`: what
    it is about, if the action alone does not tell; `needs`: `encryption`, or an input, without which it is not made.
    """

    action: str
    why: str = Field(min_length=1)
    verb: Verb = "create"
    to: tuple[str, ...] = ()
    resource: str = ""
    needs: Literal["", "encryption", "forceDestroy"] = ""


class TypePermissions(Frozen):
    """The actions of one type of resource, by what its provider does."""

    create: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    added: tuple[Extra, ...] = ()

    def actions(self, verb: Verb) -> tuple[str, ...]:
        """Those of one verb, without the added ones."""
        found: tuple[str, ...] = getattr(self, verb)
        return found


class Resource(Frozen):
    """What a policy can name. `arns`: `{name}` stands for its name; `types`: those that make it, with the input of its
    name, empty if the cloud chooses it.
    """

    arns: tuple[str, ...]
    types: Mapping[str, str] = Field(default_factory=dict)


class Permissions(Frozen):
    """A provider's table. `types`: by package, module and class; `actions`: by resource that an action is about, how a
    condition limits it (`new`: by the request's tags, `tagged`: by the resource's, `plain`: not at all).
    """

    sources: tuple[str, ...] = Field(min_length=1)
    types: Mapping[str, TypePermissions]
    commands: Mapping[str, tuple[Extra, ...]]
    actions: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    resources: Mapping[str, Resource] = Field(default_factory=dict)


@cache
def load_permissions(provider: str) -> Permissions:
    """A provider's bundled table."""
    text = (Path(__file__).parent / provider / "permissions.yaml").read_text("utf-8")
    return Permissions.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))
