"""Slurm clusters on AWS: resources, user data, findings and refused settings."""

import base64
import copy
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import Finding, InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="session")
def slurm_values(repo: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((repo / "stacks" / "Pulumi.aws-p5-slurm.yaml").read_text())["config"]
    return values


@pytest.fixture
def config_with(slurm_values: dict[str, Any], tmp_path: Path) -> Callable[[Edit], StackConfig]:
    """The shipped stack with changes."""

    def make(edit: Edit) -> StackConfig:
        values = copy.deepcopy(slurm_values)
        edit(values)
        path = tmp_path / "Pulumi.queue.yaml"
        path.write_text(yaml.safe_dump({"config": values}))
        return from_file(path)

    return make


@pytest.fixture(scope="session")
def slurm_plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks" / "Pulumi.aws-p5-slurm.yaml"))


def section(name: str, **changes: Any) -> Edit:
    return lambda values: values.setdefault(f"gangway:{name}", {}).update(changes)


def of(made: Plan, kind: str) -> list[Any]:
    return [one for one in made.resources if one.type.endswith(f":{kind}") and one.type.startswith("aws:")]


def files(user_data: str) -> dict[str, str]:
    document = yaml.safe_load(gzip.decompress(base64.b64decode(user_data)))
    return {file["path"]: file["content"] for file in document["write_files"]}


def by_code(made: Plan) -> dict[str, Finding]:
    return {finding.code: finding for finding in made.findings}


def test_every_group_starts_empty_and_may_hold_all_nodes(slurm_plan: Plan) -> None:
    groups = of(slurm_plan, "Group")
    assert [(group.inputs["minSize"], group.inputs["maxSize"]) for group in groups] == [(0, 8), (0, 8)]
    assert all(group.inputs.get("desiredCapacity") is None for group in groups)
    assert all(group.inputs["terminationPolicies"] == ["NewestInstance"] for group in groups)
    assert not any("fill" in alarm.name for alarm in of(slurm_plan, "MetricAlarm"))


def test_nodes_read_their_name_and_the_controller_does_not(slurm_plan: Plan) -> None:
    templates = of(slurm_plan, "LaunchTemplate")
    tags = {one.name: one.inputs.get("metadataOptions", {}).get("instanceMetadataTags") for one in templates}
    assert tags == {
        "aws-p5-slurm-0-spot": "enabled",
        "aws-p5-slurm-1-on-demand": "enabled",
        "aws-p5-slurm-head": None,
    }


def test_the_controller_knows_the_ladder_the_machine_and_the_teams(slurm_plan: Plan) -> None:
    (head,) = of(slurm_plan, "Instance")
    found = files(head.inputs["userDataBase64"])
    conf = found["/etc/slurm/slurm.conf"]
    assert re.findall(r"^PartitionName=(\S+)", conf, re.MULTILINE) == ["spot", "on-demand"]
    assert "NodeName=spot-n[1-8] CPUs=192 RealMemory=1992294 Gres=gpu:h100:8" in conf
    assert "SuspendTime=900\n" in conf
    assert "StateSaveLocation=/fsx/.gangway/slurm/state\n" in conf
    assert "set fairshare=4 " in found["/etc/gangway/slurm-accounts"]
    scaler = json.loads(found["/etc/gangway/slurm-scaler.json"])
    assert (scaler["most"], [rung["count"] for rung in scaler["rungs"]]) == (8, [8, 8])
    groups = [group.id for group in of(slurm_plan, "Group")]
    assert len(groups) == len({rung["group"] for rung in scaler["rungs"]})


def test_the_old_controller_ends_before_the_new_one_starts(slurm_plan: Plan) -> None:
    (head,) = of(slurm_plan, "Instance")
    assert head.delete_before_replace


def test_both_have_the_key_by_name_alone_and_the_nodes_what_they_must_find(slurm_plan: Plan) -> None:
    (head,) = of(slurm_plan, "Instance")
    node = next(one for one in of(slurm_plan, "LaunchTemplate") if one.name == "aws-p5-slurm-0-spot")
    head_files, node_files = files(head.inputs["userDataBase64"]), files(node.inputs["userData"])
    for found in (head_files, node_files):
        assert "MUNGE_KEY=" in found["/etc/gangway/node.env"]
    env = node_files["/etc/gangway/node.env"]
    assert "EFA_INTERFACES_PLANNED=32\n" in env
    assert "GPUS_PLANNED=8\n" in env
    assert "SLURM_HEAD=head.aws-p5-slurm.gangway.internal:6817\n" in env


def test_only_the_cluster_reaches_its_ports(slurm_plan: Plan) -> None:
    ingress = [one.inputs for one in of(slurm_plan, "SecurityGroupIngressRule")]
    assert {6817, 6818, 60001} <= {rule.get("fromPort") for rule in ingress}
    assert 29400 not in {rule.get("fromPort") for rule in ingress}, "there is no rendezvous"
    assert not any(rule.get("cidrIpv4") for rule in ingress)


def test_what_it_costs_without_work_is_no_node(slurm_plan: Plan) -> None:
    assert slurm_plan.to_json()["job"] is None
    standing = slurm_plan.to_json()["cost"]["standing"]
    assert standing["no_nodes_hourly"] == standing["nodes_min_hourly"] < 10 < standing["nodes_max_hourly"]


def test_nodes_that_are_always_up_are_slurms(config_with: Callable[[Edit], StackConfig]) -> None:
    made = make_plan(config_with(lambda values: values["gangway:cluster"].update(nodes={"min": 2, "max": 8})))
    assert [group.inputs["minSize"] for group in of(made, "Group")] == [0, 0]
    (head,) = of(made, "Instance")
    found = files(head.inputs["userDataBase64"])
    assert "SuspendExcNodes=spot-n[1-2]\n" in found["/etc/slurm/slurm.conf"]
    assert [rung["nodes_up"] for rung in json.loads(found["/etc/gangway/slurm-scaler.json"])["rungs"]] == [2, 0]


def test_one_node_is_a_cluster_too(config_with: Callable[[Edit], StackConfig]) -> None:
    def one(values: dict[str, Any]) -> None:
        values["gangway:cluster"].update(nodes={"min": 0, "max": 1})
        values["gangway:engine"] = {"kind": "slurm"}

    made = make_plan(config_with(one))
    assert len(of(made, "Instance")) == 1
    assert not [finding for finding in made.findings if finding.severity is Severity.ERROR]


@pytest.mark.slow
def test_what_a_person_should_know(slurm_plan: Plan, config_with: Callable[[Edit], StackConfig]) -> None:
    found = by_code(slurm_plan)
    assert "spot, on-demand" in found["slurm.partitions"].message
    assert found["slurm.accounts"].severity is Severity.INFO
    assert "a new head restores it" in found["slurm.accounts"].message
    local = by_code(make_plan(config_with(lambda values: values.pop("gangway:storage"))))
    assert "lost when the head is replaced" in local["slurm.accounts"].message

    def bare(values: dict[str, Any]) -> None:
        del values["gangway:storage"]
        values["gangway:engine"] = {"kind": "slurm"}
        values["gangway:cluster"]["image_id"] = "ami-0123456789abcdef0"

    without = by_code(make_plan(config_with(bare)))
    assert without["slurm.no-shared-folder"].severity is Severity.WARNING
    assert without["slurm.image-release"].path == "gangway:cluster.image_id"
    assert "slurm.accounts" not in without


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (section("network", egress="endpoints"), "gangway:network.egress"),
        (section("tags", **{"cost center": "x"}), "gangway:tags"),
        (section("tags", **{"org/unit": "x"}), "gangway:tags"),
        (
            lambda values: values["gangway:cluster"].update(
                capacity=[{"kind": "spot", "machine_types": ["p5.48xlarge", "p5en.48xlarge"]}]
            ),
            "gangway:cluster.capacity[0].machine_types",
        ),
    ],
)
def test_what_would_keep_machines_from_becoming_nodes_is_refused(
    config_with: Callable[[Edit], StackConfig], edit: Edit, path: str
) -> None:
    with pytest.raises(InputError) as refused:
        make_plan(config_with(edit))
    assert refused.value.place == path
    assert refused.value.fix


def test_what_nothing_would_read_is_refused(config_with: Callable[[Edit], StackConfig]) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        config_with(section("head", prometheus_image="docker.io/prom/prometheus:v3.7.3"))
    (mistake,) = refused.value.exceptions
    assert isinstance(mistake, InputError)
    assert mistake.place.endswith("gangway:head.prometheus_image")
