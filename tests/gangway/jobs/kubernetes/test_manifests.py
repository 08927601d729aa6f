"""What a job file becomes, without a cluster; test_engine.py has real ones judge it."""

import os
import re
import subprocess
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import Severity
from gangway.jobs.kubernetes.manifests import (
    PATIENCE_SEC,
    Placing,
    get_variables,
    job_set,
    output_findings,
    support_manifests,
)
from gangway.jobs.kubernetes.objects import get_file, get_hours_sec
from gangway.stacks.config.job_file import JobFile
from tests.components.kubernetes.test_schemas import VERSIONS

IMAGE = f"registry.example.com/mine@sha256:{'0' * 64}"
PLACING = Placing("team-a", "gpu", "gangway-runs", "mine-3", "ada", "team-a/mine-3-0123")


def job(**keys: object) -> JobFile:
    return JobFile.model_validate(
        {"name": "mine", "command": ["python", "train.py"], "image": IMAGE, "max_hours": 2, **keys}
    )


def pod_of(file: JobFile, placing: Placing = PLACING) -> Any:
    [group] = job_set(file, placing)["spec"]["replicatedJobs"]
    return group["template"]["spec"]["template"]["spec"]


def container_of(file: JobFile, placing: Placing = PLACING) -> Any:
    [container] = pod_of(file, placing)["containers"]
    return container


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), min_size=1, max_size=5))
def test_no_word_is_taken_for_a_variable(words: list[str]) -> None:
    made = container_of(job(command=words))["command"]
    # As Kubernetes reads a command: $$ is a dollar, and $(NAME) a variable's value.
    assert not any(re.search(r"(?<!\$)(\$\$)*\$\(", word) for word in made)
    assert [word.replace("$$", "$") for word in made][-len(words) :] == words


