"""What a session trains with, each choice with its reason: told when it begins, and again when one changes."""

from collections.abc import Mapping

from trainer.distributed.world import World
from trainer.power.limits import Limiter
from trainer.records.stats_log import Line
from trainer.run.reporter import Reporter
from trainer.steps.compilation import Compilation
from trainer.steps.state import TrainState
from trainer.steps.step_graph import StepGraph

_HOP_SEC, _VOTES_SHARE, _WAIT_SEC = 50e-6, 0.05, 0.5
"""Of a small message to the next worker, about, between machines of a cloud; of a step that votes may take; and how
long a request may wait for one.
"""


def steps_between_votes(step_sec: float, num_workers: int) -> int:
    """After how many steps workers ask each other anew: gloo's ring takes 2 (n - 1) hops for it, of which short steps
    of many workers would be made.
    """
    vote_sec = 2 * (num_workers - 1) * _HOP_SEC
    return max(1, int(min(vote_sec / _VOTES_SHARE, _WAIT_SEC) / step_sec))


class RuntimeDecisions:
    """Of one session; all workers make the same calls. `fixed` change with the run's segments alone, and so does
    `graph`, which is set anew; `limiter` is None where nothing is asked.
    """

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
        self._world, self._reporter, self._noted = world, reporter, ("", "")
        self._vote_every = 1

    def changed(self, **choices: str) -> None:
        """Takes what another segment has brought, each choice with its reason; to be noted."""
        self._fixed = {**self._fixed, **choices}

    def close(self) -> None:
        """Frees what is held for steps, of which there are no more."""
        self.graph.close()

    def note(self, state: TrainState) -> None:
        """Notes them all."""
        power = {} if self._limiter is None else {"power": self._limiter.choice}
        self._noted = self.graph.choice, self._compiled.choice
        choices = {**self._fixed, "compile": self._compiled.choice, "step_graph": self.graph.choice, **power}
        self._reporter.chosen(state, choices)

    def votes(self, state: TrainState) -> bool:
        """Whether workers vote in the step that comes: all of them, or none."""
        return state.step % self._vote_every == 0

    def after(self, line: Line, state: TrainState) -> None:
        """Lets compilation and power limits change after a line (equal on every worker), and tells where one did."""
        # By the speed in the line, which is the same for all.
        step_sec = state.config.step_images / line["images_per_sec"]
        self._vote_every = steps_between_votes(step_sec, self._world.world_size)
        limits_changed = self._limiter is not None and self._limiter.after(line)
        self._compiled.given_up(self._world, state.images)
        if limits_changed or (self.graph.choice, self._compiled.choice) != self._noted:
            self.note(state)
