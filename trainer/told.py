"""Sentences for whoever started the trainer. That nobody reads them any more ends no run."""

import contextlib
import sys

__all__ = ["announce", "tell", "warn"]


def tell(text: str) -> None:
    """A line on stdout at once; lost where its reader has gone, as `| head` does, or its disk is full."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def warn(text: str) -> None:
    """The same on stderr."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def announce(sentence: str) -> None:
    """The same of what goes on around the training, under our name: under torchrun others write there too."""
    warn(f"gangway: {sentence}")
