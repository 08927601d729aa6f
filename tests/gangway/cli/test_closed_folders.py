"""Every command as a user who may not use a folder: it names the folder and the fix, ends with 2, writes nothing."""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from gangway.cli.main import app
from gangway.trainer.__main__ import _parser
from gangway.trainer.core.host import COMMANDS
from tests import other_users
from tests.conftest import REPO
from tests.other_users import ALICE, MALLORY

# By command its arguments: first some that name no folder that is closed, then some that name {c}, a folder that only
# root may enter, {w}, one in which only root may write, or {t}, a run of root's. {r}: the repository, {o}: of the test.
DATA = ("--out x --source {c}/x", "--out {c}/x --source {r}", "--out {w}/x --source {r}")
MADE = ("--out {c}/x", "--out {w}/x")
LINES: dict[str, tuple[str, ...]] = {
    "demo": ("--quick", "--quick --out {c}/x", "--quick --out {w}/x"),
    "plan": ("aws-demo", "{c}/Pulumi.x.yaml", "aws-demo --against {c}/plan.json"),
    "init": tuple(f"{folder} --provider aws --email ml@example.org --no-ask" for folder in ("x", "{c}/x", "{w}/x")),
    "preflight": ("x", "{c}/Pulumi.x.yaml"),
    "permissions": (
        "aws-demo",
        "{c}/Pulumi.x.yaml",
        *(f"aws-demo --out {{{place}}}/x.json" for place in "cw"),
    ),
    "status": ("x", "{c}/x"),
    "logs": ("x", "{c}/x"),
    "ssh": ("aws-demo 0 --print", "{c}/Pulumi.x.yaml 0"),
    "down": ("aws-demo --dry-run", "{c}/Pulumi.x.yaml --dry-run"),
    "dashboard": ("--help", "--runs {c}/x", "--suite {c}/x", "--on local:{c}/q"),
    "quote": ("--accelerator H100x8 --hours 1",),
    "tco": tuple(f"--accelerator H100x8{out}" for out in ("", " --out {c}/x.csv", " --out {w}/x.csv")),
    "simulate": (
        "--generate philly-like --jobs 10",
        "{c}/x.csv",
        "--generate philly-like --jobs 10 --plot {c}/x.svg",
        "--generate philly-like --jobs 10 --plot {w}/x.svg",
    ),
    "forecast": (
        "--simulate demand --horizon 24h",
        "{c}/x.csv --horizon 24h",
        *(
            f"--simulate demand --horizon 24h --{flag} {{{place}}}/{name}"
            for place in "cw"
            for flag, name in (("ledger", "x"), ("gauges", "x.prom"), ("out", "x.csv"), ("plot", "x.svg"))
        ),
    ),
    "when": (
        "{o}/series.csv --hours 1",
        "{c}/x.csv --hours 1",
        "{o}/series.csv --hours 1 --plot {c}/x.svg",
        "{o}/series.csv --hours 1 --plot {w}/x.svg",
    ),
    "train": (
        "--preset dcgan-digits --kimg 0.1 --batch-size 32",
        "--config {c}/x.json",
        "--preset dcgan-digits --run-dir {c}/x",
        "--preset dcgan-digits --data {c}/x",
        "--preset dcgan-digits --context {c}/x.json",
        "--preset dcgan-digits --run-dir {w}/x",
        "--preset dcgan-digits --data {w}/x",
        "--preset dcgan-digits --kimg 0.2 --run-dir {t}",
    ),
    "evaluate": (
        "--run-dir x",
        "--run-dir {c}/x",
        *(f"--run-dir x --{flag} {{c}}/x" for flag in ("data", "weights", "video-weights")),
    ),
    "record": ("--run-dir x", "--run-dir {c}/x", "--run-dir {t}"),
    "data prepare cifar10": ("--out x --source x", *DATA),
    "data prepare celeba": ("--out x --source x", *DATA),
    "data prepare ucf101": ("--out x --source x", *DATA),
    "data prepare folder": ("--out x --source x", *DATA),
    "data prepare digits": ("--out x", *MADE),
    "data prepare photos": ("--out x", *MADE),
    "data prepare day-dusk": ("--out x", *MADE),
    "data prepare clips": ("--out x", *MADE),
    "data show": ("--data x", "--data {c}/x"),
    "data speed": ("--data x", "--data {c}/x"),
    "sample": (
        "--run-dir x --out y.png",
        "--run-dir {c}/x --out y.png",
        "--run-dir x --out {c}/y.png",
        "--run-dir {t} --out {w}/y.png",
    ),
    "export": (
        "--run-dir x --format onnx --out y.onnx",
        "--run-dir {c}/x --format onnx --out y.onnx",
        "--run-dir x --format onnx --out {c}/y.onnx",
        "--run-dir {t} --format onnx --out {w}/y.onnx",
    ),
    "control replay": ("--run-dir x", "--run-dir {c}/x"),
    "control off": ("--run-dir x", "--run-dir {c}/x", "--run-dir {t}"),
    "control on": ("--run-dir x", "--run-dir {c}/x"),
    "presets": ("",),
    "memory": ("--preset dcgan-digits", "--config {c}/x.json"),
    "schema": ("",),
    "dockerfile": ("",),
    "image build": ("aws-demo --dry-run --repository r/x", "{c}/Pulumi.x.yaml --dry-run"),
    "signature": ("r/x@sha256:{d} --key x.pem", "r/x@sha256:{d} --key {c}/x.pem"),
    "report": (
        "{r}/examples/reconcile/runs --format csv",
        "{c}/x",
        "{t}",
        *(f"{{r}}/examples/reconcile/runs --{flag} {{c}}/x" for flag in ("out", "figures", "ledger", "key")),
        *(f"{{r}}/examples/reconcile/runs --format {words} {{w}}/x" for words in ("csv --out", "md --figures")),
    ),
    "reproduce": (
        "x",
        "{c}/x",
        "{t} --out {w}/x",
        *(f"x --{flag} {{c}}/x" for flag in ("runs", "data", "out", "key")),
    ),
    "sign": ("x --key k.pem", "{c}/x --key k.pem", "x --key {c}/k.pem", "x --make-key --key {w}/k.pem"),
    "reconcile": (
        "--bill {r}/examples/reconcile/aws_focus.csv --runs {r}/examples/reconcile/runs",
        "--bill {c}/bill.csv --runs {r}/examples/reconcile/runs",
        "--bill {r}/examples/reconcile/aws_focus.csv --runs {c}/x",
        "--bill {r}/examples/reconcile/aws_focus.csv --runs {r}/examples/reconcile/runs --plan {c}/x.json",
        "--bill {r}/examples/reconcile/aws_focus.csv --jobs aws:x={c}/x.json",
    ),
    "audit": ("aws-demo --no-state", "{c}/Pulumi.x.yaml", "aws-demo --state {c}/x.json"),
    "catalog list": ("",),
    "catalog check": ("",),
    "prices show": ("",),
    "prices refresh": ("--help",),
    "prices diff": ("catalogue catalogue", "{c}/x.yaml catalogue", "catalogue {c}/x.yaml"),
    "bench run": (
        "x.yaml",
        "{c}/x.yaml",
        *(f"local-smoke --local --{place}" for place in ("out {c}/x", "out {w}/x", "data {c}/x")),
    ),
    "bench resume": ("x", "{c}/x"),
    "bench scaling": ("--processes 1 --rounds 1 --steps 14", "--out {c}/x", "--data {c}/x", "--out {w}/x"),
    "job show": ("./x", "{c}/x"),
    "job submit": (
        "{r}/examples/jobs/digits.yaml",
        "{c}/x.yaml",
        "{r}/examples/jobs/digits.yaml --on local:{c}/q",
        "{r}/examples/jobs/digits.yaml --on local:{w}/q",
        "{r}/examples/jobs/digits.yaml --on slurm:{c}/q",
    ),
    "job move": ("x-1 --to local:q", "x-1 --to local:q --on local:{c}/q", "x-1 --to local:{c}/q --on local:q"),
    "job list": ("", "--on local:{c}/q"),
    "job engines": ("",),
    "job status": ("x-1 --on local:q", "x-1 --on local:{c}/q"),
    "job record": ("x-1 --on local:q", "x-1 --on local:{c}/q", "x-1 --out {c}/x.json"),
    "job logs": ("x-1 --on local:q", "x-1 --on local:{c}/q"),
    "job serve": ("--help",),
    "job cancel": ("x-1 --on local:q", "x-1 --on local:{c}/q"),
    "job wait": ("x-1 --on local:q", "x-1 --on local:{c}/q"),
    "breaker show": ("x.yaml", "{c}/Pulumi.x.yaml"),
    "breaker reset": ("x.yaml", "{c}/Pulumi.x.yaml"),
}  # fmt: skip
SLOW = {
    *("demo", "train", "evaluate", "sample", "export", "forecast", "bench run", "bench scaling"),
    *("data prepare photos", "data prepare day-dusk", "data prepare clips"),
}
"""They load torch, or compute, before they write."""
# Imports once, as root; each command is a fork of it that has become somebody else.
RUNNER = """
import json, os, signal, sys, traceback
import matplotlib.figure
import gangway.jobs.sites, gangway.stacks.plan.plan
import gangway.trainer.__main__ as trainer
from gangway.cli.main import main
def become(uid, home, folder):
    os.chdir(folder)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.environ.update({} if home is None else {"HOME": home})
def run(argv):
    signal.alarm(200)
    try:
        trainer.run(argv) if argv[0] == "schema" else main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
for uid, home, folder, argv in json.load(sys.stdin):
    out = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(out, number)
        become(uid, home, folder)
        sys.argv = ["gangway", *argv]
        run(argv)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, open(sys.argv[1], errors="replace").read()]), flush=True)
    os.close(out)
"""


