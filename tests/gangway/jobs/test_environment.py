"""A job that was moved runs in the environment of its submit, not in that of whoever moves it."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Movable, Phase
from gangway.jobs.job_folder import JobFolder
from gangway.jobs.job_folders import get_environment
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import MoveResult, move_job
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import end_processes, job, limited, over, until
from tests.slurm_cluster import SlurmCluster

SAYS = 'printf "%s;%s" "$MINE" "$THEIRS" >said'
MOVES = (
    f"test -e begun && {{ {SAYS}; exit; }}; touch begun; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"
)


def moved(source: Movable, job_id: str, target: Movable) -> MoveResult:
    return move_job(source, job_id, target, limited(), lambda done, total: None)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalQueue]:
    queue = LocalQueue(tmp_path / "here")
    yield queue
    end_processes(queue)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[LocalQueue]:
    queue = LocalQueue(tmp_path / "there")
    yield queue
    end_processes(queue)


@pytest.mark.slow
def test_twice_from_local_to_local(
    here: LocalQueue, there: LocalQueue, tmp_path: Path, by_another: Callable[[], None]
) -> None:
    """Of one that waits, the second time."""
    job_id = here.submit(job(MOVES))
    until(here, job_id, lambda found, log: "begun" in log)
    by_another()
    holds = there.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(there, holds, lambda found, log: found.phase is Phase.RUNNING)
    first = moved(here, job_id, there)
    assert first.is_as_of_submit
    last = moved(there, first.job_id, here)
    assert over(here, last.job_id).phase is Phase.DONE
    folder = tmp_path / "here" / last.job_id
    assert (folder / "run" / "said").read_text() == "a b\nä=c;"
    kept = [path for path in folder.iterdir() if path.is_file() and b"MINE=" in path.read_bytes()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]


def test_one_that_cannot_be_read_is_told_before_the_job_is_stopped(
    here: LocalQueue, there: LocalQueue, tmp_path: Path
) -> None:
    job_id = here.submit(job(MOVES))
    until(here, job_id, lambda found, log: "begun" in log)
    (tmp_path / "here" / job_id / "environment").write_text("HOME")
    with pytest.raises(InputError, match="not a job's environment"):
        moved(here, job_id, there)
    assert here.status(job_id).phase is Phase.RUNNING
    assert there.jobs() == []


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_in_a_slurm_and_from_there(
    cluster: SlurmCluster, here: LocalQueue, there: LocalQueue, tmp_path: Path, by_another: Callable[[], None]
) -> None:
    (tmp_path / "queue").mkdir()
    slurm = SlurmEngine(tmp_path / "queue", "gpu")
    twice = (
        f"{SAYS}-$(ls -d begun* | wc -l); test -e begun-2 && exit; test -e begun-1 && touch begun-2; touch begun-1; "
    )
    job_id = here.submit(job(f"{twice} trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(here, job_id, lambda found, log: "begun" in log)
    by_another()
    middle = moved(here, job_id, slurm)
    until(slurm, middle.job_id, lambda found, log: "begun" in log)
    assert get_environment(JobFolder(tmp_path / "queue" / middle.job_id))["MINE"] == "a b\nä=c"
    last = moved(slurm, middle.job_id, there)
    assert (over(there, last.job_id).phase, last.is_as_of_submit) == (Phase.DONE, True)
    run = tmp_path / "there" / last.job_id / "run"
    assert [path.read_text() for path in sorted(run.glob("said-*"))] == ["a b\nä=c;"] * 3
