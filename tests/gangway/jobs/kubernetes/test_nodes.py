"""Whether there is another node for a job: of its queue's kind, large enough, and as far as anybody can tell."""

from collections.abc import Mapping
from typing import Any

import pytest

from gangway.jobs.kubernetes.queues import count_places, get_quota
from tests.gangway.jobs.kubernetes.test_manifests import job

_GPU = {"kind": "gpu"}
_ONLY_JOBS = {"key": "jobs", "value": "true", "effect": "NoSchedule"}
_FLAVORS: Mapping[str, Any] = {
    "plain": {"spec": {"nodeLabels": _GPU, "tolerations": [{"key": "jobs", "operator": "Exists"}]}}
}


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
