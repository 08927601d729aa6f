"""Other people's jobs in the same Slurm, whatever their names and comments say; with a real one."""

import functools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gangway.jobs.base import Phase
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.job_folders import read_status, write_status
from gangway.jobs.slurm.engine import SlurmEngine
from tests import other_users
from tests.gangway.jobs.test_contract import job, over, until
from tests.gangway.jobs.test_shared_folders import place as place
from tests.gangway.jobs.test_shared_folders import planted, shared
from tests.other_users import MALLORY, gangway
from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
NAMED = 1
"""Alice, here: Slurm runs jobs of users that the machine knows by name."""
RUNS_UNTIL_TOLD = "trap 'exit 75' TERM; echo begun; while :; do sleep 0.1; done"


def submitted(cluster: SlurmCluster, *words: str) -> str:
    """A job that waits for ever."""
    return cluster.run("sbatch", "--parsable", "--hold", "--partition=gpu", *words, "--wrap=true").strip()


def test_names_that_squeue_cuts_within_a_letter_keep_nobody_out(engine: SlurmEngine, cluster: SlurmCluster) -> None:
    others = [submitted(cluster, f"--job-name={name}") for name in ("Vergrößerung", "eval-ab漢字")]
    try:
        room = engine.room(job("true"))
        assert not room.now
        assert "2 jobs waiting" in room.reason
        assert over(engine, engine.submit(job("true"))).phase is Phase.DONE
    finally:
        cluster.run("scancel", *others)


def test_a_comment_neither_hides_a_job_nor_speaks_for_one(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path
) -> None:
    job_id = engine.submit(job(RUNS_UNTIL_TOLD))
    until(engine, job_id, lambda found, log: "begun" in log)
    number = (tmp_path / "queue" / job_id / "slurm-id").read_text().strip()
    forged = f"x\n{number}|{os.geteuid()}|CANCELLED|None|gangway:{tmp_path}/queue/{job_id}"
    others = [submitted(cluster, "--nice=200000", f"--comment={each}") for each in ("caf\udce9 z", forged)]
    try:
        (found,) = engine.jobs()
        assert found.phase is Phase.RUNNING
        engine.cancel(job_id)
        assert over(engine, job_id).phase is Phase.CANCELLED
    finally:
        cluster.run("scancel", *others)


@pytest.mark.attack("a user of a shared Slurm", "has somebody else's job cancelled by its number")
@pytest.mark.parametrize("forges_comment", [False, True])
def test_a_cancel_never_reaches_a_job_that_is_not_the_folders(
    engine: SlurmEngine, cluster: SlurmCluster, tmp_path: Path, forges_comment: bool
) -> None:
    """As root, who may cancel anything in Slurm. The number is one that Slurm has given to another user's job."""
    job_id = engine.submit(job("true"))
    assert over(engine, job_id).phase is Phase.DONE
    folder = tmp_path / "queue" / job_id
    comment = [f"--comment=gangway:{folder}"] if forges_comment else []
    other = submitted(cluster, "--uid=65534", "--gid=65534", "--chdir=/tmp", *comment)
    try:
        (folder / "slurm-id").write_text(f"{other}\n")
        (folder / "end").unlink()
        own = OwnJobFolder(folder)
        write_status(own, replace(read_status(own), phase=Phase.RUNNING, ended_at=None))
        engine.cancel(job_id)
        assert engine.status(job_id).phase is Phase.CANCELLED
        assert cluster.run("squeue", "--noheader", f"--jobs={other}", "--format=%T").strip() == "PENDING"
    finally:
        cluster.run("scancel", other)


@pytest.mark.attack("a user of a shared Slurm", "has others begin, end or read a job, or one of Slurm's by its number")
@pytest.mark.skipif(bool(other_users.why_not()), reason=other_users.why_not())
def test_three_users_share_a_slurm_and_a_folder(
    cluster: SlurmCluster, place: Path, request: pytest.FixtureRequest
) -> None:
    """Each has a job that runs. All ask for those of the others, in a folder that is safe and in one of a group in
    which anybody may rename them; and mallory plants one that has the number of alice's.
    """
    folder, case = shared(place, 0o1777), place / "case.yaml"
    script = f"id -u >{place}/ran/$SLURM_JOB_ID; {RUNS_UNTIL_TOLD}"
    case.write_text(json.dumps({"name": "case", "command": ["sh", "-c", script], "max_hours": 1, "workdir": "/"}))
    on, env = f"--on=slurm:{folder}@gpu", {name: cluster.env[name] for name in ("SLURM_CONF", "PATH")}
    ask = functools.partial(gangway, more_env=env)
    users = dict(zip((0, NAMED, MALLORY), ("case-1", "case-2", "case-3"), strict=True))
    request.addfinalizer(lambda: [cluster.run("scancel", "--quiet", f"--user={uid}") for uid in users])
    for uid, job_id in users.items():
        (submitted,) = ask(uid, ("submit", str(case), on))
        assert (submitted.code, submitted.out) == (0, f"{job_id}\n"), submitted
    cluster.until(("sh", "-c", f"wc -l {place}/ran/* | tail -n 1"), "3 total")
    numbers = {job_id: (folder / job_id / "slurm-id").read_text().strip() for job_id in users.values()}
    whose = {number: (place / "ran" / number).read_text() for number in numbers.values()}
    assert whose == {numbers[job_id]: f"{uid}\n" for uid, job_id in users.items()}
    hers = planted(folder, "case-9", phase="running")
    (hers / "slurm-id").write_text(f"{numbers['case-2']}\n")
    os.chown(hers / "slurm-id", MALLORY, MALLORY)
    for mode in (0o1777, 0o2775):
        folder.chmod(mode)
        for uid, own in users.items():
            others = {*users.values(), "case-9"} - ({own, "case-9"} if uid == MALLORY else {own})
            words = [("wait",), ("logs", "-f"), ("logs",), ("status",), ("cancel",), ("record",)]
            commands = [(*word, each, on) for each in others for word in words]
            *refused, listed, mine = ask(uid, *commands, ("list", "--json", on), ("status", own, on))
            for command, answer in zip(commands, refused, strict=True):
                assert (answer.code, answer.out, "ask " in answer.err) == (2, "", True), (uid, command, answer)
            rows = {row["id"]: row for row in json.loads(listed.out)}
            assert set(rows) == {*users.values(), "case-9"}
            said = "Slurm reports UNKNOWN" if uid in (0, MALLORY) else "only nobody and root"
            assert said in rows["case-9"]["reason"], "it is alice's job that runs"
            assert (mine.code, mine.out.split()[1]) == (0, "running"), mine
    (cancelled,) = ask(MALLORY, ("cancel", "case-9", on))
    assert cancelled.code == 0, cancelled
    states = cluster.run("squeue", "--noheader", "--states=all", f"--jobs={','.join(whose)}", "--format=%T").split()
    assert states == ["RUNNING"] * 3
    folder.chmod(0o1777)
    for uid, own in users.items():
        ended, waited = ask(uid, ("cancel", own, on), ("wait", own, on))
        assert (ended.code, waited.code, "cancelled" in waited.out) == (0, 1, True), (ended, waited)
    assert {path.name for path in (place / "ran").iterdir()} == {*whose}, "nothing else has run"
