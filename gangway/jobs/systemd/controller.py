"""A job's controller, for `gangway job`: its settings, its last decisions, and how to switch it off.

Nothing is switched from here: the switch is a file in the run folder, made by the job's own user on a machine with that
folder. Off is safe: writing that file can only leave the run as it is.
"""

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.visible import visible
from gangway.images.shell import CONTAINER_NAME
from gangway.runs.run_folders import STATS
from gangway.trainer.config.values.control import SWITCH_FILE, ControlSettings
from gangway.trainer.core.host import MODULE, program
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular
from gangway.trainer.records.decisions import CONTROLLER, OF_DECISIONS, DecisionRecord, decisions

_MOST_SHOWN = 3
"""The newest decisions."""
_MOST_CHARACTERS = 300
"""Per decision: its text comes from the run."""


def stack_lines(job: object, made: Sequence[DecisionRecord], *, over: bool) -> Iterator[str]:
    """For a stack's job from its outputs, with the decisions of its newest record; empty without a controller. `over`:
    the job has ended.
    """
    training = job.get("training") if isinstance(job, Mapping) else None
    if not training or training["controller"] is None:
        return
    asked = ControlSettings.model_validate_json(json.dumps(training["controller"]))
    yield f"controller: {asked.choice}"
    yield from _last(made, "from its record")
    if not over:
        command = f"{MODULE} control off --run-dir {shlex.quote(training['run_dir'])}"
        yield (
            "  switch it off on worker 0's node, or on any node if they share the folder: "
            f"sudo docker exec {CONTAINER_NAME} {command}"
        )


def folder_lines(folder: Path, *, over: bool) -> Iterator[str]:
    """The same for a local run folder, from its log and switch file. InputError: the log cannot be read, or has an
    invalid decision.
    """
    lines = _events(folder)
    asked = [line for line in lines if line["event"] == CONTROLLER]
    try:
        made = decisions(lines)
        choice = ControlSettings.model_validate_json(json.dumps(asked[-1]["settings"])).choice if asked else ""
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        why = visible(str(error)).partition("\n")[0]
        fix = "restore it from a copy, or check who else writes there"
        raise InputError(str(folder / STATS), f"has an invalid decision: {why}", fix=fix) from None
    if not asked and not made:
        return
    off = (folder / SWITCH_FILE).exists()
    switched = f"; switched off, by {SWITCH_FILE} in its folder" if off else ""
    yield f"controller: {choice or 'unknown, its log does not name it'}{switched}"
    yield from _last(made, "from its log")
    if over:
        return
    if off:
        yield f"  switch it on again: {program()} control on --run-dir {shlex.quote(str(folder))}"
    else:
        yield f"  switch it off: {program()} control off --run-dir {shlex.quote(str(folder))}"


def _events(folder: Path) -> list[dict[str, Any]]:
    """The log's controller events, without unreadable lines: a killed session leaves half a line."""
    try:
        content = read_regular(folder, STATS, MOST_BYTES_OF_STATS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            str(folder / STATS), f"cannot be read: {error.strerror or error}", fix="fetch it again"
        ) from None
    found = (_json(text) for text in content.split(b"\n") if b'"event"' in text)
    wanted = (CONTROLLER, "resume", *OF_DECISIONS)
    return [line for line in found if isinstance(line, dict) and line.get("event") in wanted]


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _last(made: Sequence[DecisionRecord], source: str) -> Iterator[str]:
    if not made:
        yield f"  no decisions, {source}"
        return
    yield f"  the last of {len(made)} decision{'' if len(made) == 1 else 's'}, {source}:"
    for one in made[-_MOST_SHOWN:]:
        words = textwrap.shorten(visible(one.sentence), _MOST_CHARACTERS, placeholder=" ...")
        yield f"    {_when(one.at)}, {one.images:,} images: {words}"


def _when(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError):
        return visible(at)[:40]
