"""Every engine gives the same jobs the same lives. What a job does is a shell script; what it has done before stands in
its run folder. systemd, of a stack that is one job, has no queue: its units and scripts are run by a stand-in for it
(`tests.systemd_unit`), and what only a queue can do is left out.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import Engine, JobStatus, Phase, follow, wait_until_over
from gangway.jobs.job_folders import FolderEngine
from gangway.jobs.kubernetes.engine import KubernetesEngine
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.sites import Site
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile, Priority
from tests.kube_cluster import KubeQueue
from tests.systemd_nodes import StackNodes

_LIMIT_SEC = 120.0


@dataclass(frozen=True)
class Stand:
    """An engine in a test.

    Attributes:
        other_nodes: whether a job can go on elsewhere.
        containers: whether a command is in one.
        keeps_logs: of starts whose nodes have been given up, too.
        tick_sec: by which its times are told apart.
    """

    engine: Engine
    other_nodes: bool
    containers: bool = False
    keeps_logs: bool = True
    tick_sec: float = 0.0


class _WithImage(KubernetesEngine):
    """A pod has to have one; the pretended nodes run every command as it is."""

    def submit(self, job: JobFile) -> str:
        return super().submit(job.model_copy(update={"image": f"registry.example.com/any@sha256:{'0' * 64}"}))


_PARAMS = [
    "local",
    "systemd",
    pytest.param("slurm", marks=[pytest.mark.slurm, pytest.mark.xdist_group("slurm")]),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]
_NOT_OF_A_STACK = {
    "test_of_those_that_wait_the_highest_priority_is_first_and_then_the_oldest": "a stack has one job alone",
    "test_all_are_listed_and_others_are_unknown": "a stack has one job, which Pulumi's own list of stacks has",
    "test_what_it_cannot_do_is_refused_and_nothing_is_kept": "what a stack cannot do its plan refuses",
    "test_outputs_outlive_a_start_or_are_refused_and_nothing_is_kept": "its docker in small mounts nothing: "
    "tests/images/test_own_node.py has a stack's outputs",
}
"""Why a test says nothing of a stack's own job."""


@pytest.fixture(params=_PARAMS)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    if request.param == "local":
        made = Stand(LocalQueue(tmp_path / "queue"), other_nodes=False)
    elif request.param == "systemd":
        if why := _NOT_OF_A_STACK.get(request.node.originalname):
            pytest.skip(why)
        made = Stand(StackNodes(tmp_path / "stacks"), other_nodes=True)
    elif request.param == "kubernetes":
        queue: KubeQueue = request.getfixturevalue("kube_queue")
        engine = _WithImage("judge", queue.namespace, queue.name)
        made = Stand(engine, other_nodes=True, containers=True, keeps_logs=False, tick_sec=1.1)
    else:
        request.getfixturevalue("cluster")
        # Of one node a second job has to wait; what is not fit is left in the partition of all.
        partition = "gpu" if "unfit" in request.node.name else "one"
        (tmp_path / "queue").mkdir()
        made = Stand(SlurmEngine(tmp_path / "queue", partition), other_nodes=partition == "gpu")
    yield made
    end_processes(made.engine)


def end_processes(engine: Engine) -> None:
    """Nothing that a test has begun outlives it."""
    for each in engine.jobs():
        if not each.phase.is_over:
            engine.cancel(each.id)
    for each in engine.jobs():
        over(engine, each.id)


def job(script: str, **keys: object) -> JobFile:
    """One that runs the script with `sh -c`, in its run folder."""
    return JobFile.model_validate(
        {"name": "case", "command": ["sh", "-c", f'cd "$GANGWAY_RUN_DIR"; {script}'], "max_hours": 1, **keys}
    )


def sites(*engines: Engine) -> list[Site]:
    """Of whose nodes nothing is known."""
    return [Site(engine) for engine in engines]


def over(engine: Engine, job_id: str, limit_sec: float = _LIMIT_SEC) -> JobStatus:
    return wait_until_over(engine, job_id, limited(limit_sec))


def limited(sec: float = _LIMIT_SEC) -> Callable[[JobStatus], None]:
    """A pause that a test ends with, where an engine does nothing."""
    until = time.monotonic() + sec

    def pause(seen: JobStatus) -> None:
        assert time.monotonic() < until, seen
        time.sleep(0.05)

    return pause


def until(engine: Engine, job_id: str, what: Callable[[JobStatus, str], bool]) -> JobStatus:
    """The first status that `what` is true of, with the log."""
    pause = limited()
    while not what(found := engine.status(job_id), engine.log(job_id)[0]):
        pause(found)
    return found


def failures(stand: Stand, found: JobStatus) -> int | None:
    """As the record has them; None of an engine that keeps no folder."""
    return stand.engine.get_stored_job(found.id).failures if isinstance(stand.engine, FolderEngine) else None


