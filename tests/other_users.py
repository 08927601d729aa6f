"""Gangway's command line as another user of this machine: several commands in one process, which has their rights."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from tests.conftest import REPO

ALICE, MALLORY, GROUP = 65533, 65534, 65532
_SESSION = """
import contextlib, gc, io, json, sys
from gangway.cli import main as cli
gc.freeze = lambda: None
for words in json.loads(sys.argv[1]):
    sys.argv = ["gangway", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Done:
    """One command: its exit code and what it has printed."""

    code: int
    out: str
    err: str


def prefix(uid: int) -> list[str]:
    """Of a command that runs as this user, who is in GROUP besides their own."""
    return [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={GROUP}"]


def shell(uid: int, line: str) -> None:
    """A line of sh as that user."""
    subprocess.run([*prefix(uid), "/bin/sh", "-c", line], check=True, timeout=30)


@contextmanager
def holds_lock(uid: int, folder: Path, kind: str = "LOCK_EX") -> Iterator[int]:
    """A process of that user's that has a folder's lock; its number."""
    python, env = find_python(REPO)
    descriptor = os.open(folder, os.O_RDONLY)
    code = f"import fcntl, time; fcntl.flock({descriptor}, fcntl.{kind}); print(flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [*prefix(uid), python, "-c", code], stdout=subprocess.PIPE, env=env, pass_fds=(descriptor,)
    )
    os.close(descriptor)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def gangway(
    uid: int,
    *commands: Sequence[str],
    repo: Path = REPO,
    more_env: Mapping[str, str] = MappingProxyType({}),
    cwd: str | Path = "/",
) -> list[Done]:
    """What each command comes to; one that hangs fails the test."""
    python, env = find_python(repo)
    done = subprocess.run(
        [*prefix(uid), python, "-c", _SESSION, json.dumps([["job", *words] for words in commands])],
        env={**env, **more_env}, capture_output=True, text=True, timeout=120, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


@cache
def why_not() -> str:
    """Why no other user can run this checkout here; empty where they can."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return "wants root, to become other users"
    python, env = find_python(REPO)
    tried = [*prefix(MALLORY), python, "-c", "import gangway.cli.main"]
    found = subprocess.run(tried, env=env, capture_output=True, text=True, timeout=120, check=False)
    return f"other users cannot run this checkout: {found.stderr[-200:]}" if found.returncode else ""


def find_python(repo: Path) -> tuple[str, dict[str, str]]:
    """A Python of this version that others may run, too, with this one's packages; and its environment."""
    own = Path(sys.executable).resolve()
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    is_closed = any(not above.stat().st_mode & 0o001 for above in own.parents)
    python = system if is_closed and system.exists() else Path(sys.executable)
    path = f"{repo}:{sysconfig.get_path('purelib')}"
    return str(python), {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "300",
    }  # fmt: skip
