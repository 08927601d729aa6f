"""Every command and option that takes a file, given a FIFO, a folder, a device without an end or a closed file: it ends
at once, with exit code 2 and a fix.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangway.trainer.core.regular_files import open_file
from tests import other_users
from tests.conftest import REPO
from tests.gangway.cli.test_closed_folders import _all_commands, _paths
from tests.other_users import MALLORY

pytestmark = pytest.mark.attack("a file that is named", "FIFOs, devices without an end, folders, files that are closed")

# By command its lines; {f} is the odd file. {r}: the repository, {o}: the test's folder. {NAME@} is a run's folder, in
# which NAME is the odd file. After ` & ` a line's options.
RUNS = ("--runs {run.json@}", "--runs {run.json.sig@}")
BILL = "--bill {r}/examples/reconcile/aws_focus.csv"
CONTROL = ("--run-dir {run.json@}", "--run-dir {stats.jsonl@}")
LINES: dict[str, tuple[str, ...]] = {
    "plan": ("{f}.yaml", "aws-demo --against {f}"),
    "preflight": ("{f}.yaml",),
    "permissions": ("{f}.yaml",),
    "logs": ("{f}.yaml",),
    "ssh": ("{f}.yaml 0",),
    "down": ("{f}.yaml --dry-run",),
    "simulate": ("{f}.yaml", "{f}.csv --gpus 8"),
    "forecast": ("{f}", "{o}/series.csv --ledger {f}"),
    "when": ("{f} --hours 3",),
    "train": (
        "--config {f}",
        "--preset dcgan-digits --context {f}",
        "--preset dcgan-digits --run-dir {.lock@}",
        "--preset dcgan-digits --run-dir {o}/new --data {index.json@}",
    ),
    "evaluate": tuple(f"--run-dir {{{name}@}}" for name in ("stats.jsonl", "config.json", "run.json")),
    "record": tuple(f"--run-dir {{{name}@}}" for name in ("stats.jsonl", "config.json")),
    "sample": ("--run-dir {config.json@} --out {o}/x.png",),
    "export": ("--run-dir {config.json@} --format onnx --out {o}/x.onnx",),
    "control replay": CONTROL,
    "memory": ("--config {f}",),
    "data show": ("--data {index.json@}",),
    "data speed": ("--data {index.json@}",),
    "data prepare cifar10": ("--out {o}/new --source {f}", "--out {o}/new --source {f}.tar.gz"),
    "data prepare celeba": ("--out {o}/new --source {f}.zip",),
    "data prepare ucf101": ("--out {o}/new --source {f}.zip",),
    "data prepare folder": ("--out {o}/new --source {f}.zip",),
    "signature": ("r/x@sha256:{d} --key {f}",),
    "report": (
        "{f}",
        "{run.json@}",
        "{run.json.sig@}",
        "{r}/examples/reconcile/runs --key {f}",
        "{r}/examples/reconcile/runs --format csv --ledger {f}",
    ),
    "reproduce": ("{run.json@}", "{f}", "{o}/run --key {f}"),
    "sign": ("{o}/run --key {f}", "{run.json@} --key {o}/key.pem"),
    "reconcile": (
        *(f"--bill {{f}}{suffix} --runs {{o}}/run" for suffix in ("", ".csv", ".csv.gz", ".json", ".parquet")),
        f"{BILL} --runs {{run.json@}}",
        f"{BILL} --runs {{o}}/run --plan {{f}}",
        f"{BILL} --jobs aws:x={{f}}",
    ),
    "audit": ("{f}.yaml", "aws-demo --state {f}"),
    "prices diff": ("{f}.yaml catalogue",),
    "bench run": ("{f}.yaml --local",),
    "bench resume": ("{journal.jsonl@}",),
    "job submit": ("{f}", "{f}.yaml"),
    "job show": ("{run.json@}",),
    "image build": ("{f}.yaml --dry-run",),
    "breaker show": ("{f}.yaml",),
    "breaker reset": ("{f}.yaml",),
}
WRITTEN = {
    **dict.fromkeys(("demo", "bench run", "bench scaling", "tco", "report", "reproduce", "job record"), ("--out",)),
    "simulate": ("--plot",),
    "permissions": ("--out",),
}
"""Options whose path is written, or a folder, and not read as a file."""
ODD: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a closed file": lambda path: path.touch(0),
}
SUFFIXES = ("", ".yaml", ".csv", ".csv.gz", ".json", ".parquet", ".zip", ".tar.gz")
LIMIT_SEC = 20
# Imports once; each command is a fork of it, with a limit on its time and on its memory.
RUNNER = """
import json, os, resource, signal, sys, traceback
import matplotlib.figure
import gangway.jobs.sites, gangway.stacks.plan.plan
import gangway.trainer.__main__ as trainer, gangway.trainer.run.loop, gangway.trainer.metrics.evaluate
from gangway.cli.main import main
uid, seconds, folder = (int(word) if word.isdigit() else word for word in sys.argv[1:])
def run(argv):
    signal.alarm(seconds)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
    try:
        main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
