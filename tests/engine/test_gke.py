"""A GKE cluster with a queue under the real Pulumi engine: up, the same again, larger, gone, what runs inside first."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STACK = "gke-a3-jobset"
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"


def test_it_lives_and_leaves_nothing_behind(make_engine: Callable[[str], Any]) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    engine = make_engine(STACK)
    # Nothing has to be heeded here.
    engine.change(lambda config: config["gangway:gcp"].update(grant_wait_sec=0))
    engine.applied("up")
    exports = json.loads(engine.plain("stack", "output", "--json"))
    assert exports["queues"] == ["vision", "speech"]
    assert json.loads(exports["kubeconfig"])["current-context"] == exports["cluster_name"] == STACK
    assert exports["node_pools"] == [f"{STACK}-0-spot", f"{STACK}-1-on-demand"]
    inside = [each["type"] for each in engine.resources() if each["type"].startswith("kubernetes:")]
    assert inside.count("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue") == 2
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}

    engine.change(lambda config: config["gangway:cluster"]["nodes"].update(max=12))
    larger = engine.applied("up")
    assert set(larger.changes) <= {"same", "update"}, larger.text
    assert {POOL, "kubernetes:kueue.x-k8s.io/v1beta2:Cohort"} <= larger.types("update")

    destroy = engine.applied("destroy")
    ended, began = destroy.ended("delete"), destroy.began("delete")
    inside_ends = max(place for urn, place in ended.items() if "$kubernetes:" in urn)
    assert inside_ends < min(place for urn, place in began.items() if f"${CLUSTER}::" in urn)
    assert engine.resources() == []
