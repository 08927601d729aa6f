"""Whose network watcher writes the flow log."""

import pytest

from gangway.components.azure.storage import Watcher, plan_watcher
from gangway.components.core.findings import InputError

ONE, TWO = "11111111-0000-0000-0000-111111111111", "22222222-0000-0000-0000-222222222222"
ID = f"/subscriptions/{ONE}/resourceGroups/net-hub/providers/Microsoft.Network/networkWatchers/nw-eastus"


def test_azures_own_of_the_region_where_nobody_names_one() -> None:
    assert plan_watcher(None, "eastus", ONE) == Watcher("NetworkWatcherRG", "NetworkWatcher_eastus", by_azure=True)


@pytest.mark.parametrize("written", [ID, ID.replace("resourceGroups", "resourcegroups"), "net-hub/nw-eastus"])
def test_one_that_is_named(written: str) -> None:
    assert plan_watcher(written, "eastus", ONE) == Watcher("net-hub", "nw-eastus", by_azure=False)


@pytest.mark.parametrize("written", ["nw-eastus", "/nw-eastus", "a/b/c", ID.replace("networkWatchers", "networks"), ""])
def test_what_is_none(written: str) -> None:
    with pytest.raises(InputError, match="not a network watcher") as caught:
        plan_watcher(written, "eastus", ONE)
    assert (caught.value.place, caught.value.value) == ("gangway:azure.network_watcher", written)
    assert "az network watcher list" in caught.value.fix
    assert "NetworkWatcherRG/NetworkWatcher_eastus" in caught.value.fix


def test_one_of_another_subscription() -> None:
    with pytest.raises(InputError, match="its network's own subscription") as caught:
        plan_watcher(ID, "eastus", TWO)
    assert TWO in caught.value.allowed
    assert plan_watcher(ID, "eastus").name == "nw-eastus", "where nobody says which the network is in"
