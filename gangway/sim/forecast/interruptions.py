"""How often spot nodes are taken, from what was seen: a rate with an exact interval, and the published one as long as
little was seen.
"""

from dataclasses import dataclass

__all__ = ["Rate", "blended_rate", "observed_rate"]


@dataclass(frozen=True)
class Rate:
    """Interruptions of a node in an hour, and the interval that holds the true rate with the level asked for."""

    per_hour: float
    low: float
    high: float


def observed_rate(taken: int, node_hours: float, level: float = 0.9) -> Rate:
    """From `taken` interruptions in so many hours of nodes, above 0. The interval is exact for a constant rate
    (Garwood, Biometrika, 1936): without any interruption its lower end is 0, and its upper one is not.
    """
    from scipy.stats import chi2

    tail = (1 - level) / 2
    low = float(chi2.ppf(tail, 2 * taken)) / 2 if taken else 0.0
    high = float(chi2.ppf(1 - tail, 2 * taken + 2)) / 2
    return Rate(taken / node_hours, low / node_hours, high / node_hours)


def blended_rate(taken: int, node_hours: float, published: float, worth_hours: float, level: float = 0.9) -> Rate:
    """The same, with a published rate that counts as if seen over `worth_hours` of nodes (a Gamma prior): it decides
    where little was seen, and is forgotten where much was.
    """
    from scipy.stats import gamma

    shape, hours = taken + published * worth_hours, node_hours + worth_hours
    tail = (1 - level) / 2
    low, high = (float(gamma.ppf(share, shape)) / hours for share in (tail, 1 - tail))
    return Rate(shape / hours, low, high)
