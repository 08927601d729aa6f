"""Prometheus finds workers and not the head node; the Grafana dashboard shows what the trainer shows, and loads."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.hardware_alerts import STACK, alert_rules
from gangway.images.observability import (
    HARDWARE,
    PREFIX,
    TRAINER,
    Dashboard,
    grafana_dashboard,
    render_prometheus,
    render_prometheus_azure,
    render_prometheus_gce,
    render_prometheus_static,
)
from gangway.images.specs import EXPORTER_PORTS


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(grafana_dashboard())
    return loaded


def scrape(text: str) -> dict[str, Any]:
    (config,) = yaml.safe_load(text)["scrape_configs"]
    found: dict[str, Any] = config
    return found


def test_prometheus_finds_the_running_workers_of_one_stack() -> None:
    (discovery,) = scrape(render_prometheus("demo", "us-east-2", port=9400))["ec2_sd_configs"]
    filters = {item["name"]: item["values"] for item in discovery["filters"]}
    assert (discovery["region"], discovery["port"]) == ("us-east-2", 9400)
    assert filters == {
        "tag:gangway:stack": ["demo"],
        "tag-key": ["aws:autoscaling:groupName"],
        "instance-state-name": ["running"],
    }


def test_every_target_is_named_by_what_a_person_asks_for() -> None:
    rules = scrape(render_prometheus("demo", "us-east-2", port=9400))["relabel_configs"]
    labels = {rule["target_label"]: rule["source_labels"] for rule in rules}
    assert labels == {
        "instance": ["__meta_ec2_instance_id"],
        "zone": ["__meta_ec2_availability_zone"],
        "machine_type": ["__meta_ec2_instance_type"],
        # Prometheus writes an underscore for every character of a tag's key that a label cannot hold.
        "stack": ["__meta_ec2_tag_" + re.sub(r"[^a-zA-Z0-9_]", "_", "gangway:stack")],
        "group": ["__meta_ec2_tag_" + re.sub(r"[^a-zA-Z0-9_]", "_", "aws:autoscaling:groupName")],
    }


@given(stack=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40))
def test_any_name_stays_one_value(stack: str) -> None:
    """Names of stacks are narrower still; quotes and colons show that the value is quoted for YAML."""
    (discovery,) = scrape(render_prometheus(stack, "us-east-2", port=9400))["ec2_sd_configs"]
    assert discovery["filters"][0]["values"] == [stack]


PORTS: dict[str, Any] = {"port": 9400, "exporters": EXPORTER_PORTS}
WITH_EXPORTERS = {
    "aws": render_prometheus("demo", "us-east-2", **PORTS),
    "gce": render_prometheus_gce("demo", "my-project", ["us-central1-a"], **PORTS),
    "azure": render_prometheus_azure("demo", (f"{7:036}", "demo"), f"{8:036}", **PORTS),
    "static": render_prometheus_static("demo", ["10.0.0.1", "fd00::1"], **PORTS),
}


@pytest.mark.parametrize("kind", WITH_EXPORTERS)
def test_exporters_are_found_like_the_trainer_at_their_ports(kind: str) -> None:
    config = yaml.safe_load(WITH_EXPORTERS[kind])
    trainer, *others = config["scrape_configs"]
    assert trainer == scrape(yaml.safe_dump({"scrape_configs": [trainer]}))
    assert [one["job_name"] for one in others] == list(EXPORTER_PORTS)
    for one in others:
        text = yaml.safe_dump(one).replace(one["job_name"], "gangway-trainer")
        assert yaml.safe_load(text.replace(str(EXPORTER_PORTS[one["job_name"]]), "9400")) == trainer
    assert config["rule_files"] == ["/etc/prometheus/alerts.yml"]


@pytest.mark.parametrize("text", [render_prometheus("demo", "us-east-2", port=9400), *WITH_EXPORTERS.values()])
def test_promtool_accepts_it(text: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on this machine (Debian: prometheus)")
    path, alerts = tmp_path / "prometheus.yml", tmp_path / "alerts.yml"
    path.write_text(text.replace("/etc/prometheus/alerts.yml", str(alerts)))
    alerts.write_text(yaml.safe_dump(alert_rules(STACK)))
    done = subprocess.run([promtool, "check", "config", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_golden(dashboard: dict[str, Any], same_as_golden: Callable[[str, str], None]) -> None:
    """The golden file has the first two panels whole, and of each panel what is its own."""
    panels = dashboard["panels"]
    own = {
        f"{panel['title']} ({panel['fieldConfig']['defaults']['unit']})": {
            target["legendFormat"]: target["expr"] for target in panel["targets"]
        }
        for panel in panels
    }
    golden = {**dashboard, "panels": panels[:2], "queries": own}
    same_as_golden("grafana-dashboard.json", json.dumps(golden, indent=2) + "\n")
    assert grafana_dashboard() == json.dumps(dashboard, indent=2) + "\n"


def test_panels_differ_only_in_what_they_show_and_where(dashboard: dict[str, Any]) -> None:
    first, *others = dashboard["panels"]
    (first_target,) = first["targets"]
    for number, panel in enumerate(others, start=2):
        row, column = divmod(number - 1, 2)
        targets = [
            {**first_target, "refId": letter, **{key: target[key] for key in ("expr", "legendFormat")}}
            for letter, target in zip("ABCDEF", panel["targets"], strict=False)
        ]
        assert panel == {
            **first,
            "id": number,
            "title": panel["title"],
            "gridPos": {"x": 12 * column, "y": 8 * row, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": panel["fieldConfig"]["defaults"]["unit"]}, "overrides": []},
            "targets": targets,
        }


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_every_gauge_of_the_trainer_is_shown_and_none_that_it_lacks(dashboard: dict[str, Any]) -> None:
    """The trainer's table is read by another process, which also shows that reading it loads no torch."""
    program = (
        "import sys, json; from gangway.trainer.telemetry.prometheus import GAUGES; "
        "print(json.dumps([sorted(gauge.name for gauge in GAUGES.values()), 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    gauges, torch = json.loads(done.stdout)
    shown = {name for text in expressions(dashboard) for name in re.findall(rf"{PREFIX}(\w+)", text)}
    assert sorted(shown) == gauges
    assert not torch


@pytest.mark.parametrize("own", [TRAINER, HARDWARE], ids=lambda own: own.uid)
def test_every_query_asks_for_the_chosen_stack_and_data_source(own: Dashboard) -> None:
    dashboard: dict[str, Any] = json.loads(grafana_dashboard(own))
    assert len(expressions(dashboard)) > 10
    for text in expressions(dashboard):
        assert re.search(r'\w\{stack="\$stack"\}', text), text
    source, stack = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert (stack["name"], stack["type"]) == ("stack", "query")
    assert stack["query"] == f"label_values({own.stacks}, stack)"


def test_the_dashboard_has_what_grafanas_model_asks_for(dashboard: dict[str, Any]) -> None:
    assert isinstance(dashboard["schemaVersion"], int)
    assert dashboard["uid"]
    assert dashboard["title"]
    assert "id" not in dashboard, "Grafana gives it"
    assert {"from", "to"} == dashboard["time"].keys()
    ids = [panel["id"] for panel in dashboard["panels"]]
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("own", [TRAINER, HARDWARE], ids=lambda own: own.uid)
def test_grafanas_published_model_keeps_all_of_it(own: Dashboard) -> None:
    """Its reader drops what it does not know: the text of a query in the picker, which Grafana itself writes."""
    reason = "grafana-foundation-sdk is not installed"
    model = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason=reason)
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder()
    written = json.loads(grafana_dashboard(own))
    read = json.loads(encoder.encode(model.Dashboard.from_json(written)))
    assert list(_lost(written, read)) == [("templating", "list", 1, "definition")]


def _lost(written: Any, read: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(written, dict | list):
        items = written.items() if isinstance(written, dict) else enumerate(written)
        for key, value in items:
            if isinstance(written, dict) and key not in read:
                yield (*place, key)
            else:
                yield from _lost(value, read[key], (*place, key))
    elif written != read:
        yield place


@pytest.mark.parametrize(("words", "own"), [([], TRAINER), (["hardware"], HARDWARE)])
def test_the_module_prints_the_dashboard(words: list[str], own: Dashboard) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gangway.images.observability", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == grafana_dashboard(own)
