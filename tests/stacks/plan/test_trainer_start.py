"""A green plan starts: whatever the trainer's own start-up refuses on the nodes of a plan, the plan has an error about.

The trainer's checks run for every number of nodes that the plan allows, with the very arguments that the nodes get; of
the machine only what the catalogue says of it is pretended.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import gangway.trainer.distributed
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import InputError, Severity
from gangway.stacks.plan.plan import Plan
from gangway.stacks.program import get_program
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.shards import SHIPPED
from gangway.trainer.distributed.world import World
from gangway.trainer.run.session_setup import check_start

Outcome = Callable[[Path], Plan | list[InputError]]
Values = dict[str, Any]

CAPABILITY = {
    "K80": (3, 7), "M60": (5, 2), "P100": (6, 0), "P4": (6, 1), "P40": (6, 1), "V100": (7, 0), "T4": (7, 5),
    "T4G": (7, 5), "A100": (8, 0), "A10": (8, 6), "A10G": (8, 6), "L4": (8, 9), "L40S": (8, 9), "H100": (9, 0),
    "H200": (9, 0), "GH200": (9, 0), "B200": (10, 0), "GB200": (10, 0), "B300": (10, 3), "GB300": (10, 3),
    "RTXPRO4500": (12, 0), "RTXPRO6000": (12, 0),
}  # fmt: skip
"""Of NVIDIA's GPUs, https://developer.nvidia.com/cuda-gpus and its page of legacy GPUs."""
STACKS = (
    *("aws-demo", "aws-g5-dev", "azure-nc-dev", "azure-ndv5-spot", "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"),
    *("hosts-lab", "openstack-gpu"),
)
OLD = {"aws-g5-dev": ("g4dn.xlarge", "g4dn.metal", "p3.2xlarge", "p3.16xlarge", "g5.xlarge")}
"""Machines of another age, for a stack that does without a fabric."""


def get_model(machine: MachineType) -> str:
    return machine.accelerator.rpartition("x")[0].partition("-")[0]


def test_every_gpu_of_the_catalogue_has_its_age() -> None:
    """Else the plan would take a new name for a new GPU, and this test for none."""
    machines = [machine for name in ("aws", "azure", "gcp") for machine in load_provider(name).machines.values()]
    nvidia = {get_model(machine) for machine in machines if machine.backend == "nccl"} - {"MI300X"}
    assert nvidia <= CAPABILITY.keys()


@contextmanager
def pretended(machine: MachineType) -> Iterator[None]:
    """The machine's memory, and its GPU's age and memory, where torch and the kernel would say them."""
    memory_gib = machine.accelerator_memory_gib.value
    capability = CAPABILITY[get_model(machine)] if machine.backend == "nccl" else (0, 0)
    properties = SimpleNamespace(total_memory=float("inf") if memory_gib is None else memory_gib * (1 << 30))
    tpu = SimpleNamespace(memory_bytes=lambda _: properties.total_memory)
    with (
        mock.patch("gangway.trainer.run.session_setup.free_host_memory_gib", return_value=machine.memory_gib.value),
        mock.patch.object(torch.cuda, "get_device_properties", return_value=properties),
        mock.patch.object(torch.cuda, "get_device_name", return_value=machine.accelerator),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=capability),
        mock.patch.dict("sys.modules", {"gangway.trainer.distributed.xla": tpu}),
        mock.patch.object(gangway.trainer.distributed, "xla", tpu, create=True),
    ):
        yield


def refused(document: dict[str, Any], machine: MachineType, num_nodes: int) -> str:
    """What the trainer's start-up refuses on so many nodes (of a TPU: slices); nothing where it begins."""
    try:
        return _refused(TrainConfig.from_json(json.dumps(document)), machine, num_nodes)
    except TrainerError as error:
        return f"{error.place}: {error.problem}"


