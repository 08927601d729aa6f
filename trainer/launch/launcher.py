"""torchrun with meaningful exit codes: `python -m gangway.trainer.launch --standalone --nproc-per-node 2 -m ...`.

torchrun always ends with 1 when a worker fails. The launcher passes a worker's code on, such as bad input (2: do not
retry) or an interruption (75: start the same command again); gangway.trainer.core.errors, EXIT_CODES, has all of them.
Its own arguments come before torchrun's:

--watch       the file in which the machine keeps notices
--start-when  with --hours and --forecast: wait for clean power (gangway.trainer.power.carbon_start)
--max-hours   the job's hours
--max-usd     with --usd-per-node-hour: the job ends, as at the end of its hours, when all its nodes have cost this
--job-dir     the folder in which the job's nodes share their state: hours and failures count over all nodes and starts
--node        this node's name there; by default the host's
--hang-after  auto, off or seconds of silence after which workers are restarted (gangway.trainer.launch.watchdog)
--member-key  the nodes meet through tunnels that need this file (gangway.trainer.rendezvous.tunnel)
--store first the node of --node-rank 0 serves the rendezvous store, where no head does
"""

import argparse
import json
import math
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

from gangway.trainer.core import errors
from gangway.trainer.core.console import announce, refuse, warn
from gangway.trainer.core.errors import TrainerError, parse_number
from gangway.trainer.core.torch_private import note_ends
from gangway.trainer.launch.failures import Nodes, is_bad_luck, worker_exit_code
from gangway.trainer.launch.job import Job
from gangway.trainer.launch.node_state import JobFolder, SpendingLimit
from gangway.trainer.launch.watchdog import Watchdog, watch_workers
from gangway.trainer.power import carbon_start
from gangway.trainer.power.saved_limits import undo_left_over
from gangway.trainer.preemption.notices import NOTICES_VARIABLE, HeldNotices, Watcher
from gangway.trainer.rendezvous.elastic_rendezvous import (
    BACKEND,
    POLL_SEC,
    ElasticRendezvous,
    StoreAnswersAgainError,
    get_address,
    wait_for_store,
)
from gangway.trainer.rendezvous.lifecycle import Event, State
from gangway.trainer.rendezvous.tunnel import KEY_FLAG, MemberKey, keyed_store, listen_everywhere

_WATCH = "--watch"
_START_WHEN = "--start-when"
_MAX_HOURS = "--max-hours"
_MAX_USD, _USD_PER_NODE_HOUR = "--max-usd", "--usd-per-node-hour"
_HANG_AFTER = "--hang-after"
_STORE, _FIRST = "--store", "first"
_NODE_FLAGS = ("--job-dir", "--node", KEY_FLAG, _STORE)
_MONEY_FLAGS = (_MAX_USD, _USD_PER_NODE_HOUR)
_LAUNCHER_FLAGS = (_WATCH, _START_WHEN, "--hours", "--forecast", _HANG_AFTER, _MAX_HOURS, *_MONEY_FLAGS, *_NODE_FLAGS)
_MASTER_PORT = 29500  # torchrun's default where several nodes name no port
_IS_HOST = re.compile(r"\bis_host=(1|true|t|yes|y)\b", re.IGNORECASE)
_NO_SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str]) -> int:
    """Runs torchrun with `argv`; returns 0, the first failed worker's code, 75 after a signal, or one of EXIT_CODES."""
    try:
        own, torchrun_argv = _split_arguments(argv)
        watched = _watch_path(own.get(_WATCH))
        max_sec, limit = _max_sec(own.get(_MAX_HOURS)), _spending_limit(own)
        hang_after_sec = _hang_after_sec(own.get(_HANG_AFTER, "auto"))
        parsed = _parse_torchrun(torchrun_argv)
        _check_port(parsed)
        key = _member_key(own.get(KEY_FLAG), parsed)
        job_dir, node = own.get("--job-dir"), own.get("--node") or socket.gethostname()
        folder = JobFolder(Path(job_dir), node) if job_dir else None
        with _meeting_store(own.get(_STORE), parsed, key), Job(_nodes(parsed), folder, max_sec, limit) as job:
            if job.life.exit_code is None and not _wait_to_start(own, torchrun_argv, job.left_sec()):
                job.on(Event.SIGNAL)
            if job.life.exit_code is None:
                poll = HeldNotices(watched).poll if watched else None
                with tempfile.TemporaryDirectory(prefix="gangway-") as place:
                    notices = Path(place, "notices.jsonl")
                    os.environ[NOTICES_VARIABLE] = str(notices)
                    watcher = Watcher(notices, poll, job.left_sec)
                    watchdog = watch_workers(Path(place), carbon_start.find_run_dir(torchrun_argv), hang_after_sec)
                    _run_torchrun(parsed, job, key, watcher, watchdog)
    except TrainerError as error:
        refuse(error)
        return errors.EXIT_BAD_INPUT
    assert job.life.exit_code is not None
    return job.life.exit_code


