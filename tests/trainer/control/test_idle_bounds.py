"""Bounds of which a session has no use are named with the reason; those that it can use are not spoken of."""

import pytest

from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.guardrails import Machine, ladders
from gangway.trainer.control.idle_bounds import idle_bounds
from gangway.trainer.control.interval import Knobs

START = Knobs(batch_size=96, batch_gpu=0, loader_threads=2, prefetch=2, threads=2)
CPU = Machine(cores=4, workers=2, local_workers=2, group=4)
GPU = CPU._replace(on_cpu=False, limit_watts=700.0, power_floor=0.3)


@pytest.mark.parametrize(
    ("bounds", "machine", "said"),
    [
        ({"nodes": [1, 4]}, CPU, "job.autoscale"),
        ({"usd_per_hour": 9.5}, CPU, "job.autoscale"),
        ({"threads": [1, 2]}, GPU, "run on the device"),
        ({"watts": [300, 700]}, CPU, "nobody limits"),
        ({"watts": [100, 200]}, GPU, "210 to 700 W"),
        ({"watts": [631, 699]}, GPU, "in tenths of 700"),
        ({"watts": [400, 900]}, GPU, "210 to 700 W"),
        ({"compile": True}, CPU._replace(fixed=("compile",)), "cannot be changed"),
        ({"batch_size": [90, 100]}, CPU, "no value from 90 to 100 but 96"),
        ({"batch_gpu": [5, 7]}, CPU, "whole groups of 4"),
        ({"batch_gpu": [12, 24]}, CPU, "begins with 48"),
        ({"batch_gpu": [12, 96]}, CPU, "share of the batch, 48"),
        ({"loader_threads": [3, 4]}, CPU, "begins with 2"),
        ({"batch_size": [96, 96]}, CPU, "no value from 96 to 96 but 96"),
        ({"batch_gpu": [48, 48]}, CPU, "no value from 48 to 48 but 48"),
        ({"precision": ["fp32"]}, CPU, "no format in it but fp32"),
        ({"precision": ["fp32", "fp16", "bf16"]}, CPU._replace(refused=(("fp16", "slow"), ("bf16", "old"))), "bf16"),
        ({"precision": ["fp32", "fp16"]}, CPU._replace(refused=(("fp16", "slow here"),)), "slow here"),
    ],
)
def test_what_is_of_no_use_is_named_with_the_reason(bounds: dict[str, object], machine: Machine, said: str) -> None:
    ((name, why),) = idle_bounds(Bounds.model_validate(bounds), START, machine)
    assert name in bounds
    assert said in why


@pytest.mark.parametrize(
    ("bounds", "machine"),
    [
        ({}, CPU),
        ({"threads": [1, 4], "loader_threads": [1, 4], "prefetch": [1, 8], "compile": True}, CPU),
        ({"batch_size": [24, 192], "batch_gpu": [12, 96], "precision": ["fp32", "bf16"]}, CPU),
        ({"loader_threads": [2, 2], "threads": [2, 2], "prefetch": [2, 2]}, CPU),  # which they would not stay at
        ({"watts": [350, 700]}, GPU),
    ],
)
def test_what_can_be_used_is_not_spoken_of(bounds: dict[str, object], machine: Machine) -> None:
    assert dict(idle_bounds(Bounds.model_validate(bounds), START, machine)) == {}


def test_formats_that_devices_refuse_and_images_beyond_a_share_are_never_tried() -> None:
    bounds = Bounds(precision=("fp32", "bf16", "fp16"), batch_gpu=(12, 400))
    found = ladders(bounds, START, CPU._replace(refused=(("bf16", "too old"),)))
    assert list(found["precision"]) == ["fp32", "fp16"]
    assert list(found["batch_gpu"]) == [12, 24, 48]
