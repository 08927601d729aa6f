"""The table of what takes tags, held against the clouds' SDKs."""

import pytest

from gangway.stacks.base.rule import kind
from gangway.stacks.plan.plan import Plan
from gangway.stacks.plan.rules.tags import tags_field, types_with_tags
from tests.sdk_arguments import sdk_arguments

# Input on the wire -> argument in Python.
ARGUMENTS = {
    "tags": "tags",
    "labels": "labels",
    "userLabels": "user_labels",
    "resourceLabels": "resource_labels",
    "metadata": "metadata",
}
# gcp: `tags` are those of the network, and `labels` of a notification channel are its settings.
WORDS = {
    "aws": ("tags",),
    "gcp": ("user_labels", "resource_labels", "labels"),
    "azure-native": ("tags",),
    "openstack": ("metadata", "tags"),
}


# The provider puts an object anew, and an empty one, where nothing but its metadata change.
LEFT_ALONE = {"openstack:objectstorage:ContainerObject"}


@pytest.mark.slow
def test_every_type_of_the_table_takes_its_tags_so() -> None:
    table = {of_type: field for of_type, field in types_with_tags().items() if of_type.partition(":")[0] in WORDS}
    assert len(table) > 100
    assert {t: field for t, field in table.items() if ARGUMENTS[field] not in sdk_arguments(t)} == {}


def test_whatever_gangway_declares_and_takes_tags_is_in_it(plans: dict[str, Plan]) -> None:
    declared = {kind(resource.type) for plan in plans.values() for resource in plan.resources}
    judged = {of_type for of_type in declared if of_type.partition(":")[0] in WORDS}
    assert len(judged) > 100
    for of_type in sorted(judged - LEFT_ALONE):
        taken = sdk_arguments(of_type)
        word = next((word for word in WORDS[of_type.partition(":")[0]] if word in taken), None)
        field = tags_field(of_type)
        assert (None if field is None else ARGUMENTS[field]) == word, of_type
