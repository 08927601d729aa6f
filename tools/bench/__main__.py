"""The benchmark's command line: about half an hour, on an otherwise idle machine.

    python -m tools.bench
    python -m tools.bench --only textbook,start --seconds 5 --rounds 1

Results go beside those of other machines; what cannot be measured here has no value, and says why. --only keeps
nothing; fewer rounds or seconds than the defaults judge no target.
"""

import argparse
import contextlib
import datetime
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from gangway.trainer.config.arguments import Parser, count, path, positive
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import check_folder, read_text_input, write_atomically
from gangway.trainer.core.host import code_sha256, usable_cores
from tools.bench.cases import CASES
from tools.bench.guard import guarded_folder
from tools.bench.measuring import ROUNDS, SECONDS, Bench
from tools.bench.results import Result, Run, as_json, as_markdown, comparison_table, kept_with, read_runs, this_machine
from tools.bench.runs import chosen_names, prepare, progress_printer

_BEGIN, _END = "<!-- results: written by make bench -->\n", "<!-- end of results -->\n"


def main(argv: Sequence[str]) -> int:
    """Runs the cases asked for and returns the exit code: 0 also where a figure misses its target, 128 + a signal's."""
    try:
        arguments = _parser().parse_args(argv)
        names = chosen_names(arguments.only, CASES, "benchmark")
        others = _kept(arguments)
        # Before anything is measured: what is there afterwards may have been changed meanwhile.
        machine, date, code = this_machine(), datetime.date.today().isoformat(), code_sha256()
        with _stoppable():
            run = Run(date, machine, _run(names, arguments), code, arguments.rounds, arguments.seconds)
        runs = kept_with(others, run)
        if arguments.json is not None:
            write_atomically(arguments.json, as_json(runs).encode())
        if arguments.markdown is not None:
            _write_table(arguments.markdown, comparison_table(runs))
    except TrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        print("stopped: nothing was written", file=sys.stderr)
        return 128 + (stop.number if isinstance(stop, _StoppedError) else signal.SIGINT)
    print(as_markdown([run]))
    return 0


class _StoppedError(KeyboardInterrupt):
    """A signal that stops the measurement like Ctrl-C; the exit code tells which, as in a shell."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise _StoppedError(number)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Makes SIGTERM and a closed terminal stop the measurement like Ctrl-C; ignored signals (`nohup`) stay so."""
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> Parser:
    parser = Parser(prog="python -m tools.bench", description="The trainer's speed, as ratios in one run.")
    only = f"comma-separated parts of {', '.join(CASES)}; the rest is not shown; to look at, not to keep"
    parser.add_argument("--only", help=only)
    seconds = f"of one measurement, or of a turn; less is told and not judged [{SECONDS:g}]"
    parser.add_argument("--seconds", type=positive, default=SECONDS, help=seconds)
    rounds = f"measurements, or turns of each side; fewer are told and not judged [{ROUNDS}]"
    parser.add_argument("--rounds", type=count, default=ROUNDS, help=rounds)
    parser.add_argument("--json", type=path, help="file for the results, of each machine the last")
    parser.add_argument("--markdown", type=path, help="page whose results are replaced by those of --json")
    return parser


def _kept(arguments: argparse.Namespace) -> list[Run]:
    """The runs that the results go beside. TrainerError for all that could prevent writing, before measuring."""
    page, data = arguments.markdown, arguments.json
    if data is None:
        if page is not None:
            problem = "shows what --json keeps of all machines"
            raise TrainerError(place="--markdown", problem=problem, value=str(page), fix="give --json too")
        return []
    if arguments.only is not None:
        problem = "leaves figures out, and would take the place of a whole run"
        fix = "leave out --only to keep the results, or --json and --markdown to look at them"
        raise TrainerError(place="--only", problem=problem, value=arguments.only, fix=fix)
    check_folder(data.parent, "--json")
    if page is not None:
        check_folder(page.parent, "--markdown")
        _around(page)
    return read_runs(data)


def _run(names: Sequence[str], arguments: argparse.Namespace) -> list[Result]:
    report = progress_printer()
    with guarded_folder() as work_dir:
        data_dir = work_dir / "data"
        report("data: crops of the photographs that ship in wheels")
        prepare("photos", data_dir)
        threads = usable_cores()
        bench = Bench(work_dir, data_dir, arguments.seconds, arguments.rounds, threads, report)
        return [result for name, case in CASES.items() if name in names for result in case(bench)]


def _write_table(page: Path, table: str) -> None:
    before, after = _around(page)
    write_atomically(page, f"{before}{_BEGIN}\n{table}\n{_END}{after}".encode())


def _around(page: Path) -> tuple[str, str]:
    """Returns the page before and after the two marks (TrainerError: one is missing); a new page gets a title."""
    if not page.exists():
        return "# Benchmarks\n\n", ""
    text = read_text_input(page, "name another page")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        mark = (_END if begin else _BEGIN).strip()
        problem = "lacks one of the two lines that the results stand between"
        raise TrainerError(place=str(page), problem=problem, allowed=mark, fix="put that line where it belongs")
    return before, after


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