def _parse_torchrun(argv: Sequence[str]) -> argparse.Namespace:
    """Parses torchrun's arguments; raises TrainerError where torchrun would end with a traceback."""
    from torch.distributed import run

    parsed: argparse.Namespace = run.parse_args(list(argv))  # type: ignore[no-untyped-call]  # torch has no types here
    try:
        config, _, _ = run.config_from_args(parsed)
        if config.nproc_per_node < 1:
            raise ValueError(f"nproc_per_node must be > 0, got {config.nproc_per_node}")
    except (ValueError, RuntimeError, AssertionError) as error:
        raise TrainerError(
            place="torchrun's arguments",
            problem=str(error),
            value=" ".join(argv),
            fix="`torchrun --help` shows what they take",
        ) from None
    return parsed


def _check_port(parsed: argparse.Namespace) -> None:
    """For a taken port torch raises the same error as for a store that has gone, for which a job waits."""
    endpoint, place = parsed.rdzv_endpoint, "--rdzv-endpoint"
    is_host = _IS_HOST.search(parsed.rdzv_conf) is not None
    if parsed.rdzv_backend == "static":
        # torchrun takes one node without a port for --standalone.
        has_port = endpoint or parsed.master_port is not None or _nodes(parsed).max > 1
        is_host = parsed.node_rank == 0 and not parsed.standalone and bool(has_port)
        if not endpoint:
            endpoint, place = f"{parsed.master_addr}:{parsed.master_port or _MASTER_PORT}", "--master-port"
    if not is_host or not endpoint.rpartition(":")[2].isdecimal():
        return
    port = get_address(endpoint)[1]
    try:
        listen_everywhere(port).close()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise TrainerError(
            place=place,
            problem=f"this node serves the store, and cannot listen at its port: {reason}",
            value=port,
            allowed="a free port",
            fix=f"end the process that holds it (ss -ltnp 'sport = :{port}'), or give all nodes another port",
        ) from None


def _nodes(parsed: argparse.Namespace) -> Nodes:
    from torch.distributed.run import parse_min_max_nnodes

    return Nodes(*parse_min_max_nnodes("1" if parsed.standalone else parsed.nnodes))


def _run_torchrun(
    parsed: argparse.Namespace, job: Job, key: MemberKey | None, watcher: Watcher, watchdog: Watchdog
) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException

    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        # Once: a second signal (a notice, then the end of the service) must not cut short the wait for the checkpoint.
        received.append(number)
        if len(received) == 1:
            watchdog.pause()
            job.on(Event.HOURS_OVER if job.left_sec() <= 0 else Event.SIGNAL)
            raise SignalException(f"signal {number}", signal.Signals(number))

    ends: dict[int, int | None] = {}
    rendezvous = ElasticRendezvous(job.on, lambda: job.life.state is State.TRAINING, key)
    try:
        note_ends(ends)
        rendezvous.register()
        # torchrun handles these two only once its workers start, and a node may wait for hours until then.
        parsed.signals_to_handle = "SIGHUP,SIGQUIT"
        for number in _SIGNALS:
            signal.signal(number, leave)
        job.listen()
        watcher.start()
        while job.life.exit_code is None:
            _run_agent(parsed, job, key, watchdog, ends)
    except SignalException as stop:
        rendezvous.leave()
        job.workers_stopped(_stop_exit_code(ends) if stop.sigval in _SIGNALS else 128 + int(stop.sigval))
    finally:
        rendezvous.close()
        watchdog.close()
        if watcher.is_alive():
            watcher.close()
        for sentence in undo_left_over():
            announce(sentence)


