"""Manifests and charts as resources: one each, unchanged, each after what it refers to."""

from collections.abc import Callable
from typing import Any

import pulumi

from gangway.components.kubernetes.charts import Chart, job_set, kueue, queue_manifests
from gangway.components.kubernetes.namespaces import fabric_config, namespace_manifests
from gangway.components.kubernetes.resources import ClusterCharts, ClusterManifests, get_tier, get_token
from gangway.components.kubernetes.spec import ClusterSpec

Declare = Callable[[Callable[[], object]], Any]
LUSTRE = {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": {"dnsname": "fs", "mountname": "m"}}}


def all_of(spec: ClusterSpec) -> list[dict[str, Any]]:
    fabrics = [fabric_config(team.name, 8, {"NCCL_NET": "AWS Libfabric"}) for team in spec.teams]
    return [*queue_manifests(spec), *fabrics, *namespace_manifests(spec, LUSTRE, 1200)]


def test_each_manifest_is_one_resource_as_it_is_written(declare: Declare, two_teams: ClusterSpec) -> None:
    manifests = all_of(two_teams)
    made = declare(lambda: ClusterManifests("demo", {"manifests": manifests}))
    resources = [each for each in made.resources if each.custom]
    assert len(resources) == len(manifests)
    assert len({each.urn for each in resources}) == len(manifests)
    by_name = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in manifests}
    for resource in resources:
        meta = resource.inputs["metadata"]
        manifest = by_name[resource.inputs["kind"], meta.get("namespace"), meta["name"]]
        assert resource.type == get_token(manifest)
        if "annotations" not in meta:
            assert resource.inputs == manifest
    [own] = [each for each in made.resources if each.type == "gangway:kubernetes:ClusterManifests"]
    assert {each.parent for each in resources} == {own.urn}
    assert made.outputs[own.urn] == {"names"}


def test_what_kubernetes_makes_itself_is_changed_and_not_made(declare: Declare, two_teams: ClusterSpec) -> None:
    made = declare(lambda: ClusterManifests("demo", {"manifests": all_of(two_teams)}))
    patches = made.of("ServiceAccountPatch")
    assert len(patches) == 2
    assert {each.inputs["metadata"]["annotations"]["pulumi.com/patchForce"] for each in patches} == {"true"}
    assert {each.inputs["kind"] for each in patches} == {"ServiceAccount"}


def test_what_is_referred_to_is_in_an_earlier_tier(many_teams: ClusterSpec) -> None:
    manifests = all_of(many_teams)
    tiers = {(each["kind"], each["metadata"]["name"]): get_tier(each) for each in manifests}
    assert tiers
    for each in manifests:
        here, spec = get_tier(each), each.get("spec", {})
        named = [("Namespace", each["metadata"]["namespace"])] if "namespace" in each["metadata"] else []
        named += [
            (kind, spec[key])
            for kind, key in (
                ("ClusterQueue", "clusterQueue"),
                ("Cohort", "cohortName"),
                ("PersistentVolume", "volumeName"),
                ("Topology", "topologyName"),
                ("ValidatingAdmissionPolicy", "policyName"),
            )
            if key in spec
        ]
        named += [
            ("ResourceFlavor", flavor["name"])
            for group in spec.get("resourceGroups", ())
            for flavor in group["flavors"]
        ]
        named += [(each["roleRef"]["kind"], each["roleRef"]["name"])] if "roleRef" in each else []
        assert all(tiers[name] < here for name in named), (each["kind"], named)


def test_jobs_go_with_their_namespace_before_the_queue_that_counts_them(many_teams: ClusterSpec) -> None:
    """Kueue lets no ClusterQueue go that has jobs, nor Kubernetes a claim that a pod has mounted."""
    tiers = {each["kind"]: get_tier(each) for each in all_of(many_teams)}
    assert tiers["ResourceFlavor"] < tiers["ClusterQueue"] < tiers["Namespace"] < tiers["PersistentVolumeClaim"]


def test_charts_are_releases_of_pinned_versions(declare: Declare, two_teams: ClusterSpec) -> None:
    own = Chart("own", "own", "1.2.3", "https://charts.example.com", "kube-system", {"a": {"b": 1}})
    made = declare(lambda: ClusterCharts("demo", {"charts": [job_set(), kueue(two_teams, 1), own]}))
    releases = {each.inputs["name"]: each.inputs for each in made.of("Release")}
    assert list(releases) == ["jobset", "kueue", "own"]
    assert releases["own"]["repositoryOpts"] == {"repo": "https://charts.example.com"}
    assert releases["own"]["values"] == {"a": {"b": 1}}
    assert not releases["own"].get("createNamespace"), "there from the beginning"
    assert releases["kueue"]["createNamespace"] is True
    assert releases["kueue"]["chart"].startswith("oci://")
    assert "repositoryOpts" not in releases["kueue"]
    assert {each["version"] for each in releases.values()} == {"0.12.0", "0.19.0", "1.2.3"}


def test_manifests_wait_for_the_charts_that_bring_their_kinds(declare: Declare, two_teams: ClusterSpec) -> None:
    seen: list[Any] = []

    def program() -> None:
        charts = ClusterCharts("demo", {"charts": [job_set(), kueue(two_teams, 1)]})
        charts.releases.apply(seen.append)
        after: pulumi.Output[list[str]] = charts.releases
        ClusterManifests("demo", {"manifests": all_of(two_teams), "after": after})

    made = declare(program)
    assert [len(each) for each in seen] == [2]
    assert len(made.of("ClusterQueue")) == 2