@dataclass(frozen=True)
class Run:
    """A command of a user's: where, and with which HOME. Refused, it names one of the places `told`; `may_work`: or it
    has no need of what is closed.
    """

    uid: int
    home: Path | None
    folder: Path
    argv: list[str]
    told: tuple[str, ...] = ("",)
    may_work: bool = True


@dataclass(frozen=True)
class Place:
    """The folders of a test."""

    top: Path

    @property
    def closed(self) -> Path:
        return self.top / "closed"

    @property
    def read_only(self) -> Path:
        return self.top / "read-only"

    @property
    def trained(self) -> Path:
        return self.top / "trained"

    def words(self, name: str, line: str) -> list[str]:
        values = {"c": self.closed, "w": self.read_only, "t": self.trained, "o": self.top, "r": REPO, "d": "0" * 64}
        return [*name.split(), *line.format(**values).split()]

    def files(self) -> list[Path]:
        """All in root's folders."""
        return sorted(path for top in (self.closed, self.read_only, self.trained) for path in top.rglob("*"))

    def own(self) -> Path:
        """A working directory of the user's, for one command."""
        folder = Path(tempfile.mkdtemp(prefix="own-", dir=self.top))
        os.chown(folder, MALLORY, MALLORY)
        return folder

    def run(self, runs: list[Run]) -> list[tuple[int, str]]:
        """The exit code of each, and what it has printed."""
        python, env = other_users.find_python(REPO)
        del env["HOME"]
        env |= {"OMP_NUM_THREADS": "1", "COLUMNS": "400", "AWS_EC2_METADATA_DISABLED": "true"}
        given = json.dumps([(run.uid, run.home and str(run.home), str(run.folder), run.argv) for run in runs])
        argv = [python, "-c", RUNNER, str(self.top / "out")]
        done = subprocess.run(argv, input=given, env=env, capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, done.stderr
        return [(code, text) for code, text in map(json.loads, done.stdout.splitlines())]


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Typer's or argparse's commands by their names."""
    nested = [action.choices for action in getattr(group, "_actions", ()) if isinstance(action.choices, dict)]
    commands = nested[0] if nested else getattr(group, "commands", None)
    if commands is None:
        yield " ".join(words), group
        return
    for name, below in commands.items():
        yield from _commands(below, (*words, name))


def _paths(command: Any) -> Iterator[str]:
    """The flags that take a path; for a word that is one by its place, an empty one."""
    if isinstance(command, argparse.ArgumentParser):
        for action in command._actions:
            if getattr(action.type, "__name__", "") == "path":
                yield action.option_strings[0] if action.option_strings else ""
        return
    for param in command.params:
        kind = param.type_descriptor.annotation
        if Path in (kind, *get_args(kind)):
            yield param.opts[0] if param.opts[0].startswith("-") else ""


def _all_commands() -> dict[str, Any]:
    own = {name: command for name, command in _commands(typer.main.get_command(app)) if name not in COMMANDS}
    return {**own, **dict(_commands(_parser()))}


def test_every_command_and_every_path_of_its_is_tried() -> None:
    commands = _all_commands()
    assert sorted(commands) == sorted(LINES)
    untried = []
    for name, command in commands.items():
        words = [line.split() for line in LINES[name][1:]]
        tried = {
            before if before.startswith("--") else ""
            for line in words
            for before, word in zip(["", *line], line, strict=False)
            if word.startswith(("{c}", "{w}"))
        }
        untried += [f"{name} {flag}" for flag in _paths(command) if flag not in tried]
    assert untried == []


@pytest.fixture
def place() -> Iterator[Place]:
    if why_not := other_users.why_not():
        pytest.skip(why_not)
    with tempfile.TemporaryDirectory() as top:  # pytest's own are closed to other users
        Path(top).chmod(0o755)
        place = Place(Path(top))
        (place.closed / "x").mkdir(parents=True)
        place.closed.chmod(0o700)
        place.read_only.mkdir()
        hours = "\n".join(f"2026-11-01T{hour:02}:00:00Z,{hour},0,30" for hour in range(24))
        (place.top / "series.csv").write_text(f"time,intensity,low,high\n{hours}\n")
        yield place


def _mistakes(run: Run, code: int, text: str) -> list[str]:
    """What is wrong with how a command has ended."""
    found = ["a traceback"] if "Traceback" in text else []
    if code == 2:
        found += ["no fix"] if "fix:" not in text else []
        found += ["the place is not named"] if not any(place in text for place in run.told) else []
        found += (
            ["files are left"]
            if run.folder.name.startswith("own-") and any(map(Path.is_file, run.folder.rglob("*")))
            else []
        )
        if not run.may_work:
            found += [] if "permission denied" in text.lower() and "no such" not in text.lower() else ["another reason"]
        return found
    return found if code == 0 and run.may_work else [*found, f"exit code {code}"]


def _runs(place: Place, *, slow: bool) -> Iterator[Run]:
    """Every line; those that name nothing closed with a closed HOME, and with none in a closed working directory."""
    marks = {"{c}": place.closed, "{w}": place.read_only, "{t}": place.trained}
    for name, lines in LINES.items():
        for line in lines:
            if slow != ("{t}" in line or (name in SLOW and "{c}" not in line)):
                continue
            words, own = place.words(name, line), place.own()
            if named := [str(folder) for mark, folder in marks.items() if mark in line]:
                yield Run(MALLORY, own, own, words, tuple(named), may_work=False)
                continue
            yield Run(ALICE, None, place.closed / "x", words, (str(place.closed), "/nonexistent"))
            if name != "audit":  # which asks a cloud
                yield Run(MALLORY, place.closed, own, words)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "slow"])
def test_what_is_closed_is_named_with_a_fix_and_nothing_is_written(place: Place, slow: bool) -> None:
    if slow:
        train = ["train", "--preset", "dcgan-digits", "--kimg", "0.1", "--run-dir", str(place.trained)]
        ((code, text),) = place.run([Run(0, None, place.top, train)])
        assert code == 0, text
    before = place.files()
    runs = list(_runs(place, slow=slow))
    ends = list(zip(runs, place.run(runs), strict=True))
    found = [(wrong, run, text[-500:]) for run, (code, text) in ends if (wrong := _mistakes(run, code, text))]
    assert found == []
    assert place.files() == before
    steps = [text for run, (_, text) in ends if run.argv in (["plan", "aws-demo"], ["job", "list"])]
    assert slow or all(any(step in text for text in steps) for step in ("set HOME", "change to another working"))
