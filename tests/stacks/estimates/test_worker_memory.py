"""A plan says what a step takes of an accelerator and warns where that is too much; what cannot be is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import Finding, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.worker_memory import memory_on
from gangway.stacks.plan.plan import make_plan
from gangway.trainer.config.network_size import device_gib
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.step_memory import estimate

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
MACHINE = load_provider("aws").machine("p5.48xlarge")
IMAGENET = PRESETS["r3gan-imagenet64"]


def of_preset(preset: str, **settings: Any) -> Callable[[dict[str, Any]], None]:
    """The demo's two nodes of eight H100 with another job, and a budget that is no matter."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:job"] |= {"preset": preset, "settings": settings}
        values["gangway:storage"]["source"] = "s3://my-bucket/pictures"
        values["gangway:budget"]["monthly_usd"] = 10_000_000

    return edit


def of_memory(found: tuple[Finding, ...]) -> list[tuple[Severity, str]]:
    codes = ("memory.estimate", "trainer.batch-gpu", "trainer.ngf", "trainer.ndf")
    return [(each.severity, each.code) for each in found if each.code in codes]


@pytest.mark.slow
def test_what_fits_is_said_with_its_parts(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64")))
    assert of_memory(plan.findings) == []
    memory = plan.to_json()["expected_run"]["memory"]
    assert memory["total"] == estimate(IMAGENET, 8, 2).total == sum(estimate(IMAGENET, 8, 2))
    assert (memory["has"], memory["images"], memory["provenance"]) == (80, 32, "estimated")
    assert memory["least"] == device_gib(IMAGENET, 32)


@pytest.mark.slow
def test_more_than_there_is_is_a_warning_with_the_numbers_and_a_micro_batch(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=128)))
    assert of_memory(plan.findings) == [(Severity.WARNING, "memory.estimate")]
    (found,) = (each for each in plan.findings if each.code == "memory.estimate")
    assert "130 of 80 GiB" in found.message
    assert "at least " in found.message
    assert found.fix.startswith("set gangway:job.settings.batch_gpu: 64")
    assert of_memory(make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=64))).findings) == []


@pytest.mark.slow
def test_what_cannot_be_is_the_trainers_own_error_alone(edited: Edited) -> None:
    plan = make_plan(edited(of_preset("r3gan-imagenet64", batch_gpu=256)))
    assert of_memory(plan.findings) == [(Severity.ERROR, "trainer.batch-gpu")]


@pytest.mark.parametrize("backend", ["gloo", "xla"])
def test_where_no_gpu_computes_nothing_is_said(backend: str) -> None:
    assert memory_on(IMAGENET.replace({"backend": backend}), MACHINE) is None
    found = memory_on(IMAGENET, MACHINE)
    assert found is not None
    assert found.in_words() == "35 of 80 GiB (3.5 weights, gradients and moments, 31 activations)"


def test_split_networks_leave_more_room() -> None:
    whole, split = (memory_on(IMAGENET.replace({"shard": shard}), MACHINE, 8) for shard in ("ddp", "fsdp2"))
    assert whole is not None
    assert split is not None
    assert split.moments == pytest.approx(whole.moments / 64)
    assert split.total < whole.total
