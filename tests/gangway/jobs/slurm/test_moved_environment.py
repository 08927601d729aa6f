"""The environment of a job's submit, on its way to Slurm and from there; with pretended commands."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import end_processes, job, over, until
from tests.gangway.jobs.test_job_folders import MOVES, SAYS, moved


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalQueue]:
    queue = LocalQueue(tmp_path / "here")
    yield queue
    end_processes(queue)


def test_to_slurm_which_is_reached_as_whoever_moves_it_reaches_it(
    here: LocalQueue,
    tmp_path: Path,
    by_another: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The submitter has none of its commands; the batch script needs them."""
    monkeypatch.setenv("SLURM_CONF", "/theirs/slurm.conf")
    job_id = here.submit(job(MOVES))
    until(here, job_id, lambda found, log: "begun" in log)
    path = os.environ["PATH"]
    pretended: Callable[[str, str], None] = request.getfixturevalue("pretended")
    pretended("sbatch", f"/usr/bin/env >{tmp_path}/env; echo 7")
    by_another()
    monkeypatch.setenv("SLURM_CONF", "/own/slurm.conf")
    assert moved(here, job_id, SlurmEngine(tmp_path / "queue")).is_as_of_submit
    told = (tmp_path / "env").read_text().splitlines()
    commands = Path(shutil.which("sbatch") or "").parent
    assert {"MINE=a b", "ä=c", f"PATH={path}:{commands}", "SLURM_CONF=/own/slurm.conf"} <= set(told)
    assert not any(line.startswith("THEIRS=") for line in told)


@pytest.mark.slow
@pytest.mark.parametrize("is_kept", [True, False])
def test_from_slurm_where_an_earlier_release_has_kept_none(
    pretended: Callable[[str, str], None],
    here: LocalQueue,
    tmp_path: Path,
    by_another: Callable[[], None],
    is_kept: bool,
) -> None:
    source, waits = SlurmEngine(tmp_path / "queue"), tmp_path / "waits"
    pretended("squeue", f"cat {waits} 2>/dev/null || :")
    pretended("scancel", f"rm {waits}")
    job_id = source.submit(job(SAYS))
    waits.write_text(f"7|{os.geteuid()}|PENDING|None|gangway:{tmp_path}/queue/{job_id}\n")
    kept = tmp_path / "queue" / job_id / "environment"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    if not is_kept:
        kept.unlink()
    by_another()
    gone = moved(source, job_id, here)
    assert gone.is_as_of_submit == is_kept
    assert over(here, gone.job_id).phase is Phase.DONE
    said = (tmp_path / "here" / gone.job_id / "run" / "said").read_text()
    assert said == ("a b\nä=c;" if is_kept else ";s3cr3t")
