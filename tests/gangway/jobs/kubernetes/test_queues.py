"""Quotas: what a queue never has, and what it has now."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.kubernetes.charts import queue_manifests
from gangway.components.kubernetes.spec import ClusterSpec, Flavor, Node, Team
from gangway.jobs.kubernetes.queues import (
    Quota,
    cohort_total,
    count_places,
    flavor_names,
    get_quota,
    missing_quota,
    narrowest_block,
    over_quota,
    quantity,
)
from tests.gangway.jobs.kubernetes.test_manifests import job

_OWN = ClusterSpec((), Node(8, 64), 1, (Flavor("own", {}),))
_GPU = {"kind": "gpu"}
_ONLY_JOBS = {"key": "jobs", "value": "true", "effect": "NoSchedule"}
_FLAVORS: Mapping[str, Any] = {
    "plain": {"spec": {"nodeLabels": _GPU, "tolerations": [{"key": "jobs", "operator": "Exists"}]}}
}


def queue(*flavors: dict[str, str], cohort: str = "", used: str = "0", limit: str | None = None) -> Quota:
    """Of one group; `get_usage` of the first flavor's first resource."""
    borrowing = {} if limit is None else {"borrowingLimit": limit}
    made = [
        {
            "name": f"f{number}",
            "resources": [{"name": name, "nominalQuota": own, **borrowing} for name, own in each.items()],
        }
        for number, each in enumerate(flavors)
    ]
    reserved = [{"name": "f0", "resources": [{"name": next(iter(flavors[0])), "total": used}]}]
    spec: dict[str, object] = {"resourceGroups": [{"coveredResources": list(flavors[0]), "flavors": made}]}
    return get_quota({"spec": {**spec, "cohortName": cohort}, "status": {"flavorsReservation": reserved}})


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", "1"), ("500m", "0.5"), ("1.5", "1.5"), ("2k", "2000"), ("2Ki", "2048"), ("1Gi", "1073741824")],
)
def test_quantities(text: str, number: str) -> None:
    assert quantity(text) == Decimal(number)


@given(nodes=st.integers(1, 64), cpu=st.integers(1, 64), first=st.integers(0, 2048), second=st.integers(0, 2048))
def test_a_job_has_all_of_its_pods_of_one_flavor(nodes: int, cpu: int, first: int, second: int) -> None:
    file = job(nodes={"min": 1, "max": nodes}, resources={"cpu": str(cpu), "memory": "1Gi"})
    found = dict(over_quota(file, queue({"cpu": str(first)}, {"cpu": str(second)})))
    assert ("cpu" in found) == (nodes * cpu > max(first, second))
    assert found["memory"] == "the queue has no quota for it"


def test_one_flavor_has_all_of_a_groups_resources() -> None:
    file = job(resources={"cpu": "8", "memory": "8Gi"})
    halves = queue({"cpu": "8", "memory": "4Gi"}, {"cpu": "4", "memory": "8Gi"})
    assert len(over_quota(file, halves)) == 1
    assert missing_quota(file, halves) != []
    whole = queue({"cpu": "8", "memory": "4Gi"}, {"cpu": "8", "memory": "8Gi"})
    assert (over_quota(file, whole), missing_quota(file, whole)) == ([], [])


def test_each_group_has_a_flavor_of_its_own() -> None:
    first, second = queue({"cpu": "8"}, {"cpu": "2"}), queue({"memory": "2Gi"}, {"memory": "8Gi"})
    both = Quota([*first.groups, *second.groups], in_cohort=False)
    assert over_quota(job(resources={"cpu": "8", "memory": "8Gi"}), both) == []


def test_what_may_be_borrowed_is_no_reason_to_refuse() -> None:
    file = job(resources={"cpu": "8", "memory": "1Gi"})
    free = queue({"cpu": "1"}, cohort="all")
    some = queue({"cpu": "1"}, cohort="all", limit="4")
    alone = queue({"cpu": "1"}, limit="40")
    assert "cpu" not in dict(over_quota(file, free))
    assert "cpu" in dict(over_quota(file, some))
    assert "cpu" in dict(over_quota(file, alone)), "there is nobody to borrow from"