def test_success(stand: Stand) -> None:
    found = over(stand.engine, job_id := stand.engine.submit(job("echo made of $((20 + 22))")))
    assert (found.phase, found.exit_code, found.starts, len(found.nodes)) == (Phase.DONE, 0, 1, 1)
    assert found.submitted_at is not None
    assert found.started_at is not None
    assert found.ended_at is not None
    assert found.submitted_at <= found.started_at <= found.ended_at
    assert found.stretches is not None
    (on_nodes,) = found.stretches
    assert on_nodes.nodes == 1
    assert on_nodes.end is not None
    assert found.submitted_at <= on_nodes.start <= on_nodes.end
    assert "made of 42\n" in stand.engine.log(job_id)[0]


def test_words_and_variables_arrive_as_they_are(stand: Stand) -> None:
    words = ["a b", "", "$HOME", "--", "*", "x\"y'z", "ä\n\tö", "${GANGWAY_HOST}", "`id`"]
    file = job("true").model_copy(update={"command": ("printf", "<%s>", *words), "env": {"child": "1", "folder": "/x"}})
    job_id = stand.engine.submit(file)
    assert over(stand.engine, job_id).phase is Phase.DONE
    assert "".join(f"<{word}>" for word in words) in stand.engine.log(job_id)[0]


@pytest.mark.parametrize("names_one", [True, False], ids=["workdir", "default"])
def test_a_command_begins_in_its_working_directory(stand: Stand, names_one: bool) -> None:
    """That of the job file; else the folder of the submit, or in a container the image's own."""
    keys = {"workdir": "/tmp"} if names_one else {}
    file = job("true", **keys).model_copy(update={"command": ("sh", "-c", 'echo "begun in $(pwd -P)"')})
    job_id = stand.engine.submit(file)
    assert over(stand.engine, job_id).phase is Phase.DONE
    if names_one or not stand.containers:
        folder = Path("/tmp").resolve() if names_one else Path.cwd()
        assert f"begun in {folder}\n" in stand.engine.log(job_id)[0]


def test_failure_is_tried_again_as_often_as_it_may_be(stand: Stand) -> None:
    found = over(stand.engine, stand.engine.submit(job("echo at work; exit 9", max_restarts=1)))
    assert (found.phase, found.starts) == (Phase.FAILED, 2)
    assert failures(stand, found) in (2, None)


def test_a_failure_that_goes_by_is_none(stand: Stand) -> None:
    found = over(stand.engine, stand.engine.submit(job("test -e seen || { touch seen; exit 9; }", max_restarts=1)))
    assert (found.phase, found.starts) == (Phase.DONE, 2)
    assert failures(stand, found) in (1, None)


@pytest.mark.parametrize("script", ["exit 2", "no-such-program"])
def test_bad_input_is_never_tried_again(stand: Stand, script: str) -> None:
    found = over(stand.engine, stand.engine.submit(job(script)))
    assert (found.phase, found.exit_code, found.starts) == (Phase.BAD_INPUT, 2, 1)


@pytest.mark.slow
def test_an_interruption_goes_on_and_is_no_failure(stand: Stand) -> None:
    script = 'echo x >>starts; [ "$(wc -l <starts)" -gt 2 ] || exit 75'
    found = over(stand.engine, stand.engine.submit(job(script, max_restarts=0)))
    assert (found.phase, found.starts) == (Phase.DONE, 3)
    assert found.stretches is not None
    for earlier, later in pairwise(found.stretches):
        assert earlier.end is not None
        assert earlier.end <= later.start


def test_codes_of_ones_own(stand: Stand) -> None:
    codes = {"interrupted": [33], "bad_input": [75]}
    found = over(
        stand.engine, stand.engine.submit(job("test -e seen && exit 75; touch seen; exit 33", exit_codes=codes))
    )
    assert (found.phase, found.starts) == (Phase.BAD_INPUT, 2)


@pytest.mark.slow
def test_an_unfit_node_is_left(stand: Stand) -> None:
    found = over(stand.engine, stand.engine.submit(job("test -e seen || { touch seen; exit 4; }", max_restarts=0)))
    if stand.other_nodes:
        assert (found.phase, found.starts) == (Phase.DONE, 2)
    else:
        assert (found.phase, found.exit_code, found.starts) == (Phase.FAILED, 4, 1)


@pytest.mark.slow
def test_a_job_over_its_hours_is_told_and_ended(stand: Stand) -> None:
    short = job("trap 'touch told; exit 75' TERM; while :; do sleep 0.1; done", max_hours=2 / 3600)
    found = over(stand.engine, job_id := stand.engine.submit(short))
    assert found.phase is Phase.OVER_HOURS
    assert found.stretches, "what it has had stays known"
    stand.engine.cancel(job_id)
    assert stand.engine.status(job_id) == found, "what is over stays as it is"


