"""Machines on Azure as systemd and their settings see them: what starts what, what is planned and refused."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gangway.components.azure.fabric import plan_fabric
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.images.azure import AzureHeadSpec, AzureNodeSpec, FabricSetup, azure_env_text, fabric_env_text
from gangway.images.specs import FileSystem

ETC = "/etc/systemd/system/"


def test_what_a_worker_prepares_is_what_was_planned(
    unit: Any, steps: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec
) -> None:
    first = ["check-gpu.sh", "check-ib.sh", "mount-scratch.sh", "fetch-key.sh", "install-docker.sh"]
    assert steps(azure_node) == [*first, "mount-lustre.sh", "pull-image.sh"]
    assert steps(azure_plain_node) == ["check-gpu.sh", "install-docker.sh", "pull-image.sh"]
    assert unit(azure_node, "gangway-prepare.service", "Restart") == [], "a worker is given up, not prepared again"
    (after,) = unit(azure_node, "gangway-prepare.service", "After")
    assert {"nvme-raid.service", "sku-customizations.service"} <= set(after.split())


@pytest.mark.parametrize(("shutdown_sec", "stop_sec"), [(25, 30), (10, 25), (29, 30), (60, 61)])
def test_an_evicted_machines_30_seconds_are_kept(
    unit: Any, azure_node: AzureNodeSpec, shutdown_sec: int, stop_sec: int
) -> None:
    changed = replace(azure_node, job=azure_node.job.model_copy(update={"shutdown_timeout_sec": shutdown_sec}))
    assert unit(changed, "gangway-trainer.service", "TimeoutStopSec") == [str(stop_sec)]


def test_a_run_on_the_machines_own_disk_has_time_to_be_put(unit: Any, azure_plain_node: AzureNodeSpec) -> None:
    (stop_sec,) = unit(azure_plain_node, "gangway-trainer.service", "TimeoutStopSec")
    assert "RESULTS_SEC=300\n" in azure_env_text(azure_plain_node)
    assert int(stop_sec) >= 300 + 30


def test_lines_are_sent_where_a_table_is_planned(
    unit: Any, machines: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec
) -> None:
    (command,) = unit(azure_node, "gangway-logs.service", "ExecStart")
    shipped = "gangway-prepare.service gangway-trainer.service"
    url = azure_node.ingestion_url
    assert command == f'/usr/bin/python3 -m gangway.images.node.azure.logs "{url}" worker {shipped}'
    (given,) = unit(azure_node, "gangway-logs.service", "Environment")
    assert given == f"PYTHONPATH=/opt/gangway/lib GANGWAY_CLIENT_ID={azure_node.client_id}"
    files = machines.files_of(machines.rendered(azure_plain_node))
    assert f"{ETC}gangway-logs.service" not in files
    assert not [path for path in files if path.endswith(("ship.py", "lines.py"))]


def test_every_machine_says_that_it_lives(
    unit: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    tell = "/usr/bin/python3 -m gangway.images.node.azure.heartbeat"
    for spec, role in ((azure_node, "worker"), (azure_head, "head")):
        assert unit(spec, "gangway-alive.service", "ExecStart") == [f'{tell} {role} "{spec.ingestion_url}"']
    assert unit(azure_plain_node, "gangway-alive.service", "ExecStart") == [f"{tell} worker"]


def test_a_machines_python_is_all_there(
    machines: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    """Whatever a module imports of ours is on the machine too."""
    place = "/opt/gangway/lib/"
    for spec in (azure_node, azure_plain_node, azure_head):
        files = machines.files_of(machines.rendered(spec))
        for path, (_, text) in files.items():
            if path.startswith(place):
                wanted = re.findall(r"^from (images\.\S+) import", text, re.MULTILINE)
                assert {f"{place}{name.replace('.', '/')}.py" for name in wanted} <= files.keys(), path


def test_the_head_fills_and_puts_what_it_is_told(unit: Any, azure_head: AzureHeadSpec, machines: Any) -> None:
    (fill,) = unit(azure_head, "gangway-fill.service", "ExecStart")
    ended = f"https://gwdemo.blob.core.windows.net/runs/demo/{azure_head.ended_object}"
    held = f"https://gwdemo.blob.core.windows.net/runs/demo/{azure_head.job.name}/breaker/held.json"
    assert fill.split()[-3:] == ["/etc/gangway/fallback.json", ended, held]
    files = machines.files_of(machines.rendered(azure_head))
    assert "def reconcile(" in files["/opt/gangway/lib/gangway/images/node/fill_order.py"][1]
    assert json.loads(files["/etc/gangway/fallback.json"][1]) == azure_head.fallback
    started = yaml.safe_load(machines.rendered(azure_head))["runcmd"][1][3:]
    services = ["rendezvous", "prometheus", "alive", "logs"]
    timers = ["gangway-record.timer", "gangway-fill.timer"]
    assert started == [*(f"gangway-{name}.service" for name in services), *timers]


def test_a_head_that_only_keeps_the_rendezvous(azure_head: AzureHeadSpec, machines: Any) -> None:
    plain = replace(azure_head, file_system=None, prometheus_image=None, fallback=None)
    started = yaml.safe_load(machines.rendered(plain))["runcmd"][1][3:]
    assert started == ["gangway-rendezvous.service", "gangway-alive.service", "gangway-logs.service"]
    assert not [path for path in machines.files_of(machines.rendered(plain)) if "fill" in path]


def test_who_fills_and_who_has_ended_mean_the_same_blob(azure_head: AzureHeadSpec, azure_node: AzureNodeSpec) -> None:
    assert azure_head.ended_object == azure_node.ended_object
    assert replace(azure_node, max_hours=9).ended_object != azure_node.ended_object


def test_prometheus_finds_the_workers_of_its_stack_alone(azure_head: AzureHeadSpec, machines: Any) -> None:
    _, text = machines.files_of(machines.rendered(azure_head))["/etc/gangway/prometheus.yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (found,) = job["azure_sd_configs"]
    assert (found["subscription_id"], found["resource_group"]) == (azure_head.subscription_id, "demo-rg")
    assert (found["authentication_method"], found["client_id"], found["port"]) == (
        "ManagedIdentity",
        azure_head.client_id,
        9400,
    )
    first, *_, last = job["relabel_configs"]
    assert first == {"source_labels": ["__meta_azure_machine_scale_set"], "regex": ".+", "action": "keep"}
    assert last == {"target_label": "stack", "replacement": "demo"}


@pytest.mark.parametrize("size", ["Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"])
def test_a_setup_is_made_of_a_plan(size: str) -> None:
    """The names of a plan that a setup takes; values keep their meaning."""
    machine = load_provider("azure").machine(size, "machine_type")
    assert isinstance(machine, AzureMachineType)
    plan = plan_fabric(machine)
    setup = FabricSetup(
        num_hcas=plan.num_hcas,
        gbps_each=plan.gbps_each,
        devices=plan.devices,
        kernel_modules=plan.kernel_modules,
        topology_file=plan.topology_file or "",
        nccl_conf=plan.nccl_conf,
    )
    text = fabric_env_text(setup)
    assert f"HCA_GBPS={plan.gbps_each}\n" in text
    for name, value in plan.nccl_conf.items():
        assert f"    {name}={value}\n" in text


def test_what_a_machine_would_find_out_too_late_is_refused(
    azure_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    tagged = azure_node.job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.job\.image: 'example/gangway:v1' can change"):
        replace(azure_node, job=tagged)
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.job\.env: InfiniBand without NCCL_NET"):
        replace(azure_node, job=azure_node.job.model_copy(update={"env": {}}))
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.file_system: 'nfs'; allowed: 'lustre'"):
        replace(azure_node, file_system=FileSystem("nfs", "10.0.0.2:/share", "/shared"))
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.max_hours: 0"):
        replace(azure_node, max_hours=0)
    with pytest.raises(ValueError, match=r"AzureHeadSpec\.prometheus_image: 'prom/prometheus'"):
        replace(azure_head, prometheus_image="prom/prometheus")
