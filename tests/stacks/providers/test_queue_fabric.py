"""Every cluster with a queue tells jobs on several whole nodes which network NCCL has to take, and presets what they
have to reach; or its plan warns that they go by TCP.
"""

import base64
import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.job import FABRIC_MIN_GBPS
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY, GPU
from gangway.jobs.kubernetes.fabric import Fabric
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.recording import PlannedResource, Recording
from tests.conftest import REPO
from tests.gangway.jobs.test_contract import job

PLACE = "/etc/gangway/job-fabric"
_VARIABLE = re.compile(rf"^ *(NCCL_[A-Z_]+|{FABRIC_MIN_GBPS})=(.*)$", re.MULTILINE)


def standing() -> Iterator[Path]:
    for path in sorted((REPO / "stacks").glob("Pulumi.*.yaml")):
        engine = yaml.safe_load(path.read_text())["config"].get("gangway:engine", {})
        if engine.get("kind") in ("slurm", "kubernetes"):
            yield path


def of_queues(recording: Recording) -> Iterator[dict[str, str]]:
    """The settings of jobs on several nodes, by team or kind of machine."""
    for one in recording.resources:
        if one.inputs.get("metadata", {}).get("name") == FABRIC and FABRIC_KEY in one.inputs.get("data", {}):
            fabric = Fabric.model_validate_json(one.inputs["data"][FABRIC_KEY])
            own = {GPU: str(fabric.gpus), **dict.fromkeys(fabric.needs, "1")}
            whole = {"cpu": "8", "memory": "64Gi", **own}
            assert fabric.is_for(job("true", nodes={"min": 2, "max": 2}, resources=whole))
            assert not fabric.is_for(job("true", nodes={"min": 1, "max": 1}, resources=whole))
            for name in own:
                assert not fabric.is_for(job("true", nodes={"min": 2, "max": 2}, resources={**whole, name: "0"}))
            yield fabric.env
        if (text := machine_file(one)) and PLACE in text:
            yield dict(_VARIABLE.findall(text.partition(PLACE)[2]))


def machine_file(one: PlannedResource) -> str:
    """That a machine reads at its first boot; empty for what is none."""
    if one.type.endswith(":LaunchTemplate"):
        data = base64.b64decode(one.inputs.get("userData", ""))
        return gzip.decompress(data).decode() if data.startswith(b"\x1f\x8b") else data.decode()
    source: Any = one.inputs.get("source")
    return source.text if one.type.endswith("CopyToRemote") else ""


@pytest.mark.slow
@pytest.mark.parametrize("path", list(standing()), ids=lambda path: path.stem)
def test_every_queue_names_the_network_or_warns(path: Path, recorded: Callable[[StackConfig], Recording]) -> None:
    config = from_file(path)
    told = list(of_queues(recorded(config)))
    for variables in told:
        assert variables["NCCL_NET"]
        assert float(variables[FABRIC_MIN_GBPS]) > 0
    codes = {finding.code for finding in make_plan(config).findings}
    is_tpu = (config.cluster.accelerator or "").startswith("v")
    assert told or is_tpu or "fabric.tcp-in-pods" in codes