def test_cancelled_while_it_runs_it_is_told_and_has_its_grace(stand: Stand) -> None:
    script = "trap 'cat \"$GANGWAY_NOTICES\"; echo saved; exit 75' TERM; echo begun; while :; do sleep 0.1; done"
    job_id = stand.engine.submit(job(script))
    running = until(stand.engine, job_id, lambda found, log: found.phase is Phase.RUNNING and "begun" in log)
    assert running.stretches is not None
    assert [each.end for each in running.stretches] == [None]
    stand.engine.cancel(job_id)
    found = over(stand.engine, job_id)
    assert found.phase is Phase.CANCELLED
    assert found.stretches is not None
    assert [each.end is not None for each in found.stretches] == [True], "what it has had stays known"
    log = stand.engine.log(job_id)[0]
    if stand.keeps_logs:
        assert '"kind": "stop"' in log
        assert "saved" in log


def test_one_that_does_not_listen_is_killed_when_its_grace_is_over(stand: Stand) -> None:
    job_id = stand.engine.submit(job("trap '' TERM; echo begun; while :; do sleep 0.1; done", grace_sec=1))
    until(stand.engine, job_id, lambda found, log: "begun" in log)
    stand.engine.cancel(job_id)
    assert over(stand.engine, job_id).phase is Phase.CANCELLED


@pytest.mark.slow
def test_cancelled_while_it_waits_it_never_begins(stand: Stand) -> None:
    first = stand.engine.submit(job("while [ ! -e end ]; do sleep 0.1; done"))
    until(stand.engine, first, lambda found, log: found.phase is Phase.RUNNING)
    second = stand.engine.submit(job("echo begun"))
    assert stand.engine.status(second).phase is Phase.WAITING
    stand.engine.cancel(second)
    found = over(stand.engine, second)
    assert (found.phase, found.starts, stand.engine.log(second)[0]) == (Phase.CANCELLED, 0, "")
    assert found.stretches == ()
    assert stand.engine.status(first).phase is Phase.RUNNING


@pytest.mark.slow
def test_of_those_that_wait_the_highest_priority_is_first_and_then_the_oldest(stand: Stand) -> None:
    first = stand.engine.submit(job("while :; do sleep 0.1; done", priority=Priority.HIGH))
    until(stand.engine, first, lambda found, log: found.phase is Phase.RUNNING)
    order = [Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.NORMAL]
    ids = [stand.engine.submit(job(f"sleep {stand.tick_sec}", priority=each)) for each in order]
    stand.engine.cancel(first)
    began = {job_id: over(stand.engine, job_id).started_at for job_id in ids}
    assert None not in began.values()
    assert sorted(ids, key=lambda job_id: str(began[job_id])) == [ids[2], ids[1], ids[3], ids[0]]


@pytest.mark.slow
def test_processes_of_a_node_are_torchruns(stand: Stand) -> None:
    script = 'echo "rank $RANK of $WORLD_SIZE"; test "$RANK" = 0 || exit 2; sleep 60'
    found = over(stand.engine, job_id := stand.engine.submit(job(script, processes_per_node=2)))
    assert (found.phase, found.starts) == (Phase.BAD_INPUT, 1), (
        "the first that failed says why, not those it took along"
    )
    log = stand.engine.log(job_id)[0]
    assert "rank 0 of 2" in log
    assert "rank 1 of 2" in log


def test_the_log_is_followed_to_its_end(stand: Stand) -> None:
    job_id = stand.engine.submit(job("for i in 1 2 3; do echo zeile ä $i; sleep 0.3; done"))
    pause = limited()
    text = "".join(follow(stand.engine, job_id, lambda: pause(stand.engine.status(job_id))))
    assert "zeile ä 1\nzeile ä 2\nzeile ä 3\n" in text


def test_all_are_listed_and_others_are_unknown(stand: Stand) -> None:
    ids = [stand.engine.submit(job("true", name=name)) for name in ("one", "two")]
    assert [each.id for each in stand.engine.jobs()] == ids
    for ask in (stand.engine.status, stand.engine.log, stand.engine.cancel):
        with pytest.raises(InputError):
            ask("three-3")


def test_what_it_cannot_do_is_refused_and_nothing_is_kept(stand: Stand) -> None:
    with pytest.raises(InputError):
        stand.engine.submit(job("true", nodes={"min": 500, "max": 512}))
    assert list(stand.engine.jobs()) == []


def test_outputs_outlive_a_start_or_are_refused_and_nothing_is_kept(stand: Stand) -> None:
    file = job("cd /mnt/results; test -e seen || { touch seen; exit 75; }", outputs=["/mnt/results"])
    if stand.containers:
        found = over(stand.engine, stand.engine.submit(file))
        assert (found.phase, found.starts) == (Phase.DONE, 2)
        return
    with pytest.raises(InputError) as refused:
        stand.engine.submit(file)
    assert refused.value.place == "outputs"
    assert "$GANGWAY_RUN_DIR" in refused.value.fix
    assert list(stand.engine.jobs()) == []
