"""A stack's limits against its plan, and on its nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import Finding, InputError
from gangway.components.core.job import JobSpec, OwnCommand, Training
from gangway.images.shell import workload_argv
from gangway.images.specs import JobLimit, MachineSpec
from gangway.stacks.base.shared import job_limit
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def limited(**limits: float) -> Callable[[dict[str, Any]], None]:
    """The demo's stack, with two nodes."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:budget"]["limits"] = limits

    return edit


def found(config: StackConfig) -> dict[str, Finding]:
    return {finding.code: finding for finding in make_plan(config).findings}


def refusal(config: StackConfig) -> InputError:
    with pytest.raises(InputError) as caught:
        make_plan(config)
    return caught.value


def test_a_stack_above_its_hourly_limit_is_refused(edited: Edited, demo_plan: Plan) -> None:
    highest = max(rung.hourly_high or 0 for rung in demo_plan.rungs)
    make_plan(edited(limited(usd_per_hour=highest + 0.01)))
    error = refusal(edited(limited(usd_per_hour=highest - 1)))
    assert error.place == "gangway:budget.limits.usd_per_hour"
    assert error.allowed == f"at least {highest:.2f} USD"
    assert "raise usd_per_hour" in error.fix


def test_a_jobs_limit_needs_a_price_which_the_plan_names(edited: Edited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        edited(limited(job_usd=500))
    assert "gangway:budget.limits.usd_per_node_hour" in str(caught.value.exceptions[0])
    low = found(edited(limited(job_usd=500, usd_per_node_hour=2)))["limits.price-low"]
    price = float(low.fix.partition("usd_per_node_hour: ")[2].partition(",")[0])
    assert price > 10
    good = found(edited(limited(job_usd=500, usd_per_node_hour=price)))
    assert "the job saves and ends once its nodes have cost 500.00 USD" in good["limits.job"].message
    assert "limits.price-low" not in good


def test_a_run_that_costs_more_even_if_it_is_fast_is_refused(edited: Edited) -> None:
    error = refusal(edited(limited(job_usd=0.01, usd_per_node_hour=100)))
    assert error.place == "gangway:budget.limits.job_usd"
    assert "even if it is fast" in error.problem


@pytest.mark.parametrize("name", ["user_usd_per_month", "team_usd_per_month"])
def test_a_stacks_own_job_has_no_user_and_no_team(edited: Edited, name: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        edited(limited(**{name: 5}))
    assert f"gangway:budget.limits.{name}" in str(caught.value.exceptions[0])


def test_a_queues_limits_hold_for_its_submits(gcp_edited: Callable[..., StackConfig]) -> None:
    limits = {"team_usd_per_month": 9000}
    config = gcp_edited("gke-a3-jobset", budget={"limits": limits})
    assert "gangway job submit" in found(config)["limits.submits"].message
    assert job_limit(config) is None
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited("gke-a3-jobset", budget={"limits": {**limits, "usd_per_node_hour": 5}})
    assert "jobs are priced by engines.yaml" in str(caught.value.exceptions[0])


def test_nodes_are_told_the_limit(edited: Edited) -> None:
    assert job_limit(edited(limited(job_usd=500, usd_per_node_hour=100))) == JobLimit(500, 100)
    image = f"registry.example.com/a@sha256:{'ab' * 32}"
    job = JobSpec(name="a", image=image, backend="nccl", num_nodes_min=1, num_nodes_max=2, processes_per_node=8)
    common: dict[str, Any] = {"stack": "a", "image_registry": "", "bucket_uri": "s3://b", "run_dir": "/runs"}
    limit = JobLimit(500, 100)
    trains = job.model_copy(update={"training": Training(config={}, run_dir="/runs")})
    words = workload_argv(MachineSpec(**common, job=trains, max_hours=8, limit=limit), "/bin")
    assert words[words.index("--max-usd") :][:4] == ["--max-usd", "500", "--usd-per-node-hour", "100"]
    # A command's script counts seconds: 2.5 h of both nodes.
    command = job.model_copy(update={"command": OwnCommand(words=("true",))})
    for hours, seconds in ((8, "9000"), (2, "7200"), (None, "9000")):
        words = workload_argv(MachineSpec(**common, job=command, max_hours=hours, limit=limit), "/bin")
        assert words[3] == seconds
