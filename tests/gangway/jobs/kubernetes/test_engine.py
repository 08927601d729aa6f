"""What Kubernetes alone does to jobs: quotas, preemption, evictions, pods that meet; with a real control plane."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.components.kubernetes.manifest import manifest
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY, GPU, INFINIBAND, RUNG_LABEL
from gangway.jobs.base import EngineAwayError, Phase
from gangway.jobs.kubernetes.engine import KubernetesEngine
from gangway.jobs.kubernetes.manifests import PATIENCE_SEC
from gangway.jobs.kubernetes.objects import find_time
from gangway.stacks.config.job_file import JobFile, Priority
from tests import kube_cluster
from tests.gangway.jobs.test_contract import job as get_file
from tests.gangway.jobs.test_contract import over, until
from tests.kube_cluster import KubeCluster, KubeQueue

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]
_WAITS = "while [ ! -e end ]; do sleep 0.1; done"


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeCluster]:
    """A cluster whose CRDs are of the releases before."""
    if why := kube_cluster.why_not() or kube_cluster.why_no_older():
        pytest.skip(why)
    with (
        TemporaryDirectory(prefix="gw-kube-", ignore_cleanup_errors=True) as folder,
        kube_cluster.kubernetes(Path(folder), older_crds=True) as made,
    ):
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        yield made


def test_jobs_live_through_an_upgrade_of_crds(older: KubeCluster) -> None:
    queue = older.queue(cpus=1)
    engine = KubernetesEngine("judge", queue.namespace, queue.name)
    first = engine.submit(job(_WAITS))
    until(engine, first, lambda found, log: found.phase is Phase.RUNNING)
    waiting = engine.submit(job("true"))
    older.renew_crds()
    assert engine.status(first).phase is Phase.RUNNING
    assert engine.status(waiting).phase is Phase.WAITING
    for folder in queue.runs.iterdir():
        (folder / "end").touch()
    assert over(engine, first).starts == 1
    assert over(engine, waiting).phase is Phase.DONE
    assert over(engine, engine.submit(job("true"))).phase is Phase.DONE


@pytest.fixture
def engine(kube_queue: KubeQueue) -> KubernetesEngine:
    return KubernetesEngine("judge", kube_queue.namespace, kube_queue.name)


def job(script: str, **keys: object) -> JobFile:
    return get_file(script, image=f"registry.example.com/any@sha256:{'0' * 64}", **keys)


def pods(cluster: KubeCluster, queue: KubeQueue) -> list[str]:
    return cluster.kubectl("get", "pods", f"--namespace={queue.namespace}", "--output=name").split()


def test_a_quota_holds_the_second_job_and_says_why(engine: KubernetesEngine) -> None:
    first = engine.submit(job(_WAITS))
    until(engine, first, lambda found, log: found.phase is Phase.RUNNING)
    until(engine, first, lambda found, log: not engine.room(job("true")).now)  # Kueue counts a moment later
    second = engine.submit(job("true"))
    found = until(engine, second, lambda found, log: "quota" in found.reason)
    assert found.phase is Phase.WAITING
    assert "cpu" in found.reason
    engine.cancel(first)
    assert over(engine, second).phase is Phase.DONE


def test_a_higher_priority_takes_the_place_of_one_that_goes_on_later(
    engine: KubernetesEngine, kube_queue: KubeQueue
) -> None:
    script = "trap 'touch told; exit 75' TERM; echo x >>begun; while [ ! -e end ]; do sleep 0.1; done"
    low = engine.submit(job(script, priority=Priority.LOW, max_restarts=0))
    [folder] = _until_begun(engine, low, kube_queue)
    high = engine.submit(job("true", priority=Priority.HIGH))
    assert over(engine, high).phase is Phase.DONE
    assert (folder / "told").exists(), "told before it was taken off"
    waiting = until(engine, low, lambda found, log: found.phase is Phase.WAITING or found.starts == 2)
    assert waiting.stretches, "what it has had stays known"
    (folder / "end").touch()
    found = over(engine, low)
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert (folder / "begun").read_text() == "x\nx\n"


def _until_begun(engine: KubernetesEngine, job_id: str, queue: KubeQueue) -> list[Path]:
    until(engine, job_id, lambda found, log: any(queue.runs.glob(f"{job_id}-*/begun")))
    return list(queue.runs.glob(f"{job_id}-*"))


def test_an_eviction_is_no_failure(
    engine: KubernetesEngine, kube_queue: KubeQueue, standing_kubernetes: KubeCluster
) -> None:
    """As a drained node's pods are evicted, and a spot node's by its termination handler."""
    script = "trap 'touch told; exit 75' TERM; echo x >>begun; while [ ! -e told ]; do sleep 0.1; done"
    job_id = engine.submit(job(script, max_restarts=0))
    _until_begun(engine, job_id, kube_queue)
    [pod] = pods(standing_kubernetes, kube_queue)
    _evict(standing_kubernetes, kube_queue, pod)
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2)


def _evict(cluster: KubeCluster, queue: KubeQueue, pod: str) -> None:
    meta = {"name": pod.removeprefix("pod/"), "namespace": queue.namespace}
    path = f"/api/v1/namespaces/{queue.namespace}/pods/{meta['name']}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    cluster.kubectl("create", f"--raw={path}", "-f", "-", told=json.dumps(eviction))


@pytest.fixture
def no_nodes(standing_kubernetes: KubeCluster) -> Iterator[Callable[[], None]]:
    """None takes a pod, until it is called."""
    names = standing_kubernetes.kubectl("get", "nodes", "--output=name").split()

    def come() -> None:
        standing_kubernetes.kubectl("uncordon", *names)

    standing_kubernetes.kubectl("cordon", *names)
    yield come
    come()


def test_a_wait_for_nodes_takes_none_of_a_jobs_hours(
    engine: KubernetesEngine,
    kube_queue: KubeQueue,
    standing_kubernetes: KubeCluster,
    no_nodes: Callable[[], None],
) -> None:
    job_id = engine.submit(job("trap 'touch told; exit 75' TERM; while :; do sleep 0.1; done", max_hours=2 / 3600))
    until(engine, job_id, lambda found, log: found.phase is Phase.RUNNING)
    query = "--output=jsonpath={.items[*].status.conditions[?(@.type=='Admitted')].lastTransitionTime}"
    admitted_at = find_time(
        standing_kubernetes.kubectl("get", "workloads", f"--namespace={kube_queue.namespace}", query)
    )
    waits = until(engine, job_id, lambda found, log: datetime.now(UTC) - admitted_at > timedelta(seconds=6))
    assert (waits.phase, waits.stretches) == (Phase.RUNNING, ()), "more than its hours, and it has had none of them"
    no_nodes()
    found = over(engine, job_id)
    assert (found.phase, found.exit_code, found.starts) == (Phase.OVER_HOURS, 6, 1)
    assert list(kube_queue.runs.glob("*/told"))
    assert found.stretches
    assert found.stretches[0].start > admitted_at + timedelta(seconds=5), "from when its pods ran"


@pytest.mark.usefixtures("no_nodes")
def test_one_for_which_no_node_ever_comes_ends_without_any_time_on_nodes(
    engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangway.jobs.kubernetes.manifests.PATIENCE_SEC", 3)
    found = over(engine, engine.submit(job("true", max_hours=1 / 3600)))
    assert (found.phase, found.stretches) == (Phase.FAILED, ()), found
    assert "never ran" in found.reason


def test_a_node_that_evicts_a_job_again_and_again_does_so_with_an_end(
    engine: KubernetesEngine,
    kube_queue: KubeQueue,
    standing_kubernetes: KubeCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a kubelet does that is short of room: to a failure policy it looks as a drained node's eviction does."""
    monkeypatch.setattr("gangway.jobs.base._LEAST_INTERRUPTIONS", 2)
    job_id = engine.submit(job(f"echo x >>begun; {_WAITS}", max_restarts=0, max_hours=0.1))
    for times in range(1, 4):
        until(engine, job_id, lambda found, log, n=times: _lines(kube_queue, "begun") == n)  # type: ignore[misc]
        [pod] = pods(standing_kubernetes, kube_queue)
        _evict_for_room(standing_kubernetes, kube_queue, pod)
    found = over(engine, job_id)
    assert (found.phase, found.exit_code, found.starts) == (Phase.FAILED, 5, 4)
    assert "restarted 2 times" in found.reason
    assert "restarted 2 times" in engine.log(job_id)[0]
    assert _lines(kube_queue, "begun") == 3, "the last start has not begun the command"


