"""Run folders in the trainer's own format, made from one recorded run, and a dashboard over them without threads."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from gangway.live.dashboard.access import Access
from gangway.live.dashboard.actions import ActionLog
from gangway.live.dashboard.app import Board, get_app
from gangway.live.dashboard.index import RunIndex
from gangway.live.dashboard.sources import Queue, Stack
from tests.gangway.live.dashboard.synthetic import write_runs

PORT = 8808
ORIGIN = f"http://127.0.0.1:{PORT}"
Client = Callable[..., TestClient]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_runs(folder, 6)
    return folder


@pytest.fixture
def access() -> Access:
    return Access(PORT)


@pytest.fixture
def client(access: Access, tmp_path: Path) -> Iterator[Client]:
    """Makes a browser that has entered, over some folders of runs."""
    opened: list[TestClient] = []

    def make(
        *folders: Path, queues: tuple[Queue, ...] = (), stacks: tuple[Stack, ...] = (), acts: bool = False, **more: Any
    ) -> TestClient:
        index = RunIndex(folders)
        index.refresh()
        log = ActionLog(tmp_path / "actions.jsonl") if acts else None
        board = Board(index, {queue.key: queue for queue in queues}, stacks, action_log=log, **more)
        for queue in queues:
            queue.jobs.refresh()
        found = TestClient(get_app(board, access), base_url=ORIGIN, follow_redirects=False)
        found.cookies.set(access.cookie, access.session, domain="127.0.0.1")
        opened.append(found)
        return found

    yield make
    for each in opened:
        each.close()


def add_line(folder: Path, **line: object) -> None:
    with (folder / "stats.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
