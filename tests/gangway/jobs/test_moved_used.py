"""What a job has used of its hours and restarts counts on, wherever it goes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.cli.jobs.commands import _get_record as get_record
from gangway.components.core.findings import InputError
from gangway.jobs.base import JobStatus, Phase, Usage, restart_limit
from gangway.jobs.job_folder import JobFolder, OwnJobFolder
from gangway.jobs.job_folders import FolderEngine, read_status
from gangway.jobs.local.engine import LocalQueue, Spent
from gangway.jobs.moves import MoveResult, move_job
from gangway.jobs.sites import Site
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import end_processes, job, limited, over, until
from tests.gangway.jobs.test_copying import quiet
from tests.slurm_cluster import SlurmCluster

STAYS = "trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"
FAILS_AFTER_A_MOVE = f"echo x >>starts; case $(wc -l <starts) in 2) {STAYS};; *) exit 1;; esac"
"""At its first start, at its second it stays until it is moved, and then it fails again."""


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[list[LocalQueue]]:
    made = [LocalQueue(tmp_path / name) for name in "abc"]
    yield made
    for each in made:
        end_processes(each)


def begun(queue: FolderEngine, job_id: str) -> JobStatus:
    return until(queue, job_id, lambda found, log: "begun" in log)


def moved_and_failed(source: FolderEngine, job_id: str, target: FolderEngine) -> tuple[MoveResult, JobStatus]:
    """With the one start at the target, the second failure of two."""
    moved = move_job(source, job_id, target, limited(), quiet)
    found = over(target, moved.job_id)
    assert (found.phase, found.starts, found.exit_code) == (Phase.FAILED, 1, 1)
    assert "failure 2 of 2" in found.reason
    return moved, found


def on_nodes(queue: LocalQueue, job_id: str, sec: float) -> None:
    """As if it had been so long, before this start."""
    (Path(queue.where) / job_id / "stretches").write_text(f"0 {sec * 1000:.0f} 1\n")


@pytest.mark.slow
def test_its_hours_are_those_of_all_engines_together(queues: list[LocalQueue]) -> None:
    first, second, third = queues
    job_id = first.submit(job(STAYS))
    begun(first, job_id)
    on_nodes(first, job_id, 1800)
    there = move_job(first, job_id, second, limited(), quiet).job_id
    begun(second, there)
    used = second.get_usage(there)
    assert 1800 < used.sec < 1900
    on_nodes(second, there, 1800 - 60)
    last = move_job(second, there, third, limited(), quiet).job_id
    begun(third, last)
    assert 3540 < third.get_usage(last).sec < 3600
    assert [1800 < move.used.sec < 3600 for move in third.status(last).moves] == [True, True]


@pytest.mark.slow
def test_it_is_ended_where_they_are_over(queues: list[LocalQueue]) -> None:
    first, second, _ = queues
    job_id = first.submit(job(STAYS))
    begun(first, job_id)
    on_nodes(first, job_id, 3600 - 12)
    moved = move_job(first, job_id, second, limited(), quiet)
    assert over(second, moved.job_id).phase is Phase.OVER_HOURS


def test_without_hours_left_it_stays(queues: list[LocalQueue]) -> None:
    first, second, _ = queues
    job_id = first.submit(job(STAYS))
    begun(first, job_id)
    on_nodes(first, job_id, 3600)
    with pytest.raises(InputError, match=r"hours are used, none is left for local:") as refused:
        move_job(first, job_id, second, limited(), quiet)
    said = refused.value
    assert (said.place, said.value, "max_hours" in said.fix, first.run_url(job_id) in said.fix) == (
        "max_hours", "1", True, True,
    )  # fmt: skip
    assert first.status(job_id).phase is Phase.RUNNING
    assert second.jobs() == []


def test_whose_hours_end_while_it_is_told_to_stop_goes_nowhere(
    queues: list[LocalQueue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = queues
    job_id, stop = first.submit(job(STAYS)), first.stop
    begun(first, job_id)

    def late(job_id: str) -> None:
        on_nodes(first, job_id, 3600)
        stop(job_id)

    monkeypatch.setattr(first, "stop", late)
    for _ in range(2):
        with pytest.raises(InputError, match=r"hours are used|it is over"):
            move_job(first, job_id, second, limited(), quiet)
    found = first.status(job_id)
    assert (found.phase, "move" in found.reason) == (Phase.CANCELLED, False)
    assert list((tmp_path / "b").iterdir()) == []


@pytest.mark.slow
def test_a_failure_before_the_move_is_one_of_its_restarts(queues: list[LocalQueue]) -> None:
    first, second, _ = queues
    job_id = first.submit(job(FAILS_AFTER_A_MOVE, max_restarts=1))
    begun(first, job_id)
    moved, found = moved_and_failed(first, job_id, second)
    assert second.get_usage(moved.job_id).failures == 2
    assert second.get_stored_job(moved.job_id).failures == 1, "of this engine's starts"
    assert found.started_at is not None
    figures = get_record(Site(second), moved.job_id, found.started_at).figures
    assert (figures["failures"].value, figures["interruptions"].value) == (1, 0)


@pytest.mark.slow
def test_an_interruption_before_the_move_counts_too(queues: list[LocalQueue], tmp_path: Path) -> None:
    first, second, third = queues
    file = job(f"test -e moved && exit 75; {STAYS}")
    job_id = first.submit(file)
    begun(first, job_id)
    Spent(interruptions=restart_limit(file) - 1).write(OwnJobFolder(tmp_path / "a" / job_id))
    there = move_job(first, job_id, second, limited(), quiet).job_id
    begun(second, there)
    Spent(failures=1).write(OwnJobFolder(tmp_path / "b" / there))
    (tmp_path / "b" / there / "run" / "moved").touch()
    last = move_job(second, there, third, limited(), quiet).job_id
    found = over(third, last)
    assert (found.phase, found.exit_code, found.starts) == (Phase.FAILED, 5, 1)
    assert third.get_usage(last) == Usage(third.get_usage(last).sec, 1, restart_limit(file))


@pytest.mark.slow
def test_a_move_of_an_earlier_release_is_read(queues: list[LocalQueue], tmp_path: Path) -> None:
    first, second, _ = queues
    job_id = first.submit(job(f"test -e moved && exit 0; touch moved; {STAYS}"))
    begun(first, job_id)
    moved = move_job(first, job_id, second, limited(), quiet)
    over(second, moved.job_id)
    path = tmp_path / "b" / moved.job_id / "state.json"
    state = json.loads(path.read_bytes())
    del state["moves"][0]["used"]
    path.write_text(json.dumps(state))
    assert read_status(JobFolder(path.parent)).earlier_usage == Usage()


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize("is_first", [True, False])
def test_from_slurm_and_to_slurm(
    cluster: SlurmCluster, queues: list[LocalQueue], tmp_path: Path, is_first: bool
) -> None:
    (tmp_path / "queue").mkdir()
    engine = SlurmEngine(tmp_path / "queue", "gpu")
    ends: tuple[FolderEngine, FolderEngine] = (engine, queues[0]) if is_first else (queues[0], engine)
    source, target = ends
    job_id = source.submit(job(FAILS_AFTER_A_MOVE, max_restarts=1))
    begun(source, job_id)
    moved, found = moved_and_failed(source, job_id, target)
    before, used = found.earlier_usage, target.get_usage(moved.job_id)
    assert (before.failures, used.failures) == (1, 2)
    assert 0 < before.sec < used.sec
