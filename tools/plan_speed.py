"""`make bench-plan`: how long a plan takes, as a multiple of importing Pulumi and its AWS SDK in the same run.

The commands take turns, so that a busy machine slows all alike: medians of wall and CPU time, bytecode in place.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from gangway.cli.main import main as gangway

BASE = "import pulumi, pulumi_aws.ec2"
AIMS = {"aws-demo": 4.0, "gcp-a3-spot": 5.0, "azure-ndv5-spot": 5.0}
"""Stack -> how many times the base its plan may take."""
_FINDINGS = 1
"""How a plan ends that has findings of severity error: planned all the same."""


@dataclass(frozen=True)
class Timing:
    """One run of a command."""

    wall_sec: float
    cpu_sec: float


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> Timing:
    command = [sys.executable, *arguments]
    before = time.perf_counter()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        _, status, used = os.wait4(process.pid, 0)
        wall_sec = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    # A traceback ends with the same code as findings do.
    if process.returncode and (process.returncode != _FINDINGS or BASE in arguments or "Traceback" in said):
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)
    return Timing(wall_sec, used.ru_utime + used.ru_stime)


def measure(stacks: Sequence[str], rounds: int) -> dict[str, Timing]:
    """The medians of `rounds` runs of the base and of each stack's plan, after one run of each that is not counted."""
    plan = f"from {gangway.__module__} import main; main()"
    commands = {BASE: ["-c", BASE], **{stack: ["-c", plan, "plan", stack] for stack in stacks}}
    runs: dict[str, list[Timing]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in commands.values():
            _run(arguments, environment)
        for _ in range(rounds):
            for name, arguments in commands.items():
                runs[name].append(_run(arguments, environment))
    return {
        name: Timing(statistics.median(t.wall_sec for t in timings), statistics.median(t.cpu_sec for t in timings))
        for name, timings in runs.items()
    }


def _table(medians: Mapping[str, Timing], rounds: int) -> Table:
    base = medians[BASE]
    table = Table(title=f"medians of {rounds} rounds", title_justify="left")
    for column in ("command", "wall", "times", "CPU", "times", "aim"):
        table.add_column(column, justify="left" if column == "command" else "right", overflow="fold")
    for name, timing in medians.items():
        table.add_row(
            f'python -c "{name}"' if name == BASE else f"gangway plan {name}",
            f"{timing.wall_sec:.3f} s",
            f"{timing.wall_sec / base.wall_sec:.2f}",
            f"{timing.cpu_sec:.3f} s",
            f"{timing.cpu_sec / base.cpu_sec:.2f}",
            f"{AIMS[name]:g}" if name in AIMS else "",
        )
    return table


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="plan_speed", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("stacks", nargs="*", default=list(AIMS), help="stacks or stack files to plan")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    Console().print(_table(measure(chosen.stacks, chosen.rounds), chosen.rounds))


if __name__ == "__main__":
    main()
