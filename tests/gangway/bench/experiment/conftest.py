"""A small experiment, as its suite file says it."""

from typing import Any

import pytest


@pytest.fixture
def values() -> dict[str, Any]:
    """Two arms, one scenario of two seeds."""
    return {
        "name": "small",
        "title": "A small experiment",
        "paper": "P3",
        "arms": [{"name": "control"}, {"name": "treatment", "args": ["--mirror", "true"]}],
        "data": [{"name": "digits", "prepare": ["digits"]}],
        "scenarios": [
            {
                "name": "plain",
                "what": "nothing is wrong",
                "preset": "dcgan-digits",
                "data": "digits",
                "kimg": 1,
                "seeds": [0, 1],
                "neighbour": {"cores": 1},
                "stop": {"metric": "FD-ENL0", "at_most": 10},
                "small": {"kimg": 0.5, "seeds": [0]},
            }
        ],
    }
