"""Ranks are what torchrun says, and those of a lone process without it."""

import pytest

from trainer.ranks import Ranks

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), Ranks(0, 0, 1, 0, 1)),
        ((5, 1, 8, 1, 4), Ranks(5, 1, 8, 1, 2)),
        ((1, 1, 2), Ranks(1, 1, 2, 0, 1)),
    ],
)
def test_ranks(values: tuple[int, ...], expected: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(NAMES, values, strict=False):
        monkeypatch.setenv(name, str(value))
    assert Ranks.from_environment() == expected
    assert Ranks.under_torchrun() == (len(values) > 0)
