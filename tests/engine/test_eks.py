"""A cluster with a queue under the real Pulumi engine: up, the same again, larger, and gone, what runs inside first."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
STACK = "eks-p5-kueue"
CLUSTER = "aws:eks/cluster:Cluster"
POOL = "aws:autoscaling/group:Group"


def test_it_lives_and_leaves_nothing_behind(make_engine: Callable[[str], Any], queue_life: Any) -> None:
    """One life for all phases: each `up` from nothing would cost as much as all of them."""
    engine = make_engine(STACK)
    preview = engine.run("preview")
    assert preview.status == 0, preview.text
    assert set(preview.changes) == {"create"}
    assert "gangway:engine.api_cidrs" in preview.text, "findings of severity info are seen too"
    assert engine.resources() == []

    it_is_reached(engine, queue_life.up(engine, charts=8))
    queue_life.the_same_again(engine)
    queue_life.larger(engine, 16, POOL)
    destroy = queue_life.gone(engine, CLUSTER)
    groups = queue_life.last(destroy.ended("delete"), f"${POOL}::")
    assert groups < queue_life.first(destroy.began("delete"), "$aws:iam/rolePolicyAttachment:")


def it_is_reached(engine: Any, exports: dict[str, Any]) -> None:
    config = json.loads(exports["kubeconfig"])
    [cluster] = [each for each in engine.resources() if each["type"] == CLUSTER]
    assert config["clusters"][0]["cluster"]["server"] == cluster["outputs"]["endpoint"]
    [template] = [
        each
        for each in engine.resources()
        if each["type"] == "aws:ec2/launchTemplate:LaunchTemplate" and each["urn"].endswith("-0-spot")
    ]
    security = {group for interface in template["inputs"]["networkInterfaces"] for group in interface["securityGroups"]}
    assert cluster["outputs"]["vpcConfig"]["clusterSecurityGroupId"] in security
