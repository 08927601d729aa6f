"""What the engine says of a cluster that is not as it would have it; kubectl is a stand-in over a folder."""

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.jobs.base import Phase
from gangway.jobs.kubernetes.engine import KubernetesEngine, own_name
from gangway.jobs.kubernetes.manifests import FILE_ANNOTATION, HOURS_ANNOTATION, HOURS_LABEL, Placing, job_set
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.kubernetes.test_manifests import job
from tests.gangway.jobs.kubernetes.test_status import a_job, a_pod, a_set, a_workload, condition
from tests.pretend_kubectl import PretendKube, pretend_kube

_AT = "2026-01-02T03:04:05Z"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendKube:
    made = pretend_kube(tmp_path / "kube", monkeypatch)
    made.stand_up()
    return made


def engine(namespace: str = "team-a", queue: str = "gpu", context: str = "here") -> KubernetesEngine:
    return KubernetesEngine(context, namespace, queue, "ada")


def put_set(kube: PretendKube, made: dict[str, Any], **labels: str) -> None:
    """One that stands there, with its metadata as it is."""
    made["metadata"]["labels"] |= labels
    content = {key: made[key] for key in ("metadata", "spec", "status") if key in made}
    kube.put("JobSet", made["metadata"]["name"], "team-a", **content)


def a_file() -> JobFile:
    return job(resources={"cpu": "1", "memory": "1Gi"}, nodes={"min": 1, "max": 1})


def refused(asked: KubernetesEngine) -> InputError:
    with pytest.raises(InputError) as caught:
        asked.jobs()
    return caught.value


# Places


def test_a_queue_that_is_none_is_no_empty_list(kube: PretendKube) -> None:
    error = refused(engine(queue="gpus"))
    assert (error.value, error.allowed) == ("gpus", "gpu")
    assert "team-a/gpus" in error.place
    assert "'gpu'" in error.fix
    with pytest.raises(InputError, match="no such Kueue queue"):
        engine(queue="gpus").status("mine-1")


def test_a_namespace_that_is_none_is_named_with_those_that_are(kube: PretendKube) -> None:
    error = refused(engine(namespace="team-b"))
    assert (error.value, error.allowed) == ("team-b", "team-a")
    assert "namespace" in error.problem


def test_a_namespace_without_queues_names_those_of_others(kube: PretendKube) -> None:
    kube.put("Namespace", "empty")
    error = refused(engine(namespace="empty"))
    assert (error.value, error.allowed) == ("gpu", "team-a/gpu")
    assert error.fix == "--on kubernetes:here@team-a/gpu"


def test_who_may_not_see_them_is_told_so(kube: PretendKube) -> None:
    kube.forbid("namespaces", "localqueues")
    assert engine(namespace="team-b").jobs() == []  # whether it is there, nobody can tell
    kube.forbid("namespaces")
    assert "no Kueue queue" in refused(engine(namespace="team-b")).problem


def test_a_context_that_is_none_is_named_with_those_that_are(kube: PretendKube) -> None:
    error = refused(engine(context="ther"))
    assert (error.value, error.allowed) == ("ther", "here, there")
    assert "'there'" in error.fix


# Jobs that cannot be read


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["another release's", "no file", "no hours"])
def test_a_job_that_cannot_be_read_hides_no_other(kube: PretendKube, broken: str) -> None:
    first = engine().submit(a_file())
    made = job_set(a_file(), Placing("team-a", "gpu", "gangway-runs", "odd-7", "ada", "odd-7-x"))
    notes = made["metadata"]["annotations"]
    if broken == "another release's":
        notes[FILE_ANNOTATION] = json.dumps({**json.loads(notes[FILE_ANNOTATION]), "colour": "blue"})
    elif broken == "no file":
        del made["metadata"]["annotations"]
    else:
        del made["metadata"]["labels"][HOURS_LABEL], made["metadata"]["annotations"][HOURS_ANNOTATION]
        made["status"] = {"conditions": [condition("Failed")]}
        workload = a_workload(condition("Admitted", "False"), condition("Evicted"))
        workload["status"]["conditions"][1]["reason"] = "DeactivatedDueToMaximumExecutionTimeExceeded"
        workload["metadata"]["ownerReferences"][0]["uid"] = "odd-7"
        kube.put("Workload", "w", "team-a", **{key: workload[key] for key in ("metadata", "spec", "status")})
    put_set(kube, made)
    one, odd = engine().jobs()
    assert (one.id, odd.id, odd.phase) == (first, "odd-7", Phase.UNREADABLE)
    assert "cannot be read" in odd.reason
    assert {"another release's": "colour", "no file": FILE_ANNOTATION, "no hours": HOURS_ANNOTATION}[
        broken
    ] in odd.reason
    with pytest.raises(InputError, match="kubectl describe jobset odd-7"):
        engine().status("odd-7")
    assert engine().submit(a_file()) == "mine-8"


def test_what_is_no_jobs_is_passed_over(kube: PretendKube) -> None:
    ours = {"app.kubernetes.io/managed-by": "gangway"}
    old = {"creationTimestamp": _AT}
    foreign: list[dict[str, str]] = [
        {},
        {"gangway.dev/job": "x"},
        {"gangway.dev/job": "x-1"},
        {"gangway.dev/job": "x-1", "gangway.dev/start": "one"},
    ]
    for number, labels in enumerate(foreign):
        kube.put(
            "JobSet", f"f{number}", "team-a", metadata={"labels": {**ours, **labels}, **old}, spec={"suspend": True}
        )
    assert engine().jobs() == []
    assert engine().submit(a_file()) == "mine-1"
    assert [each.id for each in engine().jobs()] == ["mine-1"]
    with pytest.raises(InputError, match="no such job"):
        engine().status("x-1")


