"""Required tags: whoever reads the bill can tell whose each line is; and which types of resources take tags at all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from components.core.findings import Severity
from components.estimate.cost import Declared
from stacks.base.registry import all_providers, provider_names
from stacks.base.rule import Limits, ResourceRule, is_unknown, items, kind, label


def types_with_tags() -> dict[str, str]:
    """By package, module and class (`aws:ec2:LaunchTemplate`), the input that holds the tags."""
    return _types(provider_names())


@cache
def _types(_names: tuple[str, ...]) -> dict[str, str]:
    return {of_type: name for provider in all_providers() for of_type, name in provider.tags.inputs().items()}


def tags_field(type_token: str) -> str | None:
    """The input in which resources of a type carry their tags; None where they take none, or nobody has said."""
    return types_with_tags().get(kind(type_token))


def _spelled(of_type: str) -> Callable[[str], str]:
    """How resources of a type spell a key."""
    return next((p.tags.spelled[of_type] for p in all_providers() if of_type in p.tags.spelled), str)


def _untagged(resource: Declared, limits: Limits) -> Iterable[str]:
    field = tags_field(resource.type)
    if field is None:
        return
    inputs = resource.inputs
    # Tags that a provider adds to each of its resources stand in tagsAll; an instance of OpenStack may have words, too.
    labels = inputs.get("tags") if field == "metadata" else None
    given = [inputs.get(field), inputs.get("tagsAll"), labels]
    yield from _missing(label(resource), given, limits, _spelled(kind(resource.type)))
    for provider in all_providers():
        for what, tags in provider.tags.started(resource):
            yield from _missing(f"{label(resource)}: {what}", tags, limits)


def _missing(whose: str, given: Sequence[Any], limits: Limits, spelled: Callable[[str], str] = str) -> Iterable[str]:
    """A breach where tags lack a required key, which some services spell their own way."""
    if any(is_unknown(tags) for tags in given):
        return
    carried = {key for tags in given for key, value in _pairs(tags).items() if value}
    if missing := [key for key in limits.required_tags if not carried & {key, spelled(key)}]:
        yield f"{whose}: no {' and no '.join(missing)} among the tags"


def _pairs(tags: Any) -> Mapping[str, Any]:
    """Tags as a mapping; an Auto Scaling group has a list of keys and values, OpenStack words such as `team=ml`."""
    if isinstance(tags, Mapping):
        return tags
    if isinstance(tags, Sequence) and not isinstance(tags, str):
        labels = [word.partition("=") for word in tags if isinstance(word, str)]
        if labels:
            return {key: value for key, _, value in labels}
    return {str(one["key"]): one.get("value") for one in items(tags) if "key" in one}


REQUIRED_TAGS = ResourceRule(
    code="tags.missing",
    severity=Severity.ERROR,
    holds="Every resource that takes tags carries the required ones",
    path="gangway:tags",
    fix="add the tags; Gangway's components put their `tags` on everything they declare",
    check=_untagged,
    limits=("required_tags",),
)