def _refused(config: TrainConfig, machine: MachineType, num_nodes: int) -> str:
    on_xla = machine.backend == "xla"
    if on_xla != (config.backend == "xla"):
        return "" if config.backend == "gloo" else f"backend {config.backend}, which needs the other environment"
    device = torch.device("xla" if on_xla else "cpu" if config.backend == "gloo" else "cuda")
    workers = machine.num_accelerators.value
    world = World(0, 0, workers * num_nodes, 0, num_nodes, device, "none", "a test's")
    with pretended(machine):
        check_start(config, world)
    if config.dataset in SHIPPED:
        recipe = SHIPPED[config.dataset](config)
        if recipe.shape != config.image_shape or config.num_classes not in (0, len(recipe.classes)):
            return f"shards of {recipe.shape}, {len(recipe.classes)} classes"
    return ""


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "batch_size": st.sampled_from([1, 7, 8, 32, 60, 64, 256, 512, 1024, 1 << 18]),
        "batch_gpu": st.sampled_from([0, 1, 4, 8, 1 << 14]),
        "precision": st.sampled_from(["fp32", "bf16", "bf16", "fp16"]),
        "dataset": st.sampled_from(["digits", "photos", "clips", "cifar10", "folder"]),
        "resolution": st.sampled_from([16, 32, 64, 256]),
        "channels": st.sampled_from([1, 3]),
        "num_classes": st.sampled_from([0, 3, 7, 10, 1 << 16]),
        "ngf": st.sampled_from([16, 64, 1024, 1 << 16]),
        "ndf": st.sampled_from([16, 64, 1024, 1 << 16]),
        "z_dim": st.sampled_from([64, 1 << 16]),
        "backend": st.sampled_from(["auto", "auto", "gloo", "nccl", "xla"]),
        "compile": st.sampled_from(["off", "on"]),
        "cuda_graphs": st.booleans(),
        "shard": st.sampled_from(["ddp", "ddp", "fsdp2", "hsdp"]),
        "metrics": st.sampled_from(["none", "fd-enl0", "is", "video-is", "digits-classes"]),
        "metrics_kimg": st.sampled_from([0, 10]),
    },
)
# Few at a time: a file with ten changes is mostly told that two of them do not go together.
FEW = CHANGES.flatmap(
    lambda changes: (
        st.sets(st.sampled_from(sorted(changes)), max_size=3).map(
            lambda names: {name: changes[name] for name in sorted(names)}
        )
        if changes
        else st.just(changes)
    )
)


@st.composite
def stack_files(draw: st.DrawFn, shipped: dict[str, Values]) -> Values:
    """A shipped stack with another preset, other settings and another number of nodes, and money for all of it."""
    name = draw(st.sampled_from(STACKS))
    values = {key: dict(section) if isinstance(section, dict) else section for key, section in shipped[name].items()}
    few, more = draw(st.integers(1, 4)), draw(st.sampled_from([0, 0, 1, 5]))
    values["gangway:cluster"]["nodes"] = {"min": few, "max": few + more}
    if name in OLD:
        values["gangway:cluster"].pop("accelerator", None)
        values["gangway:cluster"]["machine_type"] = draw(st.sampled_from(OLD[name]))
    values["gangway:job"]["preset"] = draw(st.sampled_from(sorted(PRESETS)))
    values["gangway:job"]["settings"] = draw(FEW)
    # Networks that grow need as much as the largest size that they reach.
    values["gangway:job"]["kimg"] = draw(st.sampled_from([1, 1000, 25000]))
    values["gangway:job"]["max_hours"] = 672
    values["gangway:budget"]["monthly_usd"] = 1_000_000_000
    return values


@pytest.fixture(scope="session")
def shipped_values(repo: Path) -> dict[str, Values]:
    files = {name: repo / "stacks" / f"Pulumi.{name}.yaml" for name in STACKS}
    return {name: yaml.safe_load(file.read_text("utf-8"))["config"] for name, file in files.items()}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_what_the_trainer_refuses_is_an_error_of_the_plan(
    data: st.DataObject, shipped_values: dict[str, Values], outcome: Outcome, tmp_path: Path
) -> None:
    path = tmp_path / "Pulumi.drawn.yaml"
    path.write_text(yaml.safe_dump({"config": data.draw(stack_files(shipped_values))}), "utf-8")
    made = outcome(path)
    if not isinstance(made, Plan):
        event("not planned")
        assert made
        return
    machine = get_program(made.config.provider).plan(made.config).machine
    nodes, document = made.config.cluster.nodes, made.job["training"]["config"]
    reasons = {num: reason for num in range(nodes.min, nodes.max + 1) if (reason := refused(document, machine, num))}
    errors = [finding for finding in made.findings if finding.severity is Severity.ERROR]
    event(f"plan {'red' if errors else 'green'}, trainer {'refuses' if reasons else 'starts'}")
    assert errors or not reasons, (document, machine.name, reasons)
    mine = [finding for finding in errors if finding.code.startswith(("trainer.", "batch."))]
    assert mine or not reasons, (errors, reasons)
    assert all(finding.fix for finding in mine)
