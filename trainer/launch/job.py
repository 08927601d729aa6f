"""The job as one node's launcher sees it: the files, clocks and the thread behind `lifecycle` and `failures`."""

import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from gangway.trainer.core import errors
from gangway.trainer.core.console import announce
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import boot_id
from gangway.trainer.launch import failures
from gangway.trainer.launch.failures import Nodes
from gangway.trainer.launch.node_state import JobFolder, NodeState, SpendingLimit, used_sec
from gangway.trainer.rendezvous.lifecycle import Event, Life, State

BEAT_SEC = 30.0  # Between two beats: the most that the job's hours miss when a node dies
SETTLE_SEC = 60.0
"""How long a node that has failed for good waits for the others: a shared mistake fails all of them at once, and then
none is to be replaced."""
_CLOSE_SEC = 10.0
_OVER_SIGNAL = signal.SIGUSR1


class Job:
    """One node's job. Use it as a context; `life.exit_code` may be set from the start."""

    def __init__(
        self,
        nodes: Nodes,
        folder: JobFolder | None = None,
        max_sec: float | None = None,
        limit: SpendingLimit | None = None,
    ) -> None:
        self.life = Life()
        self.nodes, self._folder, self._max_sec = nodes, folder, max_sec
        self._limit, self._is_limit_announced = limit, False
        self._name = folder.node if folder else "this node"
        self._state = failures.start_state(None, time.time(), "").state
        self._up_since = time.monotonic()
        self._used = (0.0, float("inf"), self._up_since)
        self._changes: queue.SimpleQueue[tuple[str, str, int | None] | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._pulse = threading.Thread(target=self._run_pulse, name="gangway-pulse", daemon=True)
        self._over_code: int | None = None
        self._can_interrupt = False

    def __enter__(self) -> Self:
        self._up_since = time.monotonic()
        killed = self._load_state()
        self._beat()
        if self._over_code is not None:
            self.on(Event.OVER, self._over_code)
        elif self.left_sec() <= 0:
            if not self._is_limit_announced:
                used_hours, max_hours = self._used[0] / 3600, (self._max_sec or 0) / 3600
                announce(f"of the job's {max_hours:g} hours {used_hours:.2f} are used: raise max_hours to go on")
            self.on(Event.HOURS_OVER)
        elif killed and failures.is_lost(self._name, self._all_nodes(), failures.KILLED, time.time()):
            self.on(Event.ENDED, self._settle_loss(failures.KILLED))
        self._pulse.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        """Counts an unexpected error of the launcher as a failure of the workers, unless the job had ended before."""
        is_unexpected = isinstance(error, Exception) and not isinstance(error, TrainerError)
        if is_unexpected:
            traceback.print_exception(error)
            if self.life.exit_code is None:
                self.workers_ended(errors.EXIT_FAILED)
        self._changes.put(None)
        self._pulse.join(_CLOSE_SEC)  # a file system that hangs must not block the exit
        return is_unexpected

    def left_sec(self) -> float:
        """Remaining seconds of the job's hours or money; infinite without a limit."""
        used, money_lasts_sec, at = self._used
        left = float("inf") if self._max_sec is None else self._max_sec - used
        return min(left, money_lasts_sec) - (time.monotonic() - at)

    def failures(self) -> int:
        """This node's own failures within the window."""
        with self._lock:
            return failures.own_failures(self._name, self._all_nodes(), time.time())

    def on(self, event: Event, code: int = errors.EXIT_INTERRUPTED) -> None:
        """Records an event and announces its effect. Never waits, so that a signal handler may call it."""
        before = self.life
        self.life = before.after(event, code)
        ended, codes = self.life.exit_code, errors.EXIT_CODES
        meaning = "" if ended is None else f", exit code {ended}: {codes.get(ended, codes[errors.EXIT_FAILED])}"
        announce(f"{event}: {self.life.state}{meaning}")
        self._changes.put((event.value, self.life.state.value, ended))

    def listen(self) -> None:
        """Ends the wait for peers when the job ends for all; call it in the main thread."""
        from torch.distributed.elastic.multiprocessing.api import SignalException

        def over(number: int, frame: object) -> None:
            if self._over_code is not None and self.life.exit_code is None:
                self.on(Event.OVER, self._over_code)
                if self.life.exit_code is not None:
                    raise SignalException("the job has ended for all", _OVER_SIGNAL)

        signal.signal(_OVER_SIGNAL, over)
        self._can_interrupt = True

    def workers_ended(self, code: int) -> None:
        """Records that the workers ended by themselves; the job continues if they only lost their peers."""
        now = time.time()
        with self._lock:
            if failures.is_failure(code):
                self._write_state(failures.add_failure(self._state, now, code))
            nodes = self._all_nodes()
        if failures.is_lost(self._name, nodes, code, now):
            code = self._settle_loss(code)
        elif failures.is_failure(code) and self._folder is not None:
            own = failures.own_failures(self._name, nodes, now)
            announce(f"failures of this node within {failures.WINDOW_SEC / 3600:g} h: {own}")
        if code == errors.EXIT_PEERS_LOST:
            self.on(Event.PEERS_LOST)
            return
        if code in (0, errors.EXIT_UNHEALTHY) and self._folder is not None:
            self._folder.write_over(code)
        self.on(Event.ENDED, code)

    def workers_stopped(self, code: int) -> None:
        """Records that the workers ended after a signal; bad input may be this node's alone, so it fails."""
        alone = self.nodes.max == 1 or self._folder is None
        private = code == errors.EXIT_PEERS_LOST or (code == errors.EXIT_BAD_INPUT and not alone)
        if code == 0 and self._folder is not None:
            self._folder.write_over(code)
        self.on(Event.ENDED, errors.EXIT_FAILED if private else code)

    def _load_state(self) -> bool:
        before = self._folder.nodes().get(self._name) if self._folder else None
        over = self._folder.over() if self._folder else None
        start = failures.start_state(before, time.time(), boot_id(), over.code if over else None)
        self._state = start.state
        if self._folder is not None and start.again:
            self._folder.forget_over()
        if start.killed:
            announce("the launcher before this one was killed: counted as a failure of this node")
        return start.killed

    def _settle_loss(self, code: int) -> int:
        now = time.time()
        with self._lock:
            self._write_state(failures.mark_lost(self._state, now))
        until = time.monotonic() + SETTLE_SEC
        while self._folder is not None:
            over = failures.ended_for_all(self._name, self._all_nodes(), self.nodes, time.time())
            if over or time.monotonic() >= until:
                break
            time.sleep(min(1.0, SETTLE_SEC))
        code = failures.lost_exit_code(self._name, self._all_nodes(), self.nodes, code, time.time())
        if code != errors.EXIT_UNFIT and self._folder is not None:
            self._folder.write_over(code)
        return code

    def _all_nodes(self) -> dict[str, NodeState]:
        others = self._folder.nodes() if self._folder else {}
        return {**others, self._name: self._state}

    def _write_state(self, state: NodeState) -> None:
        self._state = failures.mark_seen(state, time.time(), time.monotonic() - self._up_since)
        if self._folder is not None:
            self._folder.write(self._state)

    def _beat(self) -> None:
        with self._lock:
            self._write_state(self._state)
            nodes = self._all_nodes()
        self._used = (used_sec(nodes), self._money_lasts_sec(nodes), time.monotonic())
        if self._folder is None:
            return
        over = self._folder.over()
        if over is not None and over.at > time.time() - failures.WINDOW_SEC:
            if self._over_code is None:
                announce(f"{over.node} says that the job has ended for all; to go on, remove {self._folder.path}")
            self._over_code = over.code
        elif self.life.state is State.WAITING and failures.ended_for_all(self._name, nodes, self.nodes, time.time()):
            self._over_code = failures.lost_exit_code(self._name, nodes, self.nodes, errors.EXIT_FAILED, time.time())

    def _money_lasts_sec(self, nodes: Mapping[str, NodeState]) -> float:
        if self._limit is None:
            return float("inf")
        left_sec = self._limit.left_sec(nodes, time.time())
        if left_sec <= BEAT_SEC and not self._is_limit_announced:
            self._is_limit_announced = True
            spent = self._limit.spent_usd(nodes)
            announce(
                f"the nodes have cost {spent:,.2f} of {self._limit.max_usd:,.2f} USD, at "
                f"{self._limit.usd_per_node_hour:g} USD per node hour: the job saves and ends; raise job_usd to go on"
            )
        return left_sec

    def _run_pulse(self) -> None:
        """The thread's body: logs each change at once, and beats at intervals."""
        due = time.monotonic() + BEAT_SEC
        while True:
            try:
                change = self._changes.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + BEAT_SEC
                self._beat()
                # Without the handler, the signal would end this process.
                if self._can_interrupt and self._over_code is not None and self.life.state is State.WAITING:
                    os.kill(os.getpid(), _OVER_SIGNAL)
                continue
            if change is None:
                break
            self._note(*change)
        self._close()

    def _note(self, event: str, state: str, code: int | None) -> None:
        if self._folder is not None:
            self._folder.note(event, state, code)
        if state == State.STOPPING:
            with self._lock:
                self._write_state(failures.mark_leaving(self._state))

    def _close(self) -> None:
        with self._lock:
            self._write_state(failures.end_state(self._state, self.life.exit_code))
