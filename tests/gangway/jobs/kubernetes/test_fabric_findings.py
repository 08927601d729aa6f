"""A job that leaves out the network between its nodes' GPUs is warned of, and no other is; kubectl is a stand-in over a
folder.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from gangway.components.core.findings import Finding, Severity
from gangway.components.kubernetes.manifest import manifest
from gangway.components.kubernetes.spec import EFA, FABRIC, FABRIC_KEY, GPU, INFINIBAND
from gangway.jobs.kubernetes.fabric import offered_networks
from gangway.jobs.kubernetes.queues import Flavor, Quota
from tests.gangway.jobs.kubernetes.test_asking import engine
from tests.gangway.jobs.kubernetes.test_fabric import FABRIC as GIVEN
from tests.gangway.jobs.kubernetes.test_manifests import job
from tests.pretend_kubectl import PretendKube, pretend_kube

_SEVERAL = {"min": 2, "max": 2}


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendKube:
    return pretend_kube(tmp_path / "kube", monkeypatch)


def warnings(devices: Mapping[str, str], nodes: int = 2, **keys: object) -> list[Finding]:
    """Of the network, for a job that asks for these."""
    asked = {"cpu": "1", "memory": "1Gi", **devices}
    found = engine().findings(job(nodes={"min": nodes, "max": nodes}, resources=asked, **keys))
    return [each for each in found if each.code.startswith("job.fabric")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [EFA, INFINIBAND, "rdma/hca_shared"])
def test_a_network_that_the_queue_has_and_the_job_leaves_out_is_named(kube: PretendKube, name: str) -> None:
    kube.stand_up(devices={GPU: 16, name: 64})
    (told,) = warnings({GPU: "8"})
    assert (told.severity, told.path) == (Severity.WARNING, f"resources.{name}")
    assert "docs/kubernetes.md" in told.message, "no node is up that says how many"
    smaller = {"allocatable": {GPU: "4", name: "16"}}
    kube.put("Node", "n1", spec={}, status={"allocatable": {GPU: "8", name: "32"}})
    kube.put("Node", "n2", spec={}, status=smaller)
    (told,) = warnings({GPU: "8"})
    assert "32" in told.message
    kube.forbid("nodes")
    (told,) = warnings({GPU: "8"})
    assert "docs/kubernetes.md" in told.message


@pytest.mark.parametrize(
    ("nodes", "asked"),
    [
        (1, {GPU: "8"}),
        (2, {}),
        (2, {GPU: "0"}),
        (2, {GPU: "8", EFA: "32"}),
        (2, {GPU: "8", EFA: "0"}),
    ],
    ids=["one node", "no GPU", "none in as many words", "all of it", "no network in as many words"],
)
def test_who_has_it_or_has_no_use_for_it_is_not_warned(kube: PretendKube, nodes: int, asked: dict[str, str]) -> None:
    kube.stand_up(devices={GPU: 16, EFA: 64})
    assert warnings(asked, nodes) == []


def test_where_the_queue_has_none_nothing_is_missed(kube: PretendKube) -> None:
    kube.stand_up(devices={GPU: 16})
    assert warnings({GPU: "8"}) == []


def _give(kube: PretendKube) -> None:
    """By the namespace's ConfigMap, to pods with all eight GPUs of a node."""
    made = manifest("v1", "ConfigMap", FABRIC, {"data": {FABRIC_KEY: GIVEN.model_dump_json()}}, "team-a")
    kube.put("ConfigMap", FABRIC, "team-a", metadata={"labels": made["metadata"]["labels"]}, data=made["data"])


def test_who_gets_it_by_the_namespace_is_not_warned(kube: PretendKube) -> None:
    kube.stand_up(devices={GPU: 32, EFA: 64})
    _give(kube)
    assert warnings({GPU: "8"}) == []
    assert [each.path for each in warnings({GPU: "4"})] == [f"resources.{EFA}"], "its nodes are no whole ones"


@pytest.mark.parametrize("hidden", [(), ("clusterqueues",)])
def test_parts_of_nodes_get_none_of_the_namespaces_and_hear_of_it(kube: PretendKube, hidden: tuple[str, ...]) -> None:
    kube.stand_up(devices={GPU: 32})
    _give(kube)
    kube.forbid(*hidden)
    assert warnings({GPU: "8"}) == warnings({GPU: "4"}, 1) == []
    (told,) = warnings({GPU: "4"})
    assert (told.severity, told.path) == (Severity.WARNING, f"resources.{GPU}")
    assert '"8"' in told.fix
    assert warnings({GPU: "4"}, env={"NCCL_NET": "Socket"}) == [], "TCP in as many words"


def test_a_namespace_that_may_not_be_read_is_said(kube: PretendKube) -> None:
    kube.stand_up(devices={GPU: 16})
    kube.forbid("configmaps")
    (told,) = warnings({GPU: "8"})
    assert told.severity is Severity.WARNING
    assert FABRIC in told.message
    assert warnings({GPU: "8"}, 1) == warnings({}) == []
    kube.forbid("configmaps", "clusterqueues")
    assert len(warnings({GPU: "8"})) == 1


def flavor(name: str, most: Mapping[str, int | None]) -> Flavor:
    limits = {each: None if number is None else Decimal(number) for each, number in most.items()}
    return Flavor(name, dict.fromkeys(most, Decimal(0)), limits, {})


def test_a_network_of_nodes_that_the_job_cannot_have_is_none_of_its() -> None:
    file = job(nodes=_SEVERAL, resources={"cpu": "1", "memory": "1Gi", GPU: "8"})
    few, many, plain = (
        flavor("few", {GPU: 8, EFA: 32}),
        flavor("many", {GPU: None, EFA: None}),
        flavor("plain", {GPU: 16, EFA: 0}),
    )
    assert offered_networks(file, Quota([[few, plain]], in_cohort=False)) == []
    assert offered_networks(file, Quota([[few, many, plain]], in_cohort=True)) == [EFA]
