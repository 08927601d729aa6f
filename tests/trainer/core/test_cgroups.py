"""Memory that control groups may have, of either version: a process's own and those above it."""

from pathlib import Path

import pytest

from gangway.trainer.core.cgroups import memory_of_groups

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