def _lines(queue: KubeQueue, name: str) -> int:
    return sum(len(each.read_text().splitlines()) for each in queue.runs.glob(f"*/{name}"))


def _evict_for_room(cluster: KubeCluster, queue: KubeQueue, pod: str) -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {"phase": "Failed", "reason": "Evicted", "conditions": [disrupted]}
    words = ("patch", pod, f"--namespace={queue.namespace}", "--subresource=status", "--type=strategic")
    cluster.kubectl(*words, f"--patch={json.dumps({'status': status})}")


@pytest.mark.parametrize("evicted", [0, 1])
def test_of_several_nodes_the_eviction_of_one_is_no_failure_of_the_others(
    engine: KubernetesEngine, kube_queue: KubeQueue, standing_kubernetes: KubeCluster, evicted: int
) -> None:
    standing_kubernetes.set_quota(kube_queue, 2)
    # The other one ends first, with a plain failure, as one does that has lost its peer.
    script = (
        'if [ -e told ]; then exit 0; fi; trap "touch told; sleep 3; exit 75" TERM; echo x >>begun;'
        "while [ ! -e told ]; do sleep 0.1; done; exit 1"
    )
    job_id = engine.submit(job(script, nodes={"min": 2, "max": 2}, max_restarts=0))
    until(
        engine, job_id, lambda found, log: [each.read_text() for each in kube_queue.runs.glob("*/begun")] == ["x\nx\n"]
    )
    _evict(standing_kubernetes, kube_queue, pods(standing_kubernetes, kube_queue)[evicted])
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2)


