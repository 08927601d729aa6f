"""Declares components under Pulumi's mocks and hands back what reached the wire; and rungs as people write them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gangway.stacks.recording import PlaceholderCloud, PlannedResource, record


@dataclass
class Declaration:
    """Everything a program registered, and the outputs its components announced."""

    resources: list[PlannedResource]
    outputs: Mapping[str, frozenset[str]]

    def of(self, kind: str) -> list[PlannedResource]:
        """The provider's resources of that class, by name; not our components."""
        found = (r for r in self.resources if r.custom and r.type.endswith(f":{kind}"))
        return sorted(found, key=lambda r: r.name)

    def each(self, kind: str) -> list[PlannedResource]:
        """At least one of that kind: an assertion about each of none would always hold."""
        found = self.of(kind)
        assert found, f"no {kind}"
        return found

    def one(self, kind: str) -> PlannedResource:
        """The only resource of that kind."""
        (found,) = self.of(kind)
        return found


Program = Callable[[], object]
Declare = Callable[[Program], Declaration]


def _declare(program: Program) -> Declaration:
    def returning_nothing() -> dict[str, Any]:
        program()
        return {}

    recording = record(returning_nothing, PlaceholderCloud(), "test")
    return Declaration(list(recording.resources), recording.outputs)


@pytest.fixture
def declare() -> Declare:
    """Runs a function that makes components; gives the resources it declared."""
    return _declare


@pytest.fixture
def make(declare: Declare) -> Callable[..., Any]:
    """Declares one component, called demo, with these arguments."""
    return lambda component, args: declare(lambda: component("demo", args))


@pytest.fixture
def declare_seen(declare: Declare) -> Callable[..., Any]:
    """Declares a component, by default as `demo`; `seen` are the values of its outputs."""

    def run(component: Callable[..., Any], args: dict[str, Any], name: str = "demo") -> Any:
        seen: dict[str, Any] = {}

        def program() -> None:
            made = component(name, args)
            for key in component.__annotations__:
                getattr(made, key).apply(lambda value, key=key: seen.update({key: value}))

        declared: Any = declare(program)
        declared.seen = seen
        return declared

    return run


_RUNGS: dict[str, dict[str, Any]] = {
    "owned": {"kind": "capacity-block", "id": "cr-0123456789abcdef0"},
    "bought": {
        "kind": "capacity-block",
        "purchase": True,
        "offering_id": "cbo-0123456789abcdef0",
        "upfront_usd": 16000,
        "starts_at": "2026-06-30T11:30:00Z",
        "ends_at": "2026-07-01T11:30:00Z",
    },
}


@pytest.fixture(scope="session")
def written() -> Callable[..., dict[str, Any]]:
    """Makes a capacity block as it is written, `owned` or `bought`, with changes; None takes a key away."""

    def make(block: str, **changes: Any) -> dict[str, Any]:
        return {key: value for key, value in {**_RUNGS[block], **changes}.items() if value is not None}

    return make
