"""How long a job was on nodes, of objects as a cluster has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.jobs.base import RunInterval
from gangway.jobs.kubernetes.manifests import HOURS_ANNOTATION, HOURS_LABEL, Placing, job_set
from gangway.jobs.kubernetes.objects import JobObjects, get_hours_sec
from gangway.jobs.kubernetes.status import OVER_HOURS, get_run_intervals, remaining_sec
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, job

_CREATED = datetime(2026, 1, 2, 3, tzinfo=UTC)


def at(sec: float) -> datetime:
    return _CREATED + timedelta(seconds=sec)


def condition(kind: str, sec: float, status: str = "True", reason: str = "") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": f"{at(sec):%Y-%m-%dT%H:%M:%SZ}",
    }


def a_set(*conditions: dict[str, str], placing: Placing = PLACING, suspend: bool = False) -> dict[str, Any]:
    made = job_set(job(nodes={"min": 2, "max": 2}), placing)
    made["metadata"] |= {"uid": placing.name, "creationTimestamp": f"{_CREATED:%Y-%m-%dT%H:%M:%SZ}"}
    made["spec"]["suspend"] = suspend
    made["status"] = {"conditions": list(conditions)}
    return made


def a_workload(*conditions: dict[str, str], past_sec: int | None = None) -> dict[str, Any]:
    past = {} if past_sec is None else {"accumulatedPastExecutionTimeSeconds": past_sec}
    meta = {"name": "w", "creationTimestamp": f"{_CREATED:%Y-%m-%dT%H:%M:%SZ}"}
    return {"metadata": meta, "spec": {}, "status": {"conditions": list(conditions), **past}}


def ready(sec: float, reason: str) -> dict[str, str]:
    return condition("PodsReady", sec, str(reason in ("Started", "Recovered")), reason)


def a_pod(sec: float | None) -> dict[str, Any]:
    return {"status": {} if sec is None else {"startTime": condition("", sec)["lastTransitionTime"]}}


@pytest.mark.parametrize(
    ("ends", "workload", "stretches"),
    [
        ([], a_workload(condition("QuotaReserved", 1, "False")), []),
        ([], a_workload(condition("Admitted", 100)), [(100, None)]),
        ([condition("Completed", 700)], a_workload(condition("Admitted", 100)), [(100, 700)]),
        ([condition("Failed", 700)], a_workload(condition("Admitted", 100)), [(100, 700)]),
        # Put back into the queue, and begun again.
        ([], a_workload(condition("Admitted", 900, "False"), past_sec=600), [(300, 900)]),
        ([], a_workload(condition("Admitted", 2000), past_sec=600), [(1400, None)]),
        ([condition("Completed", 2500)], a_workload(condition("Admitted", 2000), past_sec=600), [(1400, 2500)]),
    ],
)
def test_what_kueue_counts_is_what_it_has_had(
    ends: list[dict[str, str]], workload: dict[str, Any], stretches: list[tuple[float, float | None]]
) -> None:
    found = get_run_intervals(JobObjects([a_set(*ends)], workload, [], []))
    wanted = [RunInterval(at(begin), None if end is None else at(end), 2) for begin, end in stretches]
    assert found == tuple(wanted)


def test_one_over_its_hours_has_had_all_of_them() -> None:
    """Kueue forgets the earlier ones when it ends it."""
    evicted = condition("Evicted", 9000, reason=OVER_HOURS)
    workload = a_workload(condition("Admitted", 9010, "False"), evicted, past_sec=40)
    assert get_run_intervals(JobObjects([a_set()], workload, [], [])) == (RunInterval(at(9010 - 7200), at(9010), 2),)


@pytest.mark.parametrize(
    ("ends", "workload", "stretches"),
    [
        # Waiting for nodes, for the first time, again and again, and when it ran before.
        ([], a_workload(condition("Admitted", 100), ready(1, "WaitForStart")), []),
        ([], a_workload(condition("Admitted", 9000), ready(1, "WaitForStart"), past_sec=7200), []),
        ([], a_workload(condition("Admitted", 9000, "False"), ready(1, "WaitForStart"), past_sec=7200), []),
        ([], a_workload(condition("Admitted", 9000), ready(700, "WaitForStart"), past_sec=7200), [(8300, 9000)]),
        ([], a_workload(condition("Admitted", 900), ready(700, "WaitForStart"), past_sec=600), [(300, 900)]),
        (
            [],
            a_workload(
                condition("Admitted", 12, "False"), condition("Evicted", 11), ready(11, "WaitForStart"), past_sec=8
            ),
            [(4, 12)],
        ),
        # They have come.
        ([], a_workload(condition("Admitted", 100), ready(800, "Started")), [(800, None)]),
        ([condition("Completed", 900)], a_workload(condition("Admitted", 100), ready(800, "Started")), [(800, 900)]),
        # Some have been lost since: nobody knows when they came.
        ([], a_workload(condition("Admitted", 100), ready(800, "WaitForRecovery")), [(100, None)]),
        ([], a_workload(condition("Admitted", 100), ready(800, "Recovered")), [(100, None)]),
        # Over before Kueue has looked.
        ([condition("Failed", 900)], a_workload(condition("Admitted", 100), ready(1, "WaitForStart")), [(100, 900)]),
    ],
)
def test_a_wait_for_nodes_is_no_time_on_them(
    ends: list[dict[str, str]], workload: dict[str, Any], stretches: list[tuple[float, float | None]]
) -> None:
    found = get_run_intervals(JobObjects([a_set(*ends)], workload, [], []))
    assert found == tuple(RunInterval(at(begin), None if end is None else at(end), 2) for begin, end in stretches)


@pytest.mark.parametrize(
    ("pods", "stretches"),
    [([], [100]), ([a_pod(None)], []), ([a_pod(None), a_pod(800), a_pod(900)], [800])],
)
def test_where_kueue_does_not_look_at_pods_they_say_it(pods: list[dict[str, Any]], stretches: list[float]) -> None:
    found = get_run_intervals(JobObjects([a_set()], a_workload(condition("Admitted", 100)), [], pods))
    assert found == tuple(RunInterval(at(begin), None, 2) for begin in stretches)


@pytest.mark.parametrize(("restarts", "begun"), [(0, 800), (1, 100)])
def test_of_one_that_has_failed_its_pods_say_when_it_began(restarts: int, begun: float) -> None:
    """But not those of a later try."""
    made, workload = (
        a_set(condition("Failed", 900)),
        a_workload(condition("Admitted", 100), ready(899, "WaitForRecovery")),
    )
    made["status"]["restarts"] = restarts
    assert get_run_intervals(JobObjects([made], workload, [], [a_pod(800)])) == (RunInterval(at(begun), at(900), 2),)


def test_one_that_waited_for_nodes_has_its_hours_yet() -> None:
    workload = a_workload(condition("Admitted", 100), ready(50_000, "Started"))
    assert remaining_sec(JobObjects([a_set(condition("Failed", 53_600))], workload, [], [])) == 7200 - 3600


def test_of_a_job_from_before_its_label_says_what_it_was_given() -> None:
    made = a_set()
    del made["metadata"]["annotations"][HOURS_ANNOTATION]
    made["metadata"]["labels"][HOURS_LABEL] = "5000"
    assert get_hours_sec(made) == 5000


def test_each_start_has_its_own() -> None:
    sets = [a_set(condition("Failed", 200)), a_set(placing=PLACING.without(["n1"], 5000))]
    first, last = a_workload(condition("Admitted", 100)), a_workload(condition("Admitted", 300))
    found = get_run_intervals(JobObjects(sets, last, [], [], [first]))
    assert found == (RunInterval(at(100), at(200), 2), RunInterval(at(300), None, 2))


@pytest.mark.parametrize(
    "seen",
    [
        JobObjects([a_set(condition("Completed", 9))], None, [], []),
        JobObjects([a_set(condition("Failed", 9)), a_set()], a_workload(), [], [], [None]),
        JobObjects([a_set(placing=PLACING.without(["n1"], 60))], a_workload(condition("Admitted", 9)), [], []),
    ],
)
def test_what_is_gone_is_unknown_and_not_nothing(seen: JobObjects) -> None:
    assert get_run_intervals(seen) is None


def test_before_kueue_has_seen_it_it_has_had_nothing() -> None:
    assert get_run_intervals(JobObjects([a_set(suspend=True)], None, [], [])) == ()


@pytest.mark.parametrize(
    ("workload", "left"),
    [
        # Neither its time in the queue nor that since its end counts, and each start's counts.
        (a_workload(condition("Admitted", 50_000)), 7200 - 3600),
        (a_workload(condition("Admitted", 50_000), past_sec=600), 7200 - 4200),
        (a_workload(condition("Admitted", 50_000), past_sec=3600), 0),
        (None, 7200 - 53_600),
    ],
)
def test_what_is_left_after_a_node_that_was_not_fit(workload: dict[str, Any] | None, left: int) -> None:
    assert remaining_sec(JobObjects([a_set(condition("Failed", 53_600))], workload, [], [])) == left


def test_what_is_left_is_of_what_the_start_was_given() -> None:
    last = a_set(condition("Failed", 400), placing=PLACING.without(["n1"], 1000))
    assert (
        remaining_sec(JobObjects([a_set(condition("Failed", 9)), last], a_workload(condition("Admitted", 100)), [], []))
        == 700
    )
