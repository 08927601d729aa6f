"""The rule for the deletion order of data, its protections and its keys, over the resource types of a provider."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gangway.components.core.findings import InputError

Types = Mapping[str, str]
"""Type (`aws:s3:Bucket`) -> why it is in this class."""


def get_types(package: str, types: Mapping[str, str]) -> dict[str, str]:
    """Types with their reason, from a reason to `module: Class Class module: Class`.

    >>> get_types("aws", {"holds no data": "sns: Topic TopicPolicy"})
    {'aws:sns:Topic': 'holds no data', 'aws:sns:TopicPolicy': 'holds no data'}
    """
    found, module = {}, ""
    for reason, words in types.items():
        for word in words.split():
            if word.endswith(":"):
                module = word
            else:
                found[f"{package}:{module}{word}"] = reason
    return found


@dataclass(frozen=True)
class Retention:
    """The resource types of a provider, each in exactly one class, with the reason.

    Attributes:
        data: must outlive a `destroy`: the cloud refuses to delete them unless empty, or the program retains them.
        holders: contain `data`, if protections refer to the container (a storage account) and not to the data.
        protections: separate resources that keep the data private, versioned or encrypted.
        keys: encrypt the data.
        key_grants: a key's policy, alias or IAM member, without which the storage service cannot use the key.
        surroundings: contain the data or its key, or give access to it, such as a resource group or vault.
        copies: working copies, such as file systems. `destroy` deletes them, a changed setting only if allowed.
        disposable: may be deleted or replaced at any time.
        is_scratch: whether `data` with these inputs is deleted with its content on purpose (`keep_runs: false`).
        scratch_components: components without data that has to outlive a `destroy`, such as flow logs.
        refuses: whether the cloud refuses to delete `data` that is not empty. If not, the program must retain it.
    """

    data: Types = field(default_factory=dict)
    holders: Types = field(default_factory=dict)
    protections: Types = field(default_factory=dict)
    keys: Types = field(default_factory=dict)
    key_grants: Types = field(default_factory=dict)
    surroundings: Types = field(default_factory=dict)
    copies: Types = field(default_factory=dict)
    disposable: Types = field(default_factory=dict)
    is_scratch: Callable[[Mapping[str, Any]], bool] = lambda inputs: inputs.get("forceDestroy") is True
    scratch_components: frozenset[str] = frozenset()
    refuses: bool = True

    @property
    def classes(self) -> tuple[Types, ...]:
        """All classes."""
        around = (self.holders, self.protections, self.keys, self.key_grants, self.surroundings)
        return self.data, *around, self.copies, self.disposable

    @property
    def guarded(self) -> frozenset[str]:
        """The types that a changed setting may replace or remove only if the stack file allows it."""
        return frozenset((*self.data, *self.holders, *self.copies))

    def is_disposable(self, urn: str, outputs: Mapping[str, Any]) -> bool:
        """Whether a resource of a guarded type may be replaced or removed all the same."""
        parents = "".join(urn.split("::", 3)[2:3]).split("$")
        return self.is_scratch(outputs) or not self.scratch_components.isdisjoint(parents)


def refusal(name: str, type_: str, action: str, *, is_retained: bool = False) -> InputError:
    """The refusal to replace or remove a guarded resource that `gangway:allow_replace` does not name."""
    effect, otherwise = "what it holds would be lost", "copy the data away, and"
    if is_retained:
        effect = "the stack would go on with an empty one: the old one stays in the cloud, outside the stack"
        otherwise = "to start with an empty one,"
    return InputError(
        f"gangway:allow_replace: {name}",
        f"this change would {action} a resource of type {type_}, and {effect}",
        allowed="changes that leave it as it is",
        fix=f"undo the change; or {otherwise} write gangway:allow_replace: [{name}]",
    )


NO_RETENTION = Retention()
"""For a provider without data."""


class RetentionResource(Protocol):
    """The part of `gangway.stacks.recording.PlannedResource` that the rule reads."""

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
        """The URNs of the resources it depends on."""

    @property
    def is_retained(self) -> bool:
        """Whether `retain_on_delete` is set."""

    @property
    def deleted_with(self) -> str:
        """The URN in `deleted_with`; empty if not set."""


def retention_breaches(
    resources: Sequence[RetentionResource], facts: Retention, kind: Callable[[str], str]
) -> Iterator[str]:
    """The resources that could be deleted while the data still needs them.

    A resource outlives the data if it is retained, or if the data depends on it and the cloud refuses to delete the
    data: Pulumi deletes in reverse order of dependencies and stops at the first failure. `kind` turns a type token into
    `package:module:Class`.
    """
    graph = _Graph(resources)
    for data in resources:
        if kind(data.type) not in facts.data or facts.is_scratch(data.inputs):
            continue
        if not facts.refuses and not data.is_retained:
            yield f"{data.name} ({kind(data.type)}) is deleted with what is in it"
            continue
        holders = {urn for urn in graph.dependencies(data.urn) if kind(graph.by_urn[urn].type) in facts.holders}
        guarded = {data.urn, *holders}
        protections = [one for one in resources if kind(one.type) in facts.protections and guarded & one.dependencies]
        needs = graph.dependencies(data.urn).union(*(graph.dependencies(one.urn) for one in protections))
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
        self._dependencies: dict[str, frozenset[str]] = {}

    def dependencies(self, urn: str) -> frozenset[str]:
        """Direct and indirect dependencies of a resource."""
        if urn not in self._dependencies:
            direct = frozenset(other for other in self.by_urn[urn].dependencies if other in self.by_urn)
            self._dependencies[urn] = direct.union(*(self.dependencies(other) for other in direct))
        return self._dependencies[urn]

    def outlives(self, urn: str, data: RetentionResource) -> bool:
        if self.by_urn[urn].is_retained:
            return True
        # Deleting retained data always succeeds, so it does not stop the deletions that follow.
        return not data.is_retained and urn in self.dependencies(data.urn)
