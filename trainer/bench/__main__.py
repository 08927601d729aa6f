"""The benchmark's command line.

    python -m trainer.bench
    python -m trainer.bench --only textbook,start --seconds 5 --rounds 1

Takes about twenty minutes with its defaults and wants an otherwise idle machine. Writes nothing but its results, beside
those of other machines; what is left out or cannot be measured here stands among them without a value, and says why.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from trainer.bench.cases import CASES
from trainer.bench.measuring import Bench, absent
from trainer.bench.results import Result, Run, as_json, as_markdown, kept_with, read_runs, this_machine
from trainer.commands.arguments import Parser
from trainer.errors import TrainerError, nearest
from trainer.files import write_atomically

__all__ = ["main"]

_BEGIN, _END = "<!-- results: written by make bench -->\n", "<!-- end of results -->\n"


def main(argv: Sequence[str]) -> int:
    """Runs the cases asked for and returns the exit code: 0 also where a figure misses its target."""
    try:
        arguments = _parser().parse_args(argv)
        names = _names(arguments.only)
        others = [] if arguments.json is None else read_runs(arguments.json)
        machine, date = this_machine(), datetime.date.today().isoformat()
        run = Run(date, machine, _run(names, arguments))
        runs = kept_with(others, run)
        if arguments.json is not None:
            write_atomically(arguments.json, as_json(runs).encode())
        if arguments.markdown is not None:
            _write_tables(arguments.markdown, as_markdown(runs))
    except TrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(as_markdown([run]))
    return 0


def _parser() -> Parser:
    parser = Parser(prog="python -m trainer.bench", description="The trainer's speed, as ratios in one run.")
    parser.add_argument("--only", help=f"comma-separated parts of {', '.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=15.0, help="of one measurement [15]")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side, in turn [3]")
    parser.add_argument("--json", type=Path, help="file for the results, of each machine the last")
    parser.add_argument("--markdown", type=Path, help="page whose results are replaced by those of --json")
    return parser


def _names(only: str | None) -> list[str]:
    names = only.split(",") if only else list(CASES)
    for name in names:
        if name not in CASES:
            near = nearest(name, CASES)
            raise TrainerError(
                place="--only",
                problem="no such benchmark",
                value=name,
                allowed=", ".join(CASES),
                fix=f"did you mean {near!r}?" if near else "leave --only out for all of them",
            )
    return names


def _run(names: Sequence[str], arguments: argparse.Namespace) -> list[Result]:
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="gangway-bench-") as folder:
        work_dir = Path(folder)
        data_dir = work_dir / "data"
        tell("data: crops of the photographs that ship in wheels")
        prepare = ["data", "prepare", "photos", "--resolution", "32", "--out", str(data_dir)]
        subprocess.run([sys.executable, "-m", "trainer", *prepare], check=True, stdout=subprocess.DEVNULL)
        threads = len(os.sched_getaffinity(0))
        bench = Bench(work_dir, data_dir, arguments.seconds, arguments.rounds, threads, tell)
        left_out = "left out by --only"
        found = (CASES[name](bench) if name in names else absent(name, left_out) for name in CASES)
        return [result for results in found for result in results]


def _write_tables(page: Path, tables: str) -> None:
    """Replaces what stands between the two marks."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"# Benchmarks\n\n{_BEGIN}{_END}"
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    write_atomically(page, f"{before}{_BEGIN}\n{tables}\n{_END}{after}".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
