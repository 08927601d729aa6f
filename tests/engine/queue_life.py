"""The phases in the life of a cluster with a queue under the real engine, and what holds of each on every cloud.

Loaded by `queue_life` of conftest.py: tests are no package.
"""

import json
from typing import Any

COHORT = "kubernetes:kueue.x-k8s.io/v1beta2:Cohort"
CLUSTER_QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
RELEASE = "kubernetes:helm.sh/v3:Release"


def up(engine: Any, charts: int) -> dict[str, Any]:
    """Brings up a shipped stack, whose two teams have a queue each and which installs so many charts; its exports."""
    engine.applied("up")
    exports: dict[str, Any] = json.loads(engine.plain("stack", "output", "--json", "--show-secrets"))
    assert exports["queues"] == ["vision", "speech"]
    types = [each["type"] for each in engine.resources()]
    counts = types.count(CLUSTER_QUEUE), types.count(COHORT), types.count(RELEASE)
    assert counts == (2, 1, charts), counts
    return exports


def the_same_again(engine: Any) -> None:
    """A second `up` asks for nothing; nor does what the cloud then tells."""
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    engine.applied("refresh", "--expect-no-changes")


def larger(engine: Any, num_nodes_max: int, pool: str) -> None:
    """More nodes are a change of pools and of what teams share, and nothing is made anew."""
    engine.change(lambda config: config["gangway:cluster"]["nodes"].update(max=num_nodes_max))
    outcome = engine.applied("up")
    assert set(outcome.changes) <= {"same", "update"}, outcome.text
    assert {pool, COHORT} <= outcome.types("update")


def gone(engine: Any, cluster: str, kept: frozenset[str] = frozenset()) -> Any:
    """What runs inside goes before the cluster, or nobody would be left to take it away; namespaces and with them their
    jobs go before the queues that count these, and queues before the flavors that they use, while Kueue still sees them
    go. Of the cloud only resources of the types `kept` stay.
    """
    destroy = engine.applied("destroy")
    ended, began = destroy.ended("delete"), destroy.began("delete")
    assert last(ended, "$kubernetes:") < first(began, f"${cluster}::")
    assert last(ended, ":ClusterQueue::") < first(began, ":ResourceFlavor::")
    assert last(ended, ":Namespace::") < first(began, ":ClusterQueue::")
    assert last(ended, ":ClusterQueue::") < first(began, ":Release::")
    left = {each["type"] for each in engine.resources()}
    assert left == kept, left ^ kept
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []
    return destroy


def last(places: dict[str, int], words: str) -> int:
    """The last place of the URNs that hold these words."""
    return max(place for urn, place in places.items() if words in urn)


def first(places: dict[str, int], words: str) -> int:
    """The first place, as `last`."""
    return min(place for urn, place in places.items() if words in urn)
