"""observe.hardware: on every provider workers run exporters, a Prometheus scrapes them, and the network lets it."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError, Severity
from gangway.images.specs import EXPORTER_PORTS
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

Load = Callable[[Path], ModuleType]
UNITS = {f"/etc/systemd/system/{job}.service" for job in EXPORTER_PORTS}
EAST = {"gangway:region": "us-east-1"}  # where the image is
SCRAPES = "/etc/gangway/prometheus.yaml"


@pytest.fixture
def with_hardware(repo: Path, tmp_path: Path) -> Callable[..., StackConfig]:
    """A shipped stack with the setting and other sections."""

    def config(stack: str, **sections: Any) -> StackConfig:
        values = yaml.safe_load((repo / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
        for name, section in {"observe": {"hardware": True}, **sections}.items():
            values[f"gangway:{name}"] = {**values.get(f"gangway:{name}", {}), **section}
        path = tmp_path / "Pulumi.mine.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return config


@pytest.mark.parametrize(
    "stack",
    [
        "aws-p5-spot",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("azure-ndv5-spot", "gcp-a3-spot", "openstack-gpu", "hosts-lab")
        ),
    ],
)
def test_workers_export_and_the_head_scrapes(
    stack: str, with_hardware: Callable[..., StackConfig], load_module: Load
) -> None:
    machines = load_module(Path(__file__).with_name("test_metadata_closed.py")).machines
    found = [files for files, _ in machines(with_hardware(stack))]
    assert any(files.keys() >= UNITS for files in found)
    heads = [files for files in found if SCRAPES in files]
    assert len(heads) == 1
    jobs = yaml.safe_load(heads[0][SCRAPES])["scrape_configs"]
    assert {job["job_name"] for job in jobs} == {"gangway-trainer", *EXPORTER_PORTS}
    assert "GpuIdle" in heads[0]["/etc/gangway/alerts.yaml"]
    assert "/etc/gangway/alerts.yaml" in heads[0]["/etc/systemd/system/gangway-prometheus.service"]


def test_a_slurm_head_scrapes_its_nodes(with_hardware: Callable[..., StackConfig], load_module: Load) -> None:
    machines = load_module(Path(__file__).with_name("test_metadata_closed.py")).machines
    node, head = sorted((files for files, _ in machines(with_hardware("aws-p5-slurm"))), key=lambda one: SCRAPES in one)
    assert node.keys() >= UNITS
    assert [job["job_name"] for job in yaml.safe_load(head[SCRAPES])["scrape_configs"]] == list(EXPORTER_PORTS)
    assert "by (instance)" in head["/etc/gangway/alerts.yaml"]
    assert "METADATA_USERS='slurm nobody'" in head["/etc/gangway/node.env"]
    assert "install-docker.sh" in head["/etc/systemd/system/gangway-prepare.service"]


@pytest.mark.parametrize(
    ("stack", "rule"),
    [
        ("aws-p5-spot", {"fromPort": 9400, "toPort": 9402}),
        ("aws-p5-slurm", {"fromPort": 9401, "toPort": 9402}),
        pytest.param("gcp-a3-spot", {"ports": ["9400", "9401", "9402"]}, marks=pytest.mark.slow),
        pytest.param("azure-ndv5-spot", {"destinationPortRanges": ["9400", "9401", "9402"]}, marks=pytest.mark.slow),
        pytest.param("openstack-gpu", {"portRangeMin": 9400, "portRangeMax": 9402}, marks=pytest.mark.slow),
    ],
)
def test_the_network_lets_the_head_reach_them(
    stack: str, rule: dict[str, Any], with_hardware: Callable[..., StackConfig]
) -> None:
    text = json.dumps([one.inputs for one in make_plan(with_hardware(stack)).resources], default=str)
    assert all(json.dumps({key: value})[1:-1] in text for key, value in rule.items())


@pytest.mark.parametrize("stack", ["eks-p5-kueue", pytest.param("aks-ndv5", marks=pytest.mark.slow)])
def test_a_cluster_gets_prometheus_with_the_alerts(stack: str, with_hardware: Callable[..., StackConfig]) -> None:
    plan = make_plan(with_hardware(stack))
    (inputs,) = (one.inputs for one in plan.resources if one.inputs.get("name") == "prometheus")
    assert "GpuIdle" in json.dumps(inputs["values"]["serverFiles"], default=str)
    assert [one.severity for one in plan.findings if one.code == "observe.hardware"] == [Severity.INFO]


@pytest.mark.parametrize(
    ("stack", "sections", "code"),
    [
        ("aws-demo", {}, "observe.hardware"),
        ("aws-p5-slurm", {}, "observe.hardware"),
        ("aws-demo", {"head": {"prometheus_image": None}}, "observe.hardware-ignored"),
        ("gcp-v5e-pod", {}, "observe.hardware-ignored"),
    ],
)
def test_the_plan_says_whether_it_has_an_effect(
    stack: str, sections: dict[str, Any], code: str, with_hardware: Callable[..., StackConfig]
) -> None:
    plan = make_plan(with_hardware(stack, **sections))
    assert [one.code for one in plan.findings if one.code.startswith("observe.hardware")] == [code]


@pytest.mark.parametrize(("stack", "why"), [("hosts-slurm", "no Prometheus"), ("gke-a3-jobset", "managed Prometheus")])
def test_it_is_refused_where_nothing_would_read_it(
    stack: str, why: str, with_hardware: Callable[..., StackConfig]
) -> None:
    with pytest.raises((InputError, ExceptionGroup)) as caught:
        make_plan(with_hardware(stack))
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert why in str(error)
    assert "gangway:observe.hardware" in str(error)


def test_a_command_on_several_nodes_has_a_head_that_scrapes(
    command_stack: Callable[..., StackConfig], load_module: Load
) -> None:
    machines = load_module(Path(__file__).with_name("test_metadata_closed.py")).machines
    job = {"command": ["python", "train.py"], "processes_per_node": 8}
    config = command_stack(
        "aws", "aws-p5-spot", job, [("observe", {"hardware": True}), ("storage", None)], lambda v: v.update(EAST)
    )
    assert any(SCRAPES in files for files, _ in machines(config))