def test_pods_of_one_job_meet_and_each_runs_its_processes(
    engine: KubernetesEngine, kube_queue: KubeQueue, standing_kubernetes: KubeCluster
) -> None:
    standing_kubernetes.set_quota(kube_queue, 3)
    program = (
        "import torch.distributed as d; d.init_process_group('gloo');"
        "r = [None] * 4; d.all_gather_object(r, d.get_rank());"
        "print('met', r); d.destroy_process_group()"
    )
    script = f'{sys.executable} -c "{program}"'
    found = over(
        engine, job_id := engine.submit(job(script, nodes={"min": 2, "max": 2}, processes_per_node=2, max_restarts=0))
    )
    log = engine.log(job_id)[0]
    assert (found.phase, len(set(found.nodes))) == (Phase.DONE, 2), log
    assert log.count("met [0, 1, 2, 3]") == 4


def test_a_pod_that_was_done_before_keeps_no_cancelled_job_running(
    engine: KubernetesEngine, kube_queue: KubeQueue, standing_kubernetes: KubeCluster
) -> None:
    standing_kubernetes.set_quota(kube_queue, 2)
    script = 'if mkdir first; then exit 0; fi; echo x >begun; trap "exit 75" TERM; while :; do sleep 0.1; done'
    job_id = engine.submit(job(script, nodes={"min": 2, "max": 2}))
    _until_begun(engine, job_id, kube_queue)
    engine.cancel(job_id)
    assert over(engine, job_id).phase is Phase.CANCELLED


