"""Logs of a stack's nodes, merged in order of time, from the one place to which the nodes send them: the cloud's log
service, or without one the statistics in the run's folder.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import one_line, visible
from gangway.finops.audit.running import RunningStack
from gangway.live.nodes import LogLine, get_cloud
from gangway.live.progress import moment, parse_lines
from gangway.runs.run_folders import STATS
from gangway.runs.run_store import RunStore, StoreFailedError

_LATE = timedelta(seconds=90)
"""Lines arrive in the log up to this much later than they were written."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_green")
_MOST_BYTES = 256_000_000
_JOURNAL = "their other output stays in the nodes' journals"

Read = Callable[[datetime], Sequence[LogLine]]


def parse_since(text: str, now: datetime) -> datetime:
    """`10m` ago, or a time with its zone. InputError: neither, or later than now."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    try:
        at = now - timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        at = datetime.max
    if at.tzinfo is None or at > now:
        raise InputError(
            "--since", "not a time in the past", value=text,
            allowed="a number with s, m, h or d, or a time with its zone such as 2026-01-31T08:00:00+00:00",
            fix="write --since 10m",
        )  # fmt: skip
    return at


def stack_reader(stack: RunningStack) -> tuple[Read, str]:
    """Reads the stack's log since a time; with a note on what is missing there, empty if nothing."""
    if stack.outputs.get("log_group"):
        cloud = get_cloud(stack.config.provider)
        return lambda since: cloud.read_log(stack.config, stack.outputs, since), ""
    return run_reader(stack.store), f"{stack.config.provider} has no log service: only {STATS} is shown; {_JOURNAL}"


def run_reader(store: RunStore) -> Read:
    """Reads the statistics of a run's folder."""

    def read(since: datetime) -> list[LogLine]:
        try:
            content = store.read(STATS, _MOST_BYTES)
        except StoreFailedError as error:
            raise InputError(store.url, str(error), fix="log in with an account that may read it") from None
        lines = parse_lines((content or b"").rpartition(b"\n")[0].split(b"\n"))
        texts = ((moment(line), json.dumps(line)) for line in lines)
        return [LogLine(at, "run", text, text) for at, text in texts if at >= since]

    return read


def follow(
    read: Read, since: datetime, pause: Callable[[], None] | None, warn: Callable[[str], None]
) -> Iterator[LogLine]:
    """Each line once, in order of time; continues after `pause`, and without it ends after the first read. Later
    failures are warnings, since a log may answer again.
    """
    known: dict[str, datetime] = {}
    start = since
    is_first, last_problem = True, ""
    while True:
        try:
            found = sorted(read(start), key=lambda line: (line.at, line.node))
            last_problem = ""
        except InputError as error:
            if is_first:
                raise
            if str(error) != last_problem:
                warn(str(error))
            found, last_problem = [], str(error)
        for line in found:
            if line.key not in known:
                known[line.key] = line.at
                yield line
        if pause is None:
            return
        is_first = False
        if known:
            start = max(since, max(known.values()) - _LATE)
            known = {key: at for key, at in known.items() if at >= start}
        pause()


class Printer:
    """Prints lines with the time and the node's name in its colour."""

    def __init__(self, console: Console) -> None:
        self._console, self._colours = console, dict[str, str]()

    def show(self, line: LogLine) -> None:
        """One line; of several, each gets its prefix."""
        colour = self._colours.setdefault(line.node, _COLOURS[len(self._colours) % len(_COLOURS)])
        at = line.at.astimezone(UTC)
        for text in visible(line.text).rstrip("\n").split("\n"):
            prefix = Text.assemble((f"{at:%H:%M:%S}", "dim"), " ", (one_line(line.node), colour), " ")
            self._console.print(prefix + Text(text), soft_wrap=True)


def is_run(folder: Path) -> bool:
    """Whether a folder on this machine is a run's."""
    return (folder / STATS).is_file() or (folder / "run.json").is_file()
