"""What one package adds to the common stand-in, and how it refuses: `standin.aws`, `standin.azure` and others are some.

Not a plugin by itself: `standin.provider` talks to the engine.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .records import STATE_VARIABLE, records
from .shapes import Fault, is_input


class RefusedError(Exception):
    """What a service does not do; the text is what the user of the engine reads."""


Look = Callable[[str, str], Mapping[str, Any]]
"""Type and id of a resource -> its inputs as the cloud holds them; none where there is no such resource."""


CONTENT = "content"
"""The type of what tests put into a resource, an object in a bucket: `{"in": the resource's id}` are its inputs."""


def texts(value: Any) -> Iterator[str]:
    """Every text in some inputs."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


class Service:
    """What one package adds to the common stand-in. This one adds nothing.

    Attributes:
        sdk: the Python package whose classes say what is declared.
        replacing: by type, the inputs that a living resource cannot change. Kept by hand, and not read from
            components/catalog/replaces: the offline update does that, and tests hold it against what the engine shows
            of these. test_standin_lists.py holds these lists against the catalogue's.
        volatile: outputs that an update computes anew, so that a preview does not know them.
        open_enums: names of enumerations that other words may stand in too. None where the real plugin knows none, and
            turns numbers into texts: no single value is looked at.
        held: types that are not deleted while something else names them by their id.
        loose: types that may name them all the same.
        stores: types that are not deleted with content, and the input that has the provider empty them first.
        settings: types whose creation sets what is there: to make one twice is no mistake.
        parts: types with the id of what they are part of, by the type of that: they go with it.
    """

    sdk: str
    replacing: Mapping[str, frozenset[str]] = {}
    volatile: frozenset[str] = frozenset()
    open_enums: frozenset[str] | None = None
    held: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    stores: Mapping[str, str] = {}
    settings: frozenset[str] = frozenset()
    parts: Mapping[str, frozenset[str]] = {}

    @property
    def version(self) -> str:
        """That of the SDK."""
        return version(self.sdk.replace("_", "-"))

    def configure(self, args: Mapping[str, Any]) -> None:
        """Takes the provider's inputs."""

    def complete(
        self, type_token: str, name: str, seed: bytes, inputs: dict[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Adds to inputs what the real plugin adds: the name of what has none, chosen once."""
        key = "bucket" if type_token == "aws:s3/bucket:Bucket" else "name"
        if is_input(type_token, key) and key not in inputs:
            inputs[key] = before.get(key, f"{name}-{seed.hex()[:7]}")

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """What is wrong with inputs that the SDK allows."""
        yield from ()

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """Judges a new resource by others that the cloud holds.

        Raises:
            RefusedError: it does not go together with them.
        """

    def admit_change(self, type_token: str, before: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        """Judges new inputs of a living resource, where the plugin itself would try.

        Raises:
            RefusedError: the cloud does not change it like that.
        """

    def release(self, type_token: str, id_: str, others: Iterable[Mapping[str, Any]]) -> None:
        """Judges the end of a resource by the `others`, `{type, id, inputs, ...}`.

        Raises:
            RefusedError: one of them is in the way.
        """
        for other in others if type_token in self.held else ():
            named = any(text == id_ or text.endswith(f"/{id_}") for text in texts(other["inputs"]))
            if named and other["type"] not in self.loose:
                raise RefusedError(f"InUse: {id_} cannot be deleted because it is in use by {other['id']}")

    def empty(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], others: Iterable[Mapping[str, Any]]
    ) -> list[str]:
        """The ids of the content that is deleted with a resource.

        Raises:
            RefusedError: the resource has content, and is not to be emptied.
        """
        content = [other["id"] for other in others if other["type"] == CONTENT and other["inputs"]["in"] == id_]
        if content and type_token in self.stores and inputs.get(self.stores[type_token]) is not True:
            raise RefusedError(f"NotEmpty: the {type_token} {id_} you tried to delete holds {', '.join(content)}")
        return content

    def contains(self, type_token: str, id_: str, other: str) -> bool:
        """Whether a resource takes the one with the id `other` along when it is deleted."""
        return False

    def keys_of(self, type_token: str) -> frozenset[str] | None:
        """The inputs and outputs of a type that the SDK has no class for; None where the SDK is asked."""
        return None

    def replaced(self, type_token: str) -> frozenset[str]:
        """The inputs that a living resource cannot change."""
        return self.replacing.get(type_token, frozenset())

    def goes_first(self, inputs: Mapping[str, Any]) -> bool:
        """Whether what is replaced has to be gone before what replaces it is made."""
        return False

    def compared(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The part of the inputs whose change is a change of the resource."""
        return inputs

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """The id of a new resource."""
        return name

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Outputs beside the inputs; `before` holds them as they were, and nothing for a new resource.

        Raises:
            RefusedError: the resource cannot be made of these inputs.
        """
        return dict(before)

    def foreseen(self, type_token: str) -> dict[str, Any]:
        """What a preview does not know inside of inputs."""
        return {}

    def told(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs as outputs tell them."""
        return inputs

    def newest(self) -> int:
        """Which image is the newest: a number that a test counts up in a file of the cloud's folder."""
        file = Path(os.environ[STATE_VARIABLE], "newest")
        return int(file.read_text("utf-8")) if file.exists() else 1

    def resources_of_type(self, type_token: str) -> Iterator[dict[str, Any]]:
        """The cloud's resources of a type, whichever project made them."""
        yield from (record for _, record in records() if record["type"] == type_token)

    def ask(self, function: str, args: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """Answers a function.

        Raises:
            RefusedError: there is no such function.
        """
        raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")
