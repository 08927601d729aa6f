"""Charts: pinned, in order, and what of them decides when a node comes and goes."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB
from gangway.components.kubernetes.charts import (
    COHORT,
    QUEUE,
    cluster_autoscaler,
    dcgm_exporter,
    job_set,
    kueue,
    kueue_config,
    nvidia_plugin,
    prometheus,
    queue_manifests,
)
from gangway.components.kubernetes.spec import GPU, JOBS_ONLY, ClusterSpec, Flavor, Node, Team
from gangway.jobs.kubernetes.manifests import priority_class
from gangway.jobs.kubernetes.queues import get_quota, quantity

GROUPS = ("^demo-0-spot-[0-9a-f]+$", "^demo-1-on-demand-[0-9a-f]+$")


def test_every_chart_is_of_one_version(two_teams: ClusterSpec) -> None:
    charts = [job_set(), kueue(two_teams, 2), nvidia_plugin(), dcgm_exporter(), cluster_autoscaler({}, GROUPS, 15)]
    charts.append(prometheus("demo"))
    for chart in charts:
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version), chart.name
        assert chart.chart.startswith("oci://") is (chart.repository is None), chart.name


def test_kueue_comes_after_the_jobs_that_it_queues(two_teams: ClusterSpec) -> None:
    assert kueue(two_teams, 2).needs == (job_set().name,)


def test_kueue_is_told_its_whole_configuration(two_teams: ClusterSpec) -> None:
    written = kueue(two_teams, 2).values["managerConfig"]["controllerManagerConfigYaml"]
    assert json.loads(written) == kueue_config(two_teams, 2)
    assert kueue_config(two_teams, 2)["manageJobsWithoutQueueName"] is True


@pytest.mark.parametrize(("rungs", "minutes"), [(1, 30), (3, 60)])
def test_a_job_waits_for_nodes_as_long_as_the_ladder_is(two_teams: ClusterSpec, rungs: int, minutes: int) -> None:
    assert kueue_config(two_teams, rungs)["waitForPodsReady"]["timeout"] == f"{minutes}m"
    args = cluster_autoscaler({}, GROUPS, 15).values["extraArgs"]
    assert args["max-node-provision-time"] == "15m", "for each rung, and one more for a machine to boot"


def test_prometheus_scrapes_exporters_alone_and_by_the_names_of_nodes() -> None:
    scraped = {
        name: job for name, job in prometheus("demo").values["scrapeConfigs"].items() if job.get("enabled", True)
    }
    assert scraped.keys() == {GPU_JOB, NODE_JOB}
    labels = [job["kubernetes_sd_configs"][0]["selectors"][0]["label"] for job in scraped.values()]
    assert labels == [f"app.kubernetes.io/name={name}" for name in ("dcgm-exporter", "prometheus-node-exporter")]
    for job in scraped.values():
        rules = {rule["target_label"]: rule for rule in job["relabel_configs"]}
        assert rules["instance"]["source_labels"] == ["__meta_kubernetes_pod_node_name"]
        assert rules["stack"]["replacement"] == "demo"


def test_the_autoscaler_goes_down_the_ladder() -> None:
    values = cluster_autoscaler({"awsRegion": "us-east-2"}, GROUPS, 7).values
    by_priority = sorted(values["expanderPriorities"].items(), key=lambda item: -int(item[0]))
    assert [names for _, names in by_priority] == [[group] for group in GROUPS]
    assert values["extraArgs"]["expander"] == "priority"
    assert values["extraArgs"]["scale-down-unneeded-time"] == "7m"
    assert values["awsRegion"] == "us-east-2"


def test_a_node_that_runs_anything_is_left_alone() -> None:
    args = cluster_autoscaler({}, GROUPS, 7).values["extraArgs"]
    for name in ("scale-down-utilization-threshold", "scale-down-gpu-utilization-threshold"):
        assert 0 < float(args[name]) < 1 / 192, "less than one CPU of the largest machine"
    assert args["ignore-daemonsets-utilization"] is True, "or no node would ever be empty"


def test_plugins_are_on_the_jobs_machines() -> None:
    for chart in (nvidia_plugin(), dcgm_exporter()):
        assert {"key": JOBS_ONLY, "operator": "Exists"} in chart.values["tolerations"]
        assert chart.values["nodeSelector"] == {"nvidia.com/gpu.present": "true"}


def of(kind: str, manifests: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


specs = st.builds(
    lambda shares, more, cpus, gpus, flavors: ClusterSpec(
        tuple(Team(f"t{number}", share) for number, share in enumerate(shares)),
        Node(cpus, 4 * cpus, {GPU: gpus} if gpus else {}),
        max(sum(shares) + more, 1),
        tuple(Flavor(f"f{number}", {"pool": f"f{number}"}) for number in range(flavors)),
    ),
    st.lists(st.integers(0, 40), max_size=6),
    st.integers(0, 20),
    st.integers(1, 256),
    st.integers(0, 16),
    st.integers(1, 3),
)


@given(specs)
def test_teams_and_what_is_shared_are_all_nodes_of_each_flavor(spec: ClusterSpec) -> None:
    made = queue_manifests(spec)
    parts = [*of("ClusterQueue", made).values(), *of("Cohort", made).values()]
    for flavor in spec.flavors:
        total: dict[str, Any] = {}
        for part in parts:
            for group in part["spec"].get("resourceGroups", ()):
                assert group["coveredResources"] == list(spec.node.quantities(1)), "in the order of the quotas"
                assert [each["name"] for each in group["flavors"]] == [each.name for each in spec.flavors]
                [own] = [each for each in group["flavors"] if each["name"] == flavor.name]
                for each in own["resources"]:
                    total[each["name"]] = total.get(each["name"], 0) + quantity(each["nominalQuota"])
        wanted = spec.node.quantities(spec.max_nodes)
        assert total == {name: quantity(text) for name, text in wanted.items()}


@given(specs)
def test_every_queue_is_its_teams_and_is_in_the_cohort(spec: ClusterSpec) -> None:
    made = queue_manifests(spec)
    queues, local = of("ClusterQueue", made), [each for each in made if each["kind"] == "LocalQueue"]
    assert list(queues) == [team.name for team in spec.queues]
    for each in local:
        assert each["metadata"]["name"] == QUEUE
        team = each["metadata"]["namespace"]
        assert each["spec"]["clusterQueue"] == team
        queue = queues[team]["spec"]
        assert queue["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": team}}
        assert queue["cohortName"] == COHORT
    assert [each["metadata"]["namespace"] for each in local] == list(queues)


def test_a_team_gets_its_own_back_and_borrows_the_rest(two_teams: ClusterSpec) -> None:
    queue = of("ClusterQueue", queue_manifests(two_teams))["vision"]
    assert queue["spec"]["preemption"]["reclaimWithinCohort"] == "Any"
    ((flavor,),) = get_quota(queue).groups
    assert flavor.nominal[GPU] == 32
    assert flavor.most[GPU] == 64, "as much as the cohort has: eight nodes"


def test_kueue_lets_its_own_pods_onto_the_jobs_machines(two_teams: ClusterSpec) -> None:
    [flavor] = of("ResourceFlavor", queue_manifests(two_teams)).values()
    [taint] = flavor["spec"]["nodeTaints"]
    assert (taint["key"], taint["effect"]) == (JOBS_ONLY, "NoSchedule")
    assert flavor["spec"]["tolerations"] == [{"key": JOBS_ONLY, "operator": "Exists"}]
    assert flavor["spec"]["nodeLabels"] == {"gangway.dev/pool": "jobs"}


def test_blocks_of_the_network_are_a_topology(many_teams: ClusterSpec) -> None:
    made = queue_manifests(many_teams)
    assert list(of("Topology", made)) == ["blocks"]
    topologies = {name: each["spec"].get("topologyName") for name, each in of("ResourceFlavor", made).items()}
    assert topologies == {"blocks": "blocks", "p5-48xlarge": None}


def test_priorities_are_those_that_the_engine_names(two_teams: ClusterSpec) -> None:
    from gangway.stacks.config.job_file import Priority

    asked = {name for priority in Priority if (name := priority_class(priority)) is not None}
    found = of("WorkloadPriorityClass", queue_manifests(two_teams))
    assert set(found) == asked
    assert found["gangway-high"]["value"] > 0 > found["gangway-low"]["value"]


@given(specs, st.integers(0, 40))
def test_a_team_with_a_limit_borrows_up_to_it_and_the_others_without(spec: ClusterSpec, more: int) -> None:
    first, *others = spec.queues
    limited = replace(spec, teams=(replace(first, max_nodes=first.nodes + more), *others))
    queues = of("ClusterQueue", queue_manifests(limited))
    assert queues
    for name, queue in queues.items():
        for flavor in get_quota(queue).groups[0]:
            most = min(first.nodes + more, spec.max_nodes) if name == first.name else spec.max_nodes
            wanted = spec.node.quantities(most)
            assert flavor.most == {each: quantity(wanted[each]) for each in flavor.nominal}
