"""Errors of a run and of the bucket with its record."""

from enum import Enum


class RunFailedError(Exception):
    """One item failed; the others continue."""


class Failure(Enum):
    """Why a run bucket could not be read.

    LASTING: no permission, or no such bucket; ends the run if it persists.
    LOGIN: this shell's login, or a cause that looks like it; does not end a run that was once visible.
    OUTAGE: the network or the service; temporary.
    ODD: not a failure: a file that no node of this version writes. The run may be fine.
    """

    LASTING = "lasting"
    LOGIN = "login"
    OUTAGE = "outage"
    ODD = "odd"


class StoreFailedError(Exception):
    """The run bucket could not be read, maybe temporarily."""

    def __init__(self, message: str, kind: Failure = Failure.LASTING) -> None:
        super().__init__(message)
        self.kind = kind
