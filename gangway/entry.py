"""The `gangway` script's first module: until the command has been imported, Ctrl-C ends it without a traceback."""

import signal
import sys

_inherited = signal.getsignal(signal.SIGINT)
"""Python's own handler; another where SIGINT is ignored, as in a background job."""
if _inherited is signal.default_int_handler and sys.argv[:1] and sys.argv[0].rpartition("/")[2] == "gangway":
    # Only in the `gangway` script: as a program without a handler ends, 130 in a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """The `gangway` command."""
    if _inherited is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gangway.cli.main import main as run_command

    signal.signal(signal.SIGINT, _inherited)
    run_command()
