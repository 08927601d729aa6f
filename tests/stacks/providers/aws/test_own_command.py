"""Stacks on AWS with a custom command: what is AWS's own; the rest is in ../test_own_command.py."""

import base64
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from gangway.components.core.job import JobSpec
from gangway.report.plans.infracost import infracost
from gangway.report.plans.show import Detail, show_plan
from gangway.stacks.config.sections import ClusterNodesConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.difference import compare
from gangway.stacks.plan.plan import Plan, make_plan

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine@sha256:" + "ab" * 32
NODE = ClusterNodesConfig(min=1, max=1)
SPOT = [{"kind": "spot", "max_usd_per_hour": 0.9}, {"kind": "on-demand"}]


@pytest.fixture
def own(repo: Path, tmp_path: Path) -> Callable[..., StackConfig]:
    """A shipped stack, the small one unless another is named, with a command, and other sections changed."""

    def config(stack: str = "aws-g5-dev", **sections: Any) -> StackConfig:
        values = yaml.safe_load((repo / f"stacks/Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
        values["gangway:job"] = {
            "command": ["python", "train.py", "--epochs", "3"],
            "image": IMAGE.replace("us-east-1", values["gangway:region"]),
            "env": {"GREETING": "two words"},
            "workdir": "/work",
            "processes_per_node": 1,
            "max_hours": 4,
        }
        for name, change in sections.items():
            values[f"gangway:{name}"] = {**values.get(f"gangway:{name}", {}), **change}
        path = tmp_path / "Pulumi.own.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return config


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


@pytest.mark.slow
@pytest.mark.parametrize("detail", list(Detail))
def test_a_person_reads_it(own: Callable[..., StackConfig], detail: Detail) -> None:
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as caught:
        show_plan(make_plan(own(cluster={"capacity": SPOT})), console, detail)
    said = caught.get()
    assert "unknown" in said
    assert "images/s" not in said
    assert "4 h" in said


def test_it_is_compared_with_a_training_and_priced_as_infracost_does(
    own: Callable[..., StackConfig], repo: Path
) -> None:
    now = make_plan(own()).to_json()
    before = make_plan(from_file(repo / "stacks/Pulumi.aws-g5-dev.yaml")).to_json()
    energy = next(figure for figure in compare(before, now).figures if figure.unit == "kWh")
    assert (energy.now, energy.change) == (None, None)
    assert infracost(now, None)


def test_a_budget_too_small_for_all_hours_is_reported(own: Callable[..., StackConfig]) -> None:
    plan = make_plan(own(budget={"monthly_usd": 3}))
    assert "budget.below-run" in codes(plan)


def test_estimates_of_a_training_have_no_effect(own: Callable[..., StackConfig]) -> None:
    plan = make_plan(own(estimate={"images_per_second": 100, "taken_percent_per_month": 5, "log_gib": 1}))
    ignored = {finding.path for finding in plan.findings if finding.code == "estimate.ignored"}
    assert ignored == {"gangway:estimate.images_per_second", "gangway:estimate.taken_percent_per_month"}


def test_what_holds_of_any_job_is_told(own: Callable[..., StackConfig]) -> None:
    assert "storage.lost-with-node" in codes(make_plan(own(cluster={"capacity": SPOT})))


def test_there_is_no_alarm_for_steps(own: Callable[..., StackConfig]) -> None:
    names = {resource.name for resource in make_plan(own()).resources}
    assert "own-no-steps" not in names
    assert "own-nodes-missing" in names


def test_a_machine_without_gpus_of_nvidia_runs_no_command(own: Callable[..., StackConfig]) -> None:
    plan = make_plan(own(cluster={"machine_type": "trn1.2xlarge"}))
    assert "machine.not-run-on" in codes(plan)


# on several nodes


@pytest.fixture
def p5(own: Callable[..., StackConfig]) -> StackConfig:
    """Two to four p5.48xlarge with a file system, eight processes on each."""
    return own("aws-p5-spot", job={"processes_per_node": 8})


def written(packed: str) -> dict[str, str]:
    """Path -> content of what a machine's user data writes."""
    text = gzip.decompress(base64.b64decode(packed)).decode()
    return {entry["path"]: entry["content"] for entry in yaml.safe_load(text)["write_files"]}


@pytest.mark.slow
def test_several_nodes_meet_at_a_head_that_is_priced(p5: StackConfig) -> None:
    plan = make_plan(p5)
    assert not plan.has_errors, plan.errors
    job = JobSpec.model_validate(plan.job)
    assert (job.num_nodes_min, job.num_nodes_max) == (2, 4)
    assert (job.rendezvous.host, job.rendezvous.port) == ("head.own.gangway.internal", 29400)
    assert job.env["GANGWAY_NNODES"] == "2:4"
    assert job.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert plan.to_json()["expected_run"]["hours"] is None
    assert [one.name for one in plan.resources if one.type.endswith(":Instance")] == ["own-head"]
    assert any("t3.medium" in line["name"] for line in plan.to_json()["cost"]["components"])
    whole = plan.rungs[0].hourly
    alone = make_plan(p5.model_copy(update={"cluster": p5.cluster.model_copy(update={"nodes": NODE})})).rungs[0].hourly
    assert whole is not None
    assert alone is not None
    assert whole > 3 * alone, "all of nodes.max, four, beside what they share"


@pytest.mark.slow
def test_they_meet_without_a_key_and_the_plan_says_so(p5: StackConfig) -> None:
    plan = make_plan(p5)
    assert "job.rendezvous-without-key" in codes(plan)
    assert "fabric.check" not in codes(plan), "the fabric is not tested before a custom command"
    assert not [one for one in plan.resources if "member-key" in one.name]
    assert "MemberKey" not in str([one.inputs for one in plan.resources if one.type.endswith(":RolePolicy")])
    ignored = make_plan(p5.model_copy(update={"job": p5.work.model_copy(update={"member_key_refresh": 1})}))
    assert "job.member-key-ignored" in codes(ignored)


def test_the_head_holds_the_store_of_the_commands_image_alone(p5: StackConfig) -> None:
    (instance,) = [one for one in make_plan(p5).resources if one.type.endswith(":Instance")]
    files = written(instance.inputs["userDataBase64"])
    unit = files["/etc/systemd/system/gangway-rendezvous.service"]
    assert "TCPStore" in unit
    assert f"{p5.ready_image} -c" in unit
    assert not [path for path in files if "prometheus" in path or "record" in path or "lustre" in path]


def test_user_data_of_several_workers_names_the_rendezvous(p5: StackConfig) -> None:
    templates = [one for one in make_plan(p5).resources if one.type.endswith(":LaunchTemplate")]
    workers = [one.inputs["userData"] for one in templates if "EfaNodePool" in one.parent]
    command = written(workers[0])["/etc/gangway/job.env"]
    assert "--rdzv-endpoint=head.own.gangway.internal:29400" in command
    assert "--nnodes=2:4" in command
    assert "/dev/infiniband" in command, "EFA, as the trainer has it"
    assert "fetch-key.sh" not in str(written(workers[0]).keys())


def test_several_nodes_without_torchrun_have_no_head(own: Callable[..., StackConfig]) -> None:
    plan = make_plan(own("aws-p5-spot", job={"processes_per_node": None}))
    assert not plan.has_errors, plan.errors
    job = JobSpec.model_validate(plan.job)
    assert job.env["GANGWAY_NNODES"] == "2:4"
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in job.env
    assert not [one for one in plan.resources if one.type.endswith(":Instance")]
    assert "job.nodes-do-not-meet" in codes(plan)
    assert "job.rendezvous-without-key" not in codes(plan)


def test_several_nodes_need_a_folder_that_they_share(own: Callable[..., StackConfig]) -> None:
    plan = make_plan(own(cluster={"nodes": {"min": 2, "max": 2}}))
    assert "storage.not-shared" in {finding.code for finding in plan.errors}
