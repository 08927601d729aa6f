"""The last state of the nodes of a run's jobs, as text (`gangway job RUN_DIR`)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from gangway.trainer.core.errors import visible
from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.launch.failures import own_failures
from gangway.trainer.launch.job_clock import used_sec
from gangway.trainer.launch.node_state import JobFolder

LAUNCH_FOLDER = ".launch"
"""In a run's folder; holds a folder per job, named by `gangway.images.shell.life_argv`."""
_WORDS = r"^[A-Za-z0-9', -]{1,100}$"


class _Change(BaseModel):
    """A line of a node's log of changes (`JobFolder.note`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    event: str = Field(pattern=_WORDS)
    state: str = Field(pattern=_WORDS)


def lines_of_nodes(run_dir: Path) -> Iterator[str]:
    """Yields a line per job and node with its last state; nothing where no job has a folder."""
    now = time.time()
    for folder in sorted(path for path in (run_dir / LAUNCH_FOLDER).glob("*") if path.is_dir()):
        job = JobFolder(folder, "")
        nodes = job.nodes()
        if not nodes:
            continue
        yield f"job {visible(folder.name)}: {used_sec(nodes) / 3600:.2f} h with a node up"
        for name, state in nodes.items():
            failures = own_failures(name, nodes, now)
            yield (
                f"  {name}: {state.standing}, seen {max(0.0, now - state.seen_at):,.0f} s ago"
                f"{f', {failures} failures within six hours' if failures else ''}{_last_change(folder, name)}"
            )
        if (over := job.over()) is not None:
            yield f"  ended for all with exit code {over.code}, {over.node} says, {_moment(over.at)}"


def _moment(seconds: float) -> str:
    """Formats a time, which may be out of range as a node's clock may be wrong."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OSError, OverflowError, ValueError):
        return f"{seconds:g} s after 1970"


def _last_change(folder: Path, node: str) -> str:
    try:
        *_, last = read_text_file(folder / f"node-{node}.jsonl").splitlines()
        change = _Change.model_validate_json(last)
    except (OSError, ValueError):
        return ""
    return f"; {change.event}: {change.state}"
