"""What Slurm alone does to jobs: nodes that differ, requeues, drains, a controller that goes away; with a real one."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.jobs.base import JobStatus, Phase
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.jobs.slurm.engine import SlurmEngine, _State
from gangway.jobs.slurm.script import get_comment
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, limited, over, until
from tests.slurm_cluster import SlurmCluster

REFUSED = ["--partition=nonesuch", "--wrap=true"]
"""What sbatch does not take."""
pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


def slurm_id(tmp_path: Path, job_id: str) -> str:
    return (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()


def test_nodes_of_one_job_meet_and_each_runs_its_processes(engine: SlurmEngine) -> None:
    script = 'echo "rank $RANK of $WORLD_SIZE"'
    job_id = engine.submit(job(script, nodes={"min": 2, "max": 2}, processes_per_node=2))
    found = over(engine, job_id)
    assert (found.phase, len(found.nodes)) == (Phase.DONE, 2)
    log = engine.log(job_id)[0]
    assert [f"rank {rank} of 4" in log for rank in range(4)] == [True] * 4


def test_a_plain_command_runs_once_on_each_node_and_the_first_failure_decides(engine: SlurmEngine) -> None:
    all_here = "touch here-$SLURM_PROCID; while ! [ -e here-0 -a -e here-1 -a -e here-2 ]; do sleep 0.1; done"
    script = f'echo "here on $SLURMD_NODENAME"; {all_here}; test "$SLURM_PROCID" = 1 && exit 2; sleep 60'
    job_id = engine.submit(job(script, nodes={"min": 3, "max": 3}))
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.BAD_INPUT, 1)
    assert sorted(found.nodes) == ["n1", "n2", "n3"]
    assert all(f"here on {node}" in engine.log(job_id)[0] for node in found.nodes)


@pytest.mark.slow
def test_an_unfit_node_is_drained_and_the_job_goes_on_without_it(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    job_id = engine.submit(job('test -e seen || { echo "$SLURMD_NODENAME" >seen; exit 4; }', max_restarts=0))
    found = over(engine, job_id)
    unfit = (tmp_path / "queue" / job_id / "run" / "seen").read_text().strip()
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert unfit not in found.nodes
    assert "drain" in cluster.run("sinfo", "--noheader", f"--nodes={unfit}", "--format=%T")


def test_where_too_few_fit_nodes_are_left_it_ends(engine: SlurmEngine) -> None:
    found = over(engine, engine.submit(job("exit 4", nodes={"min": 3, "max": 3})))
    assert (found.phase, found.exit_code) == (Phase.FAILED, 4)
    assert "too few" in found.reason


@pytest.mark.slow
def test_a_requeue_is_no_failure_and_its_state_is_saved(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """As a site does for maintenance, and for a job of a higher priority; on a node set without the first's node."""
    script = "test -e saved && exit 0; trap 'touch saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    job_id = engine.submit(job(script, max_restarts=0))
    first = until(engine, job_id, lambda found, log: "begun" in log)
    requeued_without(cluster, slurm_id(tmp_path, job_id), first)
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert (tmp_path / "queue" / job_id / "run" / "saved").exists()
    assert not set(found.nodes) & set(first.nodes)


def requeued_without(cluster: SlurmCluster, number: str, seen: JobStatus) -> None:
    """Requeues a job that runs, onto other nodes than it is on. Slurm would wait two minutes."""
    cluster.run("scontrol", "requeue", number)
    cluster.until_left(number)
    cluster.run("scontrol", "update", f"jobid={number}", f"ExcNodeList={','.join(seen.nodes)}", "StartTime=now")


