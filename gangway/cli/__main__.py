"""`python -m gangway.cli`: the `gangway` command without its entry point."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C while all this is imported ends the process as a signal does, without a traceback: 130 in a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gangway.cli.main import main

if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
    signal.signal(signal.SIGINT, signal.default_int_handler)
main()
