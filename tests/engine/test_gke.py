"""A GKE cluster with a queue under the real Pulumi engine: up, the same again, larger, gone, what runs inside first."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STACK = "gke-a3-jobset"
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"


def test_it_lives_and_leaves_nothing_behind(make_engine: Callable[[str], Any], queue_life: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    engine = make_engine(STACK)
    exports = queue_life.up(engine, charts=2)
    assert json.loads(exports["kubeconfig"])["current-context"] == exports["cluster_name"] == STACK
    assert exports["node_pools"] == [f"{STACK}-0-spot", f"{STACK}-1-on-demand"]
    queue_life.the_same_again(engine)
    queue_life.larger(engine, 12, POOL)
    queue_life.gone(engine, CLUSTER)
