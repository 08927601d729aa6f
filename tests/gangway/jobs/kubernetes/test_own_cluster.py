"""The queues of a cluster of Gangway's own, in a real control plane: every manifest taken strictly and by Kueue's
webhooks, jobs of the engine admitted by quota, and by members who may do nothing else.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.kubernetes.charts import KUEUE, QUEUE, queue_manifests
from gangway.components.kubernetes.namespaces import CLAIM, namespace_manifests
from gangway.components.kubernetes.resources import get_tier
from gangway.components.kubernetes.spec import JOBS_ONLY, ClusterSpec, Flavor, Node, Team
from gangway.jobs.base import Phase
from gangway.jobs.kubernetes.engine import KubernetesEngine
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job as get_file
from tests.gangway.jobs.test_contract import over, until
from tests.kube_cluster import KubeCluster

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]
TEAM = "a team of a shared Kubernetes"
LABELS = {"gangway.dev/pool": "jobs"}
SPEC = ClusterSpec((Team("vision", 1), Team("speech", 1)), Node(1, 64, disk_gib=50), 2, (Flavor("own", LABELS),))
_WAITS = "trap 'exit 75' TERM; echo x >>begun; while [ ! -e end ]; do sleep 0.1; done"


def job(script: str, **keys: object) -> JobFile:
    return get_file(script, image=f"registry.example.com/any@sha256:{'0' * 64}", **keys)


@pytest.fixture
def own(standing_kubernetes: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeCluster]:
    """With the manifests in it, and all of its nodes labelled and tainted as those of the node groups are."""
    cluster = standing_kubernetes
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    for team in SPEC.queues:
        (cluster.folder / "kubelet" / "claims" / team.name / CLAIM).mkdir(parents=True, exist_ok=True)
    made = [*queue_manifests(SPEC), *namespace_manifests(SPEC, {"hostPath": {"path": "/nonexistent"}}, 10)]
    made.sort(key=get_tier)
    cluster.kubectl("label", "nodes", "--all", *(f"{key}={value}" for key, value in LABELS.items()), "--overwrite")
    cluster.kubectl("taint", "nodes", "--all", f"{JOBS_ONLY}=true:NoSchedule", "--overwrite")
    cluster.apply(*made)
    limit = time.monotonic() + 60
    while "subPath" not in admitted(cluster, pod({})):  # a policy is heard of a moment later
        assert time.monotonic() < limit, "the policy never refuses anything"
    yield cluster
    for team in SPEC.queues:
        space = f"--namespace={team.name}"
        cluster.kubectl("delete", "jobsets", "--all", space, "--grace-period=0", "--wait=true")
    cluster.kubectl("taint", "nodes", "--all", f"{JOBS_ONLY}-")
    cluster.kubectl("label", "nodes", "--all", *(f"{key}-" for key in LABELS))


def get_runs(cluster: KubeCluster, team: str) -> Path:
    return cluster.folder / "kubelet" / "claims" / team / CLAIM / team


def pod(mount: Mapping[str, Any], *, later: bool = False) -> dict[str, Any]:
    """One that Pod Security lets pass, with the claim of run folders; `later`: only in an init container."""
    container = {
        "name": "c", "image": "x",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    mounts = {"volumeMounts": [{"name": "r", "mountPath": "/r", **mount}]}
    first = {"initContainers": [{**container, **mounts, "name": "first"}]} if later else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "looks", "namespace": "vision"},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container if later else {**container, **mounts}],
            "volumes": [{"name": "r", "persistentVolumeClaim": {"claimName": CLAIM}}],
            **first,
        },
    }


def admitted(cluster: KubeCluster, manifest: Mapping[str, Any], *words: str) -> str:
    """Why the API server does not take it; empty where it does."""
    words = words or ("create", "--dry-run=server", "--filename=-")
    done = subprocess.run(
        ("kubectl", f"--kubeconfig={cluster.kubeconfig}", *words),
        input=json.dumps(manifest), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_all_kinds_of_kueues_are_taken_strictly(own: KubeCluster) -> None:
    """Those that two teams of one flavor do not have, too."""
    blocks = Flavor("blocks", {"x/pool": "blocks"}, ("x/block", "kubernetes.io/hostname"))
    teams = (*(Team(f"t{number}", 20) for number in range(2)), Team("t2", 20, max_nodes=30))
    node = Node(192, 2040, {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32})
    spec = ClusterSpec(teams, node, 100, (blocks, Flavor("own", LABELS)), fair_sharing=True)
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename=-")
    tried = [each for each in queue_manifests(spec) if "namespace" not in each["metadata"]]
    for each in tried:
        own.kubectl(*words, told=json.dumps(each))
    kinds = {"ClusterQueue", "Cohort", "ResourceFlavor", "Topology", "WorkloadPriorityClass"}
    assert {each["kind"] for each in tried} == kinds
    wrong = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "x"}, "spec": {"nodeLabls": {}}}
    with pytest.raises(AssertionError, match="nodeLabls"):
        own.kubectl(*words, told=json.dumps(wrong))


def test_a_job_runs_on_tainted_nodes_through_the_teams_queue(own: KubeCluster) -> None:
    engine = KubernetesEngine("judge", "vision", QUEUE)
    job_id = engine.submit(job("touch done"))
    found = over(engine, job_id)
    assert found.phase is Phase.DONE, found
    assert list(get_runs(own, "vision").glob(f"{job_id}-*/done"))


@pytest.fixture
def blocks(own: KubeCluster) -> Iterator[None]:
    """The same queues where n1 and n3 are in one block of the network, and n2 is in another."""
    spec = replace(SPEC, max_nodes=3, flavors=(Flavor("blocks", LABELS, ("x/block", "kubernetes.io/hostname")),))
    for node, block in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        own.kubectl("label", "node", node, f"x/block={block}", "--overwrite")
    own.apply(*queue_manifests(spec))
    yield
    own.apply(*queue_manifests(SPEC))
    own.kubectl("label", "nodes", "--all", "x/block-")


@pytest.mark.usefixtures("blocks")
def test_a_jobs_nodes_are_of_one_block_where_there_is_room(own: KubeCluster, member: KubernetesEngine) -> None:
    """Asked for by a member, who may read which blocks there are; and of two where one is too small."""
    two = over(member, member.submit(job("true", nodes={"min": 2, "max": 2})))
    assert (two.phase, sorted(two.nodes)) == (Phase.DONE, ["n1", "n3"])
    asked = "--output=jsonpath={.items[*].spec.podSets[*].topologyRequest.preferred}"
    assert own.kubectl("get", "workloads", "--namespace=vision", asked) == "x/block"
    three = over(member, member.submit(job("true", nodes={"min": 3, "max": 3})))
    assert (three.phase, sorted(three.nodes)) == (Phase.DONE, ["n1", "n2", "n3"])


def test_a_borrowed_node_is_given_back_and_the_job_goes_on_later(own: KubeCluster) -> None:
    vision, speech = (KubernetesEngine("judge", team.name, QUEUE) for team in SPEC.queues)
    kept = vision.submit(job(_WAITS, max_restarts=0))
    until(vision, kept, lambda found, log: any(get_runs(own, "vision").glob(f"{kept}-*/begun")))
    borrowing = vision.submit(job(_WAITS, max_restarts=0))
    until(vision, borrowing, lambda found, log: any(get_runs(own, "vision").glob(f"{borrowing}-*/begun")))
    third = vision.submit(job("true"))
    waiting = until(vision, third, lambda found, log: "quota" in found.reason)
    assert waiting.phase is Phase.WAITING, "the cohort has no more"
    vision.cancel(third)
    assert over(speech, speech.submit(job("true"))).phase is Phase.DONE, "its own node, whoever has it"
    for folder in (*get_runs(own, "vision").glob(f"{kept}-*"), *get_runs(own, "vision").glob(f"{borrowing}-*")):
        (folder / "end").touch()
    ends = [over(vision, kept), over(vision, borrowing)]
    assert [each.phase for each in ends] == [Phase.DONE, Phase.DONE]
    assert {each.starts for each in ends} == {1, 2}, "one of the two has made room"


def test_a_team_borrows_up_to_its_limit_and_no_further(own: KubeCluster) -> None:
    first, second = SPEC.queues
    own.apply(*queue_manifests(replace(SPEC, teams=(replace(first, max_nodes=first.nodes), second))))
    vision = KubernetesEngine("judge", first.name, QUEUE)
    with pytest.raises(InputError, match="quota"):
        vision.submit(job("true", nodes={"min": first.nodes + 1, "max": first.nodes + 1}))
    running = [vision.submit(job(_WAITS, max_restarts=0)) for _ in range(first.nodes)]
    for each in running:
        until(vision, each, lambda found, log: found.phase is Phase.RUNNING)
    waits = vision.submit(job("true"))
    assert until(vision, waits, lambda found, log: "quota" in found.reason).phase is Phase.WAITING
    for each in running:
        vision.cancel(each)
    assert over(vision, waits).phase is Phase.DONE


def test_a_team_goes_with_its_jobs_and_then_with_its_queue(own: KubeCluster) -> None:
    """In the order in which a stack takes them down: the other way round Kueue would keep the queue."""
    team = SPEC.queues[1].name
    speech = KubernetesEngine("judge", team, QUEUE)
    runs = speech.submit(job(_WAITS, max_restarts=0))
    until(speech, runs, lambda found, log: any(get_runs(own, team).glob(f"{runs}-*/begun")))
    own.kubectl("delete", "namespace", team, "--timeout=120s")
    own.kubectl("delete", "clusterqueue", team, "--timeout=60s")
    assert own.kubectl("get", "clusterqueues", "--output=name").split() == ["clusterqueue.kueue.x-k8s.io/vision"]


@pytest.fixture
def member(own: KubeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KubernetesEngine:
    """Of the team vision, and of nothing else."""
    config = json.loads(own.kubeconfig.read_text())
    config["users"][0]["user"] |= {"as": "ada", "as-groups": ["gangway:vision", "system:authenticated"]}
    path = tmp_path / "member"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return KubernetesEngine("judge", "vision", QUEUE)


def test_a_member_can_do_all_that_the_engine_does(member: KubernetesEngine) -> None:
    job_id = member.submit(job("echo said; touch done"))
    assert over(member, job_id).phase is Phase.DONE
    assert "said" in member.log(job_id)[0]
    waits = member.submit(job(_WAITS))
    until(member, waits, lambda found, log: found.phase is Phase.RUNNING)
    member.cancel(waits)
    assert over(member, waits).phase is Phase.CANCELLED


@pytest.mark.attack(TEAM, "runs pods past the queue")
@pytest.mark.parametrize(
    "words",
    [
        ("create", "pods", "-n", "vision"),
        ("create", "jobs", "-n", "vision"),
        ("create", "workloads.kueue.x-k8s.io", "-n", "vision"),
        ("create", "jobsets.jobset.x-k8s.io", "-n", "speech"),
        ("get", "secrets", "-n", "speech"),
        ("patch", "clusterqueues.kueue.x-k8s.io"),
        ("create", "pods/exec", "-n", "vision"),
    ],
)
def test_a_member_can_do_nothing_past_the_queue(member: KubernetesEngine, words: tuple[str, ...]) -> None:
    done = subprocess.run(["kubectl", "auth", "can-i", *words], capture_output=True, text=True)
    assert done.stdout.strip() == "no", done.stderr


AS_MEMBER = ("--as=ada", "--as-group=gangway:vision", "--dry-run=server")


def network_policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], **spec},
    }


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_a_members_policies_open_no_way_out_and_leave_those_of_the_cluster(own: KubeCluster) -> None:
    create = ("create", "--filename=-", *AS_MEMBER)
    delete = ("delete", "networkpolicy", "--namespace=vision", *AS_MEMBER)
    out = network_policy("out", policyTypes=["Egress"], egress=[{}])
    limit = time.monotonic() + 60
    while "ingress alone" not in admitted(own, out, *create):  # a policy is heard of a moment later
        assert time.monotonic() < limit, "the policy never refuses anything"
    assert "ingress alone" in admitted(own, network_policy("out", policyTypes=["Ingress", "Egress"]), *create)
    assert not admitted(own, network_policy("in", ingress=[{}]), *create)
    assert not admitted(own, out), "an administrator's passes"
    for name in ("nothing-comes-in", "only-pods-and-internet"):
        assert "not a member's" in admitted(own, {}, *delete, name)
        patch = ("patch", "networkpolicy", name, "--namespace=vision", '--patch={"metadata":{"labels":{"x":"y"}}}')
        assert "not a member's" in admitted(own, {}, *patch, *AS_MEMBER)


@pytest.mark.attack(TEAM, "another team's running job, by evicting it")
def test_a_pod_of_a_systems_priority_is_refused(own: KubeCluster) -> None:
    wanted = pod({"subPath": "vision/run"})
    wanted["spec"]["priorityClassName"] = "system-node-critical"
    limit = time.monotonic() + 60
    while "exceeded quota: no-system-pods" not in (said := admitted(own, wanted)):
        assert time.monotonic() < limit, said


@pytest.mark.attack(TEAM, "runs pods past the queue")
def test_a_job_set_without_a_queue_never_begins(own: KubeCluster) -> None:
    container = {"name": "c", "image": "x", "command": ["true"]}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "past-the-queue", "namespace": "vision"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": template}]},
    }
    own.apply(manifest)
    said = own.kubectl("get", "jobset", "past-the-queue", "--namespace=vision", "--output=jsonpath={.spec.suspend}")
    assert said == "true"


@pytest.mark.attack(TEAM, "its machine, by a pod with more rights")
def test_a_pod_with_rights_is_refused(own: KubeCluster) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rights", "namespace": "vision"},
        "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "x"}]},
    }
    with pytest.raises(AssertionError, match="restricted"):
        own.kubectl("create", "--filename=-", told=json.dumps(pod))


@pytest.mark.attack(TEAM, "wants another team's results")
@pytest.mark.parametrize(
    "mount",
    [
        {},
        {"subPath": "speech/mine-1-0"},
        {"subPath": "vision"},
        {"subPath": "vision/."},
        {"subPath": "vision/mine/link"},
        {"subPath": "mine-3-0123456789abcdef"},
        {"subPathExpr": "vision/mine"},
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_pod_mounts_nothing_of_another_teams_runs(own: KubeCluster, mount: Mapping[str, str], later: bool) -> None:
    why = admitted(own, pod(mount, later=later))
    assert re.search(r"mount it with a subPath such as vision/NAME", why), why


@pytest.mark.parametrize("path", ["vision/mine", "vision/mine.outputs+work"])
def test_a_pod_mounts_its_teams_runs(own: KubeCluster, path: str) -> None:
    assert admitted(own, pod({"subPath": path})) == ""
    assert admitted(own, pod({"subPath": path}, later=True)) == ""


@pytest.mark.attack(TEAM, "wants another team's results")
def test_a_container_that_comes_later_mounts_no_runs(own: KubeCluster) -> None:
    own.kubectl("create", "--filename=-", told=json.dumps(pod({"subPath": "vision/mine"})))
    path = "/api/v1/namespaces/vision/pods/looks"
    try:
        made = json.loads(own.kubectl("get", "--raw", path))
        later = {**made["spec"]["containers"][0], "volumeMounts": [{"name": "r", "mountPath": "/r"}]}
        made["spec"]["ephemeralContainers"] = [{**later, "name": "later"}]
        why = admitted(own, made, "replace", "--raw", f"{path}/ephemeralcontainers", "--filename=-")
    finally:
        own.kubectl("delete", "pod", "looks", "--namespace=vision", "--grace-period=0", "--force")
    assert f"leave {CLAIM} out" in why


def test_a_members_job_set_that_mounts_all_runs_is_told_why(own: KubeCluster, member: KubernetesEngine) -> None:
    template = {"spec": {"template": {"spec": {**pod({})["spec"], "restartPolicy": "Never"}}}}
    (container,) = template["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "looks", "namespace": member.where.partition("@")[2].partition("/")[0], "labels": labels},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 1, "template": template}]},
    }
    subprocess.run(["kubectl", "create", "--filename=-"], input=json.dumps(made), text=True, check=True)
    limit, said = time.monotonic() + 60, ""
    while "vision/NAME" not in said:
        assert time.monotonic() < limit, said
        said = own.kubectl("get", "events", "--namespace=vision", "--output=jsonpath={.items[*].message}")
    assert own.kubectl("get", "pods", "--namespace=vision", "--output=name") == ""
