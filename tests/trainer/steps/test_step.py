"""A step stands alone: the loop's states come of it without a run directory, a group or a reporter."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps.state import TrainState
from tests.trainer.local_training import local_train

Families = dict[str, tuple[TrainConfig, Path]]
CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dcgan-ada", "resnet", "progressive"])
def test_steps_alone_come_to_the_loops_state(name: str, families: Families, tmp_path: Path) -> None:
    config, data = families[name]
    assert train(config, tmp_path, data, RunContext(run_id="r"), Interruption()) == 0
    shards = ShardedImages.open(data)
    everything = np.arange(len(shards))
    images, labels = shards.take(everything), shards.labels(everything) if config.num_classes else None
    state = TrainState.create(config, CPU)
    while state.images < config.total_images:  # a round after the other: nothing is kept between two but the state
        local_train(state, images, labels)
    assert state_digests(state.state_dict()) == RunRecord.read(tmp_path / "run.json").state_sha256


def test_a_round_shows_its_images_and_moves_every_part(tiny_config: TrainConfig) -> None:
    state = TrainState.create(tiny_config, CPU)
    before = state_digests(state.state_dict())
    images = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (40, 1, 32, 32), dtype=np.uint8)
    done = local_train(state, images, steps=3)
    after = state_digests(state.state_dict())
    assert (done.images, state.images, state.step) == (48, 48, 3)
    assert {name for name in after if after[name] != before[name]} == set(after) - {"augment_p"}
    assert done.losses["r1"] is not None, "the first step carries the penalty"
