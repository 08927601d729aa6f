"""Values in words: short, and none of what a schedule or a list of segments says is left out."""

import pytest

from gangway.trainer.config.values.schedules import Ramp, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.config.values.summaries import in_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "none"),
        ((), "none"),
        (True, "True"),
        ("bf16", "bf16"),
        (512, "512"),
        (10_000_000.0, "10000000"),
        (22.2, "22.2"),
        (Ramp(start=2e-4, to=5e-5, over_kimg=20_000, shape="cosine"), "0.0002 to 5e-05, cosine, 20000 kimg"),
        (Ramp(start=1, to=0.1, over_kimg=2.5, after_kimg=2.5), "1 to 0.1, linear, 2.5 kimg after 2.5"),
        (Steps(steps=((0, 1e-3), (5400, 3e-3))), "0.001, 0.003 from 5400 kimg"),
        (
            (Segment(from_image=0, batch_size=64), Segment(from_image=500_500, batch_size=32)),
            "batch_size 64, 32 from 500.5 kimg",
        ),
        (
            (Segment(from_image=1000, batch_size=64), Segment(from_image=2000, precision="bf16", lr_factor=2)),
            "batch_size 64 from 1 kimg, precision bf16 and lr_factor 2 from 2 kimg",
        ),
    ],
)
def test_a_value_in_words(value: object, words: str) -> None:
    assert in_words(value) == words
