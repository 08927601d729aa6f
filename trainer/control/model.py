"""Temporary."""

from trainer.control.policy import Fixed


class Model(Fixed):
    """Temporary."""
