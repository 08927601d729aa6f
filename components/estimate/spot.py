"""The cost of a job whose nodes are interrupted or fail: interruptions, checkpoints, repeated work.

Each node is lost independently at a constant rate (an input, not a forecast), and the whole job stops. A checkpoint
every `interval_sec` takes `save_sec`; an interruption loses half an interval on average, and `restart_sec`. The best
interval is Young's (CACM 17(9), 1974) with Daly's correction for the restart (FGCS 22(3), 2006).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "HOURS_PER_BUCKET",
    "RESTART_SEC",
    "SAVE_BYTES_PER_SEC",
    "SAVE_SEC",
    "SpotEstimate",
    "best_interval_sec",
    "estimate_spot",
    "mtbf_sec",
    "net_share",
    "rate_per_hour",
    "share_per_month",
]

HOURS_PER_BUCKET = 720
"""A month as in AWS's Spot Instance Advisor, whose buckets are shares of instances interrupted within one."""
SAVE_SEC = 10.0
"""Assumed upper limit of a checkpoint: a DCGAN's of 90 MB takes 0.1 to 0.3 s, and networks grow."""
SAVE_BYTES_PER_SEC = 0.9e9
"""Measured on that checkpoint."""
RESTART_SEC = 600.0
"""From a node's loss until training continues, assumed: a new node boots, pulls its image, mounts and joins."""


def rate_per_hour(fraction_per_month: float) -> float:
    """Interruptions of a node per hour from a monthly share. `fraction_per_month`: 0 (never) up to but not including 1.

    >>> round(rate_per_hour(0.10) * 720, 4)
    0.1054
    """
    assert 0 <= fraction_per_month < 1, "a share of nodes, checked where it enters"
    return -math.log1p(-fraction_per_month) / HOURS_PER_BUCKET


def share_per_month(rate_per_hour: float) -> float:
    """The monthly share of interrupted nodes for a measured rate.

    >>> round(share_per_month(rate_per_hour(0.10)), 4)
    0.1
    """
    return -math.expm1(-rate_per_hour * HOURS_PER_BUCKET)


def mtbf_sec(num_nodes: int, fraction_per_month: float, failures_per_hour: float = 0.0) -> float:
    """Mean seconds between a job's interruptions; may be infinite. `failures_per_hour`: of one node."""
    rate = (rate_per_hour(fraction_per_month) + failures_per_hour) * num_nodes
    return math.inf if rate == 0 else 3600 / rate


def best_interval_sec(save_sec: float, mtbf_sec: float, restart_sec: float) -> float:
    """Seconds of training between checkpoints that lose least.

    >>> round(best_interval_sec(save_sec=10, mtbf_sec=6000, restart_sec=600))
    363
    """
    return math.sqrt(2 * save_sec * (mtbf_sec + restart_sec))


def _lost_share(mtbf_sec: float, interval_sec: float, restart_sec: float) -> float:
    return 0.0 if math.isinf(mtbf_sec) else (interval_sec / 2 + restart_sec) / mtbf_sec


def net_share(mtbf_sec: float, interval_sec: float, save_sec: float, restart_sec: float) -> float:
    """The share of the time that makes progress, minus what interruptions undo; at or below zero the job never ends.

    >>> round(net_share(6000, 600, 6, 600), 3)
    0.842
    """
    saving = 0.0 if math.isinf(interval_sec) else save_sec / interval_sec
    return (1 - _lost_share(mtbf_sec, interval_sec, restart_sec)) / (1 + saving)


@dataclass(frozen=True)
class SpotEstimate:
    """A job on capacity that is interrupted or fails.

    Attributes:
        mtbf_hours: mean time between interruptions of the job.
        goodput: share of paid time that makes progress, 0..1; 0 if it never ends.
        hours: expected, from the first step to the last.
        lost_hours: expected, for repeated work and restarts.
        usd: expected cost of the nodes; None if the job never ends.
    """

    mtbf_hours: float
    interval_sec: float
    best_interval_sec: float
    goodput: float
    hours: float
    interruptions: float
    lost_hours: float
    usd: float | None
    feasible: bool

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain JSON data, with null for infinity."""
        values = asdict(self)
        return {
            name: None if isinstance(value, float) and math.isinf(value) else value for name, value in values.items()
        }


def estimate_spot(
    num_nodes: int,
    usd_per_node_hour: float,
    hours: float,
    fraction_per_month: float,
    *,
    failures_per_hour: float = 0.0,
    interval_sec: float | None = None,
    save_sec: float = SAVE_SEC,
    restart_sec: float = RESTART_SEC,
) -> SpotEstimate:
    """Estimate `hours` of undisturbed training on nodes that are interrupted or fail.

    Expected time is hours * (1 + save/interval) / (1 - (interval/2 + restart) / MTBF). If that denominator is not above
    zero, more is lost than done between two interruptions, and the job is not expected to end. `hours` excludes
    checkpoints; `fraction_per_month`: share of nodes interrupted within 720 hours, in [0, 1); `failures_per_hour`: of
    one node; `interval_sec`: between checkpoints, by default the best one; `save_sec`: pause at each; `restart_sec`:
    from an interruption until training continues.
    """
    between = mtbf_sec(num_nodes, fraction_per_month, failures_per_hour)
    # Without interruptions the best interval is infinite: nothing is saved or lost.
    best = best_interval_sec(save_sec, between, restart_sec)
    interval = best if interval_sec is None else interval_sec
    net, lost = net_share(between, interval, save_sec, restart_sec), _lost_share(between, interval, restart_sec)
    if net <= 0:
        return SpotEstimate(between / 3600, interval, best, 0.0, math.inf, math.inf, math.inf, None, False)
    expected = hours / net
    return SpotEstimate(
        mtbf_hours=between / 3600,
        interval_sec=interval,
        best_interval_sec=best,
        goodput=net,
        hours=expected,
        interruptions=0.0 if math.isinf(between) else expected * 3600 / between,
        lost_hours=expected * lost,
        usd=num_nodes * usd_per_node_hour * expected,
        feasible=True,
    )
