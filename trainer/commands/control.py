"""`python -m gangway.trainer control`: replays a run with other policies, and switches a controller off and on."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gangway.trainer.config.arguments import Parser, add_run_dir
from gangway.trainer.config.values.control import SWITCH_FILE, Objective, PolicyName
from gangway.trainer.control.flags import MORE_FLAG, OBJECTIVE_FLAG, POLICY_FLAG, get_settings
from gangway.trainer.core.console import warn
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import write_atomically
from gangway.trainer.records.decisions import CONTROLLER
from gangway.trainer.records.stats_log import STATS_FILE, Line, read_stats_log, require_run

if TYPE_CHECKING:
    from gangway.trainer.control.interval import Interval
    from gangway.trainer.control.replay import Recorded, Replay, Row

POLICIES, OBJECTIVES = get_args(PolicyName), get_args(Objective)
_ALL = "all"


def add_control_command(parser: Parser) -> None:
    """Adds the command's arguments."""
    commands = parser.add_subparsers(required=True, metavar="WHAT")
    replay = commands.add_parser(
        "replay", help="show what each policy would have decided in a recorded run, next to what was done"
    )
    add_run_dir(replay)
    replay.add_argument(
        POLICY_FLAG, action="append", metavar="NAME", help=f"{', '.join(POLICIES)}, repeatable; or {_ALL} [{_ALL}]"
    )
    replay.add_argument(OBJECTIVE_FLAG, metavar="NAME", help="time, cost, energy or carbon [the run's]")
    replay.add_argument(MORE_FLAG, metavar="JSON", help="other controller settings, as for train [the run's]")
    replay.add_argument("--json", action="store_true", help="as JSON")
    replay.set_defaults(run=_replay)
    for word, what in (("off", "leave a running run as it is from its next line on"), ("on", "let it decide again")):
        switch = commands.add_parser(word, help=what)
        add_run_dir(switch)
        switch.set_defaults(run=_switch, off=word == "off")


def _switch(arguments: argparse.Namespace) -> int:
    require_run(arguments.run_dir, (STATS_FILE,))
    path: Path = arguments.run_dir / SWITCH_FILE
    if arguments.off:
        write_atomically(path, b"")
    else:
        path.unlink(missing_ok=True)
    lines = read_stats_log(arguments.run_dir).lines
    print(f"{arguments.run_dir}: {_describe_switch(lines, 'off' if arguments.off else 'on')}")
    return 0


def _describe_switch(lines: Sequence[Line], word: str) -> str:
    if not lines:
        return f"its log cannot be read; a controller that is at work there is {word} from the next line on"
    session = [line for line in lines if line["session"] == lines[-1]["session"]]
    events = {line.get("event") for line in session}
    ends = {"done": "is done", "interrupt": "was stopped", "failed": "has failed"}
    if how := next((said for event, said in ends.items() if event in events), ""):
        return f"the run {how}; a controller that goes on with it is {word}"
    if CONTROLLER not in events:
        return f"no controller is at work there; one that goes on with the run is {word}"
    return f"the controller is {word} from the next line on"


def _replay(arguments: argparse.Namespace) -> int:
    from gangway.trainer.control.replay import recorded, shown
    from gangway.trainer.control.watch import get_history

    require_run(arguments.run_dir, (STATS_FILE,))
    log, place = read_stats_log(arguments.run_dir), str(arguments.run_dir / STATS_FILE)
    if log.unreadable:
        warn(f"gangway: warning: {place}: {log.unreadable} unreadable line(s) left out: intervals are not as the run's")
    lines, own = log.lines, recorded(log.lines, place)
    asked = arguments.policy or [_ALL]
    policies = POLICIES if _ALL in asked else tuple(dict.fromkeys(asked))
    found, interval_sec = list["Replay"](), 0.0
    failed = [] if own is None else [(each.session, each.images) for each in own.fatal]
    for policy in policies:
        base = None if own is None else own.settings
        settings = get_settings(policy, arguments.objective, arguments.control, "observe", base)
        history, interval_sec = get_history(lines, settings.interval_sec, failed=failed), settings.interval_sec
        if not history:
            raise TrainerError(
                place=place,
                problem=f"has no interval of {settings.interval_sec:g} s",
                value=f"{len(lines)} lines" + (f", and {log.unreadable} that cannot be read" if log.unreadable else ""),
                allowed="a run of several such intervals, by a trainer that writes what it was trained with",
                fix=f"{MORE_FLAG} '{{\"interval_sec\": 1}}', or a longer run",
            )
        _check_objective(history, settings.objective)
        found.append(shown(history, settings, own))
    if arguments.json:
        _print_json(found, own)
    else:
        _print(arguments.run_dir, found, own, interval_sec)
    return 0


def _check_objective(history: "Sequence[Interval]", objective: Objective) -> None:
    """Raises TrainerError where no interval has a figure for the objective, so that no policy would act."""
    from gangway.trainer.control.interval import score

    if all(score(each, objective, history[0].knobs.batch_size) is None for each in history):
        known = [each for each in OBJECTIVES if score(history[-1], each, history[0].knobs.batch_size) is not None]
        raise TrainerError(
            place=OBJECTIVE_FLAG,
            problem=f"no interval of the run has a figure for {objective}",
            value=objective,
            allowed=f"what this run has figures for: {', '.join(known)}",
            fix="another objective, or a run that is told prices and the grid's intensity (train --context FILE)",
        )


def _print(run_dir: Path, found: "Sequence[Replay]", own: "Recorded | None", interval_sec: float) -> None:
    from gangway.trainer.control.replay import UNKNOWN

    by = "nobody says by which controller" if own is None else f"under {own.settings.policy}, {own.settings.mode}"
    bounds = "the flags'" if own is None else "the run's own, but for what the flags say"
    print(f"{run_dir}: {len(found[0].rows)} intervals of {interval_sec:g} s, {by}; settings are {bounds}")
    rows = [("policy", "changes", "as the run did", "the run's own changes", "knobs")]
    for each in found:
        same, changes = each.agreed
        knobs = ", ".join(dict.fromkeys(row.would.knob for row in each.wanted if row.would is not None))
        of_all = f"{each.same} of {len(each.rows)}"
        rows.append((each.policy, str(len(each.wanted)), of_all, f"{same} of {changes}", knobs or "none"))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for each in found:
        print(f"\n{each.policy}: {len(each.wanted)} changes")
        for text in each.sentences():
            print(f"  {text}")
    print(f"\n{UNKNOWN}")


def _print_json(found: "Sequence[Replay]", own: "Recorded | None") -> None:
    from gangway.trainer.control.replay import UNKNOWN

    policies = {
        each.policy: {
            "changes": len(each.wanted),
            "intervals": len(each.rows),
            "intervals_as_the_run": each.same,
            "own_changes_agreed": each.agreed[0],
            "own_changes": each.agreed[1],
            "rows": [_plain(row) for row in each.rows],
        }
        for each in found
    }
    settings = None if own is None else own.settings.model_dump(mode="json")
    print(json.dumps({"settings": settings, "policies": policies, "unknown": UNKNOWN}))


def _plain(row: "Row") -> dict[str, object]:
    would, did = (None if each is None else each._asdict() for each in (row.would, row.did))
    return {**row._asdict(), "would": would, "did": did}
