"""What the trainer's exit codes mean. Without imports: `trainer.errors` uses it inside, `trainer.record` outside."""

__all__ = ["EXIT_BAD_INPUT", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_UNHEALTHY"]

EXIT_FAILED = 1
"""Our own bug or a machine's failure: a traceback was printed, by the worker it happened on. Or the run's directory is
in use: the next try may find it free."""
EXIT_BAD_INPUT = 2
"""A user's mistake: trying again without a change is in vain."""
EXIT_UNHEALTHY = 3
"""The machines did not pass their acceptance test: the job did not start, and other machines may do."""
EXIT_INTERRUPTED = 75
"""EX_TEMPFAIL of sysexits.h: the run was interrupted, its state is saved, start the same command again."""
