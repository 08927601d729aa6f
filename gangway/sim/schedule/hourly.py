"""An hourly price or grid intensity, and its integral over time."""

import math
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["Hourly"]


@dataclass(frozen=True)
class Hourly:
    """Constant within each hour. `values`: of hours 0, 1, ...; they repeat, so one value is a constant and 24 are a
    daily cycle.

    >>> Hourly((2.0, 4.0)).integral(1800, 5400)
    3.0
    """

    values: tuple[float, ...]

    def at(self, sec: float) -> float:
        """The value at a second."""
        return self.values[int(sec // 3600) % len(self.values)]

    def integral(self, from_sec: float, to_sec: float) -> float:
        """Value times hours between two seconds."""
        if len(self.values) == 1:
            return self.values[0] * (to_sec - from_sec) / 3600
        return self._up_to(to_sec / 3600) - self._up_to(from_sec / 3600)

    def _up_to(self, hours: float) -> float:
        rounds, rest = divmod(hours, len(self.values))
        whole = math.floor(rest)
        sums = (0.0, *accumulate(self.values))
        return rounds * sums[-1] + sums[whole] + (rest - whole) * self.values[whole % len(self.values)]
