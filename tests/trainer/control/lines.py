"""Lines of stats.jsonl, as a run of one worker writes them: what tests of controllers read."""

from typing import Any

from gangway.trainer.control.interval import Knobs

KNOBS = Knobs(batch_size=32, loader_threads=1)


def line(wall_sec: float, images: int, **more: Any) -> dict[str, Any]:
    """Of statistics."""
    return {
        "time": 1.8e9 + wall_sec,
        "images": images,
        "session": 0,
        "wall_sec": wall_sec,
        "metrics_sec": 0.0,
        "telemetry_sec": 0.0,
        "loader_stall_sec": 0.0,
        "checkpoint_stall_sec": 0.0,
        "world_size": 1,
        "cpu_utilisation": 0.5,
        "cpu_wait_share": 0.0,
        "gpu_utilisation": None,
        "energy_joules": None,
        "knobs": KNOBS._asdict(),
        **dict.fromkeys(("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "rss_gib", "gpu_gib"), 0.0),
        "energy": {},
        **more,
    }
