"""Opt-in power cap and clock limit for a run's GPUs, announced, and undone when the run ends."""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import TrainerError, parse_number
from gangway.trainer.power import saved_limits
from gangway.trainer.power.saved_limits import Board, BoardState, Note, Range

if TYPE_CHECKING:
    from gangway.trainer.distributed.world import World
    from gangway.trainer.power.energy import Gpu


POWER_FLAG = "--power-limit-watts"
CLOCK_FLAG = "--clock-limit-mhz"


class Report(NamedTuple):
    """A node's power limits by GPU (None: unchanged), the least share of the original that all can have; or why not."""

    watts: dict[str, float | None]
    floor: float = 0.0
    trouble: str = ""


class _NodeLimits:
    """The GPUs that this process sets, if any; `trouble` is why they cannot be reached. `nvml` None: pynvml."""

    def __init__(self, node_rank: int, gpus: Sequence["Gpu"], folder: Path, nvml: Any = None) -> None:
        self._node, self._folder, self._nvml = f"node {node_rank}", folder, nvml
        self._boards: list[Board] = []
        self._before: list[BoardState] = []
        self._changed: dict[str, BoardState] = {}
        self._note: Note | None = None
        self.trouble = self._open(node_rank, gpus) if gpus else ""

    def check(self, watts: float | None, clock_mhz: int | None) -> None:
        """Raise TrainerError, with GPU and range, for impossible values; unknown ranges fail when set."""
        for board in self._boards:
            with contextlib.suppress(self._nvml.NVMLError):
                if watts is not None:
                    _check(POWER_FLAG, watts, board.limits_watts(), "W", board.name)
                if clock_mhz is not None:
                    _check(CLOCK_FLAG, clock_mhz, board.clocks_mhz(), "MHz", board.name)

    def begin(self, *, limit: bool, watts: float | None, clock_mhz: int | None) -> Report:
        """Save the present settings, then set the requested ones; `limit`: power limits change now or later."""
        return self._try(lambda: self._begin(limit, watts, clock_mhz))

    def set_share(self, share: float) -> Report:
        return self._try(lambda: self._set([share * _watts(state) for state in self._before]))

    def undo(self) -> tuple[str, list[str]]:
        """Restore what was changed: a description, and failures with reasons, which the next call retries."""
        if self._note is None:
            return "", []
        failed, troubles, done = dict[str, BoardState](), list[str](), list[str]()
        for uuid, state in self._changed.items():
            try:
                saved_limits.put_back(self._nvml, state)
                done.append(state.describe())
            except self._nvml.NVMLError as error:
                failed[uuid] = state
                troubles.append(f"{uuid}: {saved_limits.get_reason(self._nvml, error)}")
        self._changed = failed
        if not failed:  # otherwise the note stays, unlocked when this process ends, and the launcher retries
            try:
                self._note.remove()
            except OSError as error:
                troubles.append(f"{self._folder} cannot be written ({error.strerror}): the note of what it was stays")
            self._note = None
        return ", ".join(done), troubles

    def _open(self, node_rank: int, gpus: Sequence["Gpu"]) -> str:
        try:
            self._nvml = saved_limits.load_nvml(self._nvml)
        except Exception as error:  # NVML's own errors, or no pynvml: either way nothing can be set
            return f"{self._node}: {error}"
        try:
            self._boards = [Board(self._nvml, gpu.uuid, f"node{node_rank}/gpu{gpu.local_rank}") for gpu in gpus]
        except self._nvml.NVMLError as error:
            return f"{self._node}: {saved_limits.get_reason(self._nvml, error)}"
        return ""

    def _begin(self, limit: bool, watts: float | None, clock_mhz: int | None) -> Report:
        self._before = [board.state(limit=limit, clocks=clock_mhz is not None) for board in self._boards]
        self._note = Note.write(self._folder, self._before)
        if clock_mhz is not None:
            for board in self._boards:
                board.lock_clocks(clock_mhz)
                self._changed[board.uuid] = BoardState(board.uuid, None, clocks=True)
        if not limit:
            return Report({board.name: None for board in self._boards})
        # Without a number, set the present limits: a refusal should show now.
        return self._set([_watts(state) if watts is None else watts for state in self._before])

    def _set(self, limits_watts: Sequence[float]) -> Report:
        watts: dict[str, float | None] = {}
        floor = 0.0
        for board, state, limit in zip(self._boards, self._before, limits_watts, strict=True):
            board.set_limit(limit)
            self._changed[board.uuid] = state
            watts[board.name] = board.limit_watts()
            floor = max(floor, board.limits_watts().least / _watts(state))
        return Report(watts, floor)

    def _try(self, change: Callable[[], Report]) -> Report:
        if not self._boards:
            return Report({})
        try:
            return change()
        except OSError as error:
            why = f"{self._folder} cannot be written ({error.strerror}), and what is not noted is not changed"
            return Report({}, trouble=f"{self._node}: {why}")
        except self._nvml.NVMLError as error:
            return Report({}, trouble=f"{self._node}: {saved_limits.get_reason(self._nvml, error)}")


