"""A stack on AWS whose engine is Kubernetes: what it refuses, what it says, and how its parts are wired together."""

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.aws.plan import add_second_zone
from gangway.stacks.recording import PlannedResource

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks" / "Pulumi.eks-p5-kueue.yaml"))


@pytest.fixture
def changed(repo: Path, tmp_path: Path) -> Callable[[Edit], Plan]:
    """The plan of the shipped stack with a change."""

    def make(edit: Edit) -> Plan:
        values = yaml.safe_load((repo / "stacks" / "Pulumi.eks-p5-kueue.yaml").read_text("utf-8"))["config"]
        edit(values)
        path = tmp_path / "Pulumi.mine.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return make_plan(from_file(path))

    return make


def of(plan: Plan, kind: str) -> list[PlannedResource]:
    return [each for each in plan.resources if each.custom and each.type.endswith(f":{kind}")]


def engine(**keys: Any) -> Edit:
    return lambda values: values["gangway:engine"].update(keys)


@pytest.mark.parametrize(
    ("edit", "place", "fix"),
    [
        (engine(version="1.31"), "gangway:engine.version", "1.36"),
        (engine(teams=[{"name": "kube-vision", "nodes": 1}]), "gangway:engine.teams[0].name", "another name"),
        (engine(teams=[{"name": "default", "nodes": 1}]), "gangway:engine.teams[0].name", "another name"),
        (lambda v: v["gangway:network"].update(egress="endpoints"), "gangway:network.egress", "egress: nat"),
        (
            lambda v: v["gangway:cluster"]["capacity"][0].update(machine_types=["p5e.48xlarge"]),
            "gangway:cluster.capacity[0].machine_types",
            "leave machine_types out",
        ),
    ],
)
def test_what_it_cannot_be_is_refused(changed: Callable[[Edit], Plan], edit: Edit, place: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        changed(edit)
    assert place in str(caught.value)
    assert fix in str(caught.value)


def test_it_is_priced_by_the_nodes_that_are_up(plan: Plan) -> None:
    idle, full = plan.hourly_with(0), plan.hourly_with(8)
    assert idle is not None
    assert full is not None
    assert full - idle > 8 * 14, "eight machines on spot"
    assert plan.idle_hourly == pytest.approx(idle), "none is up while there is no work"
    named = {line.name.partition(":")[2].strip() for line in plan.cost.components}
    assert {"control plane", "2 x t3.large, on-demand", "NAT gateway"} <= named
    assert not [finding for finding in plan.findings if finding.code == "cost.not-covered"]


def test_an_always_running_node_is_in_the_price_without_work(changed: Callable[[Edit], Plan], plan: Plan) -> None:
    kept = changed(lambda values: values["gangway:cluster"]["nodes"].update(min=1))
    assert kept.idle_hourly is not None
    assert plan.idle_hourly is not None
    assert kept.idle_hourly - plan.idle_hourly > 14
    assert [group.inputs["minSize"] for group in of(kept, "Group")] == [1, 0]


def test_the_autoscaler_may_touch_what_the_stack_has(plan: Plan) -> None:
    groups = of(plan, "Group")
    for group in groups:
        tags = {tag["key"]: tag["value"] for tag in group.inputs["tags"]}
        assert tags["gangway:stack"] == "eks-p5-kueue", "by which the policy knows it"
        assert tags["k8s.io/cluster-autoscaler/eks-p5-kueue"] == "owned"
        assert "desiredCapacity" not in group.inputs
    [chart] = [each for each in of(plan, "Release") if each.inputs["name"] == "cluster-autoscaler"]
    patterns = [names[0] for names in chart.inputs["values"]["expanderPriorities"].values()]
    assert len(patterns) == len(groups)


def test_workers_are_reached_by_the_control_plane_and_by_each_other(plan: Plan) -> None:
    security = {
        tuple(interface["securityGroups"])
        for template in of(plan, "LaunchTemplate")
        for interface in template.inputs.get("networkInterfaces", ())
    }
    [groups] = security
    assert any("fabric" in group for group in groups)
    assert any("clusterSecurityGroupId" in group for group in groups)


def test_a_worker_joins_its_own_cluster(plan: Plan) -> None:
    templates = {each.name: each.inputs for each in of(plan, "LaunchTemplate")}
    text = b64decode(templates["eks-p5-kueue-0-spot"]["userData"]).decode()
    assert "${Cluster.eks-p5-kueue.endpoint}" in text
    assert "gangway.dev/rung=0-spot" in text
    assert templates["eks-p5-kueue-0-spot"]["blockDeviceMappings"][0]["deviceName"] == "/dev/xvda"
    tags = templates["eks-p5-kueue-0-spot"]["tagSpecifications"][0]["tags"]
    assert tags["kubernetes.io/cluster/eks-p5-kueue"] == "owned"


def test_the_control_plane_is_in_two_zones_and_the_workers_in_one(plan: Plan) -> None:
    [cluster] = of(plan, "Cluster")
    assert len(cluster.inputs["vpcConfig"]["subnetIds"]) == 2
    assert [len(group.inputs["vpcZoneIdentifiers"]) for group in of(plan, "Group")] == [1, 1]
    assert add_second_zone(("a", "b"), ["a", "b", "c"]) == ("a", "b")
    assert add_second_zone(("b",), ["a", "b", "c"]) == ("b", "a")


def test_jobs_of_all_teams_have_a_claim_on_the_stacks_file_system(plan: Plan) -> None:
    for volume in of(plan, "PersistentVolume"):
        attributes = volume.inputs["spec"]["csi"]["volumeAttributes"]
        assert attributes["dnsname"] == "${LustreFileSystem.eks-p5-kueue-lustre.dnsName}"
    assert {each.inputs["metadata"]["namespace"] for each in of(plan, "PersistentVolumeClaim")} == {"vision", "speech"}


def test_what_runs_inside_logs_in_as_the_cluster_says(plan: Plan) -> None:
    [inner] = [each for each in plan.resources if each.type == "pulumi:providers:kubernetes"]
    config = json.loads(inner.inputs["kubeconfig"])
    assert config["clusters"][0]["cluster"]["server"] == "${Cluster.eks-p5-kueue.endpoint}"


def test_without_a_file_system_it_says_what_jobs_lack(changed: Callable[[Edit], Plan]) -> None:
    found = changed(lambda values: values.pop("gangway:storage"))
    assert "kubernetes.no-run-folders" in [finding.code for finding in found.findings]
    assert not of(found, "PersistentVolumeClaim")


def test_a_file_system_over_efa_is_refused(changed: Callable[[Edit], Plan]) -> None:
    found = changed(lambda values: values["gangway:storage"].update(efa=True))
    errors = [finding.code for finding in found.findings if finding.severity is Severity.ERROR]
    assert errors == ["kubernetes.storage-efa"]


def test_who_may_call_the_api_is_said(changed: Callable[[Edit], Plan], plan: Plan) -> None:
    opened = changed(engine(api_cidrs=["203.0.113.0/24"]))
    [said] = [finding for finding in opened.findings if finding.code == "kubernetes.api"]
    assert "203.0.113.0/24" in said.message
    assert of(opened, "Cluster")[0].inputs["vpcConfig"]["publicAccessCidrs"] == ["203.0.113.0/24"]
    [said] = [finding for finding in plan.findings if finding.code == "kubernetes.api"]
    assert "VPN" in said.fix


def test_nodes_that_stand_are_chosen_by_the_network(changed: Callable[[Edit], Plan], plan: Plan) -> None:
    def standing(values: dict[str, Any]) -> None:
        values["gangway:cluster"].update(nodes={"min": 8, "max": 8}, capacity=[{"kind": "on-demand"}])

    made = changed(standing)
    [topology], [flavor] = of(made, "Topology"), of(made, "ResourceFlavor")
    assert flavor.inputs["spec"]["topologyName"] == topology.inputs["metadata"]["name"]
    assert "kubernetes.topology" in {each.code for each in made.findings}
    assert not of(plan, "Topology"), "Kueue would let nothing begin where no node stands"
