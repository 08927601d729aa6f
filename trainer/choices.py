"""What a session trains with, each choice with its reason: told when it begins, and again when one changes.

Not here: who chooses (trainer.steps.precision, trainer.workers.sharding, trainer.steps.compiling, trainer.power).
"""

from collections.abc import Mapping

from trainer.power.limits import Limiter
from trainer.records.diary import Line
from trainer.reporter import Reporter
from trainer.state import TrainState
from trainer.steps.compiling import Compilation
from trainer.workers.distributed import World

__all__ = ["Choices"]


class Choices:
    """Of one session; all workers make the same calls.

    Args:
        fixed: choices that a session does not change.
        compiled: the losses.
        limiter: of power; None where nothing is asked.
        world: this worker's place.
        reporter: is told.
    """

    def __init__(
        self, fixed: Mapping[str, str], compiled: Compilation, limiter: Limiter | None, world: World, reporter: Reporter
    ) -> None:
        self._fixed, self._compiled, self._limiter = fixed, compiled, limiter
        self._world, self._reporter = world, reporter

    def tell(self, state: TrainState) -> None:
        """Notes them all.

        Args:
            state: which has seen so many images.
        """
        power = {} if self._limiter is None else {"power": self._limiter.choice}
        self._reporter.chosen(state, {**self._fixed, "compile": self._compiled.choice, **power})

    def after(self, line: Line, state: TrainState) -> None:
        """Lets compilation and power limits change after a statistics line, and tells it where one did.

        Args:
            line: equal on every worker.
            state: which has seen so many images.
        """
        limits_changed = self._limiter is not None and self._limiter.after(line)
        if self._compiled.given_up(self._world, state.images) or limits_changed:
            self.tell(state)
