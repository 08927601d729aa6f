"""A real Slurm of Gangway's own files, whose machines come from moto's groups and go again, by its power saving."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from moto import mock_aws

from gangway.images.node.slurm_plan import HELD
from gangway.images.slurm.conf import SlurmSpec
from gangway.jobs.base import Phase
from gangway.jobs.slurm.engine import SlurmEngine
from tests.cloud_slurm import CloudSlurm, cloud_slurm, spec, written
from tests.gangway.jobs.test_contract import job
from tests.slurm_cluster import begin_munge, end_all, free_port, why_not

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudSlurm]:
    if why := why_not():
        pytest.skip(why)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    temporary = TemporaryDirectory(prefix="gw-cloud-", ignore_cleanup_errors=True)  # munged's socket has a short name
    with mock_aws(), temporary as folder, cloud_slurm(Path(folder)) as made:
        yield made


def submit(cloud: CloudSlurm, script: str, *words: str) -> str:
    folder = cloud.slurm.folder
    return cloud.slurm.run(
        "sbatch", "--parsable", "--requeue", "--exclusive", f"--output={folder}/job-%j.out", f"--chdir={folder}",
        *words, f"--wrap={script}",
    ).strip()  # fmt: skip


def state(number: str) -> tuple[str, ...]:
    return ("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T %P %N")


@pytest.mark.slow
def test_from_no_node_to_one_and_back(cloud: CloudSlurm) -> None:
    assert (cloud.group("spot"), cloud.machines()) == ((0, 0), {})
    number = submit(cloud, "echo on $SLURMD_NODENAME")
    cloud.slurm.until(state(number), "COMPLETED")
    assert (cloud.slurm.folder / f"job-{number}.out").read_text() == "on spot-n1\n"
    assert cloud.group("on-demand") == (0, 0)
    cloud.slurm.until(("sinfo", "--noheader", "--states=powered_down", "--format=%D"), "4")
    cloud.until(lambda: cloud.group("spot") == (0, 0) and cloud.machines() == {})


@pytest.mark.slow
def test_a_job_of_two_nodes_has_two_machines_with_their_names(cloud: CloudSlurm) -> None:
    number = submit(cloud, "srun sh -c 'echo on $SLURMD_NODENAME'; sleep 2", "--nodes=2")
    cloud.slurm.until(state(number), "RUNNING")
    assert sorted(cloud.machines().values()) == ["spot-n1", "spot-n2"]
    cloud.slurm.until(state(number), "COMPLETED")
    said = (cloud.slurm.folder / f"job-{number}.out").read_text().splitlines()
    assert sorted(said) == ["on spot-n1", "on spot-n2"]


@pytest.mark.slow
def test_a_controller_that_is_begun_anew_while_a_job_runs_costs_neither_job_nor_machine(cloud: CloudSlurm) -> None:
    number = submit(cloud, "while [ ! -e end ]; do sleep 0.1; done; echo ended")
    cloud.slurm.until(state(number), "RUNNING")
    before = cloud.machines()
    cloud.slurm.end_controller()
    cloud.slurm.begin_controller()
    cloud.slurm.until(("scontrol", "ping"), "UP")
    cloud.slurm.until(state(number), "RUNNING")
    assert cloud.machines() == before
    (cloud.slurm.folder / "end").touch()
    cloud.slurm.until(state(number), "COMPLETED")
    cloud.until(lambda: cloud.machines() == {})
    assert "Requeue=1 Restarts=0" in cloud.slurm.run("scontrol", "show", "job", number)


@pytest.mark.slow
def test_a_rung_without_machines_is_left_to_the_next(cloud: CloudSlurm) -> None:
    cloud.stock["spot"] = 0
    number = submit(cloud, "echo on $SLURMD_NODENAME")
    cloud.slurm.until(("sinfo", "--noheader", "--partition=spot", "--states=drain", "--format=%D %E"), "no capacity")
    # Slurm waits two minutes before it begins a requeued job again.
    cloud.slurm.until(state(number), "PENDING")
    cloud.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now")
    cloud.slurm.until(state(number), "COMPLETED")
    assert (cloud.slurm.folder / f"job-{number}.out").read_text() == "on on-demand-n1\n"
    assert cloud.group("spot") == (0, 0)


def test_one_that_is_cancelled_before_its_machine_is_there_is_gone(
    cloud: CloudSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go back into the queue where none comes, and have one of the next rung."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cloud.slurm.env[name])
    cloud.stock["spot"] = 0
    engine = SlurmEngine(tmp_path / "queue", "spot+on-demand")
    job_id = engine.submit(job("true"))
    number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
    cloud.slurm.until(state(number), "CONFIGURING spot")
    engine.cancel(job_id)
    cloud.slurm.until(state(number), "CANCELLED")
    assert engine.status(job_id).phase is Phase.CANCELLED
    cloud.until(lambda: cloud.group("spot") == (0, 0))
    assert cloud.group("on-demand") == (0, 0)


@pytest.mark.slow
def test_a_machine_that_is_taken_back_gives_its_job_to_another(cloud: CloudSlurm) -> None:
    number = submit(cloud, "while [ ! -e end ]; do sleep 0.1; done; echo on $SLURMD_NODENAME")
    cloud.slurm.until(state(number), "RUNNING")
    (machine,) = cloud.machines()
    cloud.ec2.terminate_instances(InstanceIds=[machine])
    cloud.slurm.until(state(number), "PENDING")
    (cloud.slurm.folder / "end").touch()
    cloud.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now")
    cloud.slurm.until(state(number), "COMPLETED")
    assert machine not in cloud.machines()


@pytest.mark.slow
def test_a_node_that_is_not_fit_gets_another_machine_and_its_job_is_not_held(cloud: CloudSlurm) -> None:
    (cloud.slurm.folder / "sick").touch()
    number = submit(cloud, "echo on $SLURMD_NODENAME", "--partition=spot", "--nodelist=spot-n1")
    cloud.until(lambda: bool(cloud.machines()))
    (first,) = cloud.machines()
    cloud.slurm.until(state(number), "PENDING")
    cloud.until(lambda: first not in cloud.machines())
    cloud.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now")
    cloud.slurm.until(state(number), "COMPLETED")
    assert (cloud.slurm.folder / f"job-{number}.out").read_text() == "on spot-n1\n"


@pytest.mark.slow
def test_the_breaker_holds_a_rung_whose_machines_never_become_nodes(cloud: CloudSlurm) -> None:
    cloud.set_given_up(3)
    cloud.broken.add("spot")
    number = submit(cloud, "echo on $SLURMD_NODENAME")
    drained = ("sinfo", "--noheader", "--partition=spot", "--states=drain", "--format=%D %E")
    cloud.slurm.until(drained, f"2 {HELD}")
    # The job takes the next rung; the broken one launches nothing more.
    cloud.slurm.until(state(number), "PENDING")
    cloud.slurm.run("scontrol", "update", f"jobid={number}", "StartTime=now")
    cloud.slurm.until(state(number), "COMPLETED")
    assert (cloud.slurm.folder / f"job-{number}.out").read_text() == "on on-demand-n1\n"
    assert len(cloud.launched) == 3
    assert cloud.group("spot") == (0, 0)
    # The command of docs/slurm.md releases it, once the cause is fixed.
    cloud.broken.clear()
    cloud.slurm.run("scontrol", "update", "nodename=spot-n1", "state=undrain")
    number = submit(cloud, "echo on $SLURMD_NODENAME", "--partition=spot")
    cloud.slurm.until(state(number), "COMPLETED")
    assert (cloud.slurm.folder / f"job-{number}.out").read_text() == "on spot-n1\n"


def test_a_controller_takes_what_is_rendered_for_eight_gpus(p5_slurm: SlurmSpec) -> None:
    """Without accounts, for which it would need slurmdbd."""
    if why := why_not():
        pytest.skip(why)
    with TemporaryDirectory(prefix="gw-p5-", ignore_cleanup_errors=True) as name:
        _takes_eight_gpus(p5_slurm, Path(name))


def _takes_eight_gpus(p5_slurm: SlurmSpec, folder: Path) -> None:
    here = spec(folder, free_port())
    whole = replace(here, machine=p5_slurm.machine, rungs=p5_slurm.rungs, nodes_up=p5_slurm.nodes_up)
    slurm = written(whole, folder)
    try:
        begin_munge(slurm)
        slurm.begin_controller()
        slurm.until(("scontrol", "ping"), "UP")
        assert slurm.run("sinfo", "--noheader", "--format=%P %D %G") == "spot* 8 gpu:h100:8\non-demand 8 gpu:h100:8\n"
        number = slurm.run(
            "sbatch", "--parsable", "--nodes=2", "--gpus-per-node=8", "--exclusive", "--wrap=true"
        ).strip()
        slurm.until(("squeue", "--noheader", f"--jobs={number}", "--format=%T %P %D"), "CONFIGURING spot 2")
    finally:
        end_all(slurm)
