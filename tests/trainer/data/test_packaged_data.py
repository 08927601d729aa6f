"""The digits: all of them, enlarged, white on black; and the check that shards are what was configured."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.dataset import open_matching, prepare_if_missing
from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.data.shards import write_shards


def test_the_enlarged_digits_shrink_back_to_the_originals() -> None:
    images = load_digits_images()
    assert images.shape == (1797, 1, 32, 32)
    assert images.dtype == np.uint8
    shrunk = images.reshape(1797, 8, 4, 8, 4).mean(axis=(2, 4)) / 255 * 16
    assert np.corrcoef(shrunk.ravel(), load_digits().images.ravel())[0, 1] > 0.98
    assert images[:, :, :, :2].mean() < 25  # the margin is dark


def test_prepared_shards_open_as_configured(tiny_config: TrainConfig, tmp_path: Path) -> None:
    prepare_if_missing(tiny_config, tmp_path)
    before = (tmp_path / "index.json").stat().st_mtime_ns
    prepare_if_missing(tiny_config, tmp_path)
    assert (tmp_path / "index.json").stat().st_mtime_ns == before
    assert len(open_matching(tiny_config, tmp_path)) == 1797


def test_another_data_set_is_refused(tiny_config: TrainConfig, tmp_path: Path) -> None:
    write_shards(tmp_path, "faces", np.zeros((4, 1, 32, 32), dtype=np.uint8))
    with pytest.raises(TrainerError, match="another data set") as caught:
        open_matching(tiny_config, tmp_path)
    assert caught.value.value == "faces (1, 32, 32)"
    assert caught.value.allowed == "digits (1, 32, 32)"
