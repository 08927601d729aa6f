"""In which order data, what protects it and what decrypts it are deleted: what a provider's types are, and the rule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["NO_RETENTION", "Retention", "RetentionResource", "retention_breaches", "types_of"]

Types = Mapping[str, str]
"""By type (`aws:s3:Bucket`), why it is in this class."""


def types_of(package: str, lines: str, reason: str) -> dict[str, str]:
    """Types written as a line for each module, `module: Class Class`, all for the same reason.

    >>> types_of("aws", "sns: Topic TopicPolicy", "holds no data")
    {'aws:sns:Topic': 'holds no data', 'aws:sns:TopicPolicy': 'holds no data'}
    """
    found, module = {}, ""
    for word in lines.split():
        if word.endswith(":"):
            module = word
        else:
            found[f"{package}:{module}{word}"] = reason
    return found


def _force_destroyed(inputs: Mapping[str, Any]) -> bool:
    return inputs.get("forceDestroy") is True


@dataclass(frozen=True)
class Retention:
    """The types of a provider, each in one class, with the reason.

    Attributes:
        data: hold what must outlive a `destroy`: the cloud refuses to delete them with data, or they are left there.
        holders: what `data` is in, where the protections name that.
        protections: keep such data private, versioned or encrypted, as resources of their own that name it.
        keys: decrypt data.
        key_grants: a key's own policy, alias or member: without them the services that hold the data cannot use it.
        surroundings: what retained data or a key lives in or is used by; needed where the data waits for it.
        copies: hold working copies, such as file systems: they go with the stack, but no change of a setting may
            replace them unasked.
        disposable: go with the stack.
        is_scratch: whether `data` with these inputs is meant to go with its content, as with `keep_runs: false`.
        refuses: whether the cloud refuses to delete `data` that is not empty; where it does not, it has to be retained.
    """

    data: Types = field(default_factory=dict)
    holders: Types = field(default_factory=dict)
    protections: Types = field(default_factory=dict)
    keys: Types = field(default_factory=dict)
    key_grants: Types = field(default_factory=dict)
    surroundings: Types = field(default_factory=dict)
    copies: Types = field(default_factory=dict)
    disposable: Types = field(default_factory=dict)
    is_scratch: Callable[[Mapping[str, Any]], bool] = _force_destroyed
    refuses: bool = True

    @property
    def classes(self) -> tuple[Types, ...]:
        """All of them; a type is in one."""
        around = (self.holders, self.protections, self.keys, self.key_grants, self.surroundings)
        return self.data, *around, self.copies, self.disposable

    @property
    def guarded(self) -> frozenset[str]:
        """The types that a change of settings may replace or remove only where the stack file allows it."""
        return frozenset((*self.data, *self.holders, *self.copies))


NO_RETENTION = Retention()
"""Of a provider that declares no data."""


class RetentionResource(Protocol):
    """What the rule reads of a declared resource; see `stacks.planning.recording.PlannedResource`."""

    @property
    def urn(self) -> str:
        """Its URN."""

    @property
    def type(self) -> str:
        """Its type token."""

    @property
    def name(self) -> str:
        """Its logical name."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Its inputs."""

    @property
    def dependencies(self) -> frozenset[str]:
        """The URNs of what it waits for."""

    @property
    def is_retained(self) -> bool:
        """Whether its deletion leaves it in the cloud."""

    @property
    def deleted_with(self) -> str:
        """The URN of the resource whose deletion is its own."""


def retention_breaches(
    resources: Sequence[RetentionResource], facts: Retention, kind: Callable[[str], str]
) -> Iterator[str]:
    """Where protection could go before the data. A resource outlives the data if it is retained, or if the data, where
    the cloud refuses its deletion, waits for it: Pulumi deletes in reverse order, and stops at the refusal. `kind`
    turns a type token into `package:module:Class`.
    """
    graph = _Graph(resources)
    for data in resources:
        if kind(data.type) not in facts.data or facts.is_scratch(data.inputs):
            continue
        if not facts.refuses and not data.is_retained:
            yield f"{data.name} ({kind(data.type)}) is deleted with what is in it"
            continue
        holders = {urn for urn in graph.below(data.urn) if kind(graph.by_urn[urn].type) in facts.holders}
        guarded = {data.urn, *holders}
        protections = [one for one in resources if kind(one.type) in facts.protections and guarded & one.dependencies]
        needs = graph.below(data.urn).union(*(graph.below(one.urn) for one in protections))
        keys = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.keys}
        before = {urn for urn in needs if kind(graph.by_urn[urn].type) in facts.surroundings}
        grants = {
            one.urn for one in resources if kind(one.type) in facts.key_grants and not keys.isdisjoint(one.dependencies)
        }
        for one in protections:
            if not one.is_retained and one.deleted_with not in guarded:
                yield f"{one.name} ({kind(one.type)}) is deleted before {data.name}, which it protects"
        for urn in sorted(keys | grants | before | holders):
            if not graph.outlives(urn, data):
                one = graph.by_urn[urn]
                yield f"{one.name} ({kind(one.type)}) can be deleted while {data.name} needs it"


class _Graph:
    def __init__(self, resources: Sequence[RetentionResource]) -> None:
        self.by_urn = {one.urn: one for one in resources}
        self._below: dict[str, frozenset[str]] = {}

    def below(self, urn: str) -> frozenset[str]:
        """Everything that a resource waits for, directly or not."""
        if urn not in self._below:
            direct = frozenset(other for other in self.by_urn[urn].dependencies if other in self.by_urn)
            self._below[urn] = direct.union(*(self.below(other) for other in direct))
        return self._below[urn]

    def outlives(self, urn: str, data: RetentionResource) -> bool:
        if self.by_urn[urn].is_retained:
            return True
        # The stack forgets retained data, and no refusal stops the deletions after it.
        return not data.is_retained and urn in self.below(data.urn)
