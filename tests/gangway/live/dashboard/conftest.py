"""A dashboard over run folders in the trainer's own format, without threads and sockets."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import Finding
from gangway.components.estimate.regions import Place
from gangway.jobs.base import Engine, EngineAwayError, JobStatus, Room
from gangway.jobs.sites import Site
from gangway.live.dashboard.access import Access
from gangway.live.dashboard.actions import ActionLog
from gangway.live.dashboard.app import Board, get_app
from gangway.live.dashboard.index import RunIndex
from gangway.live.dashboard.sources import Queue
from gangway.stacks.config.job_file import JobFile
from tests.gangway.live.dashboard.asgi import Client
from tests.gangway.live.dashboard.synthetic import write_runs

PORT = 8808
Open = Callable[..., Client]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_runs(folder, 10)
    return folder


@pytest.fixture
def access() -> Access:
    return Access(PORT)


@pytest.fixture
def open_board(access: Access, tmp_path: Path) -> Open:
    """Makes a client that has entered a dashboard over some folders of runs."""

    def make(*folders: Path, queues: tuple[Queue, ...] = (), acts: bool = False, **more: Any) -> Client:
        index = RunIndex(folders)
        index.refresh()
        for queue in queues:
            queue.jobs.refresh()
        log = ActionLog(tmp_path / "actions.jsonl") if acts else None
        board = Board(index, {queue.key: queue for queue in queues}, action_log=log, **more)
        return Client(get_app(board, access), cookie=f"{access.cookie}={access.session}")

    return make


def add_line(folder: Path, **line: object) -> None:
    with (folder / "stats.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


class FakeEngine:
    """An engine with fixed jobs that remembers what it was asked to do."""

    kind, where = "slurm", "fake"
    region: Place | None = None

    def __init__(self, jobs: Sequence[JobStatus], *, log: str = "", problem: str = "") -> None:
        self._jobs, self._log, self._problem = list(jobs), log, problem
        self.cancelled: list[str] = []

    def jobs(self) -> Sequence[JobStatus]:
        if self._problem:
            raise EngineAwayError("slurm", self._problem)
        return self._jobs

    def status(self, job_id: str) -> JobStatus:
        return next(each for each in self._jobs if each.id == job_id)

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        return self._log[offset:], len(self._log.encode())

    def cancel(self, job_id: str) -> None:
        if self._problem:
            raise EngineAwayError("slurm", self._problem)
        self.cancelled.append(job_id)

    def findings(self, job: JobFile) -> Sequence[Finding]:
        return ()

    def submit(self, job: JobFile) -> str:
        raise NotImplementedError

    def room(self, job: JobFile) -> Room:
        raise NotImplementedError

    def ensure_begun(self, job_id: str) -> None:
        raise NotImplementedError


def get_queue(engine: Engine) -> Queue:
    return Queue.of(Site(engine, "fake"))
