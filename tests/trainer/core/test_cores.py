"""Cores that a process may use: affinity, and the quotas of its control groups, of either version, and those above."""

from pathlib import Path

import pytest

from gangway.trainer.core.cores import usable_cores


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))


def _cores(folder: Path, own: str, files: dict[str, str]) -> int:
    (folder / "cgroup").write_text(own)
    for name, text in files.items():
        path = folder / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(folder / "cgroup", folder / "mounted")


V1 = "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n"


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
        (V1, {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu/docker/abc/cpu.cfs_quota_us": "150000\n", "cpu/docker/abc/cpu.cfs_period_us": "50000\n"}, 3),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ("", {}, 8),
    ],
)
def test_the_least_of_affinity_and_every_quota_counts(
    own: str, files: dict[str, str], cores: int, tmp_path: Path
) -> None:
    assert _cores(tmp_path, own, files) == cores


def test_where_the_kernel_lists_no_groups_affinity_alone_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path) == 8
