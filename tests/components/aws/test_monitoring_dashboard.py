"""The CloudWatch dashboard's body: CloudWatch checks little of it, so what it asks for is checked here."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.monitoring import COLUMNS, plan_dashboard, plan_filters

GROUPS = ["demo-0-spot", "demo-1-on-demand"]
ALARMS = ["arn:aws:cloudwatch:us-east-2:1:alarm:a", "arn:aws:cloudwatch:us-east-2:1:alarm:b"]


@pytest.fixture
def body() -> dict[str, Any]:
    return plan_dashboard("demo", "us-east-2", "/gangway/demo", GROUPS, ALARMS)


def of_type(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [widget["properties"] for widget in body["widgets"] if widget["type"] == kind]


def metrics(body: dict[str, Any]) -> list[list[Any]]:
    return [metric for widget in of_type(body, "metric") for metric in widget["metrics"]]


@given(groups=st.lists(st.text("abcdef-", min_size=1), max_size=9, unique=True))
def test_widgets_lie_within_the_grid_and_do_not_overlap(groups: list[str]) -> None:
    widgets = plan_dashboard("demo", "us-east-2", "/gangway/demo", groups, ALARMS)["widgets"]
    places = [{(w["x"] + x, w["y"] + y) for x in range(w["width"]) for y in range(w["height"])} for w in widgets]
    assert all(0 <= x < COLUMNS for place in places for x, _ in place)
    assert all(not one & other for one, other in combinations(places, 2))
    assert {w["type"] for w in widgets} == {"text", "alarm", "metric", "log"}


def test_every_graph_names_its_region_title_and_period(body: dict[str, Any]) -> None:
    graphs = of_type(body, "metric")
    assert {graph["region"] for graph in [*graphs, *of_type(body, "log")]} == {"us-east-2"}
    assert len({graph["title"] for graph in graphs}) == len(graphs)
    assert all(graph["period"] % 60 == 0 and graph["stat"] in ("Average", "Sum") for graph in graphs)


def test_what_the_filters_publish_is_what_the_graphs_show(body: dict[str, Any]) -> None:
    shown = {name for namespace, name, *_ in metrics(body) if namespace == "Gangway/demo"}
    assert shown == {plan.metric for plan in plan_filters()} - {"Steps"}, "steps are for the alarm"


def test_every_rung_has_its_nodes_and_its_network(body: dict[str, Any]) -> None:
    for group in GROUPS:
        mine = {name for _, name, *dimensions in metrics(body) if dimensions[:2] == ["AutoScalingGroupName", group]}
        assert mine == {"GroupInServiceInstances", "GroupDesiredCapacity", "NetworkOut"}


def test_the_losses_come_from_the_log(body: dict[str, Any]) -> None:
    (log,) = of_type(body, "log")
    assert log["query"].startswith("SOURCE '/gangway/demo' | filter ")
    assert {"loss_g", "loss_d"} <= set(re.findall(r"avg\((\w+)\)", log["query"]))


def test_the_alarms_and_the_budget_are_on_top(body: dict[str, Any]) -> None:
    text, alarms = body["widgets"][:2]
    assert alarms["properties"]["alarms"] == ALARMS
    assert re.search(r"\[Budgets\]\(https://\S+/budgets\)", text["properties"]["markdown"])
    assert "EFA" in text["properties"]["markdown"], "what the network graph leaves out is said"


def test_the_body_is_json(body: dict[str, Any]) -> None:
    assert json.loads(json.dumps(body)) == body