def _watts(state: BoardState) -> float:
    assert state.limit_mw is not None, "noted wherever limits are changed"
    return state.limit_mw / 1000


def _check(flag: str, value: float, allowed: Range, unit: str, name: str) -> None:
    if not allowed.least <= value <= allowed.most:
        nearest = allowed.least if value < allowed.least else allowed.most
        raise TrainerError(
            place=flag,
            problem=f"{name} cannot be set to that",
            value=value,
            allowed=f"{allowed.least} to {allowed.most} {unit}",
            fix=f"{flag} {nearest}",
        )


LADDER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # Shares of a GPU's original limit
WINDOW_SEC = 20.0
_SETTLE_SEC = 3.0
_SAMPLE_SEC = 1.0
_LEAST_SAMPLES = 5


class Measured(NamedTuple):
    """One step of the ladder: medians over the window, of the whole job and all devices with known energy."""

    share: float
    images_per_sec: float
    images_per_joule: float


class Step(NamedTuple):
    """The next limit as a `share` of the original one; `done`: it is the result."""

    share: float
    done: bool
    reason: str


class Search:
    """Searches the limit with the most images per joule over a falling `ladder` of shares, the first 1.

    Medians over `window_sec`, as NVML's counter is slow and checkpoints must not decide; lower limits are only slower.
    """

    def __init__(self, ladder: Sequence[float], max_slowdown: float, window_sec: float = WINDOW_SEC) -> None:
        self._ladder, self._max_slowdown, self._window_sec = ladder, max_slowdown, window_sec
        self._restart(resolution=None)

    def _restart(self, resolution: object) -> None:
        self.measured: list[Measured] = []
        self.done = False
        self._resolution = resolution
        self._begin()

    def _begin(self) -> None:
        self._set_at: float | None = None  # measures start some seconds later
        self._last: Mapping[str, Any] | None = None
        self._samples: list[tuple[float, float]] = []
        self._measured_sec = 0.0

    def see(self, line: Mapping[str, Any]) -> Step | None:
        """Process a statistics line (images, wall_sec, energy_joules, resolution); return the change, if any."""
        if line["resolution"] != self._resolution:
            # Progressive networks: a new resolution is a new job. The very first line sets the first one.
            resumes = self._resolution is not None
            self._restart(line["resolution"])
            if resumes:
                return Step(self._ladder[0], False, f"resolution {line['resolution']}: the search starts over")
        if self.done:
            return None
        self._sample(line)
        if self._measured_sec < self._window_sec or len(self._samples) < _LEAST_SAMPLES:
            return None
        return self._conclude()

    def _sample(self, line: Mapping[str, Any]) -> None:
        now: float = line["wall_sec"]
        if self._set_at is None:
            self._set_at = now
        if self._last is None:
            self._last = line if now - self._set_at >= _SETTLE_SEC else None
            return
        sec = now - self._last["wall_sec"]
        joules = line["energy_joules"] - self._last["energy_joules"]
        if sec >= _SAMPLE_SEC and joules > 0:
            images = line["images"] - self._last["images"]
            self._samples.append((images / sec, images / joules))
            self._measured_sec += sec
            self._last = line

    def _conclude(self) -> Step:
        share = self._ladder[len(self.measured)]
        per_sec, per_joule = (median(values) for values in zip(*self._samples, strict=True))
        self.measured.append(Measured(share, per_sec, per_joule))
        slowdown = 1 - per_sec / self.measured[0].images_per_sec
        if slowdown <= self._max_slowdown and len(self.measured) < len(self._ladder):
            self._begin()
            lower = self._ladder[len(self.measured)]
            return Step(lower, False, f"{share:.0%} of the limit makes {per_joule:.3g} images/J; trying {lower:.0%}")
        self.done = True
        return self._choose()

    def _choose(self) -> Step:
        first = self.measured[0]
        fast_enough = (1 - self._max_slowdown) * first.images_per_sec
        best = max(
            (step for step in self.measured if step.images_per_sec >= fast_enough),
            key=lambda step: (step.images_per_joule, step.share),
        )
        more = best.images_per_joule / first.images_per_joule - 1
        slower = 1 - best.images_per_sec / first.images_per_sec
        return Step(
            best.share,
            True,
            f"{best.share:.0%} of the limit makes the most images per joule within {self._max_slowdown:.0%} slowdown: "
            f"{best.images_per_joule:.3g} images/J, {more:+.1%}, and {abs(slower):.1%} "
            f"{'slower' if slower >= 0 else 'faster'}; {len(self.measured)} limits tried, {self._window_sec:g} s each",
        )


