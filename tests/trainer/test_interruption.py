"""Signals become one flag; further ones change nothing."""

import os
import signal
from collections.abc import Iterator

import pytest

from trainer.interruption import Interruption


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_is_the_cause() -> None:
    interruption = Interruption().install()
    assert not interruption.requested
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    assert interruption.requested
    assert interruption.cause == "SIGTERM"
