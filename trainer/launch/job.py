"""The job as one node's launcher knows it: its life, told line by line, its hours, and what its nodes tell each other.

What is decided is pure and stands elsewhere: `lifecycle`, `failures`, `job_clock`. This holds the files, the clocks and
the thread that keeps them fresh. Without a folder the node is alone, and its hours are this launcher's.
"""

import os
import queue
import signal
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.core.console import announce
from trainer.core.errors import (
    EXIT_BAD_INPUT,
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PEERS_LOST,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
    TrainerError,
)
from trainer.core.host import boot_id
from trainer.launch import membership
from trainer.launch.failures import (
    WINDOW_SEC,
    Nodes,
    code_of_lost,
    ended_for_all,
    is_failure,
    is_lost,
    own_failures,
)
from trainer.launch.job_clock import used_sec
from trainer.launch.node_state import JobFolder, NodeState
from trainer.rendezvous.lifecycle import Event, Life, State

BEAT_SEC = 30.0
"""Between two signs of life: a node that dies without a word loses so much of its hours at most."""
SETTLE_SEC = 60.0
"""How long a node that has failed for good waits for the others to say so too: one mistake fails all of them at once,
and none of them is to be replaced for it."""
_CLOSE_SEC = 10.0
_OVER_SIGNAL = signal.SIGUSR1


