"""Which jobs get the network between GPUs, and what their pods take for it."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.kubernetes.fabric import Fabric, Mount, find_fabric
from gangway.jobs.kubernetes.kubectl import Kubectl
from gangway.jobs.kubernetes.manifests import get_variables
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, container_of, job, pod_of

SEVERAL = {"nodes": {"min": 2, "max": 2}}
WHOLE = {"resources": {"cpu": "90", "memory": "1000Gi", "nvidia.com/gpu": "8"}}
FABRIC = Fabric(
    gpus=8,
    annotations={"networking.gke.io/default-interface": "eth0"},
    env={"NCCL_NET": "gIB"},
    script="/usr/local/gib/env.sh",
    mount=Mount(claim="gangway-fabric", path="/usr/local/gib"),
)


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
