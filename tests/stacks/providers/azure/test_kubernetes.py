"""A stack with `engine: kubernetes` on Azure: what is declared, what it costs by the nodes that are up, and what AKS or
the queue cannot do.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from gangway.components.azure.aks import PODS_CIDR, pool_name
from gangway.components.core.findings import InputError
from gangway.components.kubernetes.spec import GPU, INFINIBAND, JOBS_ONLY, POOL_LABEL
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.azure.kubernetes import get_kubeconfig
from gangway.stacks.providers.azure.plan import SPOT_KEY, plan, priorities
from gangway.stacks.recording import PlannedResource, Recording

NDV5 = "aks-ndv5"
Edited = Callable[..., StackConfig]


def of(recording: Recording, kind: str) -> list[PlannedResource]:
    return sorted((one for one in recording.resources if one.type.endswith(f":{kind}")), key=lambda one: one.name)


@pytest.fixture(scope="module")
def made(azure_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> Recording:
    return recorded(azure_edited(NDV5))


@pytest.fixture(scope="module")
def planned(azure_edited: Edited) -> Plan:
    return make_plan(azure_edited(NDV5))


def test_nothing_of_one_job_is_there(made: Recording) -> None:
    assert not of(made, "VirtualMachine")
    assert not of(made, "VirtualMachineScaleSet")
    assert made.result["queues"] == ["vision", "speech"]


def test_every_pool_is_for_jobs_alone_and_begins_at_nothing(made: Recording) -> None:
    spot, demanded = (one.inputs for one in of(made, "AgentPool"))
    for inputs in (spot, demanded):
        assert (inputs["minCount"], inputs["maxCount"], inputs["count"]) == (0, 4, 0)
        assert f"{JOBS_ONLY}=true:NoSchedule" in inputs["nodeTaints"]
        assert inputs["nodeLabels"][POOL_LABEL] == "jobs"
        assert inputs["nodeLabels"][f"{GPU}.present"] == "true"
    assert spot["scaleSetPriority"] == "Spot"


def test_jobs_and_plugins_are_let_onto_spot_nodes(made: Recording) -> None:
    (flavor,) = of(made, "ResourceFlavor")
    tolerated = {one["key"] for one in flavor.inputs["spec"]["tolerations"]}
    assert tolerated == {JOBS_ONLY, SPOT_KEY}
    plugins = [
        one.inputs for one in of(made, "Release") if one.inputs["name"] in ("nvidia-device-plugin", "dcgm-exporter")
    ]
    assert len(plugins) == 2
    for inputs in plugins:
        assert {one["key"] for one in inputs["values"]["tolerations"]} == {JOBS_ONLY, SPOT_KEY}


def test_pods_are_given_infiniband(made: Recording) -> None:
    (operator,) = (one.inputs for one in of(made, "Release") if one.inputs["name"] == "network-operator")
    (policy,), (pods,) = of(made, "NicClusterPolicy"), of(made, "DaemonSet")
    workers = operator["values"]["node-feature-discovery"]["worker"]
    for tolerated in (workers, policy.inputs["spec"], pods.inputs["spec"]["template"]["spec"]):
        assert {one["key"] for one in tolerated["tolerations"]} == {JOBS_ONLY, SPOT_KEY}
    for one in of(made, "AgentPool"):
        assert one.inputs["tags"]["k8s.io_cluster-autoscaler_node-template_resources_rdma_infiniband"] == "8"
    for queue in of(made, "ClusterQueue"):
        (group,) = queue.inputs["spec"]["resourceGroups"]
        assert INFINIBAND in group["coveredResources"]


def test_a_single_node_has_no_infiniband(azure_edited: Edited, recorded: Callable[..., Recording]) -> None:
    alone = recorded(azure_edited(NDV5, cluster={"nodes": {"min": 0, "max": 1}}, engine={"teams": []}))
    assert not of(alone, "NicClusterPolicy")
    assert not of(alone, "DaemonSet")


def test_the_ladders_order_is_what_the_autoscaler_reads(azure_edited: Edited, made: Recording) -> None:
    (order,) = (one for one in of(made, "ConfigMap") if one.inputs["metadata"]["namespace"] == "kube-system")
    assert order.inputs["metadata"] == {"name": "cluster-autoscaler-priority-expander", "namespace": "kube-system"}
    ladder = yaml.safe_load(order.inputs["data"]["priorities"])
    assert {type(rank) for rank in ladder} == {int}, "the autoscaler takes nothing else"
    pools = [one.inputs["agentPoolName"] for one in of(made, "AgentPool")]
    for rank, pool in zip(sorted(ladder, reverse=True), pools, strict=True):
        # As AKS names the scale set of a pool.
        assert re.fullmatch(ladder[rank][0], f"aks-{pool}-12345678-vmss")
    config = azure_edited(NDV5, cluster={"capacity": [{"kind": "on-demand"}]})
    assert yaml.safe_load(priorities(config)["priorities"]) == {1: [f".*-{pool_name(0, 'on-demand')}-.*"]}


def test_the_subnet_lets_pods_talk(made: Recording) -> None:
    (group,) = of(made, "NetworkSecurityGroup")
    rules = {one["name"]: one for one in group.inputs["securityRules"]}
    assert (rules["pods"]["sourceAddressPrefix"], rules["pods"]["destinationAddressPrefix"]) == (PODS_CIDR, PODS_CIDR)
    assert rules["nodes-pods"]["destinationAddressPrefix"] == PODS_CIDR
    assert rules["nodes"]["sourceAddressPrefix"] == rules["nodes"]["destinationAddressPrefix"]
    assert rules["refuse-inbound"]["access"] == "Deny"


def test_costs_are_counted_where_aks_makes_its_machines(made: Recording) -> None:
    (budget,) = of(made, "Budget")[-1:]
    assert budget.inputs["scope"] == "/subscriptions/11111111-0000-0000-0000-111111111111"
    (workflow,) = of(made, "Workflow")
    parameters = workflow.inputs["parameters"]
    assert parameters["group"]["value"] == "/subscriptions/11111111-0000-0000-0000-111111111111"
    assert parameters["clusters"]["value"] == [of(made, "ManagedCluster")[0].id]
    assert parameters["sets"]["value"] == []


def test_disks_are_under_the_stacks_key(made: Recording) -> None:
    (cluster,) = of(made, "ManagedCluster")
    assert cluster.inputs["diskEncryptionSetID"] == of(made, "DiskEncryptionSet")[0].id
    assert cluster.inputs["autoScalerProfile"]["scaleDownUnneededTime"] == "20m"


def test_it_is_priced_by_the_nodes_that_are_up(planned: Plan) -> None:
    none, one, all_up = (planned.hourly_with(nodes) for nodes in (0, 1, 4))
    assert none is not None
    assert one is not None
    assert all_up is not None
    node = 18.17 + 38.012142 / 730
    assert one - none == pytest.approx(node)
    assert all_up - none == pytest.approx(4 * node)
    names = {line.name for line in planned.cost.components}
    assert f"{NDV5}-cluster: control plane" in names


def test_findings_name_surprising_limits(planned: Plan) -> None:
    codes = {finding.code for finding in planned.findings}
    assert codes >= {"kubernetes.api", "kubernetes.budget-scope", "fabric.aks-feature", "capacity.pools-fill"}
    assert codes >= {"fabric.infiniband-in-pods", "fabric.rungs-apart"}
    assert (
        not {
            "job.nodes-stay",
            "capacity.head-fills",
            "capacity.rungs-apart",
            "cost.not-covered",
            "kubernetes.no-admins",
        }
        & codes
    )


def test_a_cluster_without_administrators_is_reported(azure_edited: Edited) -> None:
    made = make_plan(azure_edited(NDV5, azure={"admin_group_ids": None}))
    assert "kubernetes.no-admins" in {finding.code for finding in made.findings}


def test_the_kubeconfig_has_the_clusters_address_and_no_secret() -> None:
    cluster = {
        "name": "demo",
        "cluster": {"server": "https://demo.hcp.eastus.azmk8s.io:443", "certificate-authority-data": "Q0E="},
    }
    answered = {"clusters": [cluster], "users": [{"name": "u", "user": {"token": "SECRET"}}]}
    text = get_kubeconfig(b64encode(yaml.safe_dump(answered).encode()).decode())
    config = json.loads(text)
    assert config["clusters"] == [cluster]
    assert config["users"][0]["user"]["exec"]["command"] == "kubelogin"
    assert "SECRET" not in text
    assert config["contexts"][0]["name"] == config["current-context"] == "demo"


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"engine": {"kind": "kubernetes", "version": "1.20"}}, "engine.version"),
        ({"network": {"egress": "endpoints"}}, "network.egress"),
        ({"storage": {"kind": "lustre", "capacity_gib": 8192, "throughput_mbps_per_tib": 500}}, "gangway:storage"),
        ({"cluster": {"image_id": "microsoft-dsvm:ubuntu-hpc:2404"}}, "cluster.image_id"),
        ({"azure": {"private_endpoints": True}}, "azure.private_endpoints"),
        ({"engine": {"teams": [{"name": "kube-system", "nodes": 1}]}}, "engine.teams[0].name"),
    ],
)
def test_what_cannot_be_is_refused(azure_edited: Edited, changes: Mapping[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(azure_edited(NDV5, **changes))
    assert caught.value.place.endswith(place)
    assert caught.value.fix
