"""How long a job was on nodes, of objects as a cluster has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stacks.engines.base import Stretch
from stacks.engines.kubernetes.hours import OVER_HOURS, left_sec, stretches_of
from stacks.engines.kubernetes.manifests import Placing, job_set
from stacks.engines.kubernetes.objects import Seen
from tests.stacks.engines.kubernetes.test_manifests import PLACING, job

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
    return {"metadata": {"name": "w"}, "spec": {}, "status": {"conditions": list(conditions), **past}}


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
    found = stretches_of(Seen([a_set(*ends)], workload, [], []))
    wanted = [Stretch(at(begin), None if end is None else at(end), 2) for begin, end in stretches]
    assert found == tuple(wanted)


def test_one_over_its_hours_has_had_all_of_them() -> None:
    """Kueue forgets the earlier ones when it ends it."""
    evicted = condition("Evicted", 9000, reason=OVER_HOURS)
    workload = a_workload(condition("Admitted", 9010, "False"), evicted, past_sec=40)
    assert stretches_of(Seen([a_set()], workload, [], [])) == (Stretch(at(9010 - 7200), at(9010), 2),)


def test_each_start_has_its_own() -> None:
    sets = [a_set(condition("Failed", 200)), a_set(placing=PLACING.without(["n1"], 5000))]
    first, last = a_workload(condition("Admitted", 100)), a_workload(condition("Admitted", 300))
    found = stretches_of(Seen(sets, last, [], [], [first]))
    assert found == (Stretch(at(100), at(200), 2), Stretch(at(300), None, 2))


@pytest.mark.parametrize(
    "seen",
    [
        Seen([a_set(condition("Completed", 9))], None, [], []),
        Seen([a_set(condition("Failed", 9)), a_set()], a_workload(), [], [], [None]),
        Seen([a_set(placing=PLACING.without(["n1"], 60))], a_workload(condition("Admitted", 9)), [], []),
    ],
)
def test_what_is_gone_is_unknown_and_not_nothing(seen: Seen) -> None:
    assert stretches_of(seen) is None


def test_before_kueue_has_seen_it_it_has_had_nothing() -> None:
    assert stretches_of(Seen([a_set(suspend=True)], None, [], [])) == ()


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
    assert left_sec(Seen([a_set(condition("Failed", 53_600))], workload, [], [])) == left


def test_what_is_left_is_of_what_the_start_was_given() -> None:
    last = a_set(condition("Failed", 400), placing=PLACING.without(["n1"], 1000))
    assert left_sec(Seen([a_set(condition("Failed", 9)), last], a_workload(condition("Admitted", 100)), [], [])) == 700
