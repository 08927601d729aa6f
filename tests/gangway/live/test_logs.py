"""`gangway logs`: lines of all nodes in order of time, from where the nodes send them, without control characters."""

import io
import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.live.logs import Printer, follow, parse_since
from gangway.live.nodes import LogLine, payload_text
from tests.gangway.live.conftest import put_lines

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["logs", *words])


def line(sec: float, node: str = "a", text: str = "x") -> LogLine:
    return LogLine(NOW + timedelta(seconds=sec), node, text, f"{sec} {node} {text}")


def test_nodes_are_merged_in_order_of_time_with_their_names(make_stack: Callable[..., Any], aws: Any) -> None:
    make_stack(log_group="/gangway/demo")
    now = time.time()
    put_lines(aws, "i-0a/job", [(now - 50, "first"), (now - 10, "third\x1b[2J\nfourth")])
    put_lines(aws, "f" * 64, [(now - 4000, "of an hour ago"), (now - 30, "second")])
    put_lines(aws, "i-0a/node", [(now - 5, '{"event": "job-ended"}')], "/gangway/demo/events")
    found = ask("demo")
    assert found.exit_code == 0, (found.output, found.exception)
    words = [text.split(" ", 1)[1] for text in found.stdout.splitlines()]
    assert words == [
        "i-0a first", f"{'f' * 12} second", "i-0a third\\x1b[2J", "i-0a fourth", 'i-0a {"event": "job-ended"}'
    ]  # fmt: skip
    assert "of an hour ago" in ask("demo", "--since", "2h").stdout


def test_without_a_log_service_the_run_s_statistics_are_shown(make_stack: Callable[..., Any]) -> None:
    make_stack()
    found = ask("demo", "--since", "1h")
    assert found.exit_code == 0, (found.output, found.exception)
    assert "aws has no log service" in found.stderr
    assert json.loads(found.stdout.splitlines()[-1].split(" ", 2)[2])["images"] == 1_200_000
    assert ask(str(Path("bucket/demo/demo")), "--since", "1h").stdout == found.stdout


def test_what_cannot_be_read_is_refused(make_stack: Callable[..., Any], aws: Any) -> None:
    make_stack(log_group="/gangway/nonesuch")
    refused = ask("demo")
    assert isinstance(refused.exception, InputError)
    assert "logs:FilterLogEvents" in str(refused.exception)
    assert isinstance(ask("nonesuch").exception, InputError)


@pytest.mark.parametrize(
    "text", ["", "10", "10 m", "-1m", "1w", "999999999d", "2030-01-01", "2031-01-01T00:00:00+00:00"]
)
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--since"):
        parse_since(text, NOW)


def test_times_are_ago_or_with_a_zone() -> None:
    assert parse_since("90s", NOW) == NOW - timedelta(seconds=90)
    assert parse_since("2029-12-31T23:00:00+01:00", NOW) == datetime(2029, 12, 31, 22, tzinfo=UTC)


def test_followed_lines_come_once_and_late_ones_too() -> None:
    answers = [[line(0), line(1, "b")], [line(0), line(1, "b"), line(0.5, "late"), line(2)], [line(2), line(3)]]
    asked: list[datetime] = []

    def read(since: datetime) -> list[LogLine]:
        asked.append(since)
        if len(asked) == 2:
            raise InputError("log", "no answer")
        return answers.pop(0)

    def pause() -> None:
        if not answers:
            raise KeyboardInterrupt

    warnings: list[str] = []
    found = []
    with suppress(KeyboardInterrupt):
        for each in follow(read, NOW - timedelta(hours=1), pause, warnings.append):
            found.append((each.node, (each.at - NOW).total_seconds()))
    assert found == [("a", 0), ("b", 1), ("late", 0.5), ("a", 2), ("a", 3)]
    assert warnings == ["log: no answer"]
    assert asked[2] < NOW, "late lines are asked for again"


def test_nothing_in_a_line_or_a_node_s_name_reaches_the_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, markup=False, highlight=False)
    Printer(console).show(LogLine(NOW, "a\x1b]0;x\x07\nb", "[red]\x9b31m\r\u202ex", "k"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b]" not in text
    assert not {"\x9b", "\r", "\u202e"} & set(text)
    assert "[red]" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"message": "a line"}, "a line"),
        ('{"message": "a line"}', "a line"),
        ({"printed": {"images": 1}}, '{"images": 1}'),
        ({"event": "job-ended"}, '{"event": "job-ended"}'),
        ("no JSON", "no JSON"),
        ({"message": "a", "printed": 1}, "1"),
    ],
)
def test_payloads_are_what_the_shipper_made_of_a_line(payload: Any, text: str) -> None:
    assert payload_text(payload) == text


def test_a_job_s_log_is_its_engine_s(project: Path) -> None:
    (project / "job.yaml").write_text("command: [sh, -c, 'echo hello']\nmax_hours: 0.1\nname: hello\n")
    queue = f"local:{project}/queue"
    job = CliRunner().invoke(app, ["job", "submit", str(project / "job.yaml"), "--on", queue]).stdout.strip()
    CliRunner().invoke(app, ["job", "wait", job, "--on", queue])
    assert "hello" in ask(job, "--on", queue).stdout
    assert isinstance(ask(job, "--on", queue, "--since", "1h").exception, InputError)
