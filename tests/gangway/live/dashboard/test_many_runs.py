"""Ten thousand run folders: answers stay small and read few files. `-s` shows the times, which nothing asserts."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangway.live.dashboard.access import Access
from gangway.live.dashboard.app import MOST_PAGE_BYTES, Board, get_app
from gangway.live.dashboard.index import RunIndex
from tests.gangway.live.dashboard.asgi import Client
from tests.gangway.live.dashboard.synthetic import write_run, write_runs

COUNT = int(os.environ.get("GANGWAY_DASHBOARD_RUNS", "10000"))
MOST_FILES = 8
"""Of a run: record, its signature, log, plan; and parts of the page that are read once."""
_opened: list[str] | None = None


def _audit(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(args[0]))


sys.addaudithook(_audit)


@contextmanager
def files_opened() -> Iterator[list[str]]:
    """Files that are opened meanwhile, by any thread; not folders on the way to one."""
    global _opened
    found = list[str]()
    _opened = found
    try:
        yield found
    finally:
        _opened = None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_runs(tmp_path: Path, access: Access) -> None:
    folder = tmp_path / "runs"
    write_runs(folder, COUNT)
    index = RunIndex([folder])
    index.refresh()
    print(f"\nfirst pass: {index.progress.sec:.2f} s for {index.progress.found:,} runs")
    assert len(index.rows) == COUNT
    with files_opened() as opened:
        index.refresh()
    print(f"next pass: {index.progress.sec:.2f} s, {len(opened)} files")
    client = Client(get_app(Board(index), access), cookie=f"{access.cookie}={access.session}")
    keys = [row.key for row in index.rows]
    urls: Mapping[str, Callable[[int], str]] = {
        "overview": lambda number: "/",
        "runs": lambda number: f"/runs?page={1 + number}",
        "runs, filtered": lambda number: (
            f"/runs?q=run+stack-3&preset=dcgan-digits&state=done&sort=usd&page={1 + number}"
        ),
        "run": lambda number: f"/runs/{keys[37 * number]}",
        "compare 6": lambda number: "/compare?" + "&".join(f"run={keys[number * 7 + each]}" for each in range(6)),
    }
    client.get("/compare?" + "&".join(f"run={key}" for key in keys[:6]))  # templates are compiled, modules loaded
    for name, url in urls.items():
        times = []
        for number in range(40):
            with files_opened() as opened:
                began = time.perf_counter()
                answer = client.get(url(number))
                times.append(time.perf_counter() - began)
            assert answer.code == 200
            assert len(answer.content) < MOST_PAGE_BYTES
            runs_read = 6 if name == "compare 6" else 1 if name == "run" else 0
            of_runs = [path for path in opened if path.endswith((".json", ".jsonl", ".sig", ".log"))]
            assert len(of_runs) <= MOST_FILES * runs_read, of_runs
        times.sort()
        middle, late = statistics.median(times), times[int(0.95 * len(times))]
        print(f"{name}: median {1000 * middle:.0f} ms, p95 {1000 * late:.0f} ms, {len(answer.content) / 1000:.0f} kB")
    write_run(folder / "new", COUNT)
    with files_opened() as opened:
        index.refresh()
    assert len(index.rows) == COUNT + 1
    assert len([path for path in opened if path.endswith((".json", ".jsonl"))]) <= 2, opened
