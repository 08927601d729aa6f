"""Which workers a pipeline of two stages takes, and with which step it goes together."""

import pytest

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.refusals import Machine, refusals
from gangway.trainer.config.replicas import replicas
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError

PIPELINED = PRESETS["r3gan-cifar10"].replace({"batch_size": 24, "batch_gpu": 0, "pipeline_stages": 2})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"architecture": "dcgan", "full_width_up_to": 32, "group_width": 16}, "pipeline_stages"),
        ({"shard": "fsdp2"}, "shard"),
        ({"backend": "xla"}, "backend"),
        ({"precision": "fp16"}, "precision"),
        ({"compile": "on"}, "compile"),
        ({"step_graph": "on"}, "step_graph"),
        ({"freeze": "generator.basis"}, "freeze"),
        ({"segments": [{"from_image": 240, "workers": 2}]}, "segments"),
        ({"segments": [{"from_image": 240, "precision": "fp32"}]}, "segments"),
    ],
)
def test_what_does_not_go_with_a_pipeline_is_refused(changes: dict[str, object], field: str) -> None:
    PRESETS["r3gan-cifar10"].replace({**changes, "pipeline_stages": 1})
    with pytest.raises(TrainerError) as caught:
        PRESETS["r3gan-cifar10"].replace({**changes, "pipeline_stages": 2})
    assert caught.value.place == f"TrainConfig.{field}"
    assert "--pipeline-stages 1" in caught.value.fix


@pytest.mark.parametrize("name", ["progan-celeba128", "cyclegan-photos"])
def test_families_that_cannot_be_divided_are_refused(name: str) -> None:
    with pytest.raises(TrainerError) as caught:
        PRESETS[name].replace({"pipeline_stages": 2})
    assert caught.value.place == "TrainConfig.pipeline_stages"


@pytest.mark.parametrize(
    ("workers", "batch_gpu", "field"),
    [
        (1, 0, ""),
        (1, 8, ""),
        (2, 0, ""),
        (2, 8, ""),
        (3, 0, "pipeline_stages"),
        (4, 0, ""),
        (4, 8, "batch_size"),  # 12 images are no whole micro-batches of 8
        (4, 24, ""),  # larger than the share
        (10, 0, "batch_size"),
        (64, 0, "batch_size"),
    ],
)
def test_workers_come_in_pairs_with_equal_micro_batches(workers: int, batch_gpu: int, field: str) -> None:
    config = PIPELINED.replace({"batch_gpu": batch_gpu})
    if not field:
        config.check_workers(workers)
        return
    with pytest.raises(TrainerError) as caught:
        config.check_workers(workers)
    assert caught.value.place == f"TrainConfig.{field}"


def test_a_batch_is_divided_over_pairs() -> None:
    whole = TrainConfig.replace(PIPELINED, {"pipeline_stages": 1})
    assert [replicas(PIPELINED, workers) for workers in (1, 2, 8)] == [1, 1, 4]
    assert replicas(whole, 8) == 8


def test_a_plan_for_tpus_is_refused() -> None:
    found = {each.field: each.changes for each in refusals(PIPELINED, Machine("xla", "v5litepod-8"))}
    assert found["pipeline_stages"] == {"pipeline_stages": 1}
