"""SlurmIdentity: what a controller and its nodes may do, and nobody else's machines."""

import json
from typing import Any

import pytest

from gangway.components.aws.network import plan_flows, plan_rules
from gangway.components.aws.slurm import NODE_TAG, SlurmIdentity, slurm_head_policy, slurm_node_policy
from gangway.components.core.limits import SlurmPortsArgs
from gangway.images.node.aws import slurm_scaler
from tests.components.fixture_types import Make

PORTS: SlurmPortsArgs = {"controller_port": 6817, "node_port": 6818, "client_ports": [60001, 60100]}


def by_sid(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {statement["Sid"]: statement for statement in document["Statement"]}


def test_a_controller_names_machines_of_its_stack_and_changes_no_other_tag() -> None:
    statements = by_sid(slurm_head_policy("arn:aws-cn:ssm:x", "demo"))
    assert statements["NameMachines"]["Action"] == ["ec2:CreateTags"]
    assert statements["NameMachines"]["Resource"] == "arn:aws-cn:ec2:*:*:instance/*"
    assert statements["NameMachines"]["Condition"] == {
        "StringEquals": {"aws:ResourceTag/gangway:stack": "demo"},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["gangway:slurm-node"]},
    }
    assert NODE_TAG == slurm_scaler.NODE_TAG
    assert set(statements) == {"FindGroups", "FindMachines", "Sizes", "NameMachines", "SessionManager", "MungeKey"}


def test_a_node_sizes_nothing_and_ends_nobody() -> None:
    statements = by_sid(slurm_node_policy("arn:munge", "demo"))
    assert set(statements) == {"FindOwnGroup", "OwnGroups", "SessionManager", "MungeKey"}
    assert set(statements["OwnGroups"]["Action"]) == {
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "autoscaling:SetInstanceHealth",
    }


@pytest.mark.parametrize("role", ["head", "node"])
def test_role_and_profile(make: Make, role: str) -> None:
    made = make(SlurmIdentity, role=role)
    policy = json.loads(made.one("RolePolicy").inputs["policy"])
    assert ("Sizes" in by_sid(policy)) == (role == "head")
    assert by_sid(policy)["MungeKey"]["Resource"].endswith("/munge-key")
    assert by_sid(policy)["UseKey"]["Action"] == ["kms:Decrypt"]
    assert made.one("InstanceProfile").inputs["role"] == f"${{Role.demo-slurm-{role}.name}}"


def test_a_controller_and_its_nodes_reach_each_other_and_nobody_else_reaches_them() -> None:
    rules = {
        (rule.group, rule.name, rule.peer, rule.from_port, rule.to_port)
        for rule in plan_rules(plan_flows("10.0.0.0/16", None, False, PORTS))
        if rule.direction == "ingress"
    }
    assert rules == {
        ("fabric", "self", "fabric", None, None),
        ("head", "slurmctld", "fabric", 6817, 6817),
        ("head", "srun", "fabric", 60001, 60100),
        ("fabric", "slurmd", "head", 6818, 6818),
    }


def test_a_controller_mounts_the_file_system_where_there_is_one() -> None:
    flows = plan_flows("10.0.0.0/16", None, False, {**PORTS, "lustre": True})
    assert {("head", "fabric", (988, 988)), ("fabric", "head", (988, 988))} <= {
        (flow.source, flow.target, flow.ports) for flow in flows
    }