@pytest.mark.slow
def test_one_that_is_told_by_somebody_else_goes_back_into_the_queue(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    """A notice of the machine's end, as an epilog or a cloud's agent hands it on."""
    script = "test -e saved && exit 0; trap 'touch saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    job_id = engine.submit(job(script))
    until(engine, job_id, lambda found, log: "begun" in log)
    number = slurm_id(tmp_path, job_id)
    cluster.run("scancel", "--batch", "--signal=TERM", number)
    cluster.until_left(number)
    assert engine.status(job_id).phase is Phase.WAITING
    # Within the second of its requeue the same node holds its credential for revoked.
    cluster.run("scontrol", "update", f"jobid={number}", "StartTime=now+2")
    assert over(engine, job_id).phase is Phase.DONE


def test_one_that_is_over_by_the_time_that_it_is_cancelled_is_no_mistake(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = engine.submit(job("true"))
    number = slurm_id(tmp_path, job_id)
    cluster.until(("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T"), "COMPLETED")
    (tmp_path / "queue" / job_id / "end").rename(tmp_path / "end")  # as a shared folder shows it late
    monkeypatch.setattr("gangway.jobs.slurm.engine._one_state", running(tmp_path / "queue" / job_id))
    engine.cancel(job_id)


def running(folder: Path) -> Callable[[str], _State]:
    """What Slurm said of it a moment ago."""
    return lambda slurm_id: _State(str(os.geteuid()), "RUNNING", "None", get_comment(folder))


@pytest.mark.slow
def test_one_that_somebody_else_cancels_is_cancelled(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    job_id = engine.submit(job("trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(engine, job_id, lambda found, log: "begun" in log)
    cluster.run("scancel", slurm_id(tmp_path, job_id))
    assert over(engine, job_id).phase is Phase.CANCELLED
    time.sleep(2)
    assert engine.status(job_id).phase is Phase.CANCELLED, "and is not begun again"


@pytest.mark.slow
def test_a_controller_that_goes_away_and_comes_back_costs_no_job(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    job_id = engine.submit(job("echo begun; while [ ! -e end ]; do sleep 0.1; done; echo ended"))
    until(engine, job_id, lambda found, log: "begun" in log)
    waits = engine.submit(job("true", nodes={"min": 3, "max": 3}))
    cluster.end_controller()
    with pytest.raises(InputError, match="squeue"):
        engine.status(job_id)
    (tmp_path / "queue" / job_id / "run" / "end").touch()
    cluster.begin_controller()
    cluster.until(("scontrol", "ping"), "UP")
    assert over(engine, job_id).phase is Phase.DONE
    assert over(engine, waits).phase is Phase.DONE


@pytest.mark.slow
def test_the_trainer_goes_on_to_the_bit_on_another_node(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    keys = {
        "name": "digits", "preset": "dcgan-digits", "kimg": 3, "seed": 7, "max_hours": 1, "checkpoint_kimg": 0.5,
        "settings": {"ngf": 4, "ndf": 4, "metrics": "none", "batch_size": 16, "stats_kimg": 0.1, "deterministic": True},
    }  # fmt: skip
    alone = engine.submit(JobFile.model_validate(keys))
    assert over(engine, alone).phase is Phase.DONE
    job_id = engine.submit(JobFile.model_validate(keys))
    first = until(engine, job_id, lambda found, log: "kimg     1." in log)
    requeued_without(cluster, slurm_id(tmp_path, job_id), first)
    found = over(engine, job_id)
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert not set(found.nodes) & set(first.nodes)
    assert states(tmp_path / "queue" / job_id) == states(tmp_path / "queue" / alone)


def states(folder: Path) -> dict[str, str]:
    newest = sorted((folder / "run" / "checkpoints").glob("*.json"))[-1]
    found: dict[str, str] = json.loads(newest.read_bytes())["state_sha256"]
    return found


def test_what_this_slurm_cannot_do_is_said_before_anything_is_submitted(engine: SlurmEngine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such partition") as refused:
        SlurmEngine(tmp_path / "queue", "gqu").submit(job("true"))
    assert "gpu" in str(refused.value)
    with pytest.raises(InputError, match="containers"):
        engine.submit(job("true", image=f"a/b@sha256:{'0' * 64}"))
    with pytest.raises(InputError, match="/work/results would be lost"):
        engine.submit(job("true", outputs=["/work/results"]))
    with pytest.raises(InputError, match="the partition has 3"):
        engine.submit(job("true", nodes={"min": 4, "max": 4}))
    with pytest.raises(InputError, match="short ends jobs after 30") as refused:
        SlurmEngine(tmp_path / "queue", "short").submit(job("true", max_hours=4))
    assert "max_hours: 0.32" in str(refused.value)
    ignored = [each for each in engine.findings(job("true", team="vision")) if each.path == "team"]
    assert [each.severity for each in ignored] == [Severity.WARNING]
    assert engine.jobs() == []


def test_a_partition_whose_nodes_are_hidden_is_refused_with_what_shows_them(
    pretended: Callable[[str, str], None], tmp_path: Path
) -> None:
    """As sinfo hides those that power saving has off."""
    pretended("sinfo", "echo 'gpu*|0|infinite'")
    with pytest.raises(InputError, match="the partition has 0") as refused:
        SlurmEngine(tmp_path / "queue").submit(job("true"))
    assert "PrivateData=cloud" in refused.value.fix
    assert "nodes:" not in refused.value.fix


def test_a_slurm_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sinfo is not on PATH"):
        SlurmEngine(tmp_path / "queue").submit(job("true"))
    assert not (tmp_path / "queue").exists()


def test_a_folder_that_is_not_there_is_a_mistake_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder") as refused:
        SlurmEngine(tmp_path / "queu").jobs()
    assert str(tmp_path / "queu") in str(refused.value)


@pytest.mark.parametrize(("asked", "fix"), [("gpu+", "jobs@gpu"), ("+a++b", "jobs@a+b"), ("+", "slurm:/jobs")])
def test_an_empty_name_of_a_partition_is_refused(asked: str, fix: str) -> None:
    with pytest.raises(InputError, match="name is empty") as refused:
        SlurmEngine(Path("/jobs"), asked)
    assert refused.value.fix.endswith(fix)


@pytest.mark.slow
def test_what_is_moved_to_slurm_goes_on_there_once(engine: SlurmEngine, tmp_path: Path) -> None:
    here = LocalQueue(tmp_path / "here")
    script = 'cd "$GANGWAY_RUN_DIR"; echo x >>starts; [ "$(wc -l <starts)" -gt 1 ] && exec sleep 3; '
    job_id = here.submit(job(f"{script} trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(here, job_id, lambda found, log: "begun" in log)
    moved = move_job(here, job_id, engine, limited(), lambda done, total: None)
    again = move_job(here, job_id, engine, limited(), lambda done, total: None)
    assert (again.job_id, again.copied) == (moved.job_id, None)
    engine.ensure_begun(moved.job_id)
    found = over(engine, moved.job_id)
    assert (found.phase, found.starts, len(engine.jobs())) == (Phase.DONE, 1, 1)
    assert (tmp_path / "queue" / moved.job_id / "run" / "starts").read_text() == "x\nx\n"


def test_what_sbatch_refuses_leaves_nothing(
    engine: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangway.jobs.slurm.script.sbatch_args", lambda *_, **__: REFUSED)
    with pytest.raises(InputError, match="invalid partition"):
        engine.submit(job("true"))
    assert list(tmp_path.glob("queue/*")) == []


@pytest.mark.slow
def test_what_was_copied_for_a_move_is_there_still_when_sbatch_refuses(
    engine: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = LocalQueue(tmp_path / "here")
    job_id = here.submit(job("echo kept >state; trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"))
    until(here, job_id, lambda found, log: "begun" in log)
    with monkeypatch.context() as refused:
        refused.setattr("gangway.jobs.slurm.script.sbatch_args", lambda *_, **__: REFUSED)
        with pytest.raises(InputError, match="invalid partition"):
            move_job(here, job_id, engine, limited(), lambda done, total: None)
    assert list(engine.jobs()) == []
    (copied,) = (tmp_path / "queue").glob(".staged-*/run/state")
    assert copied.read_text() == "kept\n"
    moved = move_job(here, job_id, engine, limited(), lambda done, total: None)
    assert [each.id for each in engine.jobs()] == [moved.job_id]
    assert not list((tmp_path / "queue").glob(".staged-*"))
    engine.cancel(moved.job_id)
    over(engine, moved.job_id)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["scontrol", "srun"])
def test_cancelled_while_its_step_begins(
    engine: SlurmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    slow, real = tmp_path / "slow" / program, shutil.which(program)
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ntouch "{tmp_path}/begun"\nsleep 2\nexec {real} "$@"\n')
    slow.chmod(0o755)
    with monkeypatch.context() as path:
        path.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")  # which sbatch hands on
        job_id = engine.submit(job("while [ ! -e end ]; do sleep 0.1; done", nodes={"min": 3, "max": 3}))
        (tmp_path / "begun").unlink(missing_ok=True)
    until(engine, job_id, lambda found, log: (tmp_path / "begun").exists())
    engine.cancel(job_id)
    assert over(engine, job_id).phase is Phase.CANCELLED


def test_of_several_partitions_it_takes_the_first_that_has_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path / "queue", "one+gpu")
    assert engine.room(job("true")).reason.startswith("3 nodes idle in one,gpu")
    both = job("true", nodes={"min": 2, "max": 2})
    found = over(engine, engine.submit(both))
    assert (found.phase, len(found.nodes)) == (Phase.DONE, 2), "one has too few"
    with pytest.raises(InputError, match="the partition has 3"):
        engine.submit(job("true", nodes={"min": 4, "max": 4}))
    with pytest.raises(InputError, match="no such partition"):
        SlurmEngine(tmp_path / "queue", "one+gqu").submit(both)


@pytest.mark.slow
def test_room_is_idle_nodes_and_an_empty_queue(engine: SlurmEngine) -> None:
    whole = job("while [ ! -e end ]; do sleep 0.1; done", nodes={"min": 3, "max": 3})
    assert engine.room(whole).now
    first = engine.submit(whole)
    until(engine, first, lambda found, log: found.phase is Phase.RUNNING)
    assert not engine.room(job("true")).now
    engine.cancel(first)
    over(engine, first)


@pytest.mark.parametrize(("at", "left"), [("scontrol", []), ("sbatch", [Phase.CANCELLED])])
def test_a_submit_that_is_told_to_end_leaves_nothing_that_could_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, left: list[Phase]
) -> None:
    """Slurm may have taken what sbatch was called for: that one finds that it is cancelled."""

    def slurm(program: str, *words: str, **_: object) -> str:
        if program == at:
            raise KeyboardInterrupt
        return "gpu*|2|infinite\n" if program == "sinfo" else ""

    monkeypatch.setattr("gangway.jobs.slurm.engine._slurm", slurm)
    engine = SlurmEngine(tmp_path / "queue")
    with pytest.raises(KeyboardInterrupt):
        engine.submit(job("true"))
    assert (tmp_path / "queue").exists() is bool(left), "an empty folder goes too"
    assert [each.phase for each in (engine.jobs() if left else [])] == left
    assert [(path / "cancel").exists() for path in tmp_path.glob("queue/*")] == [True for _ in left]
