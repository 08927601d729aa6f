"""The sandbox's row for each resource. Only declared fields are compared: a service's additions are no differences."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# Keys that identify elements in lists of structures, in order. Only tags may have undeclared additions.
_KEYS = ("Key", "ResourceType", "Name", "Id")


class Status(StrEnum):
    """The result of a declared resource."""

    READ_BACK_EQUAL = "read back equal"
    """Every declared field was read back from moto unchanged."""
    ACCEPTED = "accepted"
    """Botocore and moto accepted the request; readable fields are as declared, the note names the others."""
    VALIDATED = "validated only"
    """Moto lacks the action: botocore only checked and serialized the request."""
    DIFFERENT = "different"
    """Moto's state differs from the declaration."""
    REFUSED = "refused"
    """Botocore or moto refused the request."""


@dataclass(frozen=True)
class SandboxRow:
    """One resource as the sandbox applied it. `calls`: requests that built it; `note`: what could not be compared."""

    type: str
    name: str
    status: Status
    calls: tuple[str, ...]
    note: str
    fields_compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applied:
    """`outputs`: in camelCase; `declared`: fields to find again, in the API's terms; `read`: None if moto has none."""

    id: str
    outputs: dict[str, Any]
    declared: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[], Mapping[str, Any]] | None = None
    unkept: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A compared field. `held`: None if moto returns nothing."""

    path: str
    declared: Any
    read_back: Any

    @property
    def equal(self) -> bool:
        """Whether moto has the declared value."""
        return bool(self.declared == self.read_back)

    @property
    def place(self) -> str:
        """The path without indexes."""
        return re.sub(r"\[[^\]]*\]", "", self.path)


def compare(declared: Any, read_back: Any, path: str = "") -> Iterator[Check]:
    """Find each declared field in `read_back`. Lists of plain values are compared without order."""
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
    declared_by_key, found_by_key = _index(key, declared), _index(key, found)
    if read_back is None or (key != "Key" and len(found_by_key) != len(declared_by_key)):
        yield Check(path, f"{len(declared_by_key)} items", None if read_back is None else f"{len(found_by_key)} items")
        return
    for index, item in declared_by_key.items():
        yield from compare(item, found_by_key.get(index), f"{path}[{index}]")


def _index(key: str | None, items: Sequence[Any]) -> dict[Any, Any]:
    """Items by their identifying key (then not compared itself), or by position."""
    if key is None:
        return dict(enumerate(items))
    return {item[key]: {name: value for name, value in item.items() if name != key} for item in items}


def verdict(
    applied: Applied, read_back: Mapping[str, Any], unsent: Sequence[str]
) -> tuple[Status, str, tuple[str, ...]]:
    """Status, note and compared paths of a resource. `read_back`: moto's fields; `unsent`: inputs in no request."""
    checks = list(compare(applied.declared, read_back))
    hidden = {check.place for check in checks if check.read_back is None and _is_under(check.place, applied.unkept)}
    wrong = [check for check in checks if not check.equal and check.place not in hidden]
    held = ["nothing" if check.read_back is None else repr(check.read_back) for check in wrong]
    notes = [f"{check.path}: declared {check.declared!r}, held {text}" for check, text in zip(wrong, held, strict=True)]
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