@pytest.mark.parametrize(
    ("nodes", "resources", "why"),
    [
        (2, {"cpu": "8", "memory": "64Gi"}, ""),
        (3, {"cpu": "8", "memory": "64Gi"}, "cpu"),
        (1, {"cpu": "9", "memory": "1Gi"}, "cpu"),
        (1, {"cpu": "1", "memory": "65Gi"}, "memory"),
    ],
)
def test_what_no_node_or_no_number_of_them_has_is_refused(nodes: int, resources: dict[str, str], why: str) -> None:
    """By a queue of Gangway's own cluster, whose cohort would lend it anything: 2 nodes of 8 cores, one its own."""
    spec = ClusterSpec((Team("vision", 1),), Node(8, 64), 2, (Flavor("own", {}),))
    (made,) = (each for each in queue_manifests(spec) if each["kind"] == "ClusterQueue")
    file = job(nodes={"min": 1, "max": nodes}, resources=resources)
    assert {name for name, _ in over_quota(file, get_quota(made))} >= ({why} if why else set())
    assert bool(over_quota(file, get_quota(made))) == bool(why)


def test_what_a_whole_cohort_has_not_is_refused() -> None:
    own = {"name": "f0", "resources": [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "9Gi"}]}
    queues = [{"spec": {"cohortName": "all", "resourceGroups": [{"flavors": [own]}]}} for _ in range(3)]
    total = cohort_total(queues)
    for nodes in (3, 4):
        file = job(nodes={"min": 1, "max": nodes}, resources={"cpu": "1", "memory": "1Gi"})
        assert bool(over_quota(file, get_quota(queues[0], total))) == (nodes > 3)
        assert over_quota(file, get_quota(queues[0])) == [], "where nobody knows the others"


def test_pages_that_kueue_leaves_out_want_no_quota() -> None:
    """As it does in a cluster of Gangway's own; of others nobody here can tell."""
    file = job(resources={"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "5120Mi", "vpc.amazonaws.com/efa": "32"})
    made = next(each for each in queue_manifests(_OWN) if each["kind"] == "ClusterQueue")
    assert list(dict(over_quota(file, get_quota(made)))) == ["vpc.amazonaws.com/efa"]
    assert missing_quota(file, get_quota(made)) == []
    others = {**made, "metadata": {"name": "all"}}
    assert list(dict(over_quota(file, get_quota(others)))) == ["hugepages-2Mi", "vpc.amazonaws.com/efa"]


def test_room_is_what_nobody_has_reserved() -> None:
    file = job(resources={"cpu": "2", "memory": "1Gi"})
    roomy = queue({"cpu": "4", "memory": "1Gi"}, used="2")
    full = queue({"cpu": "4", "memory": "1Gi"}, used="2500m")
    assert missing_quota(file, roomy) == []
    assert [each.partition(":")[0] for each in missing_quota(file, full)] == ["cpu"]
    other = queue({"cpu": "4", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}, used="2500m")
    assert missing_quota(file, other) == [], "another flavor has it"


def topology(*labels: str) -> dict[str, object]:
    return {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}


@pytest.mark.parametrize(
    ("topologies", "label"),
    [
        ([topology("x/block", "x/rack", "kubernetes.io/hostname")], "x/rack"),
        ([topology("x/block", "x/rack")], "x/rack"),
        ([topology("x/block", "x/rack"), topology("x/block", "kubernetes.io/hostname")], "x/block"),
        ([topology("x/block"), None], None),
        ([topology("x/block"), topology("y/block")], None),
        ([topology("kubernetes.io/hostname")], None),
        ([], None),
    ],
)
def test_the_narrowest_block_is_one_that_every_flavor_knows(topologies: list[Any], label: str | None) -> None:
    assert narrowest_block(topologies) == label


def test_a_flavor_of_two_groups_is_one() -> None:
    groups = [{"flavors": [{"name": "a"}, {"name": "b"}]}, {"flavors": [{"name": "a"}]}]
    assert flavor_names({"spec": {"resourceGroups": groups}}) == ["a", "b"]


def a_node(name: str, labels: dict[str, str] = _GPU, cpus: str = "4", **spec: Any) -> dict[str, Any]:
    size = {"cpu": cpus, "memory": "64Gi"}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": size}}


def a_queue(cpus: int, **spec: Any) -> dict[str, Any]:
    quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "640Gi"}]
    return {"spec": {"resourceGroups": [{"flavors": [{"name": "plain", "resources": quotas}]}], **spec}}