OnEvent = Callable[..., object]  # Writes an event by name with details
_AUTO = "auto"
_SLOWDOWN_FLAG = "--max-slowdown"


class PowerAsked(NamedTuple):
    """The requested limits of each GPU; None leaves a limit."""

    watts: float | None = None
    auto: bool = False  # search the power limit with the most images per joule, `window_sec` per step
    clock_mhz: int | None = None
    max_slowdown: float = 0.05  # share of images per second that the search may lose, 0..1
    window_sec: float = WINDOW_SEC
    shares: bool = False  # whether a controller may set shares of the limits while the run trains

    @property
    def anything(self) -> bool:
        """Whether any limit is requested."""
        return self.auto or self.shares or self.watts is not None or self.clock_mhz is not None

    def describe(self) -> str:
        """The requested limits in words."""
        parts = [f"clocks up to {self.clock_mhz} MHz"] if self.clock_mhz is not None else []
        if self.watts is not None:
            parts.append(f"power up to {self.watts:g} W")
        if self.auto:
            parts.append(f"looking for the power limit with the most images/J within {self.max_slowdown:.0%} slowdown")
        if self.shares:
            parts.append("power limits that the controller may lower")
        return f"{' and '.join(parts)}: asked for"


NOTHING_ASKED = PowerAsked()


class Limiter:
    """The limits of a run (TrainerError on every rank); `choice` is for the record, `floor` the least share for all."""

    def __init__(self, world: "World", request: PowerAsked, gpu: "Gpu | None", folder: Path, nvml: Any = None) -> None:
        self._world, self._request, self._failed_undos = world, request, 0
        self._search: Search | None = None
        self._on_event: OnEvent = lambda event, **details: None
        self.choice, self.floor = "", 1.0
        self.limit_watts: float | None = None
        from gangway.trainer.power.energy import Gpu

        everyone = world.gather((world.node_rank, gpu), tuple[int, Gpu | None])
        mine = [each for node, each in everyone if node == world.node_rank and each is not None]
        self._node = _NodeLimits(world.node_rank, mine if world.local_rank == 0 else [], folder, nvml)
        world.run_on_all(lambda: self._node.check(request.watts, request.clock_mhz))
        self._troubles = [trouble for trouble in world.gather(self._node.trouble) if trouble]
        if all(each is None for _, each in everyone):
            self._troubles = ["there is no GPU in this run"]

    def begin(self, on_event: OnEvent) -> None:
        """Set the limits, or start the search; all workers call it together. `on_event` writes events on rank 0."""
        self._on_event = on_event
        if self._troubles:
            self._give_up(self._troubles)
            return
        request = self._request
        limit = request.auto or request.shares or request.watts is not None
        reports = self._gather_reports(self._node.begin(limit=limit, watts=request.watts, clock_mhz=request.clock_mhz))
        if reports is None:
            return
        if limit:
            self.floor = max(report.floor for report in reports)
            self.limit_watts = min(watts for report in reports for watts in report.watts.values() if watts is not None)
        if request.auto:
            ladder = [share for share in LADDER if share >= self.floor] or [1.0]
            self._search = Search(ladder, request.max_slowdown, request.window_sec)
        self.choice = request.describe()
        self._record_limits(reports, self.choice)

    def after(self, line: Mapping[str, Any]) -> bool:
        """Pass a statistics line to the search; return whether `choice` changed. All workers call it together."""
        search = self._search
        if search is None:
            return False
        sources = {source for name, (_, source, _) in line["energy"].items() if "/gpu" in name}
        if sources != {"measured"}:
            self._give_up(["the search needs NVML's energy counter, and not every GPU of the run has one"])
            return True
        step = search.see(line)
        if step is None:
            return False
        reports = self._gather_reports(self._node.set_share(step.share))
        if reports is None:
            return True
        self._record_limits(reports, step.reason)
        if step.done:
            self.choice = step.reason
            measured = [each._asdict() for each in search.measured]
            self._world.run_on_rank0(
                lambda: self._on_event("power-search", share=step.share, measured=measured, why=step.reason)
            )
        return step.done

    def set_share(self, share: float) -> str:
        """Set each GPU to a share of its original power limit on all workers; return why that failed, or empty."""
        if self._troubles:
            return "; ".join(self._troubles)
        reports = self._gather_reports(self._node.set_share(share))
        if reports is None:
            return self.choice
        self._record_limits(reports, f"{share:.0%} of each limit: the controller's decision")
        return ""

    def undo(self) -> None:
        """Restore this node's GPUs, without other workers; what NVML refuses is left for the node's next run."""
        changed, troubles = self._node.undo()
        if troubles:
            self._failed_undos += 1
            _warn(f"GPU settings are not restored: {'; '.join(troubles)}")
        if changed:
            announce(f"restored {changed}")
        if self._world.rank == 0 and (changed or troubles):
            # The run may have failed: a full disk must not hide why.
            with contextlib.suppress(TrainerError):
                self._on_event("power-restored", gpus=changed, troubles=troubles, failures=self._failed_undos)

    def _gather_reports(self, report: Report) -> list[Report] | None:
        reports = self._world.gather(report, Report)  # None: a node failed, and all were restored
        if troubles := [each.trouble for each in reports if each.trouble]:
            self._give_up(troubles)
            return None
        return reports

    def _record_limits(self, reports: Sequence[Report], why: str) -> None:
        watts = {name: limit for report in reports for name, limit in report.watts.items()}
        clock_mhz = self._request.clock_mhz
        self._world.run_on_rank0(lambda: self._on_event("power-limit", watts=watts, clock_mhz=clock_mhz, why=why))

    def _give_up(self, troubles: Sequence[str]) -> None:
        self._search, self._troubles = None, list(troubles)
        self.undo()
        self.choice = f"no limit: {'; '.join(troubles)}"
        if self._world.rank == 0:
            _warn(f"neither power nor clocks are limited: {'; '.join(troubles)}")
        self._world.run_on_rank0(lambda: self._on_event("power-refused", troubles=list(troubles)))


