"""Required tags, which assign each line of the bill to a team; and which types of resources take tags."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from gangway.components.core.findings import Severity
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.registry import all_providers, provider_names
from gangway.stacks.base.rule import Limits, ResourceRule, is_unknown, items, kind, label


def types_with_tags() -> dict[str, str]:
    """By package, module and class (`aws:ec2:LaunchTemplate`), the input for tags."""
    return _types(provider_names())


@cache
def _types(_names: tuple[str, ...]) -> dict[str, str]:
    return {of_type: name for provider in all_providers() for of_type, name in provider.tags.inputs().items()}


def tags_field(type_token: str) -> str | None:
    """The input for tags of a type; None if it takes none, or is not listed."""
    return types_with_tags().get(kind(type_token))


def _get_spelling(of_type: str) -> Callable[[str], str]:
    return next((p.tags.spelled[of_type] for p in all_providers() if of_type in p.tags.spelled), str)


def _check_tags(resource: Declared, limits: Limits) -> Iterable[str]:
    field = tags_field(resource.type)
    if field is None:
        return
    inputs = resource.inputs
    # tagsAll has the provider's default tags; an instance of OpenStack may also have words.
    labels = inputs.get("tags") if field == "metadata" else None
    given = [inputs.get(field), inputs.get("tagsAll"), labels]
    yield from _missing_tags(label(resource), given, limits, _get_spelling(kind(resource.type)))
    for provider in all_providers():
        for what, tags in provider.tags.started(resource):
            yield from _missing_tags(f"{label(resource)}: {what}", tags, limits)


def _missing_tags(
    whose: str, given: Sequence[Any], limits: Limits, spelled: Callable[[str], str] = str
) -> Iterable[str]:
    """A breach if tags lack a required key, which some services spell differently."""
    if any(is_unknown(tags) for tags in given):
        return
    carried = {key for tags in given for key, value in _pairs(tags).items() if value}
    if missing := [key for key in limits.required_tags if not carried & {key, spelled(key)}]:
        yield f"{whose}: no {' and no '.join(missing)} tag"


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
    holds="Every resource that takes tags has the required ones",
    path="gangway:tags",
    fix="add the tags; Gangway's components put their `tags` on all their resources",
    check=_check_tags,
    limits=("required_tags",),
)
