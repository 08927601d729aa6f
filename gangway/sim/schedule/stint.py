"""One uninterrupted stretch of a job on its GPUs: start, training, periodic saves."""

import math
from dataclasses import dataclass

__all__ = ["Stint"]


@dataclass(frozen=True)
class Stint:
    """Times in seconds; the methods' count from `begun_sec`. `overhead_sec`: before the first step: the start, and the
    save owed from a move; `interval_sec`: of training between saves, infinite for none.
    """

    begun_sec: float
    gpus: int
    images_per_sec: float
    overhead_sec: float
    interval_sec: float
    save_sec: float

    def trained_sec(self, elapsed_sec: float) -> float:
        """Training up to then."""
        rounds, rest = self._rounds(elapsed_sec)
        return self._saved(rounds) + min(rest, self.interval_sec)

    def kept_sec(self, elapsed_sec: float) -> float:
        """Training in a checkpoint by then."""
        rounds, _ = self._rounds(elapsed_sec)
        return self._saved(rounds)

    def length_sec(self, images: float) -> float:
        """Time for so many images; a save due at the last one is skipped."""
        trains_sec = images / self.images_per_sec
        saves = max(0, math.ceil(trains_sec / self.interval_sec) - 1)
        return self.overhead_sec + trains_sec + saves * self.save_sec

    def _saved(self, rounds: int) -> float:
        return 0.0 if rounds == 0 else rounds * self.interval_sec

    def _rounds(self, elapsed_sec: float) -> tuple[int, float]:
        working_sec = max(0.0, elapsed_sec - self.overhead_sec)
        if math.isinf(self.interval_sec):
            return 0, working_sec
        rounds, rest = divmod(working_sec, self.interval_sec + self.save_sec)
        return int(rounds), rest
