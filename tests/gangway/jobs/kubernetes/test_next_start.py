"""The start after a node that was not fit: in the job's own queue, and not where somebody has cancelled it meanwhile;
kubectl is a stand-in over a folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl
from gangway.jobs.kubernetes.manifests import CANCELLED_ANNOTATION, FILE_ANNOTATION, QUEUE_LABEL, Placing
from gangway.jobs.kubernetes.objects import SETS, create_start
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.kubernetes.test_asking import an_unfit_job, engine, put_set
from tests.gangway.jobs.kubernetes.test_manifests import job
from tests.gangway.jobs.kubernetes.test_status import a_set, a_workload, condition
from tests.pretend_kubectl import PretendKube, pretend_kube

_ID, _NEXT = "mine-3", "mine-3-s2"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendKube:
    """With a job that waits for whoever begins it on another node."""
    made = pretend_kube(tmp_path / "kube", monkeypatch)
    made.stand_up(cpus=2)
    an_unfit_job(made)
    made.put("Secret", _ID, "team-a", data={})
    assert engine().status(_ID).phase is Phase.WAITING
    return made


def kueue_sees(kube: PretendKube, *, admits: bool = False) -> None:
    """The next start, which it lets wait, or begin."""
    made = a_workload(condition("Admitted") if admits else condition("QuotaReserved", "False"))
    made["metadata"] = {"ownerReferences": [{"uid": _NEXT, "controller": True}]}
    kube.put("Workload", "w2", "team-a", **made)


def found(kube: PretendKube, resource: str, name: str) -> Any:
    return json.loads((kube.path(resource, "team-a") / f"{name}.json").read_text())


def is_taken_back(kube: PretendKube) -> bool:
    assert engine().status(_ID).phase is Phase.CANCELLED
    is_active: bool = found(kube, "workloads", "w2")["spec"]["active"]
    # Also once the first set has gone by its age.
    return not is_active and CANCELLED_ANNOTATION in found(kube, "jobsets", _NEXT)["metadata"]["annotations"]


@pytest.mark.slow
def test_one_that_is_cancelled_before_its_next_start_stands_is_taken_back(
    kube: PretendKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(kubectl: Kubectl, file: JobFile, placing: Placing, variables: Mapping[str, str]) -> None:
        engine().cancel(_ID)
        assert engine().status(_ID).phase is Phase.CANCELLED
        create_start(kubectl, file, placing, variables)
        kueue_sees(kube)

    monkeypatch.setattr("gangway.jobs.kubernetes.objects.create_start", late)
    engine().ensure_begun(_ID)
    assert is_taken_back(kube)


@pytest.mark.slow
def test_a_cancel_ends_a_start_that_was_begun_since_it_looked(
    kube: PretendKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch, patched = Kubectl.patch, list[str]()

    def late(kubectl: Kubectl, kind: str, name: str, change: Mapping[str, Any]) -> None:
        patched.append(name)
        if len(patched) == 1:
            engine().ensure_begun(_ID)
            kueue_sees(kube)
        patch(kubectl, kind, name, change)

    monkeypatch.setattr(Kubectl, "patch", late)
    engine().cancel(_ID)
    assert patched[0] == _ID, "the set that it saw"
    assert is_taken_back(kube)


def test_a_start_whose_maker_was_cut_off_before_he_saw_the_cancel_is_taken_back_by_the_next_wait(
    kube: PretendKube,
) -> None:
    engine().ensure_begun(_ID)
    kueue_sees(kube)
    note = {CANCELLED_ANNOTATION: "2026-01-02T03:04:05Z"}
    Kubectl("", "team-a").patch(SETS, _ID, {"metadata": {"annotations": note}})
    assert engine().status(_ID).phase is Phase.WAITING
    engine().ensure_begun(_ID)
    assert is_taken_back(kube)


@pytest.mark.slow
@pytest.mark.parametrize("looks", ["at its state", "whether it has begun"])
def test_a_start_that_was_admitted_before_anybody_saw_the_cancel_is_taken_back_by_the_next_look(
    kube: PretendKube, monkeypatch: pytest.MonkeyPatch, looks: str
) -> None:
    engine().ensure_begun(_ID)
    kueue_sees(kube, admits=True)
    Kubectl("", "team-a").patch(
        SETS, _ID, {"metadata": {"annotations": {CANCELLED_ANNOTATION: "2026-01-02T03:04:05Z"}}}
    )
    with monkeypatch.context() as viewer:
        viewer.setattr(Kubectl, "patch", forbidden)
        assert engine().status(_ID).phase is Phase.RUNNING, "who may only look sees it"
    if looks == "at its state":
        assert engine().status(_ID).phase is Phase.RUNNING
    else:
        engine().ensure_begun(_ID)
    left = found(kube, "workloads", "w2")
    kube.put("Workload", "w2", "team-a", metadata=left["metadata"], spec=left["spec"], status={})  # as Kueue evicts it
    assert is_taken_back(kube)


def forbidden(*_: object) -> None:
    raise ForbiddenError("kubectl", "patch is forbidden")


@pytest.mark.slow
def test_it_waits_in_the_jobs_queue_whoever_begins_it(kube: PretendKube) -> None:
    """And for the blocks of nodes that this one knows, not those of the waiter's."""
    made = a_set(condition("Failed"))
    file = job(max_restarts=1, nodes={"min": 2, "max": 2})
    made["metadata"]["annotations"][FILE_ANNOTATION] = file.model_dump_json(exclude_unset=True, exclude={"env"})
    put_set(kube, made)
    kube.put("ResourceFlavor", "plain", spec={"topologyName": "near"})
    levels = [{"nodeLabel": "x/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    kube.put("Topology", "near", spec={"levels": levels})
    kube.put("LocalQueue", "other", "team-a", spec={"clusterQueue": "others"})
    kube.put("ClusterQueue", "others", spec={"resourceGroups": []})
    engine(queue="other").ensure_begun(_ID)
    following = found(kube, "jobsets", _NEXT)
    assert following["metadata"]["labels"][QUEUE_LABEL] == "gpu"
    template = following["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"] == "x/rack"
