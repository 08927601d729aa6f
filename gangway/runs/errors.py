"""What can go wrong with a run and with the bucket that holds its record."""

from enum import Enum


class RunFailedError(Exception):
    """An item did not do what it should; the others go on."""


class Failure(Enum):
    """Why a run bucket did not answer.

    LASTING: a refusal, or no such bucket; when it stays, it ends the run.
    LOGIN: this shell's login, or what nobody can tell from it; a run that it once saw is not ended for that.
    OUTAGE: the network, or the service; it passes.
    ODD: none; it answered, with what no node of this version writes. The run itself may be well.
    """

    LASTING = "lasting"
    LOGIN = "login"
    OUTAGE = "outage"
    ODD = "odd"


class StoreFailedError(Exception):
    """The run bucket did not answer; maybe it will."""

    def __init__(self, message: str, kind: Failure = Failure.LASTING) -> None:
        super().__init__(message)
        self.kind = kind
