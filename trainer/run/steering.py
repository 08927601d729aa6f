"""What a controller changes of a session: knobs of the process at once, the rest as a segment that begins now."""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from trainer.config.replicas import replicas
from trainer.config.segment_plan import Plan, decided_values
from trainer.config.train_config import TrainConfig
from trainer.config.values.control import SWITCH_FILE, ControlSettings
from trainer.control.actuators import OF_SEGMENTS, OF_THE_CLUSTER, Actuators, get_changes
from trainer.control.controller import Controller, tell
from trainer.control.fatal import FATAL, Fatal, fatal_changes, to_undo
from trainer.control.flags import MODE_FLAG, MORE_FLAG, POLICY_FLAG
from trainer.control.history import standing
from trainer.control.idle_bounds import idle_bounds
from trainer.control.interval import Decision, Interval, Knobs, Value
from trainer.control.machine import get_machine
from trainer.control.watch import get_history
from trainer.core.errors import TrainerError
from trainer.core.program import program
from trainer.distributed.world import World
from trainer.metrics.evaluate import Moment
from trainer.networks.precision import choose
from trainer.phases.batch import Batch
from trainer.records.decisions import CONTROLLER
from trainer.records.stats_log import Line, read_stats_log
from trainer.run.reporter import Reporter
from trainer.steps.compilation import Compilation
from trainer.steps.state import TrainState


class Past(NamedTuple):
    """What a session goes on from.

    Attributes:
        config: of the run, with what was undone.
        lines: of its log, on rank 0; none without a controller.
        fatal: changes that no session has outlived.
        undone: of them, because a checkpoint had kept them.
        choices: that took other ones.
    """

    config: TrainConfig
    lines: Sequence[Line] = ()
    fatal: Sequence[Fatal] = ()
    undone: Sequence[Decision] = ()
    choices: Mapping[str, str] = MappingProxyType({})

    def history(self, settings: ControlSettings, images: int) -> list[Interval]:
        """The run's intervals before so many images, on rank 0, with what was undone since."""
        failed = [(each.session, each.images) for each in self.fatal]
        found = get_history(self.lines, settings.interval_sec, images, failed)
        for each in self.undone if found else ():
            found[-1] = found[-1].ended_by(each, failed=False)
        return found


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
                self._plan.decide(state.images, get_changes(decision, self._plan.now.lr_factor))
            elif decision.knob not in OF_THE_CLUSTER:
                self._actuators.turn(decision.knob, decision.value, batch)
        except TrainerError as error:
            return f"{error.problem}: {error.value}"
        if decision.knob in OF_SEGMENTS:
            self._reporter.replanned(self._plan.config)
        return ""


def past_of(
    settings: ControlSettings | None,
    config: TrainConfig,
    world: World,
    reporter: Reporter,
    run_dir: Path,
    state: TrainState,
) -> Past:
    """What a session with a controller goes on from. Before anything is built for the first step, the state leaves what
    no earlier session has outlived, so that this one does not end by it either.
    """
    if settings is None:
        return Past(config)
    lines: Sequence[Line] = read_stats_log(run_dir).lines if world.rank == 0 else ()
    fatal: list[Fatal] = world.gather(fatal_changes(lines, settings.interval_sec), list[Fatal])[0]
    left = _why_left(settings, run_dir) if world.rank == 0 else ""
    wanted = to_undo(fatal, decided_values(config, state.images))
    undo: list[Decision] = world.gather([] if left else wanted, list[Decision])[0]
    if world.rank == 0:
        _tell_fatal(fatal, state.images, reporter)
        for each in wanted if left else ():
            reporter.say(f"warning: controller: {each.knob} stays {each.was}, and may end the run again: {left}")
    plan, trouble = Plan(config, state.images), ""
    if undo:
        try:
            factor = plan.now.lr_factor
            plan.decide(state.images, {name: to for each in undo for name, to in get_changes(each, factor).items()})
        except TrainerError as error:
            trouble = f"{error.problem}: {error.value}"
        for each in undo if world.rank == 0 else ():
            tell(each, state.images, "failed" if trouble else "done", reporter.event, reporter.say, trouble)
    if not undo or trouble:
        return Past(config, lines, fatal)
    reporter.replanned(plan.config)
    now, choices = Plan(plan.config, state.images).now.config, dict[str, str]()
    if now.precision != state.config.precision:
        choices["precision"] = state.use(choose(now.precision, world.device))
    state.enter(now)
    return Past(plan.config, lines, fatal, undo, choices)


def _why_left(settings: ControlSettings, run_dir: Path) -> str:
    """Why this session's controller undoes nothing, with what would have it do so; empty where it does."""
    if (run_dir / SWITCH_FILE).exists():
        command = shlex.join(["control", "on", "--run-dir", str(run_dir)])
        return f"the controller is switched off; it is undone where `{program()} {command}` comes before the start"
    if settings.mode != "act" or settings.policy == "fixed":
        return f"{settings.choice}, changes nothing; {MODE_FLAG} act with another {POLICY_FLAG} than fixed undoes it"
    return ""


def _tell_fatal(fatal: Sequence[Fatal], images: int, reporter: Reporter) -> None:
    """Says, once in the run, what no session has outlived; on rank 0."""
    for each in fatal:
        if not each.is_told:
            knob, was, value = each.limit
            of = {"of_session": each.session, "of_images": each.images}
            reporter.event(FATAL, images, knob=knob, value=value, was=was, why=each.reason, **of)
            reporter.say(f"warning: controller: {knob} {value} is never tried again: {each.reason}")


def get_steering(
    settings: ControlSettings | None,
    plan: Plan,
    actuators: Actuators,
    compiled: Compilation,
    world: World,
    reporter: Reporter,
    run_dir: Path,
    past: Past,
    state: TrainState,
    batch: Batch,
) -> Steering:
    """What steers a session that begins with this state. A controller goes on with what earlier ones have learnt."""
    if settings is None:
        return Steering(plan, actuators, None, reporter)
    fatal, history = past.fatal, past.history(settings, state.images)
    restored: dict[str, Value] = world.gather(standing(history), dict[str, Value])[0]
    begun: Knobs | None = world.gather(history[0].knobs if history else None, Knobs | None)[0]
    troubles = actuators.restore(restored, batch)
    # Graphs that average between workers know the shapes that they were made for, and pipelines that of micro-batches.
    in_pipeline = replicas(plan.config, world.world_size) < world.world_size
    shaped = OF_SEGMENTS if in_pipeline or (compiled.on and world.world_size > 1) else ()
    fixed = shaped if compiled.can_switch else (*shaped, "compile")
    machine = get_machine(world, plan.config, actuators, settings.bounds, fixed, tuple(each.limit for each in fatal))
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
    controller.begin(actuators.start, restored, actuators.knobs(plan.now.config), state.images, troubles)
    return Steering(plan, actuators, controller, reporter)
