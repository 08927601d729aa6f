"""Each metric's values from given features: their names, their direction, and the numbers of the scores behind them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.collect import AbandonedError, FeatureSet, FeatureStats, go_on
from gangway.trainer.metrics.inception import InceptionFeatures
from gangway.trainer.metrics.metric_registry import METRICS_BY_NAME, Counts, Team
from gangway.trainer.metrics.scores import inception_score

ROWS = np.random.default_rng(0).normal(0, 3, (40, 10)).astype(np.float32)


class Named:
    """A FeatureExtractor that is asked for its name alone."""

    name, network, dim, weights_sha256, resizer = "FD-ENL0", "", 10, "", ""

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        raise AssertionError("the features are there")


def _set(rows: NDArray[np.float32]) -> FeatureSet:
    stats = FeatureStats(rows.shape[1])
    stats.add(rows.astype(np.float64))
    return FeatureSet(stats, rows)


def test_the_inception_score_is_of_logits(alone: World) -> None:
    inception = object.__new__(InceptionFeatures)
    inception._to_logits = 2 * np.eye(10)
    (value,) = METRICS_BY_NAME["is"].score(inception, _set(ROWS), _set(ROWS), {}, Team(alone, go_on))
    expected = inception_score(2 * ROWS.astype(np.float64))
    assert (value.name, value.value, value.better, value.spread) == ("IS", expected.mean, "higher", expected.std)
    assert METRICS_BY_NAME["is"].parameters(Counts(40, 40)) == {"splits": 10, "seed_of_splits": 2020}


def test_the_video_score_takes_its_draws_as_they_come(alone: World) -> None:
    given = METRICS_BY_NAME["video-is"].parameters(Counts(4, 20))
    (value,) = METRICS_BY_NAME["video-is"].score(Named(), _set(ROWS), _set(ROWS), given, Team(alone, go_on))
    assert value.value == pytest.approx(inception_score(ROWS.astype(np.float64), splits=10, shuffle=False).mean)
    assert (value.name, value.better) == ("video IS", "higher")


def test_digits_have_two_values_and_the_gate_is_in_the_protocol(alone: World) -> None:
    sure = np.eye(10, dtype=np.float32).repeat(4, axis=0) * 30
    share, classes = METRICS_BY_NAME["digits-classes"].score(Named(), _set(ROWS), _set(sure), {}, Team(alone, go_on))
    assert (share.name, share.value) == ("digits recognised", 1.0)
    assert (classes.name, classes.value) == ("digit classes", 10)
    assert METRICS_BY_NAME["digits-classes"].parameters(Counts(40, 40))["wanted_share"] == 0.8


@pytest.mark.parametrize("name", ["fd-enl0", "precision-recall-enl0", "kid", "digits-classes"])
def test_who_has_to_stop_computes_no_score(name: str, alone: World) -> None:
    one = METRICS_BY_NAME[name]
    with pytest.raises(AbandonedError):
        one.score(Named(), _set(ROWS), _set(ROWS), one.parameters(Counts(40, 40)), Team(alone, lambda: True))


def test_a_set_against_itself(alone: World) -> None:
    (distance,) = METRICS_BY_NAME["fd-enl0"].score(Named(), _set(ROWS), _set(ROWS), {}, Team(alone, go_on))
    assert distance.value == pytest.approx(0, abs=1e-6)
    assert (distance.name, distance.better) == ("FD-ENL0", "lower")
    values = METRICS_BY_NAME["precision-recall-enl0"].score(Named(), _set(ROWS), _set(ROWS), {}, Team(alone, go_on))
    assert [value.name for value in values] == ["Precision-ENL0", "Recall-ENL0", "Density-ENL0", "Coverage-ENL0"]
    assert [value.value for value in values[:2]] == [1.0, 1.0]


def test_kernel_subsets_are_torch_fidelitys_or_all_there_is() -> None:
    assert METRICS_BY_NAME["kid"].parameters(Counts(5000, 5000)) == {
        "subsets": 100,
        "subset_size": 1000,
        "seed_of_subsets": 2020,
    }
    assert METRICS_BY_NAME["kid"].parameters(Counts(40, 40))["subset_size"] == 40