def held(
    *nodes: dict[str, Any], cpus: int = 4, nodes_wanted: int = 1, excluded: tuple[str, ...] = (), **spec: Any
) -> int | None:
    """Pods of four CPUs."""
    wanted = {"min": nodes_wanted, "max": nodes_wanted}
    file = job(nodes=wanted, resources={"cpu": "4", "memory": "1Gi"})
    return count_places(file, get_quota(a_queue(cpus, **spec)), _FLAVORS, nodes, excluded)


def test_a_node_of_the_flavor_is_a_place_and_an_excluded_one_is_none() -> None:
    assert held(a_node("a"), a_node("b"), cpus=8, excluded=("a",)) == 1
    assert held(a_node("a"), a_node("b"), cpus=8, excluded=("a", "b")) == 0


def test_a_large_node_holds_several_pods() -> None:
    assert held(a_node("a", cpus="8500m"), a_node("b", cpus="8"), cpus=16, nodes_wanted=2, excluded=("a",)) == 2


@pytest.mark.parametrize(
    "other",
    [
        a_node("b", labels={"kind": "system"}),
        a_node("b", labels={}),
        a_node("b", unschedulable=True),
        a_node("b", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
        a_node("b", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]),
        a_node("b", cpus="2"),
    ],
)
def test_what_no_pod_of_the_job_may_go_to_is_no_place(other: dict[str, Any]) -> None:
    assert held(a_node("a"), other, excluded=("a",)) == 0


@pytest.mark.parametrize("taint", [_ONLY_JOBS, {"key": "costly", "effect": "PreferNoSchedule"}])
def test_what_the_flavor_tolerates_keeps_no_pod_away(taint: dict[str, str]) -> None:
    assert held(a_node("a"), a_node("b", taints=[taint]), cpus=8, excluded=("a",)) == 1


@pytest.mark.parametrize("nodes", [[], [a_node("a")], [a_node("a"), a_node("b", labels={})]])
def test_where_the_quota_is_larger_than_its_nodes_an_autoscaler_may_bring_more(nodes: list[dict[str, Any]]) -> None:
    assert held(*nodes, cpus=8, excluded=("a",)) is None


def test_where_a_queue_may_borrow_without_a_limit_nobody_can_tell() -> None:
    assert held(a_node("a"), excluded=("a",), cohortName="all") is None


def test_of_several_flavors_the_one_with_most_places_counts() -> None:
    quotas: list[dict[str, Any]] = [
        {"name": "cpu", "nominalQuota": 4},
        {"name": "memory", "nominalQuota": "640Gi"},
    ]
    flavors: list[dict[str, Any]] = [{"name": name, "resources": quotas} for name in ("plain", "spot", "none")]
    known: dict[str, Any] = {
        **_FLAVORS,
        "spot": {"spec": {"nodeLabels": {"kind": "spot"}}},
        "none": {"spec": {"nodeLabels": {"a": "b"}}},
    }
    flavors[2] = {"name": "none", "resources": [{**each, "nominalQuota": 0} for each in quotas]}
    quota = get_quota({"spec": {"resourceGroups": [{"flavors": flavors}]}})
    nodes = [a_node("a"), a_node("b", labels={"kind": "spot"})]
    file = job(resources={"cpu": "4", "memory": "1Gi"})
    assert count_places(file, quota, known, nodes, ("a",)) == 1
    assert count_places(file, quota, known, nodes, ("a", "b")) == 0
