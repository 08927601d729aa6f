"""Limits on the GPUs of one node: saved on disk, set, and restored, by one process per node."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.power.saved_limits import Board, BoardState, Note, Range, get_reason, load_nvml, put_back

if TYPE_CHECKING:
    from gangway.trainer.power.energy import Gpu

POWER_FLAG = "--power-limit-watts"
CLOCK_FLAG = "--clock-limit-mhz"


class Report(NamedTuple):
    """What one node did: power limit by GPU, None if unchanged; why it failed, empty on success. `floor` is the lowest
    share of its original limit that every GPU of the node can have.
    """

    watts: dict[str, float | None]
    floor: float = 0.0
    trouble: str = ""


class NodeLimits:
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
        """Set each GPU to a share of its original power limit."""
        return self._try(lambda: self._set([share * _watts(state) for state in self._before]))

    def undo(self) -> tuple[str, list[str]]:
        """Restore what was changed: a description, and failures with reasons, which the next call retries."""
        if self._note is None:
            return "", []
        failed, troubles, done = dict[str, BoardState](), list[str](), list[str]()
        for uuid, state in self._changed.items():
            try:
                put_back(self._nvml, state)
                done.append(state.describe())
            except self._nvml.NVMLError as error:
                failed[uuid] = state
                troubles.append(f"{uuid}: {get_reason(self._nvml, error)}")
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
            self._nvml = load_nvml(self._nvml)
        except Exception as error:  # NVML's own errors, or no pynvml: either way nothing can be set
            return f"{self._node}: {error}"
        try:
            self._boards = [Board(self._nvml, gpu.uuid, f"node{node_rank}/gpu{gpu.local_rank}") for gpu in gpus]
        except self._nvml.NVMLError as error:
            return f"{self._node}: {get_reason(self._nvml, error)}"
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
            return Report({}, trouble=f"{self._node}: {get_reason(self._nvml, error)}")


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
