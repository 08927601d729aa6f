"""The plan of a cluster with a queue: priced by the nodes that are up, and nothing forecast of its jobs."""

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from rich.console import Console

from gangway.report.plans.show import Detail, show_plan
from gangway.stacks.base import registry
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

TOYS = Path(__file__).parent.parent / "providers"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Of a cluster of toys with a queue, all of which may be away."""
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setattr(registry, "PROVIDERS", {**registry.PROVIDERS, "toy": "toy.provider"})
    from toy import program, provider  # type: ignore[import-not-found]

    settings = replace(provider.PROVIDER.settings, queues=("slurm",))
    monkeypatch.setattr(provider, "PROVIDER", replace(provider.PROVIDER, settings=settings))
    monkeypatch.setattr(program, "build", _build)

    values = yaml.safe_load((TOYS / "toy" / "Pulumi.toy-lab.yaml").read_text("utf-8"))["config"]
    del values["gangway:job"]
    values["gangway:engine"] = {"kind": "slurm"}
    values["gangway:cluster"]["nodes"] = {"min": 0, "max": 1}
    path = tmp_path / "Pulumi.toy-lab.yaml"
    path.write_text(yaml.safe_dump({"config": values}), "utf-8")
    return make_plan(from_file(path))


def _build(config: StackConfig, planned: Any) -> Mapping[str, pulumi.Input[Any]]:
    from toy.program import ToyBox  # type: ignore[import-not-found]

    machine = {"size": planned.machine.name, "place": config.region, "labels": planned.tags}
    kind, monthly_usd = config.cluster.capacity[0].kind, config.budget.monthly_usd
    ToyBox(config.stack, {"machine": machine, "kind": kind, "monthly_usd": monthly_usd})
    return {}


def shown(plan: Plan, detail: Detail) -> str:
    out = StringIO()
    show_plan(plan, Console(width=120, file=out), detail)
    return out.getvalue()


def test_it_is_priced_by_the_nodes_that_are_up(plan: Plan) -> None:
    # Ten an hour for the machine, 7.30 a month of 730 hours for the budget.
    assert [plan.hourly_with(nodes) for nodes in (0, 1)] == pytest.approx([0.01, 10.01])
    assert plan.idle_hourly == pytest.approx(0.01)
    assert plan.cost.run_hours == 730
    assert plan.to_json()["cost"]["standing"] == pytest.approx(
        {"no_nodes_hourly": 0.01, "nodes_min_hourly": 0.01, "nodes_max_hourly": 10.01}
    )


def test_nothing_is_forecast(plan: Plan) -> None:
    assert plan.to_json()["job"] is None
    assert plan.expected.hours is None
    assert plan.expected.memory is None
    assert plan.energy.kwh is None
    assert (plan.energy.kwh_most, plan.carbon.gco2e_most, plan.sci.g_per_kimg_most) == (None, None, None)
    assert "cluster.standing" in {finding.code for finding in plan.findings}
    assert not {code for finding in plan.findings if (code := finding.code).startswith(("run.", "batch", "memory"))}


@pytest.mark.parametrize("detail", Detail)
def test_it_is_shown_as_a_cluster_and_not_as_a_run(plan: Plan, detail: Detail) -> None:
    text = shown(plan, detail)
    assert "$10.01 an hour with all nodes up, $0.01 without work" in text
    assert "a run" not in text.replace("a run: once", "")
    if detail is not Detail.BRIEF:
        assert "with no node up: $0.01 an hour" in text
        assert "with 1 node up: $10.01 an hour, $7,307.30 a month of 730 h" in text