def _run_agent(
    parsed: argparse.Namespace,
    job: Job,
    key: MemberKey | None,
    watchdog: Watchdog,
    ends: Mapping[int, int | None],
) -> None:
    from torch.distributed import DistNetworkError, DistStoreError, run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import (
        RendezvousConnectionError,
        RendezvousStateError,
        RendezvousTimeoutError,
    )

    try:
        if parsed.rdzv_backend == BACKEND:
            wait_for_store(parsed.rdzv_endpoint, key)
        run.run(parsed)  # type: ignore[no-untyped-call]  # torch publishes no types for it
        job.workers_ended(0)
    except ChildFailedError as failed:
        if watchdog.consume_hang() and is_bad_luck(watchdog.hangs, job.failures()):
            job.on(Event.HUNG)
            return
        first = sorted(failed.failures.values(), key=lambda failure: failure.timestamp)
        job.workers_ended(_failures_exit_code([failure.exitcode for failure in first], ends.values(), job.nodes))
    except RendezvousTimeoutError:
        job.on(Event.TOO_FEW)
    except (RendezvousConnectionError, RendezvousStateError, DistStoreError, DistNetworkError):
        # The last two: a peer left or died before it published the address of the workers' store.
        job.on(Event.NO_STORE)
        time.sleep(POLL_SEC)
    except StoreAnswersAgainError:
        job.on(Event.STORE_BACK)


def _failures_exit_code(first: Iterable[int], ends: Iterable[int | None], nodes: Nodes) -> int:
    """Returns the first exit code that says more than that peers had gone."""
    codes = [worker_exit_code(code) for code in first]
    own = [worker_exit_code(code) for code in ends if code not in (None, 0, -signal.SIGTERM, -signal.SIGKILL)]
    code = next((code for code in (*codes, *own) if code != errors.EXIT_PEERS_LOST), errors.EXIT_PEERS_LOST)
    return errors.EXIT_FAILED if code == errors.EXIT_PEERS_LOST and nodes.max == 1 else code


def _stop_exit_code(ends: Mapping[int, int | None]) -> int:
    """Returns 75 where the workers saved and left, 0 where they were done, else a failed or late one's code."""
    killed = [process for process, code in ends.items() if code in (None, -signal.SIGKILL)]
    if killed:
        announce(
            f"{len(killed)} of {len(ends)} worker(s) did not leave in time and were killed (torchrun's "
            "--shutdown-timeout): what they had not saved is lost"
        )
        return 128 + signal.SIGKILL
    crashed = next((-code for code in ends.values() if code is not None and code < 0 and -code not in _SIGNALS), 0)
    if crashed:  # such as an abort of a worker whose peers had gone: it saved nothing
        return 128 + crashed
    # A worker that the signal ended had not begun to train: the others fail without it, and nothing is lost.
    if any(code is not None and code < 0 for code in ends.values()):
        return errors.EXIT_INTERRUPTED
    if ends and not any(ends.values()):  # they were done as the signal came
        return 0
    codes = [worker_exit_code(code) for code in ends.values() if code]
    # A worker that reports an interruption knows that all is saved: those that lost it as a peer lost nothing either.
    saved = {errors.EXIT_INTERRUPTED, *([errors.EXIT_PEERS_LOST] if errors.EXIT_INTERRUPTED in codes else [])}
    return next((code for code in codes if code not in saved), errors.EXIT_INTERRUPTED)


def _split_arguments(argv: Sequence[str]) -> tuple[dict[str, str], Sequence[str]]:
    own: dict[str, str] = {}
    rest = list(argv)
    while rest and rest[0].partition("=")[0] in _LAUNCHER_FLAGS:
        flag, equals, value = rest.pop(0).partition("=")
        own[flag] = value if equals else rest.pop(0) if rest else ""
    return own, rest


def _watch_path(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text)
    if not path.is_absolute() or path.is_dir() or not path.parent.is_dir():
        raise TrainerError(
            place=_WATCH,
            problem="no file in which a machine keeps its notices",
            value=text,
            allowed="the whole path of a file, which may come later, in a folder that is there",
            fix=f"{_WATCH} /run/gangway-notices/held on a machine of ours, nothing elsewhere",
        )
    return path


