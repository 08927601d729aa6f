"""InfiniBand in pods of AKS: which nodes it is for, who may have it, and that every manifest is one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest

from gangway.components.azure.aks_fabric import autoscaler_tags, fabric_manifests, network_operator
from gangway.components.kubernetes.spec import GPU, INFINIBAND, POOL_LABEL

TAINTS = [{"key": "gangway.dev/jobs-only", "operator": "Exists"}]
JOBS = {POOL_LABEL: "jobs"}


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (each for each in fabric_manifests(8, TAINTS) if each["kind"] == kind)
    return found


def test_nothing_of_it_is_on_the_systems_nodes() -> None:
    worker = network_operator(TAINTS).values["node-feature-discovery"]["worker"]
    assert (worker["nodeSelector"], worker["tolerations"]) == (JOBS, TAINTS)
    policy, pods = manifest("NicClusterPolicy")["spec"], manifest("DaemonSet")["spec"]["template"]["spec"]
    (term,) = policy["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": POOL_LABEL, "operator": "In", "values": ["jobs"]}]
    assert pods["nodeSelector"] == JOBS
    assert policy["tolerations"] == pods["tolerations"] == TAINTS


def test_the_machines_ethernet_is_no_infiniband() -> None:
    (rule,) = manifest("NodeFeatureRule")["spec"]["rules"]
    (feature,) = rule["matchFeatures"]
    assert feature["matchExpressions"]["class"]["value"] == ["0207"]
    assert network_operator(TAINTS).values["nfd"]["deployNodeFeatureRules"] is False


def test_the_plugin_tells_of_the_resource_that_jobs_ask_for() -> None:
    (shared,) = json.loads(manifest("NicClusterPolicy")["spec"]["rdmaSharedDevicePlugin"]["config"])["configList"]
    assert f"{shared['resourcePrefix']}/{shared['resourceName']}" == INFINIBAND
    assert shared["rdmaHcaMax"] == 8


def test_no_driver_is_changed_under_a_job() -> None:
    assert manifest("NicClusterPolicy")["spec"]["ofedDriver"]["upgradePolicy"] == {"autoUpgrade": False}


def test_the_autoscaler_is_told_of_what_no_size_tells() -> None:
    tags = autoscaler_tags({GPU: 8, INFINIBAND: 8})
    ((name, value),) = tags.items()
    assert value == "8"
    # As the autoscaler reads a tag back.
    assert name.removeprefix("k8s.io_cluster-autoscaler_node-template_resources_").replace("_", "/") == INFINIBAND
    assert autoscaler_tags({}) == {}


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
def test_kubernetes_knows_every_field(version: str) -> None:
    known = manifest("DaemonSet")
    kubernetes_validate.validate(known, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**known, "spec": {**known["spec"], "templat": {}}}, version, strict=True)


NSENTER = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
[ "$1" = show ] && echo 4711
echo "systemctl $*" >>"$LOG"
"""
TEE = """#!/bin/sh
cat >"$FOLDER/$(basename "$1")"
"""
SLEEP = """#!/bin/sh
kill "$PPID"
"""


def test_a_node_lets_containers_pin_memory_now_and_after_a_restart(tmp_path: Path) -> None:
    programs = {"nsenter": NSENTER, "systemctl": SYSTEMCTL, "tee": TEE, "sleep": SLEEP}
    programs |= {name: f'#!/bin/sh\necho "{name} $*" >>"$LOG"\n' for name in ("mkdir", "prlimit", "modprobe")}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    (container,) = manifest("DaemonSet")["spec"]["template"]["spec"]["containers"]
    log = tmp_path / "log"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log), "FOLDER": str(tmp_path)}
    subprocess.run(container["command"], env=env, check=False, timeout=60)
    assert (tmp_path / "90-gangway-memlock.conf").read_text() == "[Service]\nLimitMEMLOCK=infinity\n"
    said = log.read_text().splitlines()
    assert said.index("systemctl daemon-reload") < said.index("prlimit --pid 4711 --memlock=unlimited")
    assert said[-1] == "modprobe nvidia-peermem"
