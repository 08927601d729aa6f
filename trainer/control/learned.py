"""Temporary."""

from trainer.control.policy import Fixed


class Learned(Fixed):
    """Temporary."""

    def __init__(self, lost_sec: float) -> None:
        del lost_sec