@pytest.mark.parametrize(
    ("resource", "label"),
    [("rdma/infiniband", "gangway.dev/rung"), ("google.com/tpu", "cloud.google.com/gke-nodepool")],
)
def test_nodes_that_are_to_reach_each_other_are_of_one_rung_or_slice(resource: str, label: str) -> None:
    asks = {"resources": {"cpu": "1", "memory": "1Gi", resource: "1"}}
    several = {"nodes": {"min": 2, "max": 2}}
    assert "affinity" not in pod_of(job(**asks))
    assert "affinity" not in pod_of(job(**several))
    placing = PLACING.without(["n1"], 3600)
    found = pod_of(job(**asks, **several), placing)["affinity"]
    (rule,) = found["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == label
    assert rule["labelSelector"]["matchLabels"] == {"gangway.dev/job": PLACING.job_id}
    assert "nodeAffinity" in found, "and still none that was not fit"


def test_a_pod_may_do_nothing_that_it_need_not() -> None:
    pod, container = pod_of(job()), container_of(job())
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_requests_are_limits() -> None:
    asked = {"cpu": "90", "memory": "1000Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    assert container_of(job(resources=asked))["resources"] == {"requests": asked, "limits": asked}


def test_who_fills_tmp_fails_before_the_node_is_full() -> None:
    """Which would evict its pods, to begin again without end."""

    def limit(**keys: object) -> str:
        (volume,) = [each for each in pod_of(job(**keys))["volumes"] if each["name"] == "tmp"]
        return str(volume["emptyDir"]["sizeLimit"])

    assert limit() == "20Gi"
    assert limit(resources={"cpu": "1", "memory": "1Gi", "ephemeral-storage": "90Gi"}) == "90Gi"


def test_env_is_in_a_secret_and_nowhere_else() -> None:
    file = job(env={"TOKEN": "hunter2"})
    assert "hunter2" not in str(job_set(file, PLACING))
    script, secret, policy = support_manifests(file, PLACING, get_variables(file))
    assert secret["stringData"]["TOKEN"] == "hunter2"
    assert "hunter2" not in f"{script}{policy}"


def test_all_nodes_of_a_job_meet_at_the_first() -> None:
    words = container_of(job(nodes={"min": 2, "max": 4}, processes_per_node=8))["command"]
    assert "--nnodes=4" in words
    assert "--nproc-per-node=8" in words
    assert "--rdzv-endpoint=mine-3-node-0-0.mine-3:29400" in words


@pytest.mark.parametrize(("processes", "rank"), [(1, "10"), (None, "")])
def test_torchrun_is_told_the_pods_rank_by_which_the_first_serves_the_store(processes: int | None, rank: str) -> None:
    words = container_of(job(nodes={"min": 2, "max": 2}, processes_per_node=processes))["command"]
    assert ("--rdzv-backend=static" in words) == bool(rank), "of c10d nodes would unpickle what others write"
    shell = [word.replace("$$", "$") for word in words[:4]]
    variables = {**os.environ, "JOB_COMPLETION_INDEX": "10"}
    done = subprocess.run([*shell, "printenv", "PET_NODE_RANK"], env=variables, capture_output=True, text=True)
    assert done.stdout.strip() == rank


def preset(nodes: int = 2) -> JobFile:
    keys = {"preset": "dcgan-digits", "kimg": 1, "processes_per_node": 2, "nodes": {"min": nodes, "max": nodes}}
    return JobFile.model_validate({"name": "gan", "image": IMAGE, "max_hours": 1, **keys})


@pytest.mark.attack("a user of the same cluster", "reads the key of another's queued job")
def test_the_pods_of_a_preset_have_their_key_in_a_file_and_not_in_their_environment() -> None:
    container, pod = container_of(preset()), pod_of(preset())
    path = "/mnt/gangway/member/member.pem"
    words = container["command"]
    assert words[words.index("gangway.trainer.launch") + 1 :][:2] == [f"--member-key={path}", "--store=first"]
    assert "--rdzv-backend=gangway" in words
    (mount,) = [each for each in container["volumeMounts"] if path.startswith(f"{each['mountPath']}/")]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    items = [{"key": "member.pem", "path": "member.pem"}]
    assert volume["secret"] == {"secretName": PLACING.name, "items": items, "defaultMode": 0o400}
    assert mount["readOnly"]
    assert "envFrom" not in container, "by which all of the Secret would be variables"
    assert {"name": "HOME", "value": "/tmp"} in container["env"]


@pytest.mark.parametrize("file", [preset(1), job(nodes={"min": 2, "max": 2}, processes_per_node=1)])
def test_what_has_no_use_for_a_key_has_none(file: JobFile) -> None:
    assert "member" not in str(pod_of(file))
    assert container_of(file)["envFrom"] == [{"secretRef": {"name": PLACING.name}}]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(("restarts", "code"), [("26", 0), ("27", 5)])
def test_what_is_begun_again_and_again_ends(nodes: int, restarts: str, code: int) -> None:
    """After two failures and 24 interruptions, four in each of six hours."""
    file = job(nodes={"min": nodes, "max": nodes}, max_hours=6, max_restarts=2)
    words = [word.replace("$$", "$") for word in container_of(file)["command"][:4]]
    variables = {**os.environ, "GANGWAY_RESTARTS": restarts, "JOB_COMPLETION_INDEX": "0"}
    done = subprocess.run([*words, "true"], env=variables, capture_output=True, text=True)
    assert done.returncode == code
    assert ("26 times" in done.stderr) == bool(code)


def test_nodes_that_end_together_hold_back_a_plain_failure() -> None:
    assert "GANGWAY_HOLD_BACK_SEC" in get_variables(job(nodes={"min": 2, "max": 2}))
    assert "GANGWAY_HOLD_BACK_SEC" not in get_variables(job())


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("Container node for pod a/b failed with exit code 2 matching FailJob rule at index 1", "FailJobSet"),
        ("Container node for pod a/b failed with exit code 6 matching FailJob rule at index 1", "FailJobSet"),
        ("Container node for pod a/b failed with exit code 4 matching FailJob rule at index 1", "FailJobSet"),
        (
            "Container node for pod a/b failed with exit code 75 matching FailJob rule at index 1",
            "RestartJobSetAndIgnoreMaxRestarts",
        ),
        (
            "Pod a/b has condition DisruptionTarget matching FailJob rule at index 0",
            "RestartJobSetAndIgnoreMaxRestarts",
        ),
        ("Container node for pod a/b failed with exit code 1 matching FailJob rule at index 1", None),
        ("Container node for pod a/b failed with exit code 25 matching FailJob rule at index 1", None),
        ("Container node for pod a/b failed with exit code 137 matching FailJob rule at index 1", None),
    ],
)
def test_what_an_end_leads_to(message: str, action: str | None) -> None:
    policy = job_set(job(max_restarts=7), PLACING)["spec"]["failurePolicy"]
    found = [
        rule["action"]
        for rule in policy["rules"]
        if any(re.search(pattern, message) for pattern in rule["onJobFailureMessagePatterns"])
    ]
    assert found[:1] == ([action] if action else [])
    assert policy["maxRestarts"] == 7


def test_the_next_start_leaves_nodes_out_and_has_what_is_left_of_the_hours() -> None:
    following = PLACING.without(["n2"], 1200).without(["n1", "n2"], 600)
    made = job_set(job(), following)
    assert made["metadata"]["name"] == "mine-3-s3"
    assert get_hours_sec(made) == 600
    assert made["metadata"]["annotations"]["gangway.dev/run-folder"] == "team-a/mine-3-0123", "it goes on in its folder"
    affinity = pod_of(job(), following)["affinity"]
    assert "'values': ['n1', 'n2']" in str(affinity)
    assert "affinity" not in pod_of(job())


