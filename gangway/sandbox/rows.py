"""What the sandbox says about each resource, and the comparison behind it. Only declared fields are compared: what a
service adds by itself (defaults, timestamps) is not a difference.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# What identifies an element of a list of structures, in the order tried. Only tags may hold more than was declared.
_KEYS = ("Key", "ResourceType", "Name", "Id")


class Status(StrEnum):
    """What became of a declared resource."""

    READ_BACK_EQUAL = "read back equal"
    """Every declared field was read back from moto and is as declared."""
    ACCEPTED = "accepted"
    """Botocore and moto took the request; every field that can be read back is as declared, the note names the rest."""
    VALIDATED = "validated only"
    """Moto lacks the action: botocore checked and serialized the request, nothing was applied."""
    DIFFERENT = "different"
    """Moto holds something else than was declared."""
    REFUSED = "refused"
    """Botocore or moto refused the request."""


@dataclass(frozen=True)
class SandboxRow:
    """One resource of the plan, as the sandbox applied it.

    Attributes:
        type: Pulumi type token.
        name: Pulumi name.
        status: see Status.
        calls: the requests that were made to build it, such as `ec2:CreateVpc`; those that read it back are not listed.
        note: why it was only validated, which field differs (declared and held), what moto does not keep.
        fields_compared: paths, in the API's own terms, of the fields that were read back.
    """

    type: str
    name: str
    status: Status
    calls: tuple[str, ...]
    note: str
    fields_compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applied:
    """A resource that was built.

    Attributes:
        id: its id, as the provider would report it.
        outputs: inputs and computed values, in camelCase.
        declared: the fields to find again, in the API's own terms.
        read: asks moto for those fields; None where moto lacks the resource.
        unkept: paths (without indexes) that no call of moto's gives back.
        note: what a reader should know beside the status.
    """

    id: str
    outputs: dict[str, Any]
    declared: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[], Mapping[str, Any]] | None = None
    unkept: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Check:
    """One compared field. `held` is None where moto gives nothing back."""

    path: str
    declared: Any
    read_back: Any

    @property
    def equal(self) -> bool:
        """Whether moto holds what was declared."""
        return bool(self.declared == self.read_back)

    @property
    def place(self) -> str:
        """The path without its indexes."""
        return re.sub(r"\[[^\]]*\]", "", self.path)


def compare(declared: Any, read_back: Any, path: str = "") -> Iterator[Check]:
    """Walks the declared fields and finds each in `held`. Lists of plain values are compared without their order."""
    if isinstance(declared, Mapping):
        found = read_back if isinstance(read_back, Mapping) else {}
        for key, value in declared.items():
            yield from compare(value, found.get(key), f"{path}.{key}" if path else key)
    elif isinstance(declared, Sequence) and not isinstance(declared, str):
        yield from _compare_lists(declared, read_back, path)
    else:
        yield Check(path, declared, read_back)


def _compare_lists(declared: Sequence[Any], read_back: Any, path: str) -> Iterator[Check]:
    found: Sequence[Any] = read_back if isinstance(read_back, Sequence) else ()
    if not any(isinstance(item, Mapping) for item in declared):
        nothing = read_back is None and declared
        yield Check(path, sorted(declared, key=str), None if nothing else sorted(found, key=str))
        return
    key = next((key for key in _KEYS if all(key in item for item in declared)), None)
    wanted, there = _by(key, declared), _by(key, found)
    if read_back is None or (key != "Key" and len(there) != len(wanted)):
        yield Check(path, f"{len(wanted)} items", None if read_back is None else f"{len(there)} items")
        return
    for index, item in wanted.items():
        yield from compare(item, there.get(index), f"{path}[{index}]")


def _by(key: str | None, items: Sequence[Any]) -> dict[Any, Any]:
    """The items by what identifies them (which then needs no comparison of its own), or by their place."""
    if key is None:
        return dict(enumerate(items))
    return {item[key]: {name: value for name, value in item.items() if name != key} for item in items}


def verdict(
    applied: Applied, read_back: Mapping[str, Any], unsent: Sequence[str]
) -> tuple[Status, str, tuple[str, ...]]:
    """Status, note and compared paths of a resource; `read_back` is what moto has, `unsent` inputs made no request."""
    checks = list(compare(applied.declared, read_back))
    hidden = {check.place for check in checks if check.read_back is None and _is_under(check.place, applied.unkept)}
    wrong = [check for check in checks if not check.equal and check.place not in hidden]
    notes = [f"{check.path}: declared {check.declared!r}, held {_shown(check.read_back)}" for check in wrong]
    if hidden:
        notes.append(f"not to be read back from moto: {', '.join(sorted(hidden))}")
    if unsent:
        notes.append(f"not sent by the sandbox: {', '.join(unsent)}")
    if applied.note:
        notes.append(applied.note)
    compared = tuple(check.path for check in checks if check.place not in hidden)
    if wrong:
        return Status.DIFFERENT, "; ".join(notes), compared
    status = Status.ACCEPTED if hidden or unsent else Status.READ_BACK_EQUAL
    return status, "; ".join(notes), compared


def _is_under(place: str, prefixes: Sequence[str]) -> bool:
    return any(place == prefix or place.startswith(f"{prefix}.") for prefix in prefixes)


def _shown(read_back: Any) -> str:
    return "nothing" if read_back is None else repr(read_back)
