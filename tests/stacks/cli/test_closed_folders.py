"""Every command, as a user to whom a folder is closed: where and why, and exit code 2; never a traceback."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from stacks.cli.main import app
from tests.conftest import REPO
from trainer.core.file_errors import closed_folder, file_problem

NOBODY = 65534
# By command, words that name something in the closed folder, {c}, or in a folder that only another may write, {w}.
WORDS: dict[str, str] = {
    "demo": "--quick --out {c}/x",
    "plan": "{c}/Pulumi.x.yaml",
    "init": "{c}/x --provider aws",
    "quote": "--accelerator H100x8 --hours 1",
    "tco": "--accelerator H100x8 --out {c}/x",
    "simulate": "{c}/x.yaml",
    "forecast": "{c}/x.csv",
    "when": "{c}/x.yaml --hours 1",
    "train": "--preset dcgan-digits --kimg 0.1 --run-dir {c}/x",
    "evaluate": "--run-dir {c}/x",
    "record": "--run-dir {c}/x",
    "data": "prepare cifar10 --source {c}/x --out {w}/y",
    "sample": "--run-dir {c}/x --out {w}/y.png",
    "export": "--run-dir {c}/x --out {w}/y",
    "presets": "",
    "memory": "--config {c}/x.json",
    "control": "show {c}/x",
    "dockerfile": "",
    "signature": "r/x@sha256:{d} --key {c}/x.pem",
    "report": "{c}/x",
    "reproduce": "{c}/x",
    "sign": "{c}/x --key {c}/k.pem",
    "reconcile": "{c}/bill.csv",
    "audit": "{c}/Pulumi.x.yaml",
    "catalog list": "",
    "catalog check": "",
    "prices show": "",
    "prices refresh": "--help",
    "prices diff": "",
    "bench run": "{c}/x.yaml",
    "bench resume": "{c}/x",
    "bench scaling": "",
    "job show": "{c}/x",
    "job submit": "{c}/x.yaml --on local:{c}/q",
    "job move": "x-1 --to local:{c}/q --on local:{c}/q",
    "job list": "--on local:{c}/q",
    "job engines": "",
    "job status": "x-1 --on local:{c}/q",
    "job record": "x-1 --on local:{c}/q",
    "job logs": "x-1 --on local:{c}/q",
    "job serve": "--help",
    "job cancel": "x-1 --on local:{c}/q",
    "job wait": "x-1 --on local:{c}/q",
    "breaker show": "{c}/Pulumi.x.yaml",
    "breaker reset": "{c}/Pulumi.x.yaml",
}
# Imports once; each command is a fork of it.
RUNNER = """
import json, os, signal, sys, traceback
from stacks.cli.main import main
import trainer.__main__
def run(argv, folder, out):
    os.chdir(os.path.dirname(folder))
    signal.alarm(60)  # what hangs is told
    for number in (1, 2):
        os.dup2(out, number)
    sys.argv = ["gangway", *argv]
    try:
        main()
    except SystemExit as leaving:
        sys.stdout.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
done = {}
for name, argv in json.load(sys.stdin).items():
    out = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if not (child := os.fork()):
        run(argv, sys.argv[1], out)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done[name] = [code, open(sys.argv[2], errors="replace").read()]
    os.close(out)
print(json.dumps(done))
"""


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(group, "commands"):
        yield " ".join(words)
        return
    for name, below in group.commands.items():
        yield from _commands(below, (*words, name))


def test_no_command_is_forgotten() -> None:
    assert sorted(_commands(typer.main.get_command(app))) == sorted(WORDS)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Another's alone: a folder that this user cannot look into, where root has lost its power to."""
    folder = tmp_path_factory.mktemp("of-root") / "closed"
    (folder / "x").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o700)
        yield folder
    else:  # its own can be closed too
        folder.chmod(0)
        yield folder
        folder.chmod(0o700)


@pytest.fixture(scope="module")
def done(closed: Path) -> dict[str, tuple[int, str]]:
    """What came of every command."""
    values = {"c": closed, "w": closed.parent, "d": "0" * 64}
    lines = {name: [*name.split(), *words.format(**values).split()] for name, words in WORDS.items()}
    powers = "-dac_override,-dac_read_search"
    plain = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"] if os.geteuid() == 0 else []
    argv = [*plain, sys.executable, "-c", RUNNER, str(closed), str(closed.parent / "out")]
    env = {**os.environ, "PYTHONPATH": str(REPO), "HOME": str(closed), "TMPDIR": str(closed), "COLUMNS": "400"}
    ran = subprocess.run(argv, input=json.dumps(lines), capture_output=True, text=True, env=env, check=True)
    found: dict[str, tuple[int, str]] = json.loads(ran.stdout)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WORDS)
def test_a_closed_folder_is_named_and_no_traceback_comes(
    name: str, done: dict[str, tuple[int, str]], closed: Path
) -> None:
    code, text = done[name]
    assert "Traceback" not in text, text
    if "{c}" in WORDS[name]:
        assert code == 2, text
        assert str(closed) in text, text
        assert "permission denied" in text.lower(), text
        assert "No such" not in text, text
        assert "fix:" in text, text
    else:
        assert code in (0, 2), text


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOTDIR, "part of the path is a file"),
        (errno.ELOOP, "round in a circle"),
        (errno.ENAMETOOLONG, "longer than"),
        (errno.EROFS, "read-only"),
        (errno.EISDIR, "a folder, where a file is expected"),
        (errno.ENOENT, "no such file"),
    ],
)
def test_errors_of_files_have_words(number: int, said: str, tmp_path: Path) -> None:
    found = file_problem(OSError(number, os.strerror(number), str(tmp_path / "x")))
    assert found is not None
    assert said in found.problem
    assert (found.place, bool(found.fix)) == (str(tmp_path / "x"), True)


def test_what_is_no_mistake_of_a_users_stays_an_error(tmp_path: Path) -> None:
    assert file_problem(OSError(errno.ENOSPC, "full", str(tmp_path))) is None, "later there may be room"
    assert file_problem(BrokenPipeError(errno.EPIPE, "pipe")) is None
    assert closed_folder(tmp_path / "x") is None


def test_a_working_directory_that_was_deleted_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        "import os, sys; os.rmdir(sys.argv.pop()); sys.argv[1:] = ['job', 'list']\n"
        "from stacks.cli.main import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(gone)], cwd=gone, env=env, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False), ran.stderr
    assert "the working directory" in ran.stderr