@contextlib.contextmanager
def limiting(
    world: "World", request: PowerAsked, gpu: "Gpu | None", nvml: Any = None, folder: Path | None = None
) -> Iterator[Limiter | None]:
    """Yields the run's limiter, if one is requested; undoes all at the end, and first what killed runs left."""
    if world.local_rank == 0:
        for sentence in saved_limits.undo_left_over(folder, nvml):
            announce(sentence)
    if not request.anything:
        yield None
        return
    limiter = Limiter(world, request, gpu, folder or saved_limits.saved_limits_folder(), nvml)
    try:
        yield limiter
    finally:
        limiter.undo()


def _warn(sentence: str) -> None:
    announce(f"warning: {sentence}")


def add_power(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        POWER_FLAG, metavar="W|auto", help="power limit of each GPU; auto: the most efficient, by images/J"
    )
    parser.add_argument(CLOCK_FLAG, type=int, metavar="MHZ", help="highest graphics clock of each GPU")
    parser.add_argument(
        _SLOWDOWN_FLAG, metavar="SHARE", help=f"share of images/s that {POWER_FLAG} auto may lose, 0 to 1 [0.05]"
    )


def power_asked(arguments: argparse.Namespace) -> PowerAsked:
    """The requested limits; warns of an ignored flag (TrainerError: a bad value)."""
    text, slowdown = arguments.power_limit_watts, arguments.max_slowdown
    request = PowerAsked(auto=text == _AUTO, clock_mhz=arguments.clock_limit_mhz)
    if text is not None and not request.auto:
        allowed, fix = f"watts above 0, or {_AUTO}", f"{POWER_FLAG} 450"
        watts = parse_number(
            text, lambda value: 0 < value < 100_000, place=POWER_FLAG, problem="no power", allowed=allowed, fix=fix
        )
        request = request._replace(watts=watts)
    if slowdown is None:
        return request
    if not request.auto:
        _warn(f"{_SLOWDOWN_FLAG} is ignored without {POWER_FLAG} {_AUTO}")
        return request
    allowed, fix = "0 up to but not 1", f"{_SLOWDOWN_FLAG} 0.05"
    share = parse_number(
        slowdown, lambda value: 0 <= value < 1, place=_SLOWDOWN_FLAG, problem="no share", allowed=allowed, fix=fix
    )
    return request._replace(max_slowdown=share)
