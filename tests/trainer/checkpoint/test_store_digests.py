"""Hashes of a state see bits and no layout; what is no number is found wherever it is."""

import pytest
import torch

from gangway.trainer.checkpoint.store import is_finite, state_digests


def test_digests_ignore_layout_and_see_bits() -> None:
    plain = torch.arange(24.0).reshape(1, 2, 3, 4)
    laid_out = plain.contiguous(memory_format=torch.channels_last)
    negative_zero = plain.clone()
    negative_zero[0, 0, 0, 0] = -0.0
    digests = [state_digests({"g": [value]})["g"] for value in (plain, laid_out, negative_zero)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_number_is_found_and_a_large_sum_is_none(bad: float) -> None:
    large = torch.full((4,), 3e38)  # whose sum is infinite
    assert is_finite({"opt": [{"step": large}], "images": 3})
    assert not is_finite({"opt": [{"step": torch.tensor([1.0, bad])}]})
