"""Queues, stacks and suites: who asks them, how often, and what is shown of them."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gangway.bench.journal import Journal, State
from gangway.bench.suite import SuiteConfig, get_items
from gangway.components.core.findings import InputError
from gangway.jobs.systemd.state import JobState
from gangway.live.dashboard import sources
from gangway.live.dashboard.sources import Stack, Watched, describe, read_log_end
from tests.gangway.live.dashboard.conftest import FakeEngine, Open
from tests.gangway.live.dashboard.synthetic import write_run
from tests.gangway.live.dashboard.test_pages import cells_of, read

SUITE = {
    "name": "smoke", "title": "<b>smoke</b>", "preset": "dcgan-digits", "kimg": 6, "seeds": [0, 1, 2],
    "stacks": ["local"], "arms": [{"name": "control"}, {"name": "half"}], "deadline_hours": 1,
}  # fmt: skip


def until(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within eight seconds")


def test_a_value_is_read_while_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_IDLE_SEC", 0.05)
    counts: list[int] = []

    def count() -> int:
        counts.append(1)
        return len(counts)

    watched = Watched(count, 0.01)
    assert watched.peek().value is None
    assert counts == [], "nobody asked"
    until(lambda: (watched.get().value or 0) >= 3)
    until(lambda: not watched._is_watched)
    ended = len(counts)
    assert watched.peek().value == ended
    watched.get()
    until(lambda: len(counts) > ended)


def test_a_failed_question_keeps_the_last_answer() -> None:
    answers: list[Any] = [1, InputError("kubectl", "no answer\x1b", fix="log in"), RuntimeError("odd"), 2]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    watched = Watched(ask, 1)
    seen = []
    for _ in range(4):
        watched.refresh()
        seen.append((watched.peek().value, watched.peek().problem))
    assert seen == [(1, ""), (1, r"kubectl: no answer\x1b; log in"), (1, "RuntimeError: odd"), (2, "")]


def test_errors_are_described_on_one_line_of_bounded_length() -> None:
    assert describe(ExceptionGroup("x", [InputError("a", "b\nc")])) == r"a: b\nc"
    assert len(describe(OSError("x" * 5000))) < 410


def test_the_end_of_another_engines_log_is_bounded() -> None:
    assert read_log_end(FakeEngine([], log="é" * 100_000 + "end"), "a").endswith("éend")
    assert len(read_log_end(FakeEngine([], log="x" * 100_000), "a")) == 32_000


def write_suite(folder: Path, **changes: Any) -> Path:
    """A suite whose first arm has a recorded, a running and a failed run."""
    folder.mkdir(parents=True)
    suite = SuiteConfig.model_validate({**SUITE, **changes})
    header = {"version": 1, "suite": suite.model_dump(mode="json"), "stamp": "20260101-120000", "local": True}
    items = get_items(suite, local=True)
    with Journal.create(folder, header, lambda: datetime(2026, 1, 1, tzinfo=UTC)) as journal:
        for item in items:
            journal.enter(item.name, State.PLANNED)
        for item in items[:3]:
            journal.enter(item.name, State.UP_BEGUN)
        for item in items[:1]:
            journal.enter(item.name, State.UP)
            journal.enter(item.name, State.RECORDED)
        journal.enter(items[2].name, State.FAILED, reason="out of <memory>")
    write_run(folder / f"{items[1].name}-20260101-120000", 3, status="running")
    return folder


def test_a_suite_shows_its_progress_per_arm_even_while_it_is_held(open_board: Open, tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "runs" / "smoke-1")
    client = open_board(tmp_path / "runs")
    with Journal.open(folder):  # as `gangway bench` holds it
        page = read(client.get("/suites"))
    arms = cells_of(page)
    assert arms["local, control"] == "50 % 3 1 1 0 1 0"
    assert arms["local, half"] == "0 % 3 0 0 3 0 0"
    link = page.find("a", href=f"/suites/{page.find('section')[0].attrs['aria-labelledby'].removeprefix('suite-')}")[0]
    one = cells_of(read(client.get(link.attrs["href"])))
    assert one["local-control-s1"] == "running 3 234.3 - -"
    assert one["local-control-s2"] == "failed - - - - out of <memory>"
    assert "1 of 6 runs recorded" in read(client.get("/")).section("suites")


def test_a_named_suite_and_a_damaged_one(open_board: Open, tmp_path: Path) -> None:
    damaged = write_suite(tmp_path / "b")
    (damaged / "journal.jsonl").write_text(json.dumps({"at": "x"}) + "\n")
    folders = (write_suite(tmp_path / "a"), damaged, tmp_path / "none")
    page = read(open_board(suite_folders=folders).get("/suites"))
    assert len(page.find("section")) == 2
    assert "cannot be read" in page.find("p", class_="problem")[0].text


@pytest.mark.attack("a user who writes to a shared folder of runs", "texts or files that act in the dashboard")
def test_a_linked_journal_is_not_followed(open_board: Open, tmp_path: Path) -> None:
    whole = write_suite(tmp_path / "elsewhere")
    (tmp_path / "runs" / "linked").mkdir(parents=True)
    (tmp_path / "runs" / "linked" / "journal.jsonl").symlink_to(whole / "journal.jsonl")
    text = open_board(tmp_path / "runs").get("/suites").text
    assert "a link" in text
    assert "control" not in text


def test_a_stack_shows_the_lines_of_its_job(open_board: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state = SimpleNamespace(
        lines=lambda command: ["run in s3://runs", "last seen at \x1b[31m64,000 images"], decisions=(), is_over=False,
        images=64_000,
    )  # fmt: skip
    breaker = SimpleNamespace(read_held=lambda: None)
    running = SimpleNamespace(outputs={}, breaker=breaker, store=None)
    monkeypatch.setattr(sources, "open_stack", lambda config: running)
    monkeypatch.setattr(JobState, "read", lambda store: state)
    stack = Stack.of("aws-demo", Path("stacks"))
    stack.view.refresh()
    text = open_board(stacks=[stack]).get("/").text
    assert "64 kimg" in text
    assert r"last seen at \x1b[31m64,000 images" in text
    missing = Stack.of("no-such-stack", Path("stacks"))
    missing.view.refresh()
    assert "no file Pulumi.no-such-stack.yaml" in missing.view.peek().problem
