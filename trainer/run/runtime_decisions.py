"""What a session trains with, each choice with its reason: told when it begins, and again when one changes."""

from collections.abc import Mapping

from trainer.distributed.world import World
from trainer.power.limits import Limiter
from trainer.records.stats_log import Line
from trainer.run.reporter import Reporter
from trainer.run.state import TrainState
from trainer.steps.compilation import Compilation


class RuntimeDecisions:
    """Of one session; all workers make the same calls. `fixed` change with the run's segments alone; `limiter` is None
    where nothing is asked.
    """

    def __init__(
        self, fixed: Mapping[str, str], compiled: Compilation, limiter: Limiter | None, world: World, reporter: Reporter
    ) -> None:
        self._fixed, self._compiled, self._limiter = fixed, compiled, limiter
        self._world, self._reporter = world, reporter

    def changed(self, **choices: str) -> None:
        """Takes what another segment has brought, each choice with its reason; to be noted."""
        self._fixed = {**self._fixed, **choices}

    def note(self, state: TrainState) -> None:
        """Notes them all."""
        power = {} if self._limiter is None else {"power": self._limiter.choice}
        self._reporter.chosen(state, {**self._fixed, "compile": self._compiled.choice, **power})

    def after(self, line: Line, state: TrainState) -> None:
        """Lets compilation and power limits change after a line (equal on every worker), and tells where one did."""
        limits_changed = self._limiter is not None and self._limiter.after(line)
        if self._compiled.given_up(self._world, state.images) or limits_changed:
            self.note(state)
