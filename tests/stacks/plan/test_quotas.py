"""Every shipped stack names its quotas, and how late its budget's stop comes."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gangway.components.catalog.billing import load_billing
from gangway.components.catalog.loader import load
from gangway.components.core.findings import Finding
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.run_costs import most_expensive_rung
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan

FILES = sorted((Path(__file__).resolve().parents[3] / "stacks").glob("Pulumi.*.yaml"))
IN_CLOUDS = [path for path in FILES if from_file(path).site is None]
"""A private cloud's quotas are its owner's."""


@cache
def found_in(path: Path) -> tuple[StackConfig, tuple[Finding, ...]]:
    config = from_file(path)
    program: Any = get_provider(config.provider).program()
    return config, program.findings(config, program.plan(config), None)


def quotas_of(path: Path) -> tuple[StackConfig, list[Finding]]:
    config, findings = found_in(path)
    return config, [finding for finding in findings if finding.code == "capacity.quota"]


@pytest.mark.parametrize("path", IN_CLOUDS, ids=lambda path: path.stem)
def test_every_rung_names_a_quota_or_why_there_is_none(path: Path) -> None:
    config, quotas = quotas_of(path)
    for index, _ in enumerate(config.cluster.capacity):
        messages = [one.message for one in quotas if one.path == f"gangway:cluster.capacity[{index}]"]
        assert messages, index
        for message in messages:
            needs = re.match(r"[\d,]+ \S.* of the quota .+ in .+, for \d+ (nodes?|slices?); `.+` shows", message)
            assert needs or message.startswith("no quota: "), message


@pytest.mark.parametrize("path", IN_CLOUDS, ids=lambda path: path.stem)
def test_no_quota_stands_twice(path: Path) -> None:
    names = [re.search(r"of the quota (.*?) in ", one.message) for one in quotas_of(path)[1]]
    named = [match[1] for match in names if match]
    assert len(named) == len(set(named))


def test_gkes_slices_are_compute_engines_and_queued_ones_the_tpu_apis() -> None:
    of = {path.stem.removeprefix("Pulumi."): " ".join(one.message for one in quotas_of(path)[1]) for path in IN_CLOUDS}
    assert "PREEMPTIBLE_TPU_LITE_PODSLICE_V5" in of["gke-tpu-v5e"]
    assert "ForTPUAPI" not in of["gke-tpu-v5e"]
    assert "tpu.googleapis.com" not in of["gke-tpu-v5e"]
    assert "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI" in of["gcp-v5e-pod"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_stop_says_how_late_it_is_where_somebody_bills(path: Path) -> None:
    config, findings = found_in(path)
    late = [finding.message for finding in findings if finding.code == "budget.late"]
    assert len(late) == (config.budget.stop_at_percent is not None)
    for message in late:
        assert f"{load_billing().delays[config.provider].stop_hours[1]:g} h after the cost" in message
        assert "USD" not in message, "nothing is priced"


@pytest.fixture
def stopping(demo_config: StackConfig) -> StackConfig:
    budget = demo_config.budget.model_copy(update={"stop_at_percent": 110.0})
    return demo_config.model_copy(update={"budget": budget})


def test_the_delay_costs_all_nodes_on_the_dearest_rung(stopping: StackConfig, demo_plan: Plan) -> None:
    findings = common_findings(stopping, load().machine("p5.48xlarge"), demo_plan.cost)
    (late,) = [finding for finding in findings if finding.code == "budget.late"]
    position, hourly = most_expensive_rung(stopping, demo_plan.cost)
    assert "8 to 12 h after the cost (AWS Cost Management user guide" in late.message
    assert f": {hourly * 8:,.0f} to {hourly * 12:,.0f} USD more with all nodes on capacity[{position}]" in late.message
    assert f"{hourly * 12 / stopping.budget.monthly_usd:.0%} of monthly_usd" in late.message
    assert hourly > demo_plan.cost.hourly, "on-demand behind spot"


def test_a_budget_that_stops_nothing_is_not_late(demo_config: StackConfig, demo_plan: Plan) -> None:
    findings = common_findings(demo_config, load().machine("p5.48xlarge"), demo_plan.cost)
    assert "budget.late" not in {finding.code for finding in findings}
