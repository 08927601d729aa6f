"""Applies a controller's changes: knobs of the process at once, the rest as a segment that begins now."""

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.parts.rules import replicas
from gangway.trainer.config.segment_plan import Plan, decided_values
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import SWITCH_FILE, ControlSettings
from gangway.trainer.control.actuators import CLUSTER_KNOBS, SEGMENT_KNOBS, Actuators, get_changes, get_machine
from gangway.trainer.control.controller import Controller, report_decision
from gangway.trainer.control.decide import standing_decisions
from gangway.trainer.control.flags import MODE_FLAG, MORE_FLAG, POLICY_FLAG
from gangway.trainer.control.guardrails import idle_bounds
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value
from gangway.trainer.control.watch import FATAL, Fatal, fatal_changes, get_history, to_undo
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import program
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.evaluate import Moment
from gangway.trainer.networks.precision import choose
from gangway.trainer.phases.batch import Batch
from gangway.trainer.records.decisions import CONTROLLER
from gangway.trainer.records.stats_log import Line, read_stats_log
from gangway.trainer.run.reporter import Reporter
from gangway.trainer.steps.compilation import Compilation
from gangway.trainer.steps.state import TrainState


class Past(NamedTuple):
    """What a session continues from."""

    config: TrainConfig  # of the run, without the undone changes
    lines: Sequence[Line] = ()  # of its log, on rank 0; none without a controller
    fatal: Sequence[Fatal] = ()  # changes that ended every session that had them
    undone: Sequence[Decision] = ()  # fatal changes that a checkpoint had kept
    choices: Mapping[str, str] = MappingProxyType({})  # that undoing has changed

    def history(self, settings: ControlSettings, images: int) -> list[Interval]:
        """The run's intervals before `images`, on rank 0, ended by what was undone since."""
        failed = [(each.session, each.images) for each in self.fatal]
        found = get_history(self.lines, settings.interval_sec, images, failed)
        for each in self.undone if found else ():
            found[-1] = found[-1].ended_by(each, failed=False)
        return found


class Steering:
    """One session's; all workers make the same calls. Without `controller` nothing changes."""

    def __init__(self, plan: Plan, actuators: Actuators, controller: Controller | None, reporter: Reporter) -> None:
        self._plan, self._actuators, self._controller, self._reporter = plan, actuators, controller, reporter
        self._sec = 0.0

    @property
    def choice(self) -> dict[str, str]:
        """The controller's entry in the session's choices; empty without one."""
        return {} if self._controller is None else {CONTROLLER: f"{self._controller.choice}: asked for"}

    @property
    def sec(self) -> float | None:
        """Seconds that steps waited for decisions and immediate changes; None without a controller."""
        return None if self._controller is None else self._sec

    def after(self, line: Line, state: TrainState, batch: Batch) -> None:
        """Lets the controller change something after a line that does not end a segment."""
        if self._controller is None or state.images >= self._plan.end:
            return
        began = time.monotonic()
        decision = self._controller.after(line)
        if decision is not None:
            self._controller.done(decision, state.images, self._act(decision, state, batch))
        self._sec += time.monotonic() - began

    def quality(self, moment: Moment) -> None:
        """Passes a generator's metrics to the controller."""
        if self._controller is not None:
            self._controller.quality(moment.values())

    def _act(self, decision: Decision, state: TrainState, batch: Batch) -> str:
        try:
            if decision.knob in SEGMENT_KNOBS:
                self._plan.decide(state.images, get_changes(decision, self._plan.now.lr_factor))
            elif decision.knob not in CLUSTER_KNOBS:
                self._actuators.turn(decision.knob, decision.value, batch)
        except TrainerError as error:
            return f"{error.problem}: {error.value}"
        if decision.knob in SEGMENT_KNOBS:
            self._reporter.set_plan(self._plan.config)
        return ""


