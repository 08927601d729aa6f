"""A cluster with a queue under the real Pulumi engine: up, the same again, larger, and gone, what runs inside first."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STACK = "eks-p5-kueue"
CLUSTER = "aws:eks/cluster:Cluster"


def test_it_lives_and_leaves_nothing_behind(make_engine: Callable[[str], Any]) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    engine = make_engine(STACK)
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert "gangway:engine.api_cidrs" in preview.text, "findings of severity info are seen too"
    assert engine.resources() == []

    engine.applied("up")
    everything_stands(engine)
    again = engine.applied("up", "--expect-no-changes")
    assert set(again.changes) == {"same"}
    engine.applied("refresh", "--expect-no-changes")

    engine.change(lambda config: config["gangway:cluster"]["nodes"].update(max=16))
    larger = engine.applied("up")
    assert set(larger.changes) <= {"same", "update"}, larger.text
    assert {"aws:autoscaling/group:Group", "kubernetes:kueue.x-k8s.io/v1beta2:Cohort"} <= larger.types("update")

    destroy = engine.applied("destroy")
    what_runs_inside_goes_before_the_cluster(destroy)
    assert engine.resources() == []


def everything_stands(engine: Any) -> None:
    exports = json.loads(engine.plain("stack", "output", "--json"))
    assert exports["queues"] == ["vision", "speech"]
    config = json.loads(exports["kubeconfig"])
    [cluster] = [each for each in engine.resources() if each["type"] == CLUSTER]
    assert config["clusters"][0]["cluster"]["server"] == cluster["outputs"]["endpoint"]
    inside = [each["type"] for each in engine.resources() if each["type"].startswith("kubernetes:")]
    assert inside.count("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue") == 2
    assert inside.count("kubernetes:helm.sh/v3:Release") == 8
    [template] = [
        each
        for each in engine.resources()
        if each["type"] == "aws:ec2/launchTemplate:LaunchTemplate" and each["urn"].endswith("-0-spot")
    ]
    security = {group for interface in template["inputs"]["networkInterfaces"] for group in interface["securityGroups"]}
    assert cluster["outputs"]["vpcConfig"]["clusterSecurityGroupId"] in security


def what_runs_inside_goes_before_the_cluster(destroy: Any) -> None:
    """Or nobody would be left to take it away; and queues go before the flavors that they use."""
    ended, began = destroy.ended("delete"), destroy.began("delete")

    def last(words: str) -> int:
        return int(max(place for urn, place in ended.items() if words in urn))

    def first(words: str) -> int:
        return int(min(place for urn, place in began.items() if words in urn))

    assert last("$kubernetes:") < first(f"${CLUSTER}::")
    assert last(":ClusterQueue::") < first(":ResourceFlavor::")
    assert last(":LocalQueue::") < first(":Namespace::")
    assert last(":ClusterQueue::") < first(":Release::"), "Kueue sees them go"
    assert last("$aws:autoscaling/group:Group::") < first("$aws:iam/rolePolicyAttachment:")
