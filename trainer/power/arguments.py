"""The flags of `train` that limit power and clocks. Not here: what they do (trainer.power)."""

import argparse

from trainer.errors import TrainerError
from trainer.power.limits import PowerAsked
from trainer.power.node import CLOCK_FLAG, POWER_FLAG
from trainer.told import warn

__all__ = ["add_power", "power_asked"]

_AUTO = "auto"
_SLOWDOWN_FLAG = "--max-slowdown"


def add_power(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument(POWER_FLAG, metavar="W|auto", help="power limit of each GPU; auto: the one with most images/J")
    parser.add_argument(CLOCK_FLAG, type=int, metavar="MHZ", help="highest graphics clock of each GPU")
    parser.add_argument(_SLOWDOWN_FLAG, metavar="SHARE", help=f"images/s that {POWER_FLAG} auto may lose, 0..1 [0.05]")


def power_asked(arguments: argparse.Namespace) -> PowerAsked:
    """What the flags ask for; warns of one that is ignored (TrainerError: a bad value)."""
    auto, slowdown = arguments.power_limit_watts == _AUTO, arguments.max_slowdown
    watts = None if auto or arguments.power_limit_watts is None else _number(arguments.power_limit_watts)
    if slowdown is not None and not auto:
        note = f"gangway: warning: {_SLOWDOWN_FLAG} is ignored without {POWER_FLAG} {_AUTO}"
        warn(note)
    asked = PowerAsked(watts=watts, auto=auto, clock_mhz=arguments.clock_limit_mhz)
    return asked._replace(max_slowdown=_share(slowdown)) if auto and slowdown is not None else asked


def _number(text: str) -> float:
    try:
        watts = float(text)
    except ValueError:
        watts = 0.0
    if not 0 < watts < 100_000:
        raise TrainerError(
            place=POWER_FLAG,
            problem="no power",
            value=text,
            allowed=f"watts above 0, or {_AUTO}",
            fix=f"{POWER_FLAG} 450",
        )
    return watts


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise TrainerError(
            place=_SLOWDOWN_FLAG,
            problem="no share",
            value=text,
            allowed="0 up to but not 1",
            fix=f"{_SLOWDOWN_FLAG} 0.05",
        )
    return share