def _member_key(path: str | None, parsed: argparse.Namespace) -> MemberKey | None:
    """Returns the key of --member-key; None without it, where only the network keeps others out."""
    several = _nodes(parsed).max > 1
    if path is None:
        if several:
            announce(f"warning: without {KEY_FLAG} whoever reaches the rendezvous is a member of this job")
        return None
    if several and parsed.rdzv_backend != BACKEND:
        raise TrainerError(
            place=KEY_FLAG,
            problem="this rendezvous has no use for a key",
            value=f"--rdzv-backend={parsed.rdzv_backend}",
            allowed=f"--rdzv-backend={BACKEND}, or a single node",
            fix=f"--rdzv-backend={BACKEND}, and python -m gangway.trainer.launch.rendezvous where the nodes meet",
        )
    if os.environ.get(_NO_SHARED_STORE) == "1":
        raise TrainerError(
            place=f"${_NO_SHARED_STORE}",
            problem="a store that a worker serves has no use for a key",
            value="1",
            allowed=f"0 with {KEY_FLAG}",
            fix="unset it",
        )
    return MemberKey.read(Path(path))


@contextmanager
def _meeting_store(text: str | None, parsed: argparse.Namespace, key: MemberKey | None) -> Iterator[None]:
    if text is None:
        yield
        return
    if text != _FIRST or key is None:
        raise TrainerError(
            place=_STORE,
            problem="no node to serve the store" if key else f"without {KEY_FLAG} it would be everybody's",
            value=text,
            allowed=f"{_FIRST}, with {KEY_FLAG}",
            fix=f"{_STORE} {_FIRST} {KEY_FLAG} job.pem, or leave it out where a head serves the store",
        )
    if parsed.node_rank != 0:
        yield
        return
    try:
        listening = listen_everywhere(get_address(parsed.rdzv_endpoint)[1])
    except OSError as error:  # another process has the port; a restart may get another one
        warn(f"{_STORE}: cannot listen at {parsed.rdzv_endpoint}: {error.strerror}")
        raise SystemExit(errors.EXIT_FAILED) from None
    store, door = keyed_store(key, listening)
    try:
        yield
    finally:
        door.close()
        del store


def _wait_to_start(own: Mapping[str, str], torchrun_argv: Sequence[str], left_sec: float) -> bool:
    when = own.get(_START_WHEN)
    if when is None:
        for flag in ("--hours", "--forecast"):
            if flag in own:
                announce(f"warning: {flag} is ignored without {_START_WHEN}")
        return True
    start_when = carbon_start.parse_start_when(when, own.get("--hours"), own.get("--forecast"))
    if left_sec < float("inf"):
        start_when = start_when._replace(by=min(start_when.by, datetime.now(UTC) + timedelta(seconds=left_sec)))
    if carbon_start.has_begun(torchrun_argv):
        announce(f"the run has begun: it goes on at once, whatever {_START_WHEN} says")
        return True
    decision = carbon_start.wait(start_when)
    if decision is not None:
        os.environ[carbon_start.START_VARIABLE] = json.dumps(decision)
    return decision is not None


def _hang_after_sec(text: str) -> float | None:
    if text in ("auto", "off"):
        return None if text == "auto" else math.inf
    return parse_number(
        text,
        _is_positive,
        place=_HANG_AFTER,
        problem="no time after which a step counts as hanging",
        allowed="auto, off, or seconds above 0",
        fix="leave it out: the bound is learned from the run's own steps",
    )


def _max_sec(text: str | None) -> float | None:
    if text is None:
        return None
    fix = f"{_MAX_HOURS} 8"
    problem, allowed = "no time for a job", "hours, above 0"
    return 3600 * parse_number(text, _is_positive, place=_MAX_HOURS, problem=problem, allowed=allowed, fix=fix)


def _spending_limit(own: Mapping[str, str]) -> SpendingLimit | None:
    given = [flag for flag in _MONEY_FLAGS if flag in own]
    if not given:
        return None
    fix = f"{_MAX_USD} 500 {_USD_PER_NODE_HOUR} 98.32"

    def amount(flag: str) -> float:
        problem = "no amount of dollars" if flag in own else f"missing, which {given[0]} needs"
        allowed = "US dollars, above 0"
        return parse_number(own.get(flag, ""), _is_positive, place=flag, problem=problem, allowed=allowed, fix=fix)

    return SpendingLimit(amount(_MAX_USD), amount(_USD_PER_NODE_HOUR))


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf
