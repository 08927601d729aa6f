"""torchrun with an exit code that means something: `python -m trainer.launch --standalone --nproc-per-node 2 -m trainer
train --preset dcgan-digits`.

torchrun itself ends with 1 whatever its workers said. Here a worker's own code comes through, so that a service manager
can tell bad input (2: do not try again) from an interruption (75: start the same command again). Arguments are
torchrun's, unchanged; this is no launcher of its own.
"""

import signal
import sys
from collections.abc import Sequence

from trainer.errors import EXIT_INTERRUPTED

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Runs torchrun with `argv` and returns 0, the first failed worker's exit code, or 75 after a signal."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.run(run.parse_args(list(argv)))  # type: ignore[no-untyped-call]  # torch publishes no types for it
    except ChildFailedError as failed:
        code = failed.get_first_failure()[1].exitcode
        # A negative code is the signal that killed the worker; the shell's convention is 128 + signal.
        return 128 - code if code < 0 else code
    except SignalException as stopped:
        # The workers were told, wrote their checkpoint and left: that is an interruption, not a failure.
        return EXIT_INTERRUPTED if stopped.sigval in (signal.SIGTERM, signal.SIGINT) else 128 + int(stopped.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
