"""One stretch of a job on its GPUs: it starts, trains, saves now and then, and ends done, moved or cut off."""

import math
from dataclasses import dataclass

__all__ = ["Stint"]


@dataclass(frozen=True)
class Stint:
    """Times in seconds; those of the methods are counted from `begun_sec`.

    Attributes:
        overhead_sec: before the first step: the start, and a save that was owed when it was moved.
        interval_sec: of training between saves; infinite where there are none.
        save_sec: of each save, in which nothing is trained.
    """

    begun_sec: float
    gpus: int
    images_per_sec: float
    overhead_sec: float
    interval_sec: float
    save_sec: float

    def trained_sec(self, elapsed_sec: float) -> float:
        """Of training, up to then."""
        rounds, rest = self._rounds(elapsed_sec)
        return self._saved(rounds) + min(rest, self.interval_sec)

    def kept_sec(self, elapsed_sec: float) -> float:
        """Of training that is in a checkpoint by then."""
        rounds, _ = self._rounds(elapsed_sec)
        return self._saved(rounds)

    def length_sec(self, images: float) -> float:
        """Until so many images are done; a save that would come with the last of them is left out."""
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
