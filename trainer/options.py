"""How a run is carried out: what the command line says of this session alone; it may go on with other options."""

from dataclasses import dataclass

from trainer.power.limits import NOTHING_ASKED, PowerAsked
from trainer.told import tell, warn

__all__ = ["PLAIN", "RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """Of one session.

    Attributes:
        resume: go on from the newest valid checkpoint; False refuses a directory that has one.
        metrics_port: for Prometheus; None for no endpoint.
        fabric_min_gbps: bus bandwidth without which the run does not start, Gbit/s; None to start on any fabric.
        track: targets that rank 0 shows the run to besides, see trainer.tracking.
        log_json: print the lines of stats.jsonl instead of sentences about them.
    """

    resume: bool = True
    metrics_port: int | None = None
    fabric_min_gbps: float | None = None
    track: tuple[str, ...] = ()
    log_json: bool = False
    power: PowerAsked = NOTHING_ASKED

    def say(self, sentence: str) -> None:
        """Tells the user, on stderr where stdout is for JSON alone."""
        (warn if self.log_json else tell)(sentence)


PLAIN = RunOptions()
