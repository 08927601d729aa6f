"""Names of jobs stand in their largest block, and in none that is too small for them."""

from gangway.sim.plot import names_at
from gangway.sim.schedule.simulator import Span

HOUR = 3600.0


def test_a_name_stands_in_the_middle_of_its_jobs_largest_block() -> None:
    spans = [
        Span("faces", (0, 1, 2, 3), 0.0, 2 * HOUR),
        Span("faces", (4, 5, 6, 7), 4 * HOUR, 8 * HOUR),
        Span("tiny", (8,), 0.0, 8 * HOUR),
        Span("a-name-that-is-long", (9, 10, 11, 12), 0.0, 1 * HOUR),
    ]
    assert names_at(spans, until=8.0, num_gpus=16) == {"faces": (6.0, 6.0)}
