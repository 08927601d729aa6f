"""Which jobs get the network between GPUs, and what their pods take for it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.components.kubernetes.manifest import manifest
from gangway.components.kubernetes.spec import EFA, FABRIC_KEY, GPU, INFINIBAND
from gangway.components.kubernetes.spec import FABRIC as FABRIC_NAME
from gangway.jobs.kubernetes.fabric import Fabric, Mount, find_fabric, offered_networks
from gangway.jobs.kubernetes.kubectl import Kubectl
from gangway.jobs.kubernetes.manifests import get_variables
from gangway.jobs.kubernetes.queues import Flavor, Quota
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.kubernetes.test_asking import engine
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, container_of, job, pod_of
from tests.pretend_kubectl import PretendKube, pretend_kube

SEVERAL = {"nodes": {"min": 2, "max": 2}}
WHOLE = {"resources": {"cpu": "90", "memory": "1000Gi", "nvidia.com/gpu": "8"}}
FABRIC = Fabric(
    gpus=8,
    annotations={"networking.gke.io/default-interface": "eth0"},
    env={"NCCL_NET": "gIB"},
    script="/usr/local/gib/env.sh",
    mount=Mount(claim="gangway-fabric", path="/usr/local/gib"),
)
_SEVERAL = {"min": 2, "max": 2}


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Kubectl]:
    """A kubectl that is this script."""

    def program(script: str) -> Kubectl:
        (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "kubectl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return Kubectl("", "vision")

    return program


def answered(data: dict[str, str]) -> str:
    return f"cat <<'END'\n{json.dumps({'kind': 'ConfigMap', 'data': data})}\nEND"


@pytest.mark.parametrize(
    ("keys", "gets"),
    [
        ({**SEVERAL, **WHOLE}, True),
        (WHOLE, False),
        (SEVERAL, False),
        ({**SEVERAL, "resources": {**WHOLE["resources"], "nvidia.com/gpu": "4"}}, False),
    ],
)
def test_it_is_for_jobs_on_several_whole_nodes(
    says: Callable[[str], Kubectl], keys: dict[str, Any], gets: bool
) -> None:
    kubectl = says(answered({"fabric.json": FABRIC.model_dump_json()}))
    assert find_fabric(kubectl, job(**keys)) == (FABRIC if gets else None)


@pytest.mark.parametrize("why", ["NotFound", "Forbidden"])
def test_where_nobody_says_anything_pods_are_as_ever(says: Callable[[str], Kubectl], why: str) -> None:
    kubectl = says(f"echo 'Error from server ({why}): no' >&2; exit 1")
    assert find_fabric(kubectl, job(**SEVERAL, **WHOLE)) is None


@pytest.mark.parametrize("data", [{}, {"fabric.json": "{"}, {"fabric.json": '{"gpus": 8, "annotation": {}}'}])
def test_what_it_cannot_read_is_told(says: Callable[[str], Kubectl], data: dict[str, str]) -> None:
    with pytest.raises(InputError) as told:
        find_fabric(says(answered(data)), job(**SEVERAL, **WHOLE))
    assert "configmap gangway-fabric of vision: data.fabric.json" in told.value.place
    assert "pulumi up" in told.value.fix


def test_pods_have_the_plug_in_to_be_read() -> None:
    file, placing = job(**SEVERAL, **WHOLE), replace(PLACING, fabric=FABRIC)
    (volume,) = [each for each in pod_of(file, placing)["volumes"] if each["name"] == "fabric"]
    assert volume["persistentVolumeClaim"] == {"claimName": "gangway-fabric", "readOnly": True}
    (mount,) = [each for each in container_of(file, placing)["volumeMounts"] if each["name"] == "fabric"]
    assert mount == {"name": "fabric", "mountPath": "/usr/local/gib", "readOnly": True}
    assert not [each for each in pod_of(file)["volumes"] if each["name"] == "fabric"]


def test_what_the_job_says_comes_first() -> None:
    file = job(**SEVERAL, **WHOLE)
    assert get_variables(file, FABRIC)["NCCL_NET"] == "gIB"
    assert get_variables(file.model_copy(update={"env": {"NCCL_NET": "Socket"}}), FABRIC)["NCCL_NET"] == "Socket"


def run(file: JobFile, script: Path) -> subprocess.CompletedProcess[str]:
    """What a pod's words come to, up to the job's own."""
    fabric = FABRIC.model_copy(update={"script": str(script)})
    words = [word.replace("$$", "$") for word in container_of(file, replace(PLACING, fabric=fabric))["command"]]
    shown = [*words[: words.index("node") + 1], "env"]
    env = {
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "JOB_COMPLETION_INDEX": "1",
        "NCCL_NET": "Socket",
        "LINES": "a\nb'c",
    }
    return subprocess.run(shown, env=env, capture_output=True, text=True, timeout=60)


def test_the_script_gives_values_to_what_has_none(tmp_path: Path) -> None:
    script = tmp_path / "env.sh"
    script.write_text("export NCCL_NET=gIB NCCL_TUNER=mine\n[[ -n $NCCL_NET ]] && false\n")
    done = run(job(**SEVERAL, **WHOLE), script)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert {"NCCL_NET=Socket", "NCCL_TUNER=mine", "LINES=a", "b'c"} <= set(said)


def test_without_the_plug_in_a_pod_fails_and_says_so(tmp_path: Path) -> None:
    pretended_sleep(tmp_path, "true")
    done = run(job(**SEVERAL, **WHOLE), tmp_path / "missing.sh")
    assert done.returncode == 1
    assert "missing.sh" in done.stderr


def test_a_pod_waits_for_the_plug_in_of_a_node_that_has_just_come(tmp_path: Path) -> None:
    pretended_sleep(tmp_path, f"echo export NCCL_TUNER=late >{tmp_path}/env.sh")
    done = run(job(**SEVERAL, **WHOLE), tmp_path / "env.sh")
    assert done.returncode == 0, done.stderr
    assert "NCCL_TUNER=late" in done.stdout.splitlines()


def test_one_that_is_told_meanwhile_was_interrupted(tmp_path: Path) -> None:
    pretended_sleep(tmp_path, "kill -TERM $PPID")
    assert run(job(**SEVERAL, **WHOLE), tmp_path / "missing.sh").returncode == 75


def pretended_sleep(folder: Path, script: str) -> None:
    (folder / "sleep").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "sleep").chmod(0o755)


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
    made = manifest("v1", "ConfigMap", FABRIC_NAME, {"data": {FABRIC_KEY: FABRIC.model_dump_json()}}, "team-a")
    kube.put("ConfigMap", FABRIC_NAME, "team-a", metadata={"labels": made["metadata"]["labels"]}, data=made["data"])


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
    assert FABRIC_NAME in told.message
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
