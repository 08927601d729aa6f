"""Ranks are what torchrun says, and those of a lone process without it."""

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.ranks import Ranks

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


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("WORLD_SIZE", "x", "a whole number, at least 1"),
        ("WORLD_SIZE", "0", "a whole number, at least 1"),
        ("LOCAL_WORLD_SIZE", "0", "a whole number, at least 1"),
        ("RANK", "-1", "a whole number, at least 0"),
        ("LOCAL_RANK", "", "a whole number, at least 0"),
        ("GROUP_RANK", "1.5", "a whole number, at least 0"),
    ],
)
def test_what_torchrun_never_sets_is_a_users_mistake(
    name: str,
    value: str,
    allowed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in NAMES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(TrainerError) as caught:
        Ranks.from_environment()
    assert (caught.value.place, caught.value.value, caught.value.allowed) == (f"${name}", value, allowed)
    # Also where the error is another one, which must not become a traceback while it is told.
    assert main(["train", "--preset", "biggan"]) == 2
    assert "--preset: no such preset" in capsys.readouterr().err


@pytest.mark.parametrize(("local_rank", "speaks"), [(None, True), ("0", True), ("3", False), ("x", True)])
def test_one_process_of_a_node_speaks(local_rank: str | None, speaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert Ranks.speaks() == speaks
