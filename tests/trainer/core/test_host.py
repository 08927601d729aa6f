"""The machine's boot has a name where the kernel gives it one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.trainer.core.host import (
    COMMANDS,
    MODULE,
    WAIT_POLICY,
    boot_id,
    code_sha256,
    memory_of_groups,
    program,
    usable_cores,
    versions,
)
from tools.bench.runs import environment


def test_a_boot_has_one_name() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", boot_id())


def test_a_kernel_that_has_none_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.core.host._BOOT_ID", tmp_path / "boot_id")
    assert boot_id() == ""


V1 = "3:cpuset:/\n2:hugetlb,memory:/slurm/job_7\n1:cpu:/other\n"
JOB = "memory/slurm/job_7"
UNLIMITED = 9223372036854771712


def _second(folder: str, limit: str, stat: str = "anon 80\ninactive_file 20\n") -> dict[str, str]:
    names = {"memory.max": limit, "memory.current": "100\n", "memory.stat": stat}
    return {f"{folder}{name}": text for name, text in names.items()}


def _first(folder: str, limit: int) -> dict[str, str]:
    stat = "inactive_file 5\ntotal_inactive_file 30\n"
    names = {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": "100\n", "memory.stat": stat}
    return {f"{folder}/{name}": text for name, text in names.items()}


@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        ("0::/\n", _second("", "500\n"), [(80, 500)]),
        ("0::/\n", _second("", "500\n", "anon 80\n"), [(100, 500)]),
        ("0::/\n", _second("", "max\n"), []),
        ("0::/\n", _second("", "what is this\n"), []),
        ("0::/\n", {"memory.max": "500\n"}, []),
        ("0::/a/b\n", {**_second("a/b/", "max\n"), **_second("a/", "300\n")}, [(80, 300)]),
        ("0::/a/b\n", {**_second("a/b/", "200\n"), **_second("a/", "300\n")}, [(80, 200), (80, 300)]),
        ("0::/the/hosts/path\n", _second("", "500\n"), [(80, 500)]),
        (V1, {**_first(JOB, 400), **_first("memory", UNLIMITED)}, [(70, 400), (70, UNLIMITED)]),
        (V1, _first("memory", 400), [(70, 400)]),
        (V1, _first("memory/other", 400), []),
        ("", {}, []),
    ],
)
def test_every_limit_is_found_with_what_is_used_of_it(
    own: str, files: dict[str, str], found: list[tuple[int, int]], tmp_path: Path
) -> None:
    (tmp_path / "cgroup").write_text(own)
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(memory_of_groups(tmp_path / "cgroup", tmp_path / "mounted")) == found


def test_where_the_kernel_lists_no_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(memory_of_groups(tmp_path / "none", tmp_path)) == []


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))


def _cores(folder: Path, own: str, files: dict[str, str]) -> int:
    (folder / "cgroup").write_text(own)
    for name, text in files.items():
        path = folder / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(folder / "cgroup", folder / "mounted")


CPU_V1 = "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n"


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "what is this\n"}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "600000 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        (CPU_V1, {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        (CPU_V1, {"cpu/docker/abc/cpu.cfs_quota_us": "150000\n", "cpu/docker/abc/cpu.cfs_period_us": "50000\n"}, 3),
        (CPU_V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ("", {}, 8),
    ],
)
def test_the_least_of_affinity_and_every_quota_counts(
    own: str, files: dict[str, str], cores: int, tmp_path: Path
) -> None:
    assert _cores(tmp_path, own, files) == cores


@pytest.mark.usefixtures("eight")
def test_where_the_kernel_lists_no_groups_affinity_alone_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path) == 8


def test_the_code_hash_is_stable() -> None:
    assert code_sha256() == code_sha256()
    assert len(code_sha256()) == 64


def test_the_versions_are_those_of_what_computes() -> None:
    assert versions().keys() == {"python", "cpu", "torch", "numpy", "scikit-learn", "pydantic"}
    assert all(versions().values())


BEYOND = """
before = resource.getrlimit(resource.RLIMIT_DATA)
with memory_limit(64 * MIB):
    assert len(bytearray(16 * MIB)) == 16 * MIB
    try:
        np.zeros(512 * MIB, np.uint8)
    except MemoryError:
        print("refused")
assert resource.getrlimit(resource.RLIMIT_DATA) == before
assert np.zeros(512 * MIB, np.uint8).nbytes == 512 * MIB
"""
WITHIN = """
with memory_limit(64 * MIB), memory_limit(1024 * MIB):
    try:
        np.zeros(512 * MIB, np.uint8)
    except MemoryError:
        print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux alone")
@pytest.mark.parametrize("code", [BEYOND, WITHIN], ids=["a-limit", "a-limit-within-a-limit"])
def test_beyond_it_is_an_error_and_afterwards_there_is_room_again(code: str) -> None:
    """In a new process: one that has freed much memory takes that again without asking for more."""
    head = "import resource\nimport numpy as np\n"
    head += "from gangway.trainer.core.host import memory_limit\nMIB = 1 << 20\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


_TORCH = f"""
import os
print("loading torch with", os.environ.get("{WAIT_POLICY}"))
os._exit(7)
"""
"""A package of that name which shows the environment it is loaded in, and ends the process."""


@pytest.mark.parametrize(("given", "wanted"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
@pytest.mark.parametrize("module", ["gangway.trainer", "gangway.cli"])
def test_threads_wait_passively_before_torch_is_loaded(
    module: str, given: str | None, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(_TORCH)
    variables = {key: value for key, value in os.environ.items() if key != WAIT_POLICY}
    variables |= {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"} | ({WAIT_POLICY: given} if given else {})
    argv = [sys.executable, "-m", module, "train", "--preset", "dcgan-digits", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (7, f"loading torch with {wanted}"), done.stderr


def test_peers_of_a_benchmark_wait_as_the_trainer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WAIT_POLICY, raising=False)
    assert environment(2)[WAIT_POLICY] == "PASSIVE"
    monkeypatch.setenv(WAIT_POLICY, "ACTIVE")
    assert environment(2)[WAIT_POLICY] == "ACTIVE"


@pytest.mark.parametrize("started", ["-c", "/opt/gangway/trainer/__main__.py", "/usr/bin/pytest", ""])
def test_it_is_the_module_where_nothing_else_started_it(started: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [started, "train"])
    assert program() == MODULE == "python -m gangway.trainer"


def test_it_is_gangway_by_the_name_that_a_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "gangway"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == str(script)
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "gangway"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/gangway", "train"])
    assert program() == "gangway"


def test_every_command_is_one_of_the_trainers(capsys: pytest.CaptureFixture[str]) -> None:
    from gangway.trainer.__main__ import main

    for name in COMMANDS:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
        assert f"{MODULE} {name}" in capsys.readouterr().out
