"""What the head is told, so that it keeps the order of the ladder: what it decides is in
gangway.components.core.capacity."""

import json
from typing import Any

from gangway.components.core.capacity import PERIOD_SEC, WINDOW, plan_ladder, rung_from_args
from gangway.components.gcp.fallback import FallbackConfig, plan_fallback


def test_the_head_is_told_everything_as_json() -> None:
    rungs: list[dict[str, Any]] = [
        {"kind": "spot"},
        {"kind": "flex-start", "max_hours": 1.5},
        {"kind": "on-demand", "zones": ["us-east4-c"]},
    ]
    ladder = plan_ladder(tuple(rung_from_args(rung) for rung in rungs))
    config = plan_fallback("lab", "us-east4-b", 2, ladder, ["g0", "g1", "g2"])
    assert isinstance(config, FallbackConfig)
    assert json.loads(json.dumps(config.to_json())) == {
        "version": 1, "project": "lab", "num_nodes_min": 2, "period_sec": PERIOD_SEC, "window": WINDOW,
        "groups": [
            {"name": "g0", "zone": "us-east4-b", "kind": "spot", "fill": "resize", "run_duration_sec": None},
            {"name": "g1", "zone": "us-east4-b", "kind": "flex-start", "fill": "resize-request",
             "run_duration_sec": 5400},
            {"name": "g2", "zone": "us-east4-c", "kind": "on-demand", "fill": "resize", "run_duration_sec": None},
        ],
    }  # fmt: skip