Given = Callable[[str, Mapping[str, str], Mapping[str, int]], None]


@pytest.fixture
def given(standing_kubernetes: KubeCluster) -> Iterator[Given]:
    """Gives a node of the cluster labels and devices; none of it outlives a test."""
    changed = list[tuple[str, Iterable[str], Iterable[str]]]()

    def give(node: str, labels: Mapping[str, str], devices: Mapping[str, int]) -> None:
        changed.append((node, labels, devices))
        label(node, labels)
        offer(node, {name: str(number) for name, number in devices.items()})

    def label(node: str, labels: Mapping[str, str | None]) -> None:
        patch(node, {"metadata": {"labels": dict(labels)}})

    def offer(node: str, devices: Mapping[str, str | None]) -> None:
        room = {kind: dict(devices) for kind in ("capacity", "allocatable")}
        patch(node, {"status": room}, "--subresource=status")

    def patch(node: str, change: Mapping[str, object], *words: str) -> None:
        standing_kubernetes.kubectl("patch", "node", node, "--type=merge", f"--patch={json.dumps(change)}", *words)

    yield give
    for node, labels, devices in changed:
        label(node, dict.fromkeys(labels))
        offer(node, dict.fromkeys(devices))


def test_by_infiniband_a_job_has_all_of_its_nodes_of_one_rung(
    engine: KubernetesEngine,
    kube_queue: KubeQueue,
    standing_kubernetes: KubeCluster,
    given: Given,
) -> None:
    def places() -> list[str]:
        seen = ("get", "pods", f"--namespace={kube_queue.namespace}", "--output=jsonpath={.items[*].spec.nodeName}")
        return standing_kubernetes.kubectl(*seen).split()

    def unscheduled() -> str:
        fields = "{.items[*].status.conditions[?(@.reason=='Unschedulable')].message}"
        seen = ("get", "pods", f"--namespace={kube_queue.namespace}", f"--output=jsonpath={fields}")
        return standing_kubernetes.kubectl(*seen)

    standing_kubernetes.set_quota(kube_queue, 2, **{INFINIBAND: 16})
    rungs = {"n1": "0-spot", "n2": "1-on-demand"}
    for node, rung in rungs.items():
        given(node, {RUNG_LABEL: rung}, {INFINIBAND: 8})
    asked = {"cpu": "1", "memory": "1Gi", INFINIBAND: "8"}
    meets = "echo x >>begun; until [ $(wc -l <begun) = 2 ]; do sleep 0.1; done"
    job_id = engine.submit(job(meets, nodes={"min": 2, "max": 2}, resources=asked))
    until(engine, job_id, lambda found, log: "affinity" in unscheduled())
    (first,) = places()
    given("n3", {RUNG_LABEL: rungs[first]}, {INFINIBAND: 8})
    found = over(engine, job_id)
    assert (found.phase, set(found.nodes)) == (Phase.DONE, {first, "n3"})


