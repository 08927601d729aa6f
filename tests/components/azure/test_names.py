"""Names that fit Azure's rules, and stay the same."""

import re
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.names import RANDOM_DIGITS, guid, letters

stacks = st.from_regex(r"\A[a-z][a-z0-9-]{0,38}[a-z0-9]\Z")
subscriptions = st.uuids().map(str)
DIGITS = "0" * RANDOM_DIGITS


@given(stacks)
def test_names_fit_the_rules_of_azure_with_pulumis_digits(stack: str) -> None:
    assert re.fullmatch(r"[a-z0-9]{3,24}", letters(stack, 24) + DIGITS)
    assert re.fullmatch(r"[a-z0-9]{5,50}", letters(stack, 50) + DIGITS)


@given(subscriptions, stacks, st.lists(st.sampled_from(["node", "head", "runs", "data"]), max_size=3))
def test_a_guid_is_one_and_stays_the_same(subscription: str, stack: str, parts: list[str]) -> None:
    made = guid(subscription, stack, *parts)
    assert str(UUID(made)) == made
    assert guid(subscription, stack, *parts) == made
    assert guid(subscription, stack, *parts, "more") != made


def test_the_same_stack_in_another_subscription_is_another() -> None:
    one, other = ("00000000-0000-0000-0000-00000000000" + digit for digit in "12")
    assert guid(one, "demo", "node") != guid(other, "demo", "node")
