"""Who gets what: places in blob storage, actions with their reasons, ids as Azure writes them."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.policies import (
    COST_READER,
    GROUP_WIDE,
    IMAGE_WRITER_ACTIONS,
    RANDOM_DIGITS,
    AccountPlace,
    container_id,
    get_account,
    group_id,
    guid,
    head_actions,
    letters,
    node_actions,
    role_id,
    stop_actions,
)
from gangway.components.core.blob_url import read_blob_url
from gangway.components.core.findings import InputError

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
ACCOUNT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mydata"


def test_an_account_is_where_its_id_says() -> None:
    assert get_account(ACCOUNT, read_blob_url("az://mydata/images")) == AccountPlace(SUBSCRIPTION, "data")


@pytest.mark.parametrize("wrong", ["", "mydata", ACCOUNT + "x", ACCOUNT.replace("storageAccounts", "vaults")])
def test_another_account_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"source_account_id") as caught:
        get_account(wrong, read_blob_url("az://mydata/images"))
    assert "az storage account show --name mydata" in caught.value.fix


def test_everything_on_the_whole_group_has_a_reason() -> None:
    actions = {
        *node_actions(self_termination=True),
        *head_actions(fills_groups=True, scrapes=True),
        *stop_actions(),
        *stop_actions(clusters=True),
        *IMAGE_WRITER_ACTIONS,
    }
    assert actions | {COST_READER} == set(GROUP_WIDE)
    assert all(len(reason) > 10 and "{" not in reason for reason in GROUP_WIDE.values())


def test_nobody_gets_more_than_is_asked_for() -> None:
    assert node_actions(self_termination=False) == ()
    assert head_actions(fills_groups=False, scrapes=False) == ()
    assert all(action.endswith("/read") for action in head_actions(fills_groups=False, scrapes=True))
    node = node_actions(self_termination=True)
    assert not any(action.endswith("/write") for action in node)
    everything = (*node, *head_actions(fills_groups=True, scrapes=True), *stop_actions(), *stop_actions(clusters=True))
    assert not any("*" in action for action in everything)


def test_ids_as_azure_writes_them() -> None:
    assert role_id("s", "g") == "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/g"
    assert group_id("s", "g") == "/subscriptions/s/resourceGroups/g"
    assert container_id(ACCOUNT, "runs") == f"{ACCOUNT}/blobServices/default/containers/runs"


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
