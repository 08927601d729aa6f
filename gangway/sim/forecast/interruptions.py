"""Spot interruption rates: observed, with an exact interval, or blended with the published rate if data is scarce."""

from dataclasses import dataclass

__all__ = ["Rate", "blended_rate", "observed_rate"]


@dataclass(frozen=True)
class Rate:
    """Interruptions per node-hour with their interval."""

    per_hour: float
    low: float
    high: float


def observed_rate(taken: int, node_hours: float, level: float = 0.9) -> Rate:
    """The rate of `taken` interruptions in `node_hours` (above 0). The interval is exact for a constant rate (Garwood,
    Biometrika, 1936): without interruptions its lower end is 0, its upper end is not.
    """
    from scipy.stats import chi2

    tail = (1 - level) / 2
    low = float(chi2.ppf(tail, 2 * taken)) / 2 if taken else 0.0
    high = float(chi2.ppf(1 - tail, 2 * taken + 2)) / 2
    return Rate(taken / node_hours, low / node_hours, high / node_hours)


def blended_rate(taken: int, node_hours: float, published: float, worth_hours: float, level: float = 0.9) -> Rate:
    """Blend with a published rate that counts as `worth_hours` node-hours (a Gamma prior)."""
    from scipy.stats import gamma

    shape, hours = taken + published * worth_hours, node_hours + worth_hours
    tail = (1 - level) / 2
    low, high = (float(gamma.ppf(share, shape)) / hours for share in (tail, 1 - tail))
    return Rate(shape / hours, low, high)
