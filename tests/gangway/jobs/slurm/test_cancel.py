"""A cancel that Slurm is not told says so, and one that it is told shows; with pretended commands."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import EngineAwayError, Phase
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job

Pretended = Callable[[str, str], None]


@pytest.fixture
def engine(pretended: Pretended, tmp_path: Path) -> SlurmEngine:
    """With a job that waits."""
    engine = SlurmEngine(tmp_path / "queue")
    engine.submit(job("true"))
    is_in("PENDING", pretended, tmp_path)
    return engine


def is_in(state: str, pretended: Pretended, tmp_path: Path) -> None:
    pretended("squeue", f"echo '7|{os.geteuid()}|{state}|Priority|gangway:{tmp_path}/queue/case-1'")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", EngineAwayError),
        ("Kill job error on job id 7: Unable to contact slurm controller (connect failure)", EngineAwayError),
        ("Kill job error on job id 7: Socket timed out on send/recv operation", EngineAwayError),
        ("Kill job error on job id 7: Access/permission denied", InputError),
    ],
)
def test_a_cancel_that_slurm_is_not_told_says_so_and_can_be_asked_for_again(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, said: str, kind: type[InputError]
) -> None:
    pretended("scancel", f'echo "scancel: error: {said}" >&2; exit 1')
    with pytest.raises(kind, match="scancel"):
        engine.cancel("case-1")
    pretended("scancel", f'echo "$@" >>{tmp_path}/told')
    engine.cancel("case-1")
    assert set((tmp_path / "told").read_text().splitlines()) == {"7"}


@pytest.mark.parametrize(
    "said", ["Invalid job id specified", "Job/step already completing or completed", "Invalid job id 7"]
)
def test_one_that_is_over_meanwhile_is_no_mistake(engine: SlurmEngine, pretended: Pretended, said: str) -> None:
    pretended("scancel", f'echo "scancel: error: Kill job error on job id 7: {said}" >&2; exit 1')
    engine.cancel("case-1")


def test_a_script_that_cannot_be_told_in_its_first_instant_is_told_in_the_next(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangway.jobs.slurm.engine._SIGNAL_SEC", 0.0)
    is_in("RUNNING", pretended, tmp_path)
    pretended(
        "scancel", f'[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 1; }}; echo "$@" >{tmp_path}/told'
    )
    engine.cancel("case-1")
    assert (tmp_path / "told").read_text() == "--batch --signal=TERM 7\n"
    pretended("scancel", "exit 1")
    with pytest.raises(InputError, match="scancel"):
        engine.cancel("case-1")


@pytest.mark.parametrize(("state", "phase"), [("PENDING", Phase.WAITING), ("RUNNING", Phase.RUNNING)])
def test_until_it_is_over_it_is_being_cancelled(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, state: str, phase: Phase
) -> None:
    is_in(state, pretended, tmp_path)
    assert "cancelled" not in engine.status("case-1").reason
    engine.cancel("case-1")
    found = engine.status("case-1")
    assert found.phase is phase
    assert found.reason.startswith("being cancelled")


@pytest.mark.parametrize(
    ("state", "told"), [("PENDING", "7"), ("CONFIGURING", "7"), ("RUNNING", "--batch --signal=TERM 7")]
)
def test_a_script_is_told_where_one_runs(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, state: str, told: str
) -> None:
    """What has been given nodes that are not up yet has none, and would go back into the queue without them."""
    pretended("scancel", f'echo "$@" >>{tmp_path}/told')
    is_in(state, pretended, tmp_path)
    engine.cancel("case-1")
    assert (tmp_path / "told").read_text() == f"{told}\n"


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "CONFIGURING"])
def test_one_that_comes_back_into_the_queue_once_it_was_told_is_ended_by_whoever_looks(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, state: str
) -> None:
    is_in("RUNNING", pretended, tmp_path)
    engine.cancel("case-1")
    pretended("scancel", f'echo "$@" >>{tmp_path}/told')
    assert [each.phase for each in engine.jobs()] == [Phase.RUNNING]
    assert not (tmp_path / "told").exists(), "the script does it"
    is_in(state, pretended, tmp_path)
    assert not engine.status("case-1").phase.is_over
    assert (tmp_path / "told").read_text() == "7\n"
    pretended("scancel", 'echo "scancel: error: Kill job error on job id 7: Access/permission denied" >&2; exit 1')
    assert engine.status("case-1").reason.startswith("being cancelled")


@pytest.mark.attack("a user of a shared Slurm", "has somebody else's job cancelled by its number")
@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CONFIGURING"])
@pytest.mark.parametrize(
    ("user", "comment"),
    [(0, "gangway:/elsewhere/case-1"), (0, ""), (0, "gangway:{queue}/case-10"), (1, "gangway:{queue}/case-1")],
)
def test_no_other_job_of_the_same_number_is_ended(
    engine: SlurmEngine, pretended: Pretended, tmp_path: Path, state: str, user: int, comment: str
) -> None:
    """Slurm may give a number twice, and whoever can write to a job's folder writes any number there."""
    other = comment.format(queue=tmp_path / "queue")
    pretended("squeue", f"echo '7|{os.geteuid() + user}|{state}|Priority|{other}'")
    pretended("scancel", f'echo "$@" >>{tmp_path}/told')
    engine.cancel("case-1")
    assert engine.status("case-1").phase is Phase.CANCELLED
    engine.jobs()
    assert not (tmp_path / "told").exists()