def get_past(
    settings: ControlSettings | None,
    config: TrainConfig,
    world: World,
    reporter: Reporter,
    run_dir: Path,
    state: TrainState,
) -> Past:
    """Returns what a session continues from, and undoes fatal changes before anything is built for the first step."""
    if settings is None:
        return Past(config)
    lines: Sequence[Line] = read_stats_log(run_dir).lines if world.rank == 0 else ()
    fatal: list[Fatal] = world.gather(fatal_changes(lines, settings.interval_sec), list[Fatal])[0]
    skip_reason = _skip_reason(settings, run_dir) if world.rank == 0 else ""
    wanted = to_undo(fatal, decided_values(config, state.images))
    undo: list[Decision] = world.gather([] if skip_reason else wanted, list[Decision])[0]
    if world.rank == 0:
        for one in (one for one in fatal if not one.is_reported):
            knob, was, value = one.limit
            of = {"of_session": one.session, "of_images": one.images}
            reporter.event(FATAL, state.images, knob=knob, value=value, was=was, why=one.reason, **of)
            reporter.say(f"warning: controller: {knob} {value} is never tried again: {one.reason}")
        for each in wanted if skip_reason else ():
            reporter.say(f"warning: controller: {each.knob} stays {each.was}, and may end the run again: {skip_reason}")
    plan, trouble = Plan(config, state.images), ""
    if undo:
        try:
            factor = plan.now.lr_factor
            plan.decide(state.images, {name: to for each in undo for name, to in get_changes(each, factor).items()})
        except TrainerError as error:
            trouble = f"{error.problem}: {error.value}"
        for each in undo if world.rank == 0 else ():
            report_decision(each, state.images, "failed" if trouble else "done", reporter.event, reporter.say, trouble)
    if not undo or trouble:
        return Past(config, lines, fatal)
    reporter.set_plan(plan.config)
    now, choices = Plan(plan.config, state.images).now.config, dict[str, str]()
    if now.precision != state.config.precision:
        choices["precision"] = state.use(choose(now.precision, world.device))
    state.enter(now)
    return Past(plan.config, lines, fatal, undo, choices)


def _skip_reason(settings: ControlSettings, run_dir: Path) -> str:
    if (run_dir / SWITCH_FILE).exists():
        command = shlex.join(["control", "on", "--run-dir", str(run_dir)])
        return f"the controller is switched off; it is undone where `{program()} {command}` comes before the start"
    if settings.mode != "act" or settings.policy == "fixed":
        return f"{settings.choice}, changes nothing; {MODE_FLAG} act with another {POLICY_FLAG} than fixed undoes it"
    return ""


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
    """Returns what steers this session; a controller continues with what earlier ones have learnt."""
    if settings is None:
        return Steering(plan, actuators, None, reporter)
    fatal, history = past.fatal, past.history(settings, state.images)
    restored: dict[str, Value] = world.gather(standing_decisions(history), dict[str, Value])[0]
    begun: Knobs | None = world.gather(history[0].knobs if history else None, Knobs | None)[0]
    troubles = actuators.restore(restored, batch)
    # Graphs that average between workers have fixed shapes, and pipelines fixed micro-batches.
    in_pipeline = replicas(plan.config, world.world_size) < world.world_size
    shaped = SEGMENT_KNOBS if in_pipeline or (compiled.on and world.world_size > 1) else ()
    fixed = shaped if compiled.can_switch else (*shaped, "compile")
    machine = get_machine(world, plan.config, actuators, settings.bounds, fixed, tuple(each.limit for each in fatal))
    if world.rank == 0:
        record = settings.model_dump(mode="json")
        idle = dict(idle_bounds(settings.bounds, begun or actuators.start, machine))
        about = {"machine": machine._asdict(), "seed": plan.config.seed, "idle_bounds": idle}
        reporter.event(CONTROLLER, state.images, settings=record, **about)
        for name, why in idle.items():
            reporter.say(f"warning: {MORE_FLAG}: bounds.{name}: {why}")
    start, seed = begun or actuators.start, plan.config.seed
    controller = Controller(settings, world, machine, start, seed, run_dir, history, reporter.event, reporter.say)
    controller.begin(actuators.start, restored, actuators.knobs(plan.now.config), state.images, troubles)
    return Steering(plan, actuators, controller, reporter)
