"""The gate's command line: is the trainer right on this machine's GPUs? Half an hour at the most.

    python -m tools.gate --json gate.json
    python -m tools.gate --device cpu --only fp32,bf16,r3gan,r3gan-bf16

What a machine cannot try is told, and fails nothing. The JSON is written after each check: one that was ended before
its time is marked as not `finished`. Exit code 0; 1 where a check failed; 2 for a mistake.
"""

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gangway.trainer.config.arguments import Parser, path, positive
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import check_folder, write_atomically
from gangway.trainer.core.host import code_sha256
from tools.bench.guard import guarded_folder
from tools.bench.runs import chosen_names, progress_printer
from tools.gate.checks import CHECKS
from tools.gate.runs import Gate, Kind, Outcome, Report, this_machine

_MINUTES, _SECONDS = 30.0, 10.0


def main(argv: Sequence[str]) -> int:
    """Runs the checks asked for and returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        names = chosen_names(arguments.only, CHECKS, "check")
        if arguments.json is not None:
            check_folder(arguments.json.parent, "--json")

        def keep(report: Report) -> None:
            if arguments.json is not None:
                write_atomically(arguments.json, (json.dumps(report.as_json(), indent=2) + "\n").encode())

        report = _run(names, arguments.device, arguments.minutes * 60, arguments.seconds, keep)
    except TrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        kept = f": {arguments.json} has those that were made" if arguments.json else ""
        print(f"stopped before the last check{kept}", file=sys.stderr)
        return 130
    print(report.table())
    print(report.verdict())
    return 1 if report.named("failed") else 0


def _parser() -> Parser:
    parser = Parser(prog="python -m tools.gate", description="Is the trainer right on this machine's GPUs?")
    parser.add_argument("--only", help=f"comma-separated checks of {', '.join(CHECKS)}")
    device = "cuda, or cpu to try what a CPU can: the gate itself, not a GPU [cuda]"
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=device)
    minutes = f"after which no further check is begun [{_MINUTES:g}]"
    parser.add_argument("--minutes", type=positive, default=_MINUTES, help=minutes)
    parser.add_argument("--seconds", type=positive, default=_SECONDS, help=f"of one measurement [{_SECONDS:g}]")
    parser.add_argument("--json", type=path, help="file for what was found")
    return parser


def _run(names: Sequence[str], kind: Kind, limit_sec: float, seconds: float, keep: Callable[[Report], None]) -> Report:
    began, report = time.monotonic(), progress_printer()
    machine, date, code = this_machine(kind), datetime.date.today().isoformat(), code_sha256()
    found = Report(date, code, machine, {}, finished=False)
    keep(found)
    with guarded_folder() as work_dir:
        gate = Gate(machine, work_dir, seconds, report)
        for name in names:
            lacking, left_sec = CHECKS[name].lacking(machine), limit_sec - (time.monotonic() - began)
            outcome = Outcome("not tried", lacking) if lacking else _tried(gate, name, left_sec)
            checks = {**found.checks, name: outcome}
            found = replace(found, checks=checks, finished=len(checks) == len(names))
            keep(found)
    return found


def _tried(gate: Gate, name: str, left_sec: float) -> Outcome:
    check = CHECKS[name]
    if left_sec < check.about_sec:
        return Outcome("not tried", f"no time left: it takes about {check.about_sec} s")
    began = time.monotonic()
    try:
        found = check.run(gate)
    except (RuntimeError, subprocess.SubprocessError) as error:
        last = str(error).strip().splitlines()
        found = Outcome("failed", f"it ended with an error: {last[-1][:300] if last else type(error).__name__}")
    return Outcome(found.state, found.why, found.figures, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
