"""What a controller changes of a session: knobs of the process at once, the rest as a segment that begins now."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer.config.control import ControlSettings
from trainer.config.segment_plan import Plan
from trainer.control.actuators import OF_SEGMENTS, OF_THE_CLUSTER, Actuators, changes_of
from trainer.control.controller import Controller
from trainer.control.fatal import Fatal, fatal_changes
from trainer.control.flags import MORE_FLAG
from trainer.control.idle_bounds import idle_bounds
from trainer.control.interval import Decision, Knobs
from trainer.control.machine import machine_of
from trainer.control.watch import history_of
from trainer.core.errors import TrainerError
from trainer.distributed.world import World
from trainer.metrics.evaluate import Moment
from trainer.records.decisions import CONTROLLER
from trainer.records.stats_log import Line, read_stats_log
from trainer.run.reporter import Reporter
from trainer.run.state import TrainState
from trainer.steps.batch import Batch
from trainer.steps.compilation import Compilation


class Steering:
    """Of one session; all workers make the same calls. `controller` is None where nobody decides."""

    def __init__(self, plan: Plan, actuators: Actuators, controller: Controller | None, reporter: Reporter) -> None:
        self._plan, self._actuators, self._controller, self._reporter = plan, actuators, controller, reporter
        self._sec = 0.0

    @property
    def choice(self) -> dict[str, str]:
        """Who decides, for the session's choices; nothing where nobody does."""
        return {} if self._controller is None else {CONTROLLER: f"{self._controller.choice}: asked for"}

    @property
    def sec(self) -> float | None:
        """That steps have waited for decisions and for what they changed at once; None where nobody decides."""
        return None if self._controller is None else self._sec

    def begin(self, state: TrainState, batch: Batch, fatal: Sequence[Fatal], troubles: Mapping[str, str]) -> None:
        """Before the first step: leaves what an earlier session did not outlive. By knob, why one of its is not set."""
        if self._controller is None:
            return
        now = self._actuators.knobs(self._plan.now.config)
        for decision in self._controller.begin(now, state.images, fatal, troubles):
            self._controller.done(decision, state.images, self._act(decision, state, batch))

    def after(self, line: Line, state: TrainState, batch: Batch) -> None:
        """Lets the controller change something after a line, where one does not end a segment anyway."""
        if self._controller is None or state.images >= self._plan.end:
            return
        began = time.monotonic()
        decision = self._controller.after(line)
        if decision is not None:
            self._controller.done(decision, state.images, self._act(decision, state, batch))
        self._sec += time.monotonic() - began

    def quality(self, moment: Moment) -> None:
        """Shows the controller what a generator's metrics are."""
        if self._controller is not None:
            self._controller.quality(moment.values())

    def _act(self, decision: Decision, state: TrainState, batch: Batch) -> str:
        """Why it could not be done; empty where it was."""
        try:
            if decision.knob in OF_SEGMENTS:
                self._plan.decide(state.images, changes_of(decision, self._plan.now.lr_factor))
            elif decision.knob not in OF_THE_CLUSTER:
                self._actuators.turn(decision.knob, decision.value, batch)
        except TrainerError as error:
            return f"{error.problem}: {error.value}"
        if decision.knob in OF_SEGMENTS:
            self._reporter.replanned(self._plan.config)
        return ""


def steering_of(
    settings: ControlSettings | None,
    plan: Plan,
    actuators: Actuators,
    compiled: Compilation,
    world: World,
    reporter: Reporter,
    run_dir: Path,
    state: TrainState,
    batch: Batch,
) -> Steering:
    """What steers a session that begins with this state. A controller goes on with what an earlier one has learnt."""
    if settings is None:
        return Steering(plan, actuators, None, reporter)
    lines: Sequence[Line] = read_stats_log(run_dir).lines if world.rank == 0 else ()
    ended = fatal_changes(lines, settings.interval_sec)
    fatal: list[Fatal] = world.gather(ended, list[Fatal])[0]
    history = history_of(lines, settings.interval_sec, state.images, [(each.session, each.images) for each in fatal])
    last = history[-1].after if history else None
    restored: Knobs | None = world.gather(last, Knobs | None)[0]
    begun: Knobs | None = world.gather(history[0].knobs if history else None, Knobs | None)[0]
    troubles = {} if restored is None else actuators.restore(restored, batch)
    # Graphs that average between workers know the shapes that they were made for.
    shaped = OF_SEGMENTS if compiled.on and world.world_size > 1 else ()
    fixed = shaped if compiled.can_switch else (*shaped, "compile")
    machine = machine_of(world, plan.config, actuators, settings.bounds, fixed, tuple(each.limit for each in fatal))
    if world.rank == 0:
        told = settings.model_dump(mode="json")
        idle = dict(idle_bounds(settings.bounds, begun or actuators.start, machine))
        about = {"machine": machine._asdict(), "seed": plan.config.seed, "idle_bounds": idle}
        reporter.event(CONTROLLER, state.images, settings=told, **about)
        for name, why in idle.items():
            reporter.say(f"warning: {MORE_FLAG}: bounds.{name}: {why}")
    controller = Controller(
        settings,
        world,
        machine,
        begun or actuators.start,
        plan.config.seed,
        run_dir,
        history,
        lambda event, images, **details: reporter.event(event, images, **details),
        reporter.say,
    )
    steering = Steering(plan, actuators, controller, reporter)
    steering.begin(state, batch, fatal, troubles)
    return steering
