"""What a cloud or a launcher has said about this node's future: one JSON line for each notice, in a file of the node.

`trainer.launch` makes it, `trainer.watch` appends, workers find it by $GANGWAY_NOTICES: the record then says why a run
stopped, where the signal only says that it must.
"""

import json
import os
import time
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["NOTICES_VARIABLE", "Kind", "Notice", "notices_file", "read_notices", "write_notice"]

NOTICES_VARIABLE = "GANGWAY_NOTICES"

Kind = Literal["spot-interruption", "lifecycle-terminate", "max-hours", "rebalance", "host-maintenance", "host-restart"]


class Notice(NamedTuple):
    """One notice.

    Attributes:
        kind: spot-interruption, lifecycle-terminate (its Auto Scaling group or scale set wants the node to go),
            max-hours (the job's time is over), rebalance (an interruption has become likely: save, and go on),
            host-maintenance (the host will be taken away, up to an hour from now, or stand still for some seconds:
            save, and go on until the machine is shut down), or host-restart (the machine will be restarted soon, here
            or on another host, and come back).
        seen_at: seconds since 1970.
        deadline: when the node goes, ISO 8601 as the cloud wrote it; empty where it does not say.
    """

    kind: Kind
    seen_at: float
    deadline: str = ""

    @property
    def stops(self) -> bool:
        """Whether the run must leave this node."""
        return self.kind not in ("rebalance", "host-maintenance")


def notices_file() -> Path | None:
    """The node's file; None outside `trainer.launch`."""
    path = os.environ.get(NOTICES_VARIABLE)
    return Path(path) if path else None


def write_notice(path: Path, kind: Kind, deadline: str = "") -> Notice:
    """Appends a notice with the present time, in one write, so that a reader never sees half of it."""
    notice = Notice(kind, time.time(), deadline)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(notice._asdict()) + "\n")
    return notice


def read_notices(path: Path | None) -> list[Notice]:
    """All notices so far, oldest first; none where there is no file yet."""
    if path is None or not path.exists():
        return []
    return [Notice(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
