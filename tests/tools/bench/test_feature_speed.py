"""The measurement of features per second: both sides compute the same, and the ratio is of what it says."""

import pytest

from tools.bench.feature_speed import feature_speed


@pytest.mark.slow
def test_both_sides_compute_the_same_features() -> None:
    speed = feature_speed(num_images=3, rounds=1, resolution=16)
    assert speed.largest_difference < 1e-4
    assert speed.ratio == pytest.approx(speed.ours / speed.torch_fidelity)
    assert min(speed) > 0
