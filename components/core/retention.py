"""Which of a provider's resource types hold, protect and decrypt data, and in which order they may be deleted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
