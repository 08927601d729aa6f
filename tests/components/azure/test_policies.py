"""Who gets what: places in blob storage, actions with their reasons, ids as Azure writes them."""

import pytest

from gangway.components.azure.policies import (
    COST_READER,
    GROUP_WIDE,
    AccountPlace,
    container_id,
    get_account,
    group_id,
    head_actions,
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