# Nodes, teams


def an_unfit_job(kube: PretendKube, **labels: str) -> None:
    """On n1, of one CPU and 2 GiB."""
    put_set(kube, a_set(condition("Failed")), **labels)
    kube.put("Job", "j", "team-a", **_labelled(a_job(4)))
    kube.put("Pod", "p0", "team-a", **_labelled(a_pod("Failed", "n1")))
    kube.put("Workload", "w", "team-a", **a_workload(condition("Admitted")))
    kube.put("Node", "n1", spec={}, status={"allocatable": {"cpu": "1", "memory": "8Gi"}})


def a_running_job(kube: PretendKube) -> None:
    """Which has written."""
    put_set(kube, a_set())
    kube.put("Workload", "w", "team-a", **a_workload(condition("Admitted")))
    kube.put("Job", "j", "team-a", **_labelled(a_job()))
    pod = _labelled(a_pod("Running"))
    pod["status"]["containerStatuses"] = [{}]
    kube.put("Pod", "p0", "team-a", **pod)


def _labelled(made: dict[str, Any]) -> dict[str, Any]:
    labels = {"gangway.dev/job": "mine-3", "app.kubernetes.io/managed-by": "gangway"}
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def test_a_control_plane_is_no_other_node(kube: PretendKube) -> None:
    kube.stand_up(cpus=1)
    an_unfit_job(kube)
    taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    size = {"allocatable": {"cpu": "8", "memory": "64Gi"}}
    kube.put("Node", "control", spec={"taints": taints}, status=size)
    assert "there is no other" in engine().status("mine-3").reason
    kube.put("Node", "n2", spec={}, status=size)
    assert engine().status("mine-3").phase is Phase.WAITING


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["nodes", "clusterqueues", "resourceflavors"])
def test_who_may_not_see_the_nodes_concludes_nothing(kube: PretendKube, hidden: str) -> None:
    kube.stand_up(cpus=1)
    an_unfit_job(kube)
    assert engine().status("mine-3").phase is Phase.FAILED
    kube.forbid(hidden)
    assert engine().status("mine-3").phase is Phase.WAITING


def test_a_quota_beyond_the_nodes_that_are_up_is_an_autoscalers(kube: PretendKube) -> None:
    kube.stand_up(cpus=2)
    an_unfit_job(kube)
    assert engine().status("mine-3").phase is Phase.WAITING


@pytest.mark.parametrize(
    ("team", "said"),
    [(None, []), ("vision", []), ("team-a", []), ("visoin", ["no queue"]), ("audio", ["quota of vision"])],
)
def test_a_team_that_is_not_the_queues_is_said(kube: PretendKube, team: str | None, said: list[str]) -> None:
    kube.put("ClusterQueue", "audio", spec={})
    file = a_file().model_copy(update={"team": team})
    found = [each for each in engine().findings(file) if each.path == "team"]
    assert [each.severity for each in found] == [Severity.WARNING] * len(said)
    assert all(word in each.message for word, each in zip(said, found, strict=True))
    assert not any("no queue" in each.message for each in found if team == "audio")


def test_fewer_nodes_than_the_most_are_no_choice(kube: PretendKube) -> None:
    file = a_file().model_copy(update={"nodes": job(nodes={"min": 1, "max": 4}).nodes})
    [found] = [each for each in engine().findings(file) if each.path == "nodes.min"]
    assert found.severity is Severity.WARNING
    engine().submit(file)
    [made] = [json.loads(path.read_text()) for path in kube.path("jobsets", "team-a").glob("*.json")]
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (4, 4)


# Logs


def test_of_pods_that_are_gone_it_says_where_else_to_look(kube: PretendKube) -> None:
    put_set(kube, a_set(condition("Completed")))
    kube.put("Workload", "w", "team-a", **a_workload(condition("Admitted")))
    text, offset = engine().log("mine-3")
    assert "deleted with its pods" in text
    assert "gangway.dev/job=mine-3" in text
    assert "gangway-runs" in text
    assert engine().log("mine-3", offset) == ("", offset), "said once"


def test_of_one_that_never_began_nothing_is_gone(kube: PretendKube) -> None:
    put_set(kube, a_set())
    assert engine().log("mine-3") == ("", 0)
    kube.put("Workload", "w", "team-a", **a_workload(condition("Admitted")))
    assert engine().log("mine-3") == ("", 0), "its pods are still to come"


def test_of_earlier_starts_it_says_so_before_the_last_ones_lines(kube: PretendKube) -> None:
    put_set(kube, a_set(restarts=2))
    kube.put("Workload", "w", "team-a", **a_workload(condition("Admitted")))
    kube.put("Job", "j", "team-a", **_labelled(a_job()))
    pod = _labelled(a_pod("Succeeded"))
    pod["status"]["containerStatuses"] = [{}]
    kube.put("Pod", "p0", "team-a", **pod)
    (kube.folder / "logs").write_text(f"[pod/p0/node] {_AT} third\n")
    text, offset = engine().log("mine-3")
    first, last = text.splitlines()
    assert ("2 of its 3 starts" in first, last) == (True, "third")
    assert engine().log("mine-3", offset) == ("", offset)


@pytest.mark.parametrize(
    ("login", "came_from", "name"),
    [("ann", "", "ann"), ("gangway", "ann", "ann"), ("gangway", "root", "gangway"), ("root", "ann", "root")],
)
def test_of_a_shared_login_it_is_whoever_came_by_sudo(
    monkeypatch: pytest.MonkeyPatch, login: str, came_from: str, name: str
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: login)
    monkeypatch.setenv("SUDO_USER", came_from)
    assert own_name() == name
