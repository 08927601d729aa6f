"""Opt-in power cap and clock limit for a run's GPUs, announced, and undone when the run ends."""

import argparse
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import TrainerError, parse_number
from gangway.trainer.power.node import CLOCK_FLAG, POWER_FLAG, NodeLimits, Report
from gangway.trainer.power.saved_limits import saved_limits_folder, undo_left_over
from gangway.trainer.power.search import LADDER, WINDOW_SEC, Search

if TYPE_CHECKING:
    from gangway.trainer.distributed.world import World
    from gangway.trainer.power.energy import Gpu

OnEvent = Callable[..., object]
"""Writes an event by name with details."""
_AUTO = "auto"
_SLOWDOWN_FLAG = "--max-slowdown"


class PowerAsked(NamedTuple):
    """The requested limits of each GPU; None leaves a limit.

    Attributes:
        auto: search the power limit with the most images per joule, `window_sec` per step.
        max_slowdown: share of images per second that the search may lose, 0..1.
        shares: whether a controller may set shares of the limits while the run trains.
    """

    watts: float | None = None
    auto: bool = False
    clock_mhz: int | None = None
    max_slowdown: float = 0.05
    window_sec: float = WINDOW_SEC
    shares: bool = False

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
    """The limits of one run, made by `limiting`. TrainerError on every rank: a GPU cannot have them. `choice` is the
    limit and its reason, for the record; empty without one. After `begin`, `limit_watts` is the lowest limit that the
    GPUs had before, and `floor` the lowest share of theirs that all can have; None and 1 if unset.
    """

    def __init__(self, world: "World", request: PowerAsked, gpu: "Gpu | None", folder: Path, nvml: Any = None) -> None:
        self._world, self._request, self._failed_undos = world, request, 0
        self._search: Search | None = None
        self._on_event: OnEvent = lambda event, **details: None
        self.choice, self.floor = "", 1.0
        self.limit_watts: float | None = None
        from gangway.trainer.power.energy import Gpu

        everyone = world.gather((world.node_rank, gpu), tuple[int, Gpu | None])
        mine = [each for node, each in everyone if node == world.node_rank and each is not None]
        self._node = NodeLimits(world.node_rank, mine if world.local_rank == 0 else [], folder, nvml)
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
            self._search = Search(
                [share for share in LADDER if share >= self.floor] or [1.0],
                request.max_slowdown,
                request.window_sec,
            )
        self.choice = request.describe()
        self._record_limits(reports, self.choice)

    def after(self, line: Mapping[str, Any]) -> bool:
        """Pass a statistics line to the search; return whether `choice` changed. All workers call it together."""
        search = self._search
        if search is None:
            return False
        if not _is_measured(line):
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
    """The run's limiter, None if nothing is requested; undoes everything at the end of the block. First restores what
    killed runs left on this node. `gpu` is this worker's, None on a CPU; `folder` None is the node's. TrainerError on
    every rank: a limit that a GPU cannot have.
    """
    if world.local_rank == 0:
        for sentence in undo_left_over(folder, nvml):
            announce(sentence)
    if not request.anything:
        yield None
        return
    limiter = Limiter(world, request, gpu, folder or saved_limits_folder(), nvml)
    try:
        yield limiter
    finally:
        limiter.undo()


def _is_measured(line: Mapping[str, Any]) -> bool:
    sources = [source for name, (_, source, _) in line["energy"].items() if "/gpu" in name]
    return bool(sources) and all(source == "measured" for source in sources)


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
    share = parse_number(
        slowdown,
        lambda value: 0 <= value < 1,
        place=_SLOWDOWN_FLAG,
        problem="no share",
        allowed="0 up to but not 1",
        fix=f"{_SLOWDOWN_FLAG} 0.05",
    )
    return request._replace(max_slowdown=share)