def test_pods_get_what_the_namespace_says_of_the_nodes_network(
    engine: KubernetesEngine,
    kube_queue: KubeQueue,
    standing_kubernetes: KubeCluster,
    given: Given,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing_kubernetes.set_quota(kube_queue, 2, **{GPU: 16})
    for node in ("n1", "n2"):
        given(node, {}, {GPU: 8})
    plugin = kube_queue.runs.parents[1] / FABRIC
    plugin.mkdir()
    (plugin / "env.sh").write_text("export NCCL_TUNER=tuned NCCL_NET=other\n")
    volume = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    name, place = f"{FABRIC}-{kube_queue.namespace}", {"name": FABRIC, "namespace": kube_queue.namespace}
    said = {
        "gpus": 8,
        "annotations": {"networking.gke.io/default-interface": "eth0"},
        "env": {"NCCL_NET": "gIB"},
        "script": "/mnt/fabric/env.sh",
        "mount": {"claim": FABRIC, "path": "/mnt/fabric"},
    }
    held = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(plugin)}, "claimRef": place}
    claimed = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    standing_kubernetes.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {**volume, **held}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": place, "spec": {**volume, **claimed}},
        manifest("v1", "ConfigMap", FABRIC, {"data": {FABRIC_KEY: json.dumps(said)}}, kube_queue.namespace),
    )
    asked = {"cpu": "1", "memory": "1Gi", GPU: "8"}
    monkeypatch.setattr("gangway.jobs.kubernetes.objects.KEPT_SEC", -60)  # as days later
    job_id = engine.submit(job("echo $NCCL_NET, $NCCL_TUNER.", nodes={"min": 2, "max": 2}, resources=asked))
    found = over(engine, job_id)
    assert found.phase is Phase.DONE
    assert engine.log(job_id)[0].count("gIB, tuned.") == 2
    noted = standing_kubernetes.kubectl(
        "get", "pods", f"--namespace={kube_queue.namespace}", "--output=jsonpath={.items[*].metadata.annotations}"
    )
    assert noted.count('"networking.gke.io/default-interface":"eth0"') == 2


def test_on_a_node_that_is_not_fit_it_is_not_begun_again(
    engine: KubernetesEngine, kube_queue: KubeQueue, standing_kubernetes: KubeCluster
) -> None:
    script = 'echo "$HOSTNAME" >>hosts; [ "$(wc -l <hosts)" -gt 2 ] || { sleep 2.1; exit 4; }'
    job_id = engine.submit(job(script, env={"SECRET": "s"}))
    seen = list[tuple[str, ...]]()
    for _ in range(2):
        found = until(engine, job_id, lambda found, log: "unfit" in found.reason)
        assert found.phase is Phase.WAITING
        seen.append(found.nodes)
        engine.ensure_begun(job_id)
        engine.ensure_begun(job_id)  # as two who wait for it at once
        if len(seen) == 1:  # as it goes by its age
            standing_kubernetes.kubectl("delete", "jobset", job_id, f"--namespace={kube_queue.namespace}")
    found = over(engine, job_id)
    label = r"{.items[*].metadata.labels.kueue\.x-k8s\.io/max-exec-time-seconds}"
    words = ("get", "jobsets", f"--output=jsonpath={label}", f"--namespace={kube_queue.namespace}")
    second, third = map(int, standing_kubernetes.kubectl(*words).split())
    assert 3600 + PATIENCE_SEC > second > third, "what each start has had is gone from the next one's hours"
    assert (found.phase, found.starts) == (Phase.DONE, 3)
    assert found.stretches is None, "the first one's are gone with it"
    assert len({*seen, found.nodes}) == 3
    assert [each.id for each in engine.jobs()] == [job_id]


def test_its_run_folder_is_nobody_elses(engine: KubernetesEngine, kube_queue: KubeQueue) -> None:
    for _ in range(2):
        over(engine, engine.submit(job('test -z "$(ls)" && touch mine')))
    assert [each.phase for each in engine.jobs()] == [Phase.DONE, Phase.DONE]
    assert len(list(kube_queue.runs.glob("*/mine"))) == 2


