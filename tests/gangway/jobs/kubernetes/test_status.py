"""What a job is at, of objects as a cluster has them; test_engine.py has real ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.jobs.base import Phase, RunInterval
from gangway.jobs.kubernetes.manifests import CANCELLED_ANNOTATION, HOURS_ANNOTATION, HOURS_LABEL, Placing, job_set
from gangway.jobs.kubernetes.objects import JobObjects, get_hours_sec, group_by_job
from gangway.jobs.kubernetes.status import OVER_HOURS, get_run_intervals, get_status, remaining_sec, unfit_nodes
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, job

_AT, _LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
_CREATED = datetime(2026, 1, 2, 3, tzinfo=UTC)


def condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": _LATER, "reason": "", "message": "", **more}


def a_set(*conditions: dict[str, str], placing: Placing = PLACING, restarts: int = 0) -> dict[str, Any]:
    made = job_set(job(max_restarts=1, team="vision"), placing)
    made["metadata"] |= {"uid": placing.name, "creationTimestamp": _AT}
    made["status"] = {"conditions": list(conditions), "restarts": restarts}
    return made


def a_workload(*conditions: dict[str, str], active: bool = True, evictions: int = 0) -> dict[str, Any]:
    stats = {"evictions": [{"reason": "Preempted", "count": evictions}] if evictions else []}
    owner = {"uid": PLACING.name, "controller": True}
    return {
        "metadata": {"name": "w", "ownerReferences": [owner]},
        "spec": {"active": active},
        "status": {"conditions": list(conditions), "schedulingStats": stats},
    }


def a_pod(phase: str, node: str = "n1", index: int = 0) -> dict[str, Any]:
    meta = {"name": f"p{index}", "annotations": {"batch.kubernetes.io/job-completion-index": str(index)}}
    return {
        "metadata": {**meta, "ownerReferences": [{"uid": "j", "controller": True}]},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "startTime": _AT},
    }


def a_job(code: int | None = None) -> dict[str, Any]:
    message = f"Container node for pod team-a/p0 failed with exit code {code} matching FailJob rule at index 1"
    conditions = [] if code is None else [condition("Failed", message=message)]
    return {
        "metadata": {"uid": "j", "ownerReferences": [{"uid": PLACING.name, "controller": True}]},
        "status": {"startTime": _AT, "conditions": conditions},
    }


_ADMITTED = condition("Admitted")
_WAITS = condition("QuotaReserved", "False", message="insufficient unused quota for cpu")


@pytest.mark.parametrize(("restarts", "again"), [(21, False), (22, True)])
def test_one_that_was_ended_again_and_again_says_so(restarts: int, again: bool) -> None:
    """Code 5 of a job that may begin again 21 times; a trainer says it on its own, too."""
    sets = a_set(condition("Failed"), restarts=restarts)
    found = get_status(JobObjects([sets], a_workload(_ADMITTED), [a_job(5)], []), 3)
    assert (found.phase, found.exit_code, "keeps interrupting" in found.reason) == (Phase.FAILED, 5, again)


def test_before_kueue_has_seen_it_it_waits() -> None:
    found = get_status(JobObjects([a_set()], None, [], []), 3)
    assert (found.phase, found.starts, found.team, found.user) == (Phase.WAITING, 0, "vision", "ada")


def test_one_that_waits_says_what_for() -> None:
    found = get_status(JobObjects([a_set()], a_workload(_WAITS), [], []), 3)
    assert (found.phase, found.starts, found.reason) == (Phase.WAITING, 0, "insufficient unused quota for cpu")


def test_one_that_runs_is_on_its_nodes() -> None:
    pods = [a_pod("Running", "n2", 1), a_pod("Running", "n1", 0)]
    [seen] = group_by_job([a_set(restarts=2)], [a_workload(_ADMITTED)], [a_job()], pods)
    found = get_status(seen, 3)
    assert (found.phase, found.starts, found.nodes) == (Phase.RUNNING, 3, ("n1", "n2"))
    assert found.started_at is not None


def test_one_whose_pods_are_pending_says_so() -> None:
    found = get_status(JobObjects([a_set()], a_workload(_ADMITTED), [a_job()], [a_pod("Pending")]), 3)
    assert (found.phase, found.reason) == (Phase.RUNNING, "not started yet: p0")


def test_one_that_kueue_has_put_back_has_begun_twice_when_it_runs_again() -> None:
    back = a_workload(condition("Admitted", "False"), _WAITS, evictions=1)
    assert get_status(JobObjects([a_set()], back, [], []), 3).phase is Phase.WAITING
    again = a_workload(_ADMITTED, evictions=1)
    assert get_status(JobObjects([a_set()], again, [a_job()], [a_pod("Running")]), 3).starts == 2


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        (1, Phase.FAILED),
        (137, Phase.FAILED),
        (2, Phase.BAD_INPUT),
        (3, Phase.FAILED),
        (5, Phase.FAILED),
        (6, Phase.OVER_HOURS),
    ],
)
def test_one_that_has_failed_says_how(code: int, phase: Phase) -> None:
    seen = JobObjects([a_set(condition("Failed"))], a_workload(_ADMITTED), [a_job(code)], [a_pod("Failed")])
    found = get_status(seen, 3)
    assert (found.phase, found.exit_code) == (phase, code)
    assert found.ended_at is not None


def test_one_that_is_done() -> None:
    seen = JobObjects([a_set(condition("Completed"))], a_workload(_ADMITTED), [a_job()], [a_pod("Succeeded")])
    assert (get_status(seen, 3).phase, get_status(seen, 3).exit_code) == (Phase.DONE, 0)


@pytest.mark.parametrize(("others", "phase"), [(1, Phase.WAITING), (None, Phase.WAITING), (0, Phase.FAILED)])
def test_of_an_unfit_node_another_is_wanted(others: int | None, phase: Phase) -> None:
    seen = JobObjects([a_set(condition("Failed"))], a_workload(_ADMITTED), [a_job(4)], [a_pod("Failed", "n7")])
    assert unfit_nodes(seen) == ["n7"]
    assert get_status(seen, others).phase is phase


def test_the_next_start_is_the_same_job() -> None:
    first, second = a_set(condition("Failed")), a_set(placing=PLACING.without(["n7"], 60))
    [seen] = group_by_job([second, first], [], [a_job(4)], [])
    found = get_status(seen, 3)
    assert (found.id, found.phase, found.starts) == ("mine-3", Phase.WAITING, 1)


def cancelled(*conditions: dict[str, str]) -> dict[str, Any]:
    made = a_set(*conditions)
    made["metadata"]["annotations"][CANCELLED_ANNOTATION] = _LATER
    return made


def test_one_that_is_cancelled_is_so_when_its_pods_are_gone() -> None:
    workload = a_workload(condition("Evicted", reason="Deactivated"), active=False)
    assert get_status(JobObjects([cancelled()], workload, [], [a_pod("Running")]), 3).phase is Phase.RUNNING
    found = get_status(JobObjects([cancelled()], workload, [], []), 3)
    assert found.phase is Phase.CANCELLED
    assert found.ended_at is not None


def test_one_that_was_cancelled_while_its_next_start_was_begun_is_so_when_that_has_left() -> None:
    sets = [cancelled(condition("Failed")), a_set(placing=PLACING.without(["n7"], 60))]
    assert get_status(JobObjects(sets, a_workload(_WAITS), [], [], [None]), 3).phase is Phase.WAITING
    found = get_status(JobObjects(sets, a_workload(_WAITS, active=False), [], [], [None]), 3)
    assert (found.phase, found.ended_at is not None) == (Phase.CANCELLED, True)


def test_one_that_was_done_before_its_cancel_came_is_done() -> None:
    seen = JobObjects([cancelled(condition("Completed"))], a_workload(active=False), [a_job()], [a_pod("Succeeded")])
    assert get_status(seen, 3).phase is Phase.DONE


def test_one_whose_hours_are_over() -> None:
    over = condition("Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    workload = a_workload(over, condition("Admitted", "False"), active=False)
    assert get_status(JobObjects([a_set()], workload, [], [a_pod("Running")]), 3).phase is Phase.RUNNING
    assert get_status(JobObjects([a_set()], workload, [], []), 3).phase is Phase.OVER_HOURS


def test_one_whose_pods_never_ran_is_not_over_its_hours() -> None:
    over = condition("Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    waited = condition("PodsReady", "False", reason="WaitForStart")
    workload = a_workload(over, condition("Admitted", "False"), waited, active=False)
    workload["metadata"]["creationTimestamp"] = waited["lastTransitionTime"]
    found = get_status(JobObjects([a_set()], workload, [], []), 3)
    assert (found.phase, found.stretches) == (Phase.FAILED, ())
    assert "never ran" in found.reason


def test_one_that_somebody_else_has_switched_off_waits_and_says_so() -> None:
    found = get_status(JobObjects([a_set()], a_workload(_ADMITTED, active=False), [], []), 3)
    assert (found.phase, found.reason) == (Phase.WAITING, "its workload in Kueue was deactivated")


def test_jobs_come_by_their_numbers() -> None:
    names = [("b", 10), ("a", 2), ("c", 1)]
    sets = [a_set(placing=Placing("n", "q", "c", f"{name}-{number}", "u", "f")) for name, number in names]
    assert [get_status(each, 1).id for each in group_by_job(sets, [], [], [])] == ["c-1", "a-2", "b-10"]


def test_a_pod_that_has_ended_keeps_no_job_running() -> None:
    """Of a job whose pods are taken off its nodes, those that were done before stay."""
    pods = [a_pod("Succeeded"), a_pod("Running", index=1)]
    over = condition("Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded")
    off, late = (a_workload(condition("Admitted", "False"), *more, active=False) for more in ((), (over,)))
    back = a_workload(condition("Admitted", "False"), _WAITS, evictions=1)
    for made, workload, phase in (
        (cancelled(), off, Phase.CANCELLED),
        (a_set(), late, Phase.OVER_HOURS),
        (a_set(), back, Phase.WAITING),
    ):
        assert get_status(JobObjects([made], workload, [], pods), 3).phase is Phase.RUNNING
        assert get_status(JobObjects([made], workload, [], pods[:1]), 3).phase is phase


def test_one_without_its_first_sets_has_begun_as_often_as_before() -> None:
    last = a_set(placing=PLACING.without(["n7"], 60).without(["n8"], 30))
    assert get_status(JobObjects([last], a_workload(_ADMITTED), [a_job()], [a_pod("Running")]), 3).starts == 3


def test_one_on_an_unfit_node_whose_hours_are_over_ends() -> None:
    last = a_set(condition("Failed"), placing=PLACING.without(["n1"], 30))
    workload = a_workload(condition("Admitted", lastTransitionTime=_AT))
    seen = JobObjects([last], workload, [a_job(4)], [a_pod("Failed", "n7")])
    assert get_status(seen, 3).phase is Phase.OVER_HOURS


def at(sec: float) -> datetime:
    return _CREATED + timedelta(seconds=sec)


def changed(kind: str, sec: float, status: str = "True", reason: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": f"{at(sec):%Y-%m-%dT%H:%M:%SZ}",
    }


def set_at(*conditions: dict[str, str], placing: Placing = PLACING, suspend: bool = False) -> dict[str, Any]:
    made = job_set(job(nodes={"min": 2, "max": 2}), placing)
    made["metadata"] |= {"uid": placing.name, "creationTimestamp": f"{_CREATED:%Y-%m-%dT%H:%M:%SZ}"}
    made["spec"]["suspend"] = suspend
    made["status"] = {"conditions": list(conditions)}
    return made


def queued(*conditions: dict[str, str], past_sec: int | None = None) -> dict[str, Any]:
    past = {} if past_sec is None else {"accumulatedPastExecutionTimeSeconds": past_sec}
    meta = {"name": "w", "creationTimestamp": f"{_CREATED:%Y-%m-%dT%H:%M:%SZ}"}
    return {"metadata": meta, "spec": {}, "status": {"conditions": list(conditions), **past}}


def ready(sec: float, reason: str) -> dict[str, str]:
    return changed("PodsReady", sec, str(reason in ("Started", "Recovered")), reason)


def pod_at(sec: float | None) -> dict[str, Any]:
    return {"status": {} if sec is None else {"startTime": changed("", sec)["lastTransitionTime"]}}


@pytest.mark.parametrize(
    ("ends", "workload", "stretches"),
    [
        ([], queued(changed("QuotaReserved", 1, "False")), []),
        ([], queued(changed("Admitted", 100)), [(100, None)]),
        ([changed("Completed", 700)], queued(changed("Admitted", 100)), [(100, 700)]),
        ([changed("Failed", 700)], queued(changed("Admitted", 100)), [(100, 700)]),
        # Put back into the queue, and begun again.
        ([], queued(changed("Admitted", 900, "False"), past_sec=600), [(300, 900)]),
        ([], queued(changed("Admitted", 2000), past_sec=600), [(1400, None)]),
        (
            [changed("Completed", 2500)],
            queued(changed("Admitted", 2000), past_sec=600),
            [(1400, 2500)],
        ),
    ],
)
def test_what_kueue_counts_is_what_it_has_had(
    ends: list[dict[str, str]], workload: dict[str, Any], stretches: list[tuple[float, float | None]]
) -> None:
    found = get_run_intervals(JobObjects([set_at(*ends)], workload, [], []))
    wanted = [RunInterval(at(begin), None if end is None else at(end), 2) for begin, end in stretches]
    assert found == tuple(wanted)


def test_one_over_its_hours_has_had_all_of_them() -> None:
    """Kueue forgets the earlier ones when it ends it."""
    evicted = changed("Evicted", 9000, reason=OVER_HOURS)
    workload = queued(changed("Admitted", 9010, "False"), evicted, past_sec=40)
    assert get_run_intervals(JobObjects([set_at()], workload, [], [])) == (RunInterval(at(9010 - 7200), at(9010), 2),)


@pytest.mark.parametrize(
    ("ends", "workload", "stretches"),
    [
        # Waiting for nodes, for the first time, again and again, and when it ran before.
        ([], queued(changed("Admitted", 100), ready(1, "WaitForStart")), []),
        ([], queued(changed("Admitted", 9000), ready(1, "WaitForStart"), past_sec=7200), []),
        ([], queued(changed("Admitted", 9000, "False"), ready(1, "WaitForStart"), past_sec=7200), []),
        (
            [],
            queued(changed("Admitted", 9000), ready(700, "WaitForStart"), past_sec=7200),
            [(8300, 9000)],
        ),
        ([], queued(changed("Admitted", 900), ready(700, "WaitForStart"), past_sec=600), [(300, 900)]),
        (
            [],
            queued(
                changed("Admitted", 12, "False"),
                changed("Evicted", 11),
                ready(11, "WaitForStart"),
                past_sec=8,
            ),
            [(4, 12)],
        ),
        # They have come.
        ([], queued(changed("Admitted", 100), ready(800, "Started")), [(800, None)]),
        (
            [changed("Completed", 900)],
            queued(changed("Admitted", 100), ready(800, "Started")),
            [(800, 900)],
        ),
        # Some have been lost since: nobody knows when they came.
        ([], queued(changed("Admitted", 100), ready(800, "WaitForRecovery")), [(100, None)]),
        ([], queued(changed("Admitted", 100), ready(800, "Recovered")), [(100, None)]),
        # Over before Kueue has looked.
        (
            [changed("Failed", 900)],
            queued(changed("Admitted", 100), ready(1, "WaitForStart")),
            [(100, 900)],
        ),
    ],
)
def test_a_wait_for_nodes_is_no_time_on_them(
    ends: list[dict[str, str]], workload: dict[str, Any], stretches: list[tuple[float, float | None]]
) -> None:
    found = get_run_intervals(JobObjects([set_at(*ends)], workload, [], []))
    assert found == tuple(RunInterval(at(begin), None if end is None else at(end), 2) for begin, end in stretches)


@pytest.mark.parametrize(
    ("pods", "stretches"),
    [([], [100]), ([pod_at(None)], []), ([pod_at(None), pod_at(800), pod_at(900)], [800])],
)
def test_where_kueue_does_not_look_at_pods_they_say_it(pods: list[dict[str, Any]], stretches: list[float]) -> None:
    found = get_run_intervals(JobObjects([set_at()], queued(changed("Admitted", 100)), [], pods))
    assert found == tuple(RunInterval(at(begin), None, 2) for begin in stretches)


@pytest.mark.parametrize(("restarts", "begun"), [(0, 800), (1, 100)])
def test_of_one_that_has_failed_its_pods_say_when_it_began(restarts: int, begun: float) -> None:
    """But not those of a later try."""
    made, workload = (
        set_at(changed("Failed", 900)),
        queued(changed("Admitted", 100), ready(899, "WaitForRecovery")),
    )
    made["status"]["restarts"] = restarts
    assert get_run_intervals(JobObjects([made], workload, [], [pod_at(800)])) == (RunInterval(at(begun), at(900), 2),)


def test_one_that_waited_for_nodes_has_its_hours_yet() -> None:
    workload = queued(changed("Admitted", 100), ready(50_000, "Started"))
    assert remaining_sec(JobObjects([set_at(changed("Failed", 53_600))], workload, [], [])) == 7200 - 3600


def test_of_a_job_from_before_its_label_says_what_it_was_given() -> None:
    made = set_at()
    del made["metadata"]["annotations"][HOURS_ANNOTATION]
    made["metadata"]["labels"][HOURS_LABEL] = "5000"
    assert get_hours_sec(made) == 5000


def test_each_start_has_its_own() -> None:
    sets = [set_at(changed("Failed", 200)), set_at(placing=PLACING.without(["n1"], 5000))]
    first, last = queued(changed("Admitted", 100)), queued(changed("Admitted", 300))
    found = get_run_intervals(JobObjects(sets, last, [], [], [first]))
    assert found == (RunInterval(at(100), at(200), 2), RunInterval(at(300), None, 2))


@pytest.mark.parametrize(
    "seen",
    [
        JobObjects([set_at(changed("Completed", 9))], None, [], []),
        JobObjects([set_at(changed("Failed", 9)), set_at()], queued(), [], [], [None]),
        JobObjects([set_at(placing=PLACING.without(["n1"], 60))], queued(changed("Admitted", 9)), [], []),
    ],
)
def test_what_is_gone_is_unknown_and_not_nothing(seen: JobObjects) -> None:
    assert get_run_intervals(seen) is None


def test_before_kueue_has_seen_it_it_has_had_nothing() -> None:
    assert get_run_intervals(JobObjects([set_at(suspend=True)], None, [], [])) == ()


@pytest.mark.parametrize(
    ("workload", "left"),
    [
        # Neither its time in the queue nor that since its end counts, and each start's counts.
        (queued(changed("Admitted", 50_000)), 7200 - 3600),
        (queued(changed("Admitted", 50_000), past_sec=600), 7200 - 4200),
        (queued(changed("Admitted", 50_000), past_sec=3600), 0),
        (None, 7200 - 53_600),
    ],
)
def test_what_is_left_after_a_node_that_was_not_fit(workload: dict[str, Any] | None, left: int) -> None:
    assert remaining_sec(JobObjects([set_at(changed("Failed", 53_600))], workload, [], [])) == left


def test_what_is_left_is_of_what_the_start_was_given() -> None:
    last = set_at(changed("Failed", 400), placing=PLACING.without(["n1"], 1000))
    assert (
        remaining_sec(
            JobObjects(
                [set_at(changed("Failed", 9)), last],
                queued(changed("Admitted", 100)),
                [],
                [],
            )
        )
        == 700
    )
