"""What a machine could do at most: measured here, not assumed."""

import math

import pytest

from tools.bench.speed import convolution_gflops


@pytest.mark.slow
def test_convolutions_have_a_speed() -> None:
    found = convolution_gflops(1)
    assert math.isfinite(found)
    assert found > 0.1, "GFLOP/s: even an interpreter reaches that"
