"""What wakes a person on Google Cloud: each alarm asks for metrics there are, and says what to do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.findings import InputError
from components.gcp.alarms import METRICS, STEPS_ALARM_MINUTES, AlarmPlan, metric_name, plan_alarms

GROUPS = ["demo-0-spot-1a2b3c4", "demo-1-flex-1a2b3c4"]
RESOURCE = '{monitored_resource="gce_instance"}'


def plans(
    groups: list[str] | None = None, minutes: int = 30, *, stack: str = "demo", expect_gpu: bool = True
) -> dict[str, AlarmPlan]:
    made = plan_alarms(stack, GROUPS if groups is None else groups, 4, minutes, 3, expect_gpu=expect_gpu)
    return {plan.name: plan for plan in made}


def test_which_alarms_there_are() -> None:
    everything = ["no-steps", "gpu-idle", "interruptions", "nodes-missing", "node-given-up", "job-failed"]
    assert list(plans()) == everything
    assert "gpu-idle" not in plans(expect_gpu=False)
    assert "nodes-missing" not in plans([])


def test_no_steps_rings_while_there_are_nodes_and_no_line() -> None:
    assert plans()["no-steps"].query == (
        '(sum(min_over_time(compute_googleapis_com:instance_group_size{monitored_resource="instance_group",'
        f'instance_group_name=~"{GROUPS[0]}|{GROUPS[1]}"}}[30m])) > 0) unless '
        f"(sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}[30m])) > 0)"
    )


def test_tpus_are_watched_by_their_lines_alone() -> None:
    query = plans([], 45)["no-steps"].query
    lines = f"sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}"
    assert query == f"({lines}[1d])) > 0) unless ({lines}[45m])) > 0)"


def test_the_figures_of_the_others() -> None:
    made = plans()
    idle = "sum(increase(logging_googleapis_com:user_gangway_demo_GpuUtilisation"
    assert made["gpu-idle"].query == f"({idle}_sum{RESOURCE}[15m])) / {idle}_count{RESOURCE}[15m]))) < 0.1"
    assert made["interruptions"].query.endswith("Interruptions" + RESOURCE + "[1h])) > 3")
    assert made["nodes-missing"].query.startswith("avg_over_time(((sum(")
    assert made["nodes-missing"].query.endswith(" or vector(0)) < bool 4)[90m:5m]) >= 0.333")
    assert made["node-given-up"].query.endswith("NodesGivenUp" + RESOURCE + "[10m])) > 0")
    assert made["job-failed"].query.endswith("JobsEndedBadly" + RESOURCE + "[10m])) > 0")


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
    assert all(len(plan.description) > 100 for plan in plans().values())


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
    assert by_name["Steps"].filter == "NOT jsonPayload.event:* AND jsonPayload.step>=0"
    assert by_name["GpuUtilisation"].field == "gpu_utilisation"
    assert by_name["NodesGivenUp"].filter == 'jsonPayload.event="node-given-up"'
    assert by_name["JobsEndedBadly"].filter == 'jsonPayload.event="job-ended" AND jsonPayload.exit_status!=0'
