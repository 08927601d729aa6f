"""A stack with `engine: kubernetes` on Google Cloud: what is declared, what it costs by the nodes that are up, and what
GKE or the queue cannot do.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.kubernetes.spec import FABRIC, GPU, JOBS_ONLY, POOL_LABEL, TPU
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.gcp.plan import cluster_spec, flavor_labels, plan, tpu_host
from gangway.stacks.recording import PlannedResource, Recording

A3, POD = "gke-a3-jobset", "gke-tpu-v5e"
Edited = Callable[..., StackConfig]


def of(recording: Recording, kind: str) -> list[PlannedResource]:
    return sorted((one for one in recording.resources if one.type.endswith(f":{kind}")), key=lambda one: one.name)


@pytest.fixture(scope="module")
def a3(gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> Recording:
    return recorded(gcp_edited(A3))


@pytest.fixture(scope="module")
def a3_plan(gcp_edited: Edited) -> Plan:
    return make_plan(gcp_edited(A3))


def test_the_queue_is_there_and_nothing_of_one_job(a3: Recording) -> None:
    kinds = {one.type.rpartition(":")[2] for one in a3.resources if one.type.startswith("gangway:")}
    assert kinds == {
        "Budget", "ClusterCharts", "ClusterIdentity", "ClusterManifests", "Filestore", "GkeCluster", "GkeNodePools",
        "ImageRegistry", "ProjectServices", "RunBucket", "TrainingNetwork",
    }  # fmt: skip
    assert "job" not in a3.result
    services = {one.inputs["service"] for one in of(a3, "Service")}
    assert "container.googleapis.com" in services
    assert not {"tpu.googleapis.com", "secretmanager.googleapis.com"} & services


def test_every_pool_is_for_jobs_alone_and_begins_at_nothing(a3: Recording) -> None:
    pools = {one.name: one.inputs for one in of(a3, "NodePool")}
    assert set(pools) == {f"{A3}-0-spot", f"{A3}-1-on-demand", f"{A3}-system"}
    system = pools.pop(f"{A3}-system")
    assert "taints" not in system["nodeConfig"]
    for inputs in pools.values():
        assert inputs["autoscaling"]["minNodeCount"] == 0
        assert inputs["nodeConfig"]["taints"] == [{"key": JOBS_ONLY, "value": "true", "effect": "NO_SCHEDULE"}]
        assert inputs["nodeConfig"]["labels"][POOL_LABEL] == "jobs"
        nics = inputs["networkConfig"]["additionalNodeNetworkConfigs"]
        assert len(nics) == 8
        assert len({nic["network"] for nic in nics}) == 8, "each GPU NIC is in a network of its own"


def test_the_flavor_is_of_the_nodes_that_there_are(a3: Recording) -> None:
    (flavor,) = of(a3, "ResourceFlavor")
    wanted = flavor.inputs["spec"]["nodeLabels"].items()
    for pool in of(a3, "NodePool"):
        if not pool.name.endswith("-system"):
            assert wanted <= pool.inputs["nodeConfig"]["labels"].items()


def test_teams_have_what_the_stack_file_says(a3: Recording) -> None:
    shares = {}
    for queue in of(a3, "ClusterQueue"):
        (group,) = queue.inputs["spec"]["resourceGroups"]
        quotas = {one["name"]: one["nominalQuota"] for one in group["flavors"][0]["resources"]}
        shares[queue.inputs["metadata"]["name"]] = quotas[GPU]
    assert shares == {"vision": "32", "speech": "16"}
    assert a3.result["queues"] == ["vision", "speech"]
    assert not of(a3, "BucketIAMMember"), "a grant to pods would count in every cluster of the project"


def test_run_folders_are_on_the_file_system(a3: Recording) -> None:
    volumes = of(a3, "PersistentVolume")
    assert len(volumes) == 2
    for volume in volumes:
        attributes = volume.inputs["spec"]["csi"]["volumeAttributes"]
        assert attributes["volume"] == "gangway"
    assert of(a3, "Cluster")[0].inputs["addonsConfig"]["gcpFilestoreCsiDriverConfig"] == {"enabled": True}


def test_what_is_inside_waits_for_nodes_to_run_on(a3: Recording) -> None:
    (provider,) = [one for one in a3.resources if one.type == "pulumi:providers:kubernetes"]
    config = json.loads(provider.inputs["kubeconfig"])
    assert config["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    (system,) = [one for one in of(a3, "NodePool") if one.name.endswith("-system")]
    assert system.urn in provider.dependencies


def test_the_budget_empties_the_pools_of_jobs(a3: Recording) -> None:
    (workflow,) = of(a3, "Workflow")
    pools = json.loads(workflow.inputs["userEnvVars"]["NODE_POOLS"])
    assert [one.rpartition("/nodePools/")[2] for one in pools] == [f"{A3}-0-spot", f"{A3}-1-on-demand"]


@pytest.mark.slow
def test_the_key_of_the_stack_holds_secrets_and_disks(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    made = recorded(gcp_edited(A3, encryption="customer-key", storage=None))
    (cluster,) = of(made, "Cluster")
    assert cluster.inputs["databaseEncryption"]["state"] == "ENCRYPTED"
    assert all("bootDiskKmsKey" in one.inputs["nodeConfig"] for one in of(made, "NodePool"))
    users = {one.name for one in of(made, "CryptoKeyIAMMember")}
    assert f"{A3}-kubernetes" in users
    assert not {f"{A3}-tpu", f"{A3}-secretmanager"} & users


def test_it_is_priced_by_the_nodes_that_are_up(a3_plan: Plan) -> None:
    none, one, all_up = (a3_plan.hourly_with(nodes) for nodes in (0, 1, 8))
    assert none is not None
    assert one is not None
    assert all_up is not None
    disk = 200 * 0.10 / 730
    assert one - none == pytest.approx(50.19552 + disk)
    assert all_up - none == pytest.approx(8 * (50.19552 + disk))
    names = {line.name for line in a3_plan.cost.components}
    assert f"{A3}-cluster: control plane" in names
    assert f"{A3}-system: 1 x e2-standard-4, on-demand" in names


def test_a_slice_is_priced_by_its_chips(gcp_edited: Edited) -> None:
    made = make_plan(gcp_edited(POD))
    none, whole = made.hourly_with(0), made.hourly_with(1)
    assert none is not None
    assert whole is not None
    assert whole - none == pytest.approx(64 * 0.525363 + 16 * 200 * 0.11 / 730)
    assert made.rungs[1].hourly is not None
    assert made.rungs[0].hourly is not None
    assert made.rungs[1].hourly > made.rungs[0].hourly


def test_a_slice_is_a_pool_of_its_hosts(gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> None:
    made = recorded(gcp_edited(POD))
    slices = [one.inputs for one in of(made, "NodePool") if not one.name.endswith("-system")]
    assert len(slices) == 2
    for inputs in slices:
        assert inputs["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "8x8"}
        assert inputs["autoscaling"]["maxNodeCount"] == 16
    (flavor,) = of(made, "ResourceFlavor")
    assert flavor.inputs["spec"]["nodeLabels"]["cloud.google.com/gke-tpu-topology"] == "8x8"
    (queue,) = of(made, "ClusterQueue")
    (group,) = queue.inputs["spec"]["resourceGroups"]
    quotas = {one["name"]: one["nominalQuota"] for one in group["flavors"][0]["resources"]}
    assert quotas[TPU] == "64"


def test_ironwood_is_gkes_alone(gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> None:
    config = gcp_edited(POD, region="us-central1", cluster={"accelerator": "tpu7x-64", "zone": "us-central1-c"})
    made = recorded(config)
    assert of(made, "ResourcePolicy")
    assert [one.name for one in of(made, "DaemonSet")] == [f"{POD}-daemonset-kube-system-gangway-node-limits"]
    codes = {finding.code for finding in make_plan(config).findings}
    assert "tpu.pods-not-tried" in codes


def test_of_slices_the_quota_counts_hosts(gcp_edited: Edited) -> None:
    config = gcp_edited(POD)
    planned = plan(config)
    spec = cluster_spec(config, planned.machine, planned.tpu)
    assert planned.tpu is not None
    assert (spec.max_nodes, spec.node.devices) == (16, {TPU: 4})
    assert spec.node == tpu_host(planned.tpu, config.cluster.root_volume_gib)
    assert flavor_labels(None) == {POOL_LABEL: "jobs"}


_NODES = {"min": 4, "max": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "capacity", "chosen"),
    [
        (_NODES, [{"kind": "reservation", "id": "mine"}], True),
        (_NODES, [{"kind": "spot"}], True),
        (_NODES, [{"kind": "spot"}, {"kind": "on-demand"}], False),
        ({"min": 0, "max": 4}, [{"kind": "on-demand"}], False),
    ],
)
def test_nodes_that_stand_are_chosen_by_their_blocks(
    gcp_edited: Edited, nodes: dict[str, int], capacity: list[dict[str, str]], chosen: bool
) -> None:
    engine = {"kind": "kubernetes", "teams": [{"name": "vision", "nodes": 2}]}
    made = make_plan(gcp_edited(A3, engine=engine, cluster=edited_cluster(nodes, capacity)))
    flavors = [each.inputs["spec"] for each in made.resources if each.type.endswith(":ResourceFlavor")]
    assert ["topologyName" in each for each in flavors] == [chosen]
    assert ("kubernetes.topology" in {each.code for each in made.findings}) == chosen
    levels = [each.inputs["spec"]["levels"] for each in made.resources if each.type.endswith(":Topology")]
    last = [each[-2]["nodeLabel"] for each in levels]
    assert last == (["cloud.google.com/gce-topology-host"] if chosen else [])


def edited_cluster(nodes: dict[str, int], capacity: list[dict[str, str]]) -> dict[str, object]:
    return {"machine_type": "a3-megagpu-8g", "nodes": nodes, "capacity": capacity}


def test_rdma_is_given_to_every_teams_pods(gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> None:
    config = gcp_edited(A3, cluster={"machine_type": "a3-ultragpu-8g"})
    made = recorded(config)
    for pool in of(made, "NodePool")[:-1]:
        nics = pool.inputs["networkConfig"]["additionalNodeNetworkConfigs"]
        known = {(one.inputs["spec"]["vpc"], one.inputs["spec"]["vpcSubnet"]) for one in of(made, "GKENetworkParamSet")}
        assert {tuple(nic[key].rpartition("/")[2] for key in ("network", "subnetwork")) for nic in nics} == known
        assert len(known) == 9
    told = [one.inputs["metadata"] for one in of(made, "ConfigMap")]
    assert sorted(one["namespace"] for one in told if one["name"] == FABRIC) == ["speech", "vision"]
    codes = {finding.code for finding in make_plan(config).findings}
    assert "fabric.rdma-in-pods" in codes
    assert "fabric.tcp-in-pods" not in codes


def test_findings_name_surprising_limits(a3_plan: Plan) -> None:
    codes = {finding.code for finding in a3_plan.findings}
    assert codes >= {"kubernetes.api", "cluster.idle-minutes", "cluster.not-tried", "fabric.tcp-in-pods"}
    assert not {"job.nodes-stay", "cost.not-covered"} & codes


def test_without_a_file_system_somebody_else_makes_the_claims(gcp_edited: Edited) -> None:
    made = make_plan(gcp_edited(A3, storage=None))
    assert "cluster.no-claim" in {finding.code for finding in made.findings}
    assert not [one for one in made.resources if one.type.endswith(":PersistentVolume")]


@pytest.mark.parametrize(
    ("stack", "changes", "place"),
    [
        (A3, {"engine": {"kind": "kubernetes", "version": "1.20"}}, "engine.version"),
        (A3, {"network": {"egress": "endpoints"}}, "network.egress"),
        (A3, {"cluster": {"capacity": [{"kind": "spot"}, {"kind": "flex-start", "max_hours": 4}]}}, "capacity[1].kind"),
        (A3, {"storage": {"kind": "lustre", "capacity_gib": 18000, "throughput_mbps_per_tib": 500}}, "storage.kind"),
        (
            A3,
            {"storage": {"kind": "filestore", "capacity_gib": 2560, "source": "gs://my-bucket/digits"}},
            "storage.source",
        ),
        (POD, {"cluster": {"nodes": {"min": 0, "max": 2}}}, "nodes.max"),
    ],
)
def test_what_cannot_be_is_refused(gcp_edited: Edited, stack: str, changes: Mapping[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(gcp_edited(stack, **changes))
    assert caught.value.place.endswith(place)
    assert caught.value.fix


def test_several_slices_of_one_host_are_fine(gcp_edited: Edited) -> None:
    cluster = {"accelerator": "v5litepod-8", "nodes": {"min": 0, "max": 4}, "capacity": [{"kind": "spot"}]}
    assert plan(gcp_edited(POD, cluster=cluster)).num_machines == 4
