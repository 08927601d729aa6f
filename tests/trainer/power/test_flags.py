"""The flags of `train` that limit power and clocks."""

import argparse

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.power.limits import PowerAsked, add_power, power_asked


def _asked(*argv: str) -> PowerAsked:
    parser = argparse.ArgumentParser()
    add_power(parser)
    return power_asked(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), PowerAsked()),
        (("--power-limit-watts", "450"), PowerAsked(watts=450.0)),
        (("--power-limit-watts", "auto"), PowerAsked(auto=True)),
        (("--power-limit-watts=auto", "--max-slowdown=0"), PowerAsked(auto=True, max_slowdown=0.0)),
        (("--clock-limit-mhz", "1500"), PowerAsked(clock_mhz=1500)),
    ],
)
def test_what_is_asked_for(argv: tuple[str, ...], expected: PowerAsked) -> None:
    assert _asked(*argv) == expected
    assert expected.anything == bool(argv)


@pytest.mark.parametrize(
    ("argv", "place", "allowed"),
    [
        (("--power-limit-watts", "many"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "-1"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "nan"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "auto", "--max-slowdown", "1"), "--max-slowdown", "0 up to but not 1"),
        (("--power-limit-watts", "auto", "--max-slowdown", "x"), "--max-slowdown", "0 up to but not 1"),
    ],
)
def test_a_mistake(argv: tuple[str, ...], place: str, allowed: str) -> None:
    with pytest.raises(TrainerError) as caught:
        _asked(*argv)
    assert (caught.value.place, caught.value.allowed) == (place, allowed)


def test_a_bound_without_a_search_is_ignored_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert _asked("--max-slowdown", "0.1", "--power-limit-watts", "450") == PowerAsked(watts=450.0)
    assert "--max-slowdown is ignored without --power-limit-watts auto" in capsys.readouterr().err


def test_the_command_refuses_before_it_touches_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "dcgan-digits", "--power-limit-watts", "0"]) == 2
    assert "--power-limit-watts: no power" in capsys.readouterr().err
