"""An AKS cluster with a queue under the real Pulumi engine: up, the same again, larger, gone."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STACK = "aks-ndv5"
CLUSTER = "azure-native:containerservice:ManagedCluster"
POOL = "azure-native:containerservice:AgentPool"
# Runs outlive the stack, and so does the key that reads them.
KEPT = frozenset(
    {
        "azure-native:authorization:RoleAssignment",
        "azure-native:keyvault:Key",
        "azure-native:keyvault:Vault",
        "azure-native:managedidentity:UserAssignedIdentity",
        "azure-native:resources:ResourceGroup",
        "azure-native:storage:BlobContainer",
        "azure-native:storage:BlobServiceProperties",
        "azure-native:storage:ManagementPolicy",
        "azure-native:storage:StorageAccount",
    }
)
POOLS = ["r0spot", "r1ondemand"]


@pytest.fixture
def engine(make_engine: Callable[[str], Any], running_plugin: Any) -> Iterator[Any]:
    """The shipped stack; the plugin runs all the while: to read its SDK takes longer than what it then does."""
    made = make_engine(STACK)
    with running_plugin("azure-native", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"azure-native:{plugin.port}"
        yield made


def test_it_lives_and_leaves_nothing_behind(engine: Any, queue_life: Any, azure_vm: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert engine.resources() == []

    exports = queue_life.up(engine, charts=5)
    assert exports["node_pools"] == POOLS
    it_is_reached(engine, exports)
    queue_life.the_same_again(engine)
    nodes_at_work_are_not_taken_away(engine, azure_vm)
    azure_vm.live = dict.fromkeys(POOLS, 0)
    queue_life.larger(engine, 6, POOL)
    destroy = queue_life.gone(engine, CLUSTER, KEPT)
    pools = queue_life.last(destroy.ended("delete"), f"${POOL}::")
    assert pools < queue_life.first(destroy.began("delete"), f"${CLUSTER}::")


def it_is_reached(engine: Any, exports: dict[str, Any]) -> None:
    config = json.loads(exports["kubeconfig"])
    [cluster] = [each for each in engine.resources() if each["type"] == CLUSTER]
    assert config["clusters"][0]["cluster"]["server"] == f"https://{cluster['outputs']['fqdn']}:443"
    assert config["current-context"] == exports["cluster_name"]
    assert exports["cluster_name"].startswith(STACK)
    inside = [each for each in engine.resources() if each["type"] == "kubernetes:core/v1:ConfigMap"]
    [ladder] = [each for each in inside if each["urn"].endswith(f"::{STACK}-ladder")]
    order = yaml.safe_load(ladder["inputs"]["data"]["priorities"])
    assert {type(rank) for rank in order} == {int}
    assert [pools for _, pools in sorted(order.items(), reverse=True)] == [[f".*-{name}-.*"] for name in POOLS]


def nodes_at_work_are_not_taken_away(engine: Any, azure_vm: Any) -> None:
    """That AKS's autoscaler has brought since."""
    azure_vm.live = {**dict.fromkeys(POOLS, 0), POOLS[0]: 2}
    engine.change(lambda config: config["gangway:cluster"]["nodes"].update(max=6))
    preview = engine.run("preview")
    assert preview.status != 0
    assert f"{STACK}-0-spot has 2 nodes, but 0 in Pulumi's state" in preview.text