for argv in json.load(sys.stdin):
    out = os.open(folder + "/out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder + "/here")
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        sys.argv = ["gangway", *argv]
        run(argv)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, open(folder + "/out", errors="replace").read()]), flush=True)
    os.close(out)
"""


def test_every_option_that_takes_a_path_is_tried() -> None:
    """What is missing here is either a file, and belongs into LINES, or is none."""
    untried = []
    for name, command in _all_commands().items():
        words = [["", *line.split()] for line in LINES.get(name, ())]
        tried = {before for line in words for before in line}
        for flag in _paths(command):
            if flag not in tried and flag not in (*WRITTEN.get(name, ()), *FOLDERS.get(name, ())):
                untried.append(f"{name} {flag}")
    assert untried == []


FOLDERS = {
    "dashboard": ("--runs", "--suite"),
    "init": ("",),
    "tco": ("--out",),
    "forecast": ("--gauges", "--out", "--plot"),
    "when": ("--plot",),
    "evaluate": ("--data", "--weights", "--video-weights"),
    "control off": ("--run-dir",),
    "control on": ("--run-dir",),
    "report": ("--figures",),
    "reproduce": ("--runs", "--data"),
    "bench run": ("--data",),
    "bench scaling": ("--data",),
    **{f"data prepare {name}": ("--out",) for name in ("digits", "photos", "day-dusk", "clips")},
}
"""Options for folders, and those that a command reads only after minutes of work."""


@pytest.fixture
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # pytest's own are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "here").mkdir()
        (folder / "here").chmod(0o777)
        shutil.copytree(REPO / "examples/reconcile/runs/dcgan-20261005", folder / "run")
        hours = "\n".join(f"2026-11-01T{hour:02}:00:00Z,{hour},0,30" for hour in range(24))
        (folder / "series.csv").write_text(f"time,intensity,low,high\n{hours}\n")
        yield folder


def _lines(top: Path, make: Callable[[Path], object]) -> Iterator[list[str]]:
    for suffix in SUFFIXES:
        make(top / f"odd{suffix}")
    values = {"f": top / "odd", "o": top, "r": REPO, "d": "0" * 64}
    for name, lines in LINES.items():
        for line in lines:
            words = name.split()
            for word in line.split():
                if word.endswith("@}"):
                    file = word[1:-2]
                    run = top / f"run-{file}"
                    if not run.exists():
                        shutil.copytree(top / "run", run)
                        (run / file).unlink(missing_ok=True)
                        make(run / file)
                    words.append(str(run))
                else:
                    words.append(word.format(**values))
            yield words


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what", ODD)
def test_no_odd_file_is_waited_for_or_ends_in_a_traceback(what: str, top: Path) -> None:
    closed = what == "a closed file"
    if closed and (why_not := other_users.why_not()):
        pytest.skip(why_not)
    lines = list(_lines(top, ODD[what]))
    python, env = other_users.find_python(REPO)
    env |= {
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
        "TERM": "dumb",
        "HOME": str(top / "here"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    argv = [python, "-c", RUNNER, str(MALLORY if closed else 0), str(LIMIT_SEC), str(top)]
    done = subprocess.run(argv, input=json.dumps(lines), env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    ends = zip(lines, map(json.loads, done.stdout.splitlines()), strict=True)
    wrong = [
        (code, " ".join(words), text[-600:])
        for words, (code, text) in ends
        if code != 2 or "Traceback" in text or ("fix:" not in text and "is not readable" not in text)  # Typer's own
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_socket_is_no_regular_file(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "x"))
        with pytest.raises(OSError, match="no regular file"):
            open_file(tmp_path / "x")
