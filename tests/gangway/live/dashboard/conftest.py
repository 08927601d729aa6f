"""A dashboard over run folders in the trainer's own format, without threads and sockets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.live.dashboard.access import Access
from gangway.live.dashboard.actions import ActionLog
from gangway.live.dashboard.app import Board, get_app
from gangway.live.dashboard.index import RunIndex
from gangway.live.dashboard.sources import Queue
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
