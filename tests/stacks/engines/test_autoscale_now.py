"""What `gangway job` says of the number of nodes: by the images that are done and the time that is left."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from stacks.config.stack_config import StackConfig
from stacks.engines.autoscale_now import autoscale_line

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def edit(values: dict[str, Any]) -> None:
    """One to eight nodes, with networks that more of them train faster."""
    values["gangway:job"] = {
        "preset": "r3gan-imagenet64",
        "kimg": 20_000,
        "max_hours": 300,
        "settings": {"batch_size": 4096},
        "autoscale": {"deadline": "2035-02-01T00:00:00Z"},
    }
    values["gangway:cluster"]["nodes"] = {"min": 1, "max": 8}


def test_a_running_job_is_told_by_what_it_has_done(edited: Edited) -> None:
    config, late = edited(edit), datetime(2035, 2, 1, tzinfo=UTC) - timedelta(hours=5)
    assert "would have 8 nodes" in autoscale_line(config, 0, late)
    assert "would have 1 node" in autoscale_line(config, 19_900_000, late)
    assert "the deadline was 2035-02-01" in autoscale_line(config, 0, late + timedelta(hours=6))
