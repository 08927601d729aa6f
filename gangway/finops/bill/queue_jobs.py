"""Queue jobs against the cluster's bill: node-hours by user, dollars by team."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.markup import escape
from rich.table import Table

from gangway.components.core.findings import InputError, nearest_hint
from gangway.components.core.foreign_files import foreign_path
from gangway.finops.bill.cost_allocation import Span, Sums, Window
from gangway.jobs.base import JobStatus
from gangway.stacks.base.registry import sellers
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.core.validation import first_mistake

_WORD = re.compile(r"(?P<provider>[a-z]+):(?P<stack>[a-z][a-z0-9-]*)=(?P<file>.+)")
_LISTED = TypeAdapter(list[JobStatus])


@dataclass(frozen=True)
class QueueJob:
    """A job that had nodes. `spans`: one still running ends at its listing."""

    job_id: str
    user: str
    team: str
    provider: str
    stack: str
    spans: tuple[Span, ...]
    submitted_at: datetime | None = None

    @property
    def key(self) -> str:
        """Unique: ids may repeat across stacks, namespaces and folders."""
        return f"{self.stack}/{self.job_id} of {self.submitted_at}"

    @property
    def window(self) -> Window:
        """The window to allocate charges to."""
        return Window(self.key, self.provider, self.stack, self.spans)

    @property
    def node_hours(self) -> float:
        """Of all spans."""
        return sum((span.end - span.start).total_seconds() * span.num_nodes for span in self.spans) / 3600


@dataclass(frozen=True)
class JobLine:
    """A job and its share of the bill."""

    job: QueueJob
    billed: Sums

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        job = self.job
        return {
            "job": job.job_id,
            "stack": job.stack,
            "provider": job.provider,
            "user": job.user,
            "team": job.team,
            "node_hours": job.node_hours,
            "usd": self.billed.usd,
        }


@dataclass(frozen=True)
class Share:
    """Use of one cluster by one user of one team."""

    provider: str
    stack: str
    team: str
    user: str
    jobs: int
    node_hours: float
    usd: float


def read_queue_jobs(words: Sequence[str]) -> list[QueueJob]:
    """Parse `PROVIDER:STACK=FILE`, each the latest output of `gangway job list --json`. InputError: invalid."""
    found, seen = list[QueueJob](), set[str]()
    known = [provider.name for provider in sellers()]
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None or match["provider"] not in known:
            providers = ", ".join(known)
            raise InputError(
                "--jobs", "not the jobs of a stack", value=word,
                allowed=f"PROVIDER:STACK=FILE with a provider of {providers}",
                fix="gangway job list --json > jobs.json, then --jobs aws:my-stack=jobs.json"
                if match is None
                else nearest_hint(match["provider"], known),
            )  # fmt: skip
        file = Path(match["file"])
        statuses = _listed(file)
        listed_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        for status in statuses:
            spans = _spans(status, match["file"], listed_at)
            identity = status.id, status.user, status.team, match["provider"], match["stack"]
            job = QueueJob(*identity, spans, status.submitted_at)
            if job.key in seen:
                raise InputError(
                    "--jobs", "duplicate job", value=f"{job.stack}, {job.job_id}",
                    allowed="one listing per stack", fix="remove one of the files",
                )  # fmt: skip
            seen.add(job.key)
            if spans:
                found.append(job)
    return found


def _spans(status: JobStatus, file: str, listed_at: datetime) -> tuple[Span, ...]:
    if status.stretches is None:
        raise InputError(
            file, "the times of this job on nodes are unknown", value=status.id,
            allowed="jobs with known stretches",
            fix="list the jobs as a user who may read them; or remove the job from the file: its cost then counts "
            "for other jobs, or as unexplained",
        )  # fmt: skip
    for each in status.stretches:
        times = (each.start, each.until(listed_at))
        if None in (time.tzinfo for time in times) or times[1] < times[0] or each.nodes < 1:
            raise InputError(
                f"{file}: {status.id}", "invalid time on nodes",
                value=f"{each.start} to {times[1]}, {each.nodes} nodes",
                allowed="a start and an end, in order, with time zones, and at least 1 node",
                fix="gangway job list --json > jobs.json; running jobs end at the file's time",
            )  # fmt: skip
    return tuple(Span(each.start, each.until(listed_at), each.nodes) for each in status.stretches)


def _listed(path: Path) -> list[JobStatus]:
    try:
        if foreign := foreign_path(path, "reconcile --jobs"):
            raise foreign.within("--jobs", " ")
        return _LISTED.validate_json(read_file(path))
    except OSError as error:
        raise InputError(f"--jobs {path}", f"cannot be read: {error.strerror}", fix="check the path") from None
    except ValidationError as error:
        raise InputError(
            f"--jobs {path}",
            f"not a list of jobs: {first_mistake(error)}",
            allowed="output of `gangway job list --json`",
            fix="gangway job list --json > jobs.json",
        ) from None


def shares(lines: Iterable[JobLine]) -> list[Share]:
    """Sums by cluster, team and user, most dollars first."""
    groups = dict[tuple[str, str, str, str], list[JobLine]]()
    for line in lines:
        job = line.job
        groups.setdefault((job.provider, job.stack, job.team, job.user), []).append(line)
    found = [
        Share(*key, len(own), sum(line.job.node_hours for line in own), sum(line.billed.usd for line in own))
        for key, own in groups.items()
    ]
    return sorted(found, key=lambda share: (-share.usd, share.stack, share.team, share.user))


def shares_table(lines: Iterable[JobLine]) -> Table:
    """The shares as a table."""
    table = Table(title="jobs of queues, by team and user", title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    for column in ("cluster", "team", "user", "jobs", "node-hours", "USD"):
        table.add_column(column, justify="right" if column in ("jobs", "node-hours", "USD") else "left")
    for share in shares(lines):
        table.add_row(
            escape(f"{share.stack}, {share.provider}"), escape(share.team or "(none)"), escape(share.user),
            f"{share.jobs:,}", f"{share.node_hours:,.1f}", f"{share.usd:,.2f}",
        )  # fmt: skip
    return table
