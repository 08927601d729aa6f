"""Charts: pinned, in order, and what of them decides when a node comes and goes."""

import json
import re

import pytest

from gangway.components.kubernetes.charts import (
    cluster_autoscaler,
    dcgm_exporter,
    job_set,
    kueue,
    kueue_config,
    nvidia_plugin,
)
from gangway.components.kubernetes.spec import JOBS_ONLY, ClusterSpec

GROUPS = ("^demo-0-spot-[0-9a-f]+$", "^demo-1-on-demand-[0-9a-f]+$")


def test_every_chart_is_of_one_version(two_teams: ClusterSpec) -> None:
    charts = [job_set(), kueue(two_teams, 2), nvidia_plugin(), dcgm_exporter(), cluster_autoscaler({}, GROUPS, 15)]
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
