"""A session's runtime choices with their reasons: written at its start and whenever one changes."""

from collections.abc import Mapping

from gangway.trainer.distributed.world import World
from gangway.trainer.power.limits import Limiter
from gangway.trainer.records.stats_log import Line
from gangway.trainer.run.reporter import Reporter
from gangway.trainer.steps.compilation import Compilation
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step_graph import StepGraph

_HOP_SEC, _VOTES_SHARE, _WAIT_SEC = 50e-6, 0.05, 0.5
"""A small message's time between two machines of a cloud; the share of step time for votes; the longest wait."""


def steps_between_votes(step_sec: float, num_workers: int) -> int:
    """Returns every how many steps workers vote; gloo's ring takes 2 (n - 1) hops, which would dominate short steps."""
    vote_sec = 2 * (num_workers - 1) * _HOP_SEC
    return max(1, int(min(vote_sec / _VOTES_SHARE, _WAIT_SEC) / step_sec))


class RuntimeDecisions:
    """One session's; all workers make the same calls. `fixed` and `graph` change with the run's segments alone."""

    def __init__(
        self,
        fixed: Mapping[str, str],
        compiled: Compilation,
        graph: StepGraph,
        limiter: Limiter | None,
        world: World,
        reporter: Reporter,
    ) -> None:
        self.graph = graph
        self._fixed, self._compiled, self._limiter = fixed, compiled, limiter
        self._world, self._reporter, self._last_noted = world, reporter, ("", "")
        self._vote_every = 1

    def update(self, **choices: str) -> None:
        """Replaces choices that change with a segment, each with its reason; `note` writes them."""
        self._fixed = {**self._fixed, **choices}

    def close(self) -> None:
        """Frees the step graph."""
        self.graph.close()

    def note(self, state: TrainState) -> None:
        """Writes all choices."""
        power = {} if self._limiter is None else {"power": self._limiter.choice}
        self._last_noted = self.graph.choice, self._compiled.choice
        choices = {**self._fixed, "compile": self._compiled.choice, "step_graph": self.graph.choice, **power}
        self._reporter.note_choices(state, choices)

    def is_vote_due(self, state: TrainState) -> bool:
        """Whether all workers vote in the next step."""
        return state.step % self._vote_every == 0

    def after(self, line: Line, state: TrainState) -> None:
        """Lets compilation and power limits change after a line (equal on every worker), and notes changes."""
        # The line's speed is the same for all.
        step_sec = state.config.step_images / line["images_per_sec"]
        self._vote_every = steps_between_votes(step_sec, self._world.world_size)
        limits_changed = self._limiter is not None and self._limiter.after(line)
        self._compiled.given_up(self._world, state.images)
        if limits_changed or (self.graph.choice, self._compiled.choice) != self._last_noted:
            self.note(state)
