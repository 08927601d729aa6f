"""Required tags: whoever reads the bill can tell whose each line is. Pure.

Which types take tags is a table (`taggable`) and no question to a cloud's SDK, which takes a second to import; a test
holds the table against the SDKs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from components.cost import Declared
from components.findings import Severity
from components.openstack.names import header_tags
from stacks.rules.inputs import is_unknown, items, kind, named
from stacks.rules.rule import Limits, ResourceRule
from stacks.rules.taggable import tags_field

__all__ = ["REQUIRED_TAGS"]

CONTAINER = "openstack:objectstorage:Container"
LAUNCHED = ("instance", "volume")
"""What a launch template starts, and what is billed: an Auto Scaling group's own tags never reach a volume."""


def _untagged(resource: Declared, limits: Limits) -> Iterable[str]:
    field = tags_field(resource.type)
    if field is None:
        return
    inputs = resource.inputs
    what = kind(resource.type)
    # Tags that a provider adds to each of its resources stand in tagsAll; an instance of OpenStack may have words, too.
    words = inputs.get("tags") if field == "metadata" else None
    given = [inputs.get(field), inputs.get("tagsAll"), words]
    yield from _missing(named(resource), given, limits, _in_headers if what == CONTAINER else str)
    if what == "aws:ec2:Instance" and not inputs.get("launchTemplate"):
        roots = [one.get("tags") for one in items(inputs.get("rootBlockDevice"))]
        yield from _missing(f"{named(resource)}: its volumes", [inputs.get("volumeTags"), *roots], limits)
    # One that names no type starts nothing by itself: an instance does, and says it.
    if what == "aws:ec2:LaunchTemplate" and "instanceType" in inputs:
        specifications = inputs.get("tagSpecifications")
        for launched in LAUNCHED:
            given = [one.get("tags") for one in items(specifications) if one.get("resourceType") == launched]
            known = [specifications] if is_unknown(specifications) else given
            yield from _missing(f"{named(resource)}: each {launched} it starts", known, limits)


def _missing(whose: str, given: Sequence[Any], limits: Limits, spelled: Callable[[str], str] = str) -> Iterable[str]:
    """A breach where tags lack a required key, which some services spell their own way."""
    if any(is_unknown(tags) for tags in given):
        return
    carried = {key for tags in given for key, value in _pairs(tags).items() if value}
    if missing := [key for key in limits.required_tags if not carried & {key, spelled(key)}]:
        yield f"{whose}: no {' and no '.join(missing)} among the tags"


def _in_headers(key: str) -> str:
    """A key as metadata of a container of OpenStack has it."""
    return next(iter(header_tags({key: ""})))


def _pairs(tags: Any) -> Mapping[str, Any]:
    """Tags as a mapping; an Auto Scaling group has a list of keys and values, OpenStack words such as `team=ml`."""
    if isinstance(tags, Mapping):
        return tags
    if isinstance(tags, Sequence) and not isinstance(tags, str):
        words = [word.partition("=") for word in tags if isinstance(word, str)]
        if words:
            return {key: value for key, _, value in words}
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