@pytest.mark.parametrize("nodes", [1, 2])
def test_pods_count_all_of_the_jobs_hours_and_kueue_leaves_time_for_nodes_to_come(nodes: int) -> None:
    file = job(nodes={"min": nodes, "max": nodes}, max_hours=0.5, grace_sec=90)
    for placing in (PLACING, PLACING.without(["n1"], 600)):
        words = container_of(file, placing)["command"]
        assert words[4:9] == [
            "/bin/sh", "/mnt/gangway/scripts/hours.sh", "1800", "90", "/mnt/gangway/run/.gangway-used-sec"
        ]  # fmt: skip
    script, *_ = support_manifests(file, PLACING, {})
    assert "hours.sh" in script["data"]
    asked = job_set(file, PLACING)["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"]
    assert int(asked) == 1800 + PATIENCE_SEC


@pytest.mark.parametrize(
    ("resources", "said"),
    [({"cpu": "1"}, "memory"), ({"cpu": "1", "memory": "1 GiB"}, "memory"), ({"C P U": "1"}, "C P U")],
)
def test_resources_that_cannot_be_are_refused(resources: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        job(resources=resources)


def test_a_presets_data_are_mounted_to_be_read() -> None:
    preset = JobFile(
        name="gan", preset="dcgan-digits", kimg=1, max_hours=1, data_dir="/shared/digits", processes_per_node=2,
        image=f"a/b@sha256:{'0' * 64}",
    )  # fmt: skip
    pod = job_set(preset, PLACING)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "data"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/shared/digits", True)
    (volume,) = [each for each in pod["volumes"] if each["name"] == "data"]
    assert volume["persistentVolumeClaim"] == {"claimName": "gangway-data", "readOnly": True}
    words = container["command"]
    assert words[9:12] == ["python", "-m", "gangway.trainer.launch"]
    assert words[words.index("--data") + 1] == "/shared/digits"
    assert words[words.index("--run-dir") + 1] == "/mnt/gangway/run"


def mounts_of(file: JobFile, placing: Placing = PLACING) -> dict[str, Any]:
    """By the place in the container."""
    mounts = container_of(file, placing)["volumeMounts"]
    found = {each["mountPath"]: each for each in mounts}
    assert len(found) == len(mounts), "each place once, or Kubernetes refuses the pod"
    return found


def test_outputs_are_in_the_run_folders_claim_and_may_be_written_to() -> None:
    file = job(outputs=["/work/results", "/plots"])
    mounts = mounts_of(file)
    run = mounts["/mnt/gangway/run"]
    assert mounts["/work/results"] == {
        **run,
        "mountPath": "/work/results",
        "subPath": "team-a/mine-3-0123.outputs+work+results",
    }
    assert mounts["/plots"] == {**run, "mountPath": "/plots", "subPath": "team-a/mine-3-0123.outputs+plots"}
    assert "readOnly" not in run
    assert [each["mountPath"] for each in container_of(job())["volumeMounts"]] == list(mounts)[:-2]
    again = mounts_of(get_file(job_set(file, PLACING)), PLACING.without(["n1"], 600))
    assert again == mounts, "the next start has the same"


@pytest.mark.parametrize("output", ["/mnt", "/mnt/gangway", "/mnt/gangway/run", "/mnt/gangway/mine"])
def test_outputs_where_a_pod_has_its_own_folders_are_refused(output: str) -> None:
    (found,) = output_findings(job(outputs=["/work/results", output]))
    assert (found.severity, found.path) == (Severity.ERROR, "outputs")
    assert output in found.message
    assert list(output_findings(job(outputs=["/mnt/gangways"]))) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "file", [preset(), job(outputs=["/work/results"], workdir="/work/results", nodes={"min": 2, "max": 2})]
)
def test_what_kubernetes_itself_makes_of_it_is_valid_strictly(file: JobFile, version: str) -> None:
    """JobSet's own kind is judged by its webhook (test_engine.py); what is in it is a Job."""
    placing = PLACING.without(["n1"], 600)
    (group,) = job_set(file, placing)["spec"]["replicatedJobs"]
    meta, spec = {"name": "mine-3"}, group["template"]["spec"]
    whole: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    for each in (whole, *support_manifests(file, placing, get_variables(file))):
        kubernetes_validate.validate(each, version, strict=True)
    mounts = spec["template"]["spec"]["containers"][0]["volumeMounts"]
    mounts[0]["subpath"] = mounts[0].pop("subPath")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(whole, version, strict=True)