def test_its_outputs_are_beside_its_run_folder(engine: KubernetesEngine, kube_queue: KubeQueue) -> None:
    job_id = engine.submit(job("touch mine; touch /mnt/results/kept", outputs=["/mnt/results"]))
    assert over(engine, job_id).phase is Phase.DONE
    (mine,) = kube_queue.runs.glob(f"{job_id}-*/mine")
    assert Path(f"{mine.parent}.outputs+mnt+results", "kept").exists()


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"outputs": ["/mnt/gangway/run"]}, "outputs"),
        ({"nodes": {"min": 2, "max": 2}}, "resources.cpu"),
        ({"resources": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}}, "resources.nvidia.com/gpu"),
        ({"image": None}, "image"),
    ],
)
def test_what_the_queue_never_has_is_refused_and_nothing_is_kept(
    engine: KubernetesEngine,
    standing_kubernetes: KubeCluster,
    kube_queue: KubeQueue,
    keys: dict[str, object],
    path: str,
) -> None:
    file = job("true").model_copy(update=dict(JobFile.model_validate({**_plain(), **keys})))
    assert [each.path for each in engine.findings(file) if each.severity is Severity.ERROR] == [path]
    with pytest.raises(InputError):
        engine.submit(file)
    kinds = "jobsets,configmaps,secrets,networkpolicies"
    left = standing_kubernetes.kubectl("get", kinds, f"--namespace={kube_queue.namespace}", "--output=name").split()
    assert left == ["configmap/kube-root-ca.crt"]


def _plain() -> dict[str, object]:
    return {"name": "case", "command": ["true"], "image": f"registry.example.com/any@sha256:{'0' * 64}", "max_hours": 1}


def test_what_is_not_there_is_named(kube_queue: KubeQueue, standing_kubernetes: KubeCluster) -> None:
    with pytest.raises(InputError, match="no such Kueue queue") as caught:
        list(KubernetesEngine("judge", kube_queue.namespace, "gpus").findings(job("true")))
    assert "gpu" in caught.value.fix
    with pytest.raises(InputError, match="context"):
        list(KubernetesEngine("other", kube_queue.namespace, "gpu").findings(job("true")))
    standing_kubernetes.kubectl("delete", "pvc", "gangway-runs", f"--namespace={kube_queue.namespace}", "--wait=false")
    engine = KubernetesEngine("judge", kube_queue.namespace, "gpu")
    assert "job.claim" in [each.code for each in engine.findings(job("true"))]


def test_a_cluster_that_does_not_answer_is_told(
    tmp_path: Path, standing_kubernetes: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(standing_kubernetes.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(EngineAwayError, match="refused"):
        KubernetesEngine("judge", "default", "gpu").jobs()


def test_what_the_docs_have_applied_is_a_queue_that_works(
    standing_kubernetes: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(standing_kubernetes.kubeconfig))
    text = Path("examples/kubernetes/queue.yaml").read_text()
    standing_kubernetes.kubectl("apply", "--validate=strict", "--filename=-", told=text)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Ti"},
            "hostPath": {"path": "/nonexistent"},
            "storageClassName": "shared",
        },
    }
    standing_kubernetes.apply(volume)
    engine = KubernetesEngine("", "team-a", "gpu")
    file = job("true", priority=Priority.HIGH, resources={"cpu": "1", "memory": "1Gi"})
    assert [each for each in engine.findings(file) if each.severity is Severity.ERROR] == []
    assert over(engine, engine.submit(file)).phase is Phase.DONE
    standing_kubernetes.kubectl("delete", "jobsets", "--all", "--namespace=team-a")


def test_what_has_the_name_already_is_left_alone(
    engine: KubernetesEngine, standing_kubernetes: KubeCluster, kube_queue: KubeQueue
) -> None:
    space = f"--namespace={kube_queue.namespace}"
    standing_kubernetes.kubectl("create", "secret", "generic", "case-1", "--from-literal=mine=1", space)
    assert engine.submit(job("true")) == "case-2"
    found = standing_kubernetes.kubectl("get", "secrets,configmaps", "--output=name", space).split()
    assert sorted(found) == [
        "configmap/case-2",
        "configmap/kube-root-ca.crt",
        "secret/case-1",
        "secret/case-2",
    ]


def test_a_stopped_queue_has_no_room(
    engine: KubernetesEngine, standing_kubernetes: KubeCluster, kube_queue: KubeQueue
) -> None:
    assert engine.room(job("true")).now
    hold = json.dumps({"spec": {"stopPolicy": "Hold"}})
    space = f"--namespace={kube_queue.namespace}"
    standing_kubernetes.kubectl("patch", "localqueue", kube_queue.name, "--type=merge", f"--patch={hold}", space)
    room = engine.room(job("true"))
    assert not room.now
    assert "Hold" in room.reason


