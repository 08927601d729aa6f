"""`python -m trainer control`: shows a recorded run to other policies, and switches a running controller off and on."""

import argparse
import json
from pathlib import Path
from typing import get_args

from trainer.commands.arguments import Parser, add_run_dir
from trainer.config.control import PolicyName
from trainer.control.flags import MORE_FLAG, OBJECTIVE_FLAG, POLICY_FLAG, settings_of
from trainer.control.interval import SWITCH_FILE
from trainer.core.errors import TrainerError
from trainer.core.files import write_atomically
from trainer.records.stats_log import STATS_FILE, read_stats_log, require_run

POLICIES = get_args(PolicyName)


def add_control_command(parser: Parser) -> None:
    """Adds the command's arguments."""
    commands = parser.add_subparsers(required=True, metavar="WHAT")
    replay = commands.add_parser(
        "replay", help="what policies would have decided of a recorded run, beside what was done"
    )
    add_run_dir(replay)
    replay.add_argument(
        POLICY_FLAG, action="append", metavar="NAME", help=f"{', '.join(POLICIES)}, again for more [all]"
    )
    replay.add_argument(OBJECTIVE_FLAG, metavar="NAME", help="time, cost, energy or carbon [time]")
    replay.add_argument(MORE_FLAG, metavar="JSON", help="bounds, interval_sec and so on, as of train")
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
    print(f"{arguments.run_dir}: the controller is {'off' if arguments.off else 'on'} from the next line on")
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from trainer.control.replay import Row, replayed
    from trainer.control.watch import history_of

    require_run(arguments.run_dir, (STATS_FILE,))
    lines = read_stats_log(arguments.run_dir).lines
    rows: dict[str, list[Row]] = {}
    for policy in arguments.policy or POLICIES:
        settings = settings_of(policy, arguments.objective, arguments.control, "observe")
        history = history_of(lines, settings.interval_sec)
        if not history:
            raise TrainerError(
                place=str(arguments.run_dir / STATS_FILE),
                problem=f"has no interval of {settings.interval_sec:g} s",
                value=f"{len(lines)} lines",
                allowed="a run of several such intervals, by a trainer that writes what it was trained with",
                fix=f"{MORE_FLAG} '{{\"interval_sec\": 1}}', or a longer run",
            )
        rows[policy] = replayed(history, settings)
    if arguments.json:
        print(json.dumps({name: [row._asdict() for row in each] for name, each in rows.items()}))
        return 0
    for name, each in rows.items():
        print(f"{name}: {sum(row.would is not None for row in each)} decisions of {len(each)} intervals")
        for row in each:
            for text in row.told():
                print(f"  {text}")
    return 0
