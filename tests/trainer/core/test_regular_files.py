"""Files under names of others' choice: a link, a FIFO, a device and a file without an end are told, none is read."""

import ast
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.trainer.core.regular_files import (
    UnfitFileError,
    check_creatable,
    closed_folder,
    file_problem,
    home_folder,
    read_file,
    read_regular,
    read_text_file,
)
from tests.conftest import REPO

hostile = pytest.mark.attack("a run's folder", "links, FIFOs and files without an end under a run's names")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


ODD: dict[str, tuple[Callable[[Path], object], int]] = {
    "a FIFO": (os.mkfifo, errno.EINVAL),
    "a folder": (Path.mkdir, errno.EINVAL),
    "a link to a file": (lambda path: path.symlink_to("/etc/passwd"), errno.ELOOP),
    "a link to a device without an end": (lambda path: path.symlink_to("/dev/zero"), errno.ELOOP),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), errno.ELOOP),
    "a terabyte": (sparse, errno.EFBIG),
}


@hostile
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", ["run.json", "checkpoints/000016.json"])
def test_what_is_no_plain_file_is_told_at_once(what: str, name: str, tmp_path: Path) -> None:
    make, code = ODD[what]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    with pytest.raises(OSError, match=r"link|regular|larger") as caught:
        read_regular(tmp_path, name)
    assert caught.value.errno == code


@hostile
def test_a_folder_in_between_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/000016.json").write_text("{}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to("../elsewhere")
    with pytest.raises(OSError, match="link"):
        read_regular(tmp_path / "run", "checkpoints/000016.json")


@hostile
def test_a_folder_that_a_person_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/000016.json").write_text("{}")
    (tmp_path / "newest").symlink_to("run")
    assert read_regular(tmp_path / "newest", "checkpoints/000016.json") == b"{}"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "newest", "run.json")


@hostile
def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a/b")
    for name in ("a/b", "a/c", "a/b/c", "a"):
        with pytest.raises(OSError, match=r".+"):
            read_regular(tmp_path, name)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


OPENERS = {
    "read_text": "regular_files.read_text_file",
    "read_bytes": "regular_files.read_file",
    "open": "regular_files.open_file",
}
OWN = {
    *("gangway/jobs/local/engine.py", "stacks/plan/rules/guardrails.py"),  # /proc, and a file of Gangway itself
    "trainer/core/regular_files.py",
    *("gangway/bench/processes.py", "gangway/jobs/run_intervals.py", "gangway/jobs/local/runner.py"),  # /proc
    "trainer/core/host.py",
    "trainer/core/files.py",  # under a random name
    *("trainer/launch/watchdog.py", "trainer/networks/precision.py", "trainer/power/energy.py"),
    *("trainer/telemetry/devices.py", "gangway/jobs/job_folder.py"),
    *("gangway/jobs/kubernetes/manifests.py", "gangway/jobs/slurm/engine.py"),  # files of Gangway itself
    *("gangway/bench/pulumi_cli.py", "gangway/render/rendering.py", "gangway/report/comparison/tables.py"),
    *("stacks/config/paths.py", "stacks/estimates/run_context.py", "stacks/plan/rules/outside_rules.py"),
    *("trainer/data/packaged_data.py", "gangway/live/dashboard/app.py"),
    *("gangway/live/dashboard/server.py", "gangway/live/image_build/local.py"),  # under a random name
    "gangway/live/image_build/context.py",  # Gangway's own files, and bytes in memory
    *("gangway/bench/cloud.py", "gangway/bench/local.py", "gangway/bench/runner.py"),  # what it wrote
    *("gangway/cli/demo.py", "gangway/cli/init.py", "gangway/jobs/local/run.py"),
    *("gangway/jobs/serve.py", "trainer/core/heartbeat.py", "trainer/launch/rendezvous.py"),
    *("trainer/preemption/notices.py", "trainer/telemetry/tracking.py", "trainer/checkpoint/samples.py"),
    *("gangway/finops/bill/reader.py", "trainer/data/cifar10.py"),  # after check_file
    *("gangway/bench/session.py", "trainer/commands/data.py", "trainer/data/shards.py"),  # other classes' `open`
    *("trainer/data/decode.py", "trainer/data/encoding.py", "gangway/report/comparison/write.py"),  # of bytes in memory
    *("trainer/power/forecast.py", "trainer/data/prepare.py"),
}
"""Modules that open files by their path, none of which a user or another program has named."""


@hostile
def test_nothing_else_opens_a_file_that_somebody_names() -> None:
    found = set()
    for package in ("gangway", "stacks", "trainer"):
        for path in (REPO / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                function = node.func
                if isinstance(function, ast.Attribute):
                    opens = function.attr in OPENERS and getattr(function.value, "id", "") != "os"
                else:
                    opens = isinstance(function, ast.Name) and function.id == "open"
                if opens:
                    found.add(str(path.relative_to(REPO)))
    assert sorted(found - OWN) == [], f"use one of {', '.join(OPENERS.values())}"
    assert sorted(OWN - found) == []


@hostile
@pytest.mark.parametrize("what", ["a FIFO", "a folder", "a terabyte"])
def test_what_a_user_names_is_a_regular_file_with_an_end(what: str, tmp_path: Path) -> None:
    make, code = ODD[what]
    make(tmp_path / "x")
    (tmp_path / "link").symlink_to("x")
    for name in ("x", "link"):
        with pytest.raises(UnfitFileError, match=r"regular|folder|larger") as caught:
            read_file(tmp_path / name)
        assert caught.value.errno == code
        problem = file_problem(caught.value)
        assert problem is not None
        assert problem.place == str(tmp_path / name)


@hostile
def test_a_link_that_a_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    (tmp_path / "link").symlink_to("x")
    assert read_text_file(tmp_path / "link") == "one\ntwo"
    with pytest.raises(UnfitFileError, match="no regular file"):
        read_file(Path("/dev/zero"))
    assert read_file(Path("/proc/self/comm")).strip()
    with pytest.raises(UnfitFileError, match="larger"):
        read_file(Path("/proc/self/environ"), most_bytes=3)


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


def test_the_fix_is_what_names_the_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fix(path: Path) -> str:
        found = file_problem(PermissionError(errno.EACCES, "denied", str(path)))
        assert found is not None
        return found.fix

    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    last = "or run it as a user who may use"
    assert fix(home / "x/y") == f"name another place or set HOME to a folder of yours, {last} {home}"
    assert fix(Path("x")) == f"name another place or change to another working directory, {last} {here}"
    assert fix(tmp_path / "x") == f"name another place, {last} {tmp_path}"
    for argv in (["train", "--run-dir", str(here / "x")], ["train", f"--run-dir={here / 'x'}"]):
        monkeypatch.setattr(sys, "argv", ["gangway", *argv])
        assert fix(here / "x") == f"name another place, {last} {here}", "an absolute path is the same from everywhere"


def test_what_cannot_be_created_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_creatable(tmp_path / "runs" / "new")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(PermissionError, match="new"):
        check_creatable(tmp_path / "runs" / "new")
    check_creatable(tmp_path)  # what is there is somebody else's question
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.X_OK)
    with pytest.raises(PermissionError, match="new"):
        check_creatable(tmp_path / "new")


def test_a_user_without_a_home_has_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert not home_folder().exists()