class Job:
    """Use as a context: it begins with the block, and `life.exit_code` may be known from the start."""

    def __init__(self, nodes: Nodes, folder: JobFolder | None = None, max_sec: float | None = None) -> None:
        self.life = Life()
        self._nodes, self._folder, self._max_sec = nodes, folder, max_sec
        self._me = folder.node if folder else "this node"
        self._mine = membership.started(None, time.time(), "").state
        self._up_since = time.monotonic()
        self._used = (0.0, self._up_since)
        self._changes: queue.SimpleQueue[tuple[str, str, int | None] | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._pulse = threading.Thread(target=self._beat_on, name="gangway-pulse", daemon=True)
        self._over: int | None = None
        self._listens = False

    def __enter__(self) -> Self:
        self._up_since = time.monotonic()
        killed = self._begin()
        self._beat()
        if self._over is not None:
            self.on(Event.OVER, self._over)
        elif self.left_sec() <= 0:
            used_hours, max_hours = self._used[0] / 3600, (self._max_sec or 0) / 3600
            announce(f"of the job's {max_hours:g} hours {used_hours:.2f} are used: raise max_hours to go on")
            self.on(Event.HOURS_OVER)
        elif killed and is_lost(self._me, self._all(), membership.KILLED, time.time()):
            self.on(Event.ENDED, self._lost(membership.KILLED))
        self._pulse.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        """A failure of the launcher itself counts as one of the workers, and ends here with its traceback. Where the
        job had ended before, that end stands.
        """
        unforeseen = isinstance(error, Exception) and not isinstance(error, TrainerError)
        if unforeseen:
            traceback.print_exception(error)
            if self.life.exit_code is None:
                self.workers_ended(EXIT_FAILED)
        self._changes.put(None)
        self._pulse.join(_CLOSE_SEC)  # a file system that hangs keeps nobody
        return unforeseen

    @property
    def nodes(self) -> Nodes:
        """The fewest and the most."""
        return self._nodes

    def left_sec(self) -> float:
        """Of the job's hours; infinite where they have no end."""
        if self._max_sec is None:
            return float("inf")
        used, at = self._used
        return self._max_sec - used - (time.monotonic() - at)

    def failures(self) -> int:
        """Of this node's own, within the window."""
        with self._lock:
            return own_failures(self._me, self._all(), time.time())

    def on(self, event: Event, code: int = EXIT_INTERRUPTED) -> None:
        """Notes an event, and says what it has led to. A signal's handler may call it: nothing here waits."""
        before = self.life
        self.life = before.after(event, code)
        ended = self.life.exit_code
        meaning = "" if ended is None else f", exit code {ended}: {EXIT_CODES.get(ended, EXIT_CODES[EXIT_FAILED])}"
        announce(f"{event}: {self.life.state}{meaning}")
        self._changes.put((event.value, self.life.state.value, ended))

    def told(self) -> None:
        """A signal says to leave: by itself, or because the hours are over."""
        self.on(Event.HOURS_OVER if self.left_sec() <= 0 else Event.SIGNAL)

    def listen(self) -> None:
        """Has this process hear, while it waits for peers, that the job has ended for all; call it in the main thread.
        torchrun knows of one thing alone that ends its wait: an exception like that of a signal.
        """
        from torch.distributed.elastic.multiprocessing.api import SignalException

        def over(number: int, frame: object) -> None:
            if self._over is not None and self.life.exit_code is None:
                self.on(Event.OVER, self._over)
                if self.life.exit_code is not None:
                    raise SignalException("the job has ended for all", _OVER_SIGNAL)

        signal.signal(_OVER_SIGNAL, over)
        self._listens = True

    def workers_ended(self, code: int) -> None:
        """They did by themselves. Life goes on where they had only lost their peers."""
        now = time.time()
        with self._lock:
            if is_failure(code):
                self._say(membership.failed(self._mine, now, code))
            nodes = self._all()
        if is_lost(self._me, nodes, code, now):
            code = self._lost(code)
        elif is_failure(code) and self._folder is not None:
            announce(f"failures of this node within {WINDOW_SEC / 3600:g} h: {own_failures(self._me, nodes, now)}")
        if code == EXIT_PEERS_LOST:
            self.on(Event.PEERS_LOST)
            return
        if code in (0, EXIT_UNHEALTHY) and self._folder is not None:
            self._folder.write_over(code)
        self.on(Event.ENDED, code)

    def stopped(self, code: int) -> None:
        """They were told to leave, and have ended so, or were done before they heard it. A mistake may be this node's
        own: nobody has time to find out.
        """
        alone = self._nodes.max == 1 or self._folder is None
        private = code == EXIT_PEERS_LOST or (code == EXIT_BAD_INPUT and not alone)
        if code == 0 and self._folder is not None:
            self._folder.write_over(code)
        self.on(Event.ENDED, EXIT_FAILED if private else code)

    def _begin(self) -> bool:
        """Takes up what this node has said before; whether the launcher that said it was killed."""
        before = self._folder.nodes().get(self._me) if self._folder else None
        over = self._folder.over() if self._folder else None
        start = membership.started(before, time.time(), boot_id(), over.code if over else None)
        self._mine = start.state
        if self._folder is not None and start.again:
            self._folder.forget_over()
        if start.killed:
            announce("the launcher before this one was killed: counted as a failure of this node")
        return start.killed

    def _lost(self, code: int) -> int:
        """This node has failed for good: says so, hears whether all have, and returns what to end with."""
        now = time.time()
        with self._lock:
            self._say(membership.lost(self._mine, now))
        until = time.monotonic() + SETTLE_SEC
        while self._folder is not None:
            over = ended_for_all(self._me, self._all(), self._nodes, time.time())
            if over or time.monotonic() >= until:
                break
            time.sleep(min(1.0, SETTLE_SEC))
        code = code_of_lost(self._me, self._all(), self._nodes, code, time.time())
        if code != EXIT_UNFIT and self._folder is not None:
            self._folder.write_over(code)
        return code

    def _all(self) -> dict[str, NodeState]:
        others = self._folder.nodes() if self._folder else {}
        return {**others, self._me: self._mine}

    def _say(self, state: NodeState) -> None:
        self._mine = membership.seen(state, time.time(), time.monotonic() - self._up_since)
        if self._folder is not None:
            self._folder.write(self._mine)

    def _beat(self) -> None:
        """A sign of life, and a look at the others'."""
        with self._lock:
            self._say(self._mine)
            nodes = self._all()
        self._used = (used_sec(nodes), time.monotonic())
        if self._folder is None:
            return
        said = self._folder.over()
        if said is not None and said.at > time.time() - WINDOW_SEC:
            if self._over is None:
                announce(f"{said.node} says that the job has ended for all; to go on, remove {self._folder.path}")
            self._over = said.code
        elif self.life.state is State.WAITING and ended_for_all(self._me, nodes, self._nodes, time.time()):
            self._over = code_of_lost(self._me, nodes, self._nodes, EXIT_FAILED, time.time())

    def _beat_on(self) -> None:
        """The thread's body: a line of the log for each change as it comes, a beat every now and then."""
        due = time.monotonic() + BEAT_SEC
        while True:
            try:
                change = self._changes.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + BEAT_SEC
                self._beat()
                # Before anybody listens, the signal would end this process.
                if self._listens and self._over is not None and self.life.state is State.WAITING:
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
                self._say(membership.told(self._mine))

    def _close(self) -> None:
        """What the node says last."""
        with self._lock:
            self._say(membership.ended(self._mine, self.life.exit_code))


def job_folder(path: str | None, node: str) -> JobFolder | None:
    """Of the launcher's flag; None without."""
    return JobFolder(Path(path), node) if path else None
