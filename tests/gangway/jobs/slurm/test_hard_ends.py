"""Slurm jobs whose submit is killed, whose folder has no room or an odd name, whose variables would break a script, and
what they leave on a node; with a real one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Phase
from gangway.jobs.slurm.engine import SlurmEngine
from tests.gangway.jobs.test_contract import job, over, until
from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
SUBMIT = """
import sys
from pathlib import Path
from gangway.stacks.config.job_file import JobFile
from gangway.jobs.slurm.engine import SlurmEngine
SlurmEngine(Path(sys.argv[1]), *(sys.argv[3:] or ["gpu"])).submit(JobFile.model_validate_json(sys.argv[2]))
"""
ENDLESS = "trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with little room."""
    (folder := tmp_path / "small").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def killed_submit(tmp_path: Path, script: str, *, taken: bool, **keys: object) -> str:
    """The id of a job whose submit is killed by its sbatch, once Slurm has taken the job or before."""
    slow, real = tmp_path / "killing" / "sbatch", shutil.which("sbatch")
    slow.parent.mkdir(exist_ok=True)
    slow.write_text(f'#!/bin/sh\n{f"{real} " if taken else ": "}"$@"\nkill -KILL $PPID\n')
    slow.chmod(0o755)
    words = [
        sys.executable,
        "-c",
        SUBMIT,
        str(tmp_path / "queue"),
        job(script, **keys).model_dump_json(exclude_unset=True),
    ]
    path = f"{slow.parent}:{os.environ['PATH']}"
    assert subprocess.run(words, env={**os.environ, "PATH": path}, timeout=60).returncode == -9
    return max(path.name for path in (tmp_path / "queue").glob("case-*"))


@pytest.mark.slow
def test_a_submit_that_is_killed_once_slurm_has_it_leaves_a_job_like_any_other(
    engine: SlurmEngine, tmp_path: Path
) -> None:
    running = killed_submit(tmp_path, ENDLESS, taken=True, nodes={"min": 3, "max": 3})
    until(engine, running, lambda found, log: found.phase is Phase.RUNNING and "begun" in log)
    waiting = killed_submit(tmp_path, ENDLESS, taken=True)
    assert [each.phase for each in engine.jobs()] == [Phase.RUNNING, Phase.WAITING]
    for job_id in (waiting, running):
        engine.cancel(job_id)
        assert over(engine, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_one_that_waits_can_be_cancelled_though_its_submit_was_killed(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    first = engine.submit(job(ENDLESS, nodes={"min": 3, "max": 3}))
    until(engine, first, lambda found, log: found.phase is Phase.RUNNING)
    waiting = killed_submit(tmp_path, "touch ran", taken=True)
    engine.cancel(waiting)  # the first that anybody asks of it
    assert over(engine, waiting).phase is Phase.CANCELLED
    assert cluster.run("squeue", "--noheader", "--states=PENDING") == ""


@pytest.mark.slow
def test_a_submit_that_is_killed_before_slurm_has_it_has_failed_for_good(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = killed_submit(tmp_path, "touch ran", taken=False)
    assert (engine.status(job_id).phase, engine.status(job_id).reason) == (Phase.WAITING, "being submitted")
    monkeypatch.setattr("gangway.jobs.slurm.engine._SUBMITTED_SEC", 0.0)
    assert engine.status(job_id).phase is Phase.FAILED
    folder = tmp_path / "queue" / job_id
    cluster.run("sbatch", "--wait", *(folder / "sbatch.words").read_text().splitlines())  # sbatch was slow
    assert (folder / "end").read_text().startswith("cancelled ")
    assert not (folder / "run" / "ran").exists()


@pytest.mark.slow
def test_a_job_leaves_no_process(engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path) -> None:
    job_id = engine.submit(job("test -e again && exit 0; touch again; exit 1", max_hours=20))
    assert over(engine, job_id).phase is Phase.DONE
    number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
    cluster.until(("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"), "COMPLETED")
    assert list(processes_in(tmp_path / "queue" / job_id)) == []


def processes_in(folder: Path) -> Iterator[str]:
    """The words of each process that is at work there."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(folder):
                yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


def test_a_folder_may_have_signs_that_sbatch_gives_a_meaning(cluster: SlurmCluster, tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path / "50%j of %% it's", "gpu")
    job_id = engine.submit(job("echo here; exit 1", max_restarts=1))
    assert over(engine, job_id).phase is Phase.FAILED
    assert engine.log(job_id)[0].count("here") == 2


@pytest.mark.parametrize("odd", ["back\\slash", "two\nlines"])
def test_a_folder_whose_log_would_be_elsewhere_is_refused(cluster: SlurmCluster, tmp_path: Path, odd: str) -> None:
    with pytest.raises(InputError, match="use another"):
        SlurmEngine(tmp_path / odd, "gpu").submit(job("true"))
    assert not (tmp_path / odd).exists()


def test_variables_of_a_job_are_its_commands_alone(engine: SlurmEngine, tmp_path: Path) -> None:
    env = {
        "PATH": "/no/such", "BASH_ENV": "/no/such", "ENV": "/no/such", "LD_PRELOAD": "/no/such.so",
        "SLURMD_NODENAME": "mine", "SLURM_JOB_ID": "mine",
    }  # fmt: skip
    script = 'cd "$GANGWAY_RUN_DIR"; test -e seen || { : >seen; exit 4; }; /usr/bin/printenv PATH SLURM_JOB_ID >ours'
    job_id = engine.submit(job("", command=["/bin/sh", "-c", script], env=env, max_restarts=0))
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2), "the node that was not fit is known, and left out"
    assert (tmp_path / "queue" / job_id / "run" / "ours").read_text() == "/no/such\nmine\n"


def fill(folder: Path) -> Path:
    """All that is left there."""
    (filler := folder / "filler").touch()
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return filler
    raise AssertionError("no end of room")


def test_a_full_folder_hides_no_job_that_is_over(cluster: SlurmCluster, small: Path) -> None:
    engine = SlurmEngine(small / "queue", "gpu")
    job_id = engine.submit(job("true"))
    cluster.until(("cat", str(small / "queue" / job_id / "end")), "done")  # and nobody has asked for it yet
    fill(small)
    assert engine.status(job_id).phase is Phase.DONE
    assert [each.phase for each in engine.jobs()] == [Phase.DONE]
    with pytest.raises(InputError, match="No space left"):
        engine.submit(job("true"))


@pytest.mark.slow
def test_the_end_of_a_job_waits_for_room(cluster: SlurmCluster, small: Path) -> None:
    engine = SlurmEngine(small / "queue", "gpu")
    job_id = engine.submit(job("cat /dev/zero >fill; exit 0"))
    folder = small / "queue" / job_id
    until(engine, job_id, lambda found, log: (folder / ".stretches").exists())
    assert engine.jobs()[0].phase is Phase.RUNNING
    (folder / "run" / "fill").unlink()
    assert over(engine, job_id).phase is Phase.DONE


def test_a_job_without_room_for_its_end_is_given_up_and_says_why(
    cluster: SlurmCluster, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_ROOM_SEC", "0")  # which sbatch hands on
    monkeypatch.setattr("gangway.jobs.slurm.engine._SEEN_SEC", 0.0)
    engine = SlurmEngine(small / "queue", "gpu")
    found = over(engine, engine.submit(job("cat /dev/zero >fill; exit 0")))
    assert found.phase is Phase.FAILED
    assert "space" in found.reason
