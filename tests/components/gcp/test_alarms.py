"""What wakes a person on Google Cloud: each alarm asks for metrics there are, and says what to do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.limits import STEPS_ALARM_MINUTES
from gangway.components.gcp.alarms import METRICS, AlarmPlan, metric_name, plan_alarms

GROUPS = ["demo-0-spot-1a2b3c4", "demo-1-flex-1a2b3c4"]
RESOURCE = '{monitored_resource="gce_instance"}'
SIZES = (
    'compute_googleapis_com:instance_group_size{monitored_resource="instance_group",'
    f'instance_group_name=~"{GROUPS[0]}|{GROUPS[1]}"}}'
)


def plans(
    groups: list[str] | None = None, minutes: int = 30, *, stack: str = "demo", expect_gpu: bool = True
) -> dict[str, AlarmPlan]:
    made = plan_alarms(stack, GROUPS if groups is None else groups, 4, minutes, 3, expect_gpu=expect_gpu)
    return {plan.name: plan for plan in made}


def test_which_alarms_there_are() -> None:
    rest = ["interruptions", "nodes-missing", "node-given-up", "launches-held", "job-failed", "record-at-risk"]
    assert list(plans()) == ["no-steps", "gpu-idle", *rest]
    assert "gpu-idle" not in plans(expect_gpu=False)
    assert not {"nodes-missing", "launches-held"} & plans([]).keys(), "nobody launches hosts of a slice"


def test_no_steps_rings_while_there_are_nodes_and_no_line() -> None:
    assert plans()["no-steps"].query == (
        f"(sum(min_over_time({SIZES}[34m]) and (count_over_time({SIZES}[34m]) >= 30)) > 0) unless "
        f"(sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}[34m])) > 0)"
    )


@pytest.mark.parametrize("minutes", [10, 30, 1000, 1436, 1437, 1440])
def test_nodes_that_have_just_come_do_not_ring_and_others_can(minutes: int) -> None:
    """A point a minute, four minutes late at most: the number asked for is reached, and not before its time."""
    query = plans(minutes=minutes)["no-steps"].query
    (window,) = set(map(int, re.findall(r"\[(\d+)m\]", query)))
    (least,) = map(int, re.findall(r"count_over_time\(.*?\) >= (\d+)", query))
    assert window <= 1440, "the most that a query of Cloud Monitoring looks back"
    assert least <= window - 4, "it rings although the newest points cannot be seen yet"
    assert least >= min(minutes, 1436), "two minutes of nodes are no window of nodes"


def test_tpus_are_watched_by_their_lines_alone() -> None:
    query = plans([], 45)["no-steps"].query
    lines = f"sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}"
    assert query == f"({lines}[1d])) > 0) unless ({lines}[45m])) > 0)"


def test_the_figures_of_the_others() -> None:
    made = plans()
    idle = "sum(increase(logging_googleapis_com:user_gangway_demo_GpuUtilisation"
    assert made["gpu-idle"].query == f"({idle}_sum{RESOURCE}[15m])) / {idle}_count{RESOURCE}[15m]))) < 0.1"
    assert made["interruptions"].query.endswith("Interruptions" + RESOURCE + "[1h])) > 3")
    assert made["node-given-up"].query.endswith("NodesGivenUp" + RESOURCE + "[10m])) > 0")
    assert made["job-failed"].query.endswith("JobsEndedBadly" + RESOURCE + "[10m])) > 0")
    at_risk, ladder = made["record-at-risk"].query.split(" or ")
    assert at_risk.endswith("RecordsAtRisk" + RESOURCE + "[15m])) > 0)")
    assert ladder.endswith("LaddersNotKept" + RESOURCE + "[15m])) >= 5)"), "one look that fails is no alarm"
    assert made["record-at-risk"].severity == "CRITICAL"


def test_missing_nodes_are_those_that_were_there_and_whose_job_goes_on() -> None:
    missing, rest = plans()["nodes-missing"].query.split(" and ")
    assert missing == f"((avg_over_time(((sum({SIZES}) or vector(0)) < bool 4)[90m:5m]) >= 0.333)"
    had_nodes, ended, steps_again = rest.split(" unless ")
    # A first start: in its first 90 minutes this is of the time before it, in which there were none.
    assert had_nodes == f"(sum(max_over_time({SIZES}[22h] offset 90m)) > 0))"
    # A good end: told for longer (24 h) than its nodes are remembered (22 h, from 1.5 h ago).
    assert ended == f"((sum(increase(logging_googleapis_com:user_gangway_demo_JobsEndedWell{RESOURCE}[1d])) > 0)"
    # The next job of the same stack: from its first step on a missing node is one again.
    assert steps_again == f"(sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}[15m])) > 0))"


@given(st.from_regex(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z"), st.booleans())
def test_every_query_names_metrics_that_exist(stack: str, tpus: bool) -> None:
    declared = {re.sub(r"[^a-zA-Z0-9]", "_", metric_name(stack, metric.name)) for metric in METRICS}
    for plan in plans([] if tpus else None, stack=stack).values():
        named = re.findall(r"logging_googleapis_com:user_(\w+?)(?:_sum|_count)?\{", plan.query)
        assert set(named) <= declared
        assert named or "instance_group_size" in plan.query
        for pair in ("()", "[]", "{}"):
            assert plan.query.count(pair[0]) == plan.query.count(pair[1])
        assert plan.query.count('"') % 2 == 0


def test_every_alarm_says_what_to_do() -> None:
    made = plans()
    assert made
    assert all(len(plan.description) > 100 for plan in made.values())


@pytest.mark.parametrize("minutes", [0, 9, 1441])
def test_a_window_that_tells_nothing(minutes: int) -> None:
    with pytest.raises(InputError, match="not a window") as caught:
        plans(minutes=minutes)
    fixed = int(caught.value.fix.rpartition(" ")[2])
    assert fixed in STEPS_ALARM_MINUTES
    assert plans(minutes=fixed)


def test_a_line_is_a_statistic_or_an_event() -> None:
    """The filters are those of the lines the trainer writes: statistics have no event."""
    by_name = {metric.name: metric for metric in METRICS}
    assert by_name["Steps"].filter == "NOT jsonPayload.printed.event:* AND jsonPayload.printed.step>=0"
    assert by_name["GpuUtilisation"].field == "jsonPayload.printed.gpu_utilisation"
    assert by_name["Interruptions"].filter == 'jsonPayload.printed.event="interrupt"', "what the job itself knows"
    assert by_name["NodesGivenUp"].filter == 'jsonPayload.event="node-given-up"'
    at_risk = (
        '(jsonPayload.event="head-not-ready" OR jsonPayload.event="record-not-put" OR jsonPayload.event="end-not-told")'
    )
    assert by_name["RecordsAtRisk"].filter == at_risk, "in brackets: it stands behind an AND"
    assert by_name["LaddersNotKept"].filter == 'jsonPayload.event="ladder-not-kept"'
    assert by_name["JobsEndedWell"].filter == 'jsonPayload.event="job-ended" AND jsonPayload.exit_status=0'
    assert by_name["JobsEndedBadly"].filter == 'jsonPayload.event="job-ended" AND jsonPayload.exit_status!=0'
