"""torchrun with an exit code that means something: `python -m trainer.launch --standalone --nproc-per-node 2 -m trainer
train --preset dcgan-digits`.

torchrun itself ends with 1 whatever its workers said. Here a worker's own code comes through, so that a service manager
can tell bad input (2: do not try again) from an interruption (75: start the same command again). `--watch aws`,
`azure` or `gcp`, before torchrun's own arguments, makes it look out for the cloud's notices; $GANGWAY_STOP_AT (seconds
since 1970) is the job's deadline. All other arguments are torchrun's, unchanged; this is no launcher of its own.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from trainer.errors import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, TrainerError, nearest
from trainer.membership import BACKEND, Membership, wait_for_store
from trainer.notices import NOTICES_VARIABLE
from trainer.watch import CLOUDS, Watcher, poll_sec_of

__all__ = ["STOP_AT_VARIABLE", "main"]

STOP_AT_VARIABLE = "GANGWAY_STOP_AT"
_WATCH = "--watch"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str]) -> int:
    """Runs torchrun with `argv` and returns 0, the first failed worker's exit code, or 75 after a signal."""
    try:
        cloud, torchrun_argv = _own_arguments(argv)
        stop_at = _stop_at(os.environ.get(STOP_AT_VARIABLE))
    except TrainerError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_BAD_INPUT
    with tempfile.TemporaryDirectory(prefix="gangway-") as folder:
        notices = Path(folder, "notices.jsonl")
        os.environ[NOTICES_VARIABLE] = str(notices)
        poll_sec = float(os.environ.get("GANGWAY_POLL_SEC", poll_sec_of(cloud)))
        poll = CLOUDS[cloud]() if cloud else None
        watcher = Watcher(notices, poll, stop_at, poll_sec) if cloud or stop_at else None
        try:
            return _torchrun(torchrun_argv, watcher)
        finally:
            if watcher is not None and watcher.is_alive():
                watcher.close()


def _torchrun(argv: Sequence[str], watcher: Watcher | None) -> int:
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    told: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        # Once: a second signal (a notice and the end of the service) must not cut short the wait for the checkpoint.
        told.append(number)
        if len(told) == 1:
            raise SignalException(f"signal {number}", signal.Signals(number))

    membership = Membership()
    membership.register()
    parsed = run.parse_args(list(argv))  # type: ignore[no-untyped-call]  # torch publishes no types for it
    # torchrun would take these two over, and only when its workers start: until then a node may wait for minutes.
    parsed.signals_to_handle = "SIGHUP,SIGQUIT"
    for number in _SIGNALS:
        signal.signal(number, leave)
    try:
        if watcher is not None:
            watcher.start()
        if parsed.rdzv_backend == BACKEND:
            wait_for_store(parsed.rdzv_endpoint)
        run.run(parsed)  # type: ignore[no-untyped-call]  # torch publishes no types for it
    except ChildFailedError as failed:
        code = failed.get_first_failure()[1].exitcode
        # A negative code is the signal that killed the worker; the shell's convention is 128 + signal.
        return 128 - code if code < 0 else code
    except SignalException as stopped:
        # The workers were told, wrote their checkpoint and left: that is an interruption, not a failure.
        membership.leave()
        return EXIT_INTERRUPTED if stopped.sigval in _SIGNALS else 128 + int(stopped.sigval)
    except TrainerError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_FAILED
    return 0


def _own_arguments(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """What `--watch` names, empty for nothing, and torchrun's arguments.

    Raises:
        TrainerError: a cloud that nobody can watch.
    """
    first = argv[0] if argv else ""
    if first != _WATCH and not first.startswith(f"{_WATCH}="):
        return "", argv
    value, rest = (first.partition("=")[2], argv[1:]) if "=" in first else ("".join(argv[1:2]), argv[2:])
    if value not in CLOUDS:
        near = nearest(value, CLOUDS)
        raise TrainerError(
            place=_WATCH,
            problem="no cloud whose notices can be watched",
            value=value,
            allowed=", ".join(CLOUDS),
            fix=f"did you mean {near!r}?" if near else f"{_WATCH} and this machine's cloud, nothing elsewhere",
        )
    return value, rest


def _stop_at(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise TrainerError(
            place=f"${STOP_AT_VARIABLE}",
            problem="no point in time",
            value=text,
            allowed="seconds since 1970",
            fix=f"{STOP_AT_VARIABLE}=$(date -d '+8 hours' +%s), for example",
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
