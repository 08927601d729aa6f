"""The blocks of the residual networks."""

from typing import Literal

import pytest
import torch
from torch.nn import functional as F

from gangway.trainer.networks.resnet import _Block


@pytest.mark.parametrize("resample", ["up", "down", "same"])
def test_a_block_adds_what_its_convolutions_find_to_the_shortcut(resample: Literal["up", "down", "same"]) -> None:
    block, features = _Block(3, 3, resample), torch.randn(2, 3, 8, 8)
    torch.nn.init.zeros_(block.second.weight)
    torch.nn.init.constant_(block.second.bias, 0.25)  # type: ignore[arg-type]  # it has one
    larger = F.interpolate(features, scale_factor=2) if resample == "up" else features
    expected = block.shortcut(larger) + 0.25
    if resample == "down":
        expected = F.avg_pool2d(expected, 2)
    torch.testing.assert_close(block(features), expected)