def test_a_stopped_cluster_queue_has_no_room_and_says_so(
    engine: KubernetesEngine, standing_kubernetes: KubeCluster, kube_queue: KubeQueue
) -> None:
    hold = json.dumps({"spec": {"stopPolicy": "Hold"}})
    standing_kubernetes.kubectl("patch", "clusterqueue", kube_queue.cluster_queue, "--type=merge", f"--patch={hold}")
    job_id = engine.submit(job("true"))
    until(engine, job_id, lambda found, log: "ClusterQueueIsInactive" in engine.room(job("true")).reason)
    assert not engine.room(job("true")).now


def test_what_a_cohort_has_may_be_lent_or_borrowed(
    engine: KubernetesEngine, standing_kubernetes: KubeCluster, kube_queue: KubeQueue
) -> None:
    joined = json.dumps({"spec": {"cohortName": kube_queue.namespace}})
    standing_kubernetes.kubectl("patch", "clusterqueue", kube_queue.cluster_queue, "--type=merge", f"--patch={joined}")
    assert "may" in engine.room(job("true")).reason
    room = engine.room(job("true", nodes={"min": 2, "max": 2}))
    assert not room.now
    assert "may" in room.reason


def test_everything_of_a_job_goes_with_it(
    engine: KubernetesEngine, standing_kubernetes: KubeCluster, kube_queue: KubeQueue
) -> None:
    job_id = engine.submit(job("true"))
    over(engine, job_id)
    space = f"--namespace={kube_queue.namespace}"
    standing_kubernetes.kubectl("delete", "jobset", job_id, space)
    for kind in ("configmap", "secret", "networkpolicy"):
        standing_kubernetes.kubectl("wait", "--for=delete", f"{kind}/{job_id}", space, "--timeout=60s")
    assert engine.jobs() == []


def test_a_cancelled_job_that_is_old_goes_with_the_next_submit(
    engine: KubernetesEngine,
    standing_kubernetes: KubeCluster,
    kube_queue: KubeQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = engine.submit(job(_WAITS))
    until(engine, running, lambda found, log: found.phase is Phase.RUNNING)
    waiting, cancelled = engine.submit(job("true")), engine.submit(job("true"))
    engine.cancel(cancelled)
    over(engine, cancelled)
    monkeypatch.setattr("gangway.jobs.kubernetes.objects.KEPT_SEC", -60)
    following = engine.submit(job("true"))
    assert [each.id for each in engine.jobs()] == [running, waiting, following]
    space = f"--namespace={kube_queue.namespace}"
    standing_kubernetes.kubectl("wait", "--for=delete", f"secret/{cancelled}", space, "--timeout=60s")


def test_a_preset_trains_in_the_trainers_image(engine: KubernetesEngine, kube_queue: KubeQueue) -> None:
    image = f"registry.example.com/trainer@sha256:{'0' * 64}"
    preset = JobFile(name="gan", preset="dcgan-digits", kimg=0.256, max_hours=1, image=image)
    job_id = engine.submit(preset)
    found = over(engine, job_id)
    assert (found.phase, found.exit_code) == (Phase.DONE, 0), engine.log(job_id)[0]
    (record,) = kube_queue.runs.glob("*/run.json")
    assert json.loads(record.read_bytes())["status"] == "done"


def test_a_preset_asks_for_an_image_and_for_its_data(engine: KubernetesEngine) -> None:
    preset = JobFile(name="gan", preset="dcgan-digits", kimg=1, max_hours=1, data_dir="/shared/digits")
    found = {each.path: each for each in engine.findings(preset) if each.severity is Severity.ERROR}
    assert "gangway dockerfile" in found["image"].fix
    assert "gangway-data" in found["data_dir"].message
