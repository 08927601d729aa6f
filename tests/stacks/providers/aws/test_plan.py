"""What a configuration means on AWS before anything is declared: machine, zone, tags, job, findings."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.components.estimate.cost import estimate
from gangway.images.node.aws import notices as aws_notices
from gangway.images.render import STOP_MARGIN_SEC
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.findings import findings
from gangway.stacks.providers.aws.plan import NOTICE_SEC, job_spec, plan
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.preemption.notices import POLL_SEC
from gangway.trainer.records.run_record import RunContext

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def cluster(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda values: values["gangway:cluster"].update(changes)


def test_the_demo_is_h100_in_the_first_zone(demo_config: StackConfig) -> None:
    planned = plan(demo_config)
    assert planned.machine.name == "p5.48xlarge"
    assert (planned.region.name, planned.zone) == ("us-east-2", "us-east-2a")
    assert planned.tags == {
        "team": "ml-platform",
        "cost_center": "4711",
        "gangway:stack": "aws-demo",
        "gangway:run": "shared",
        "gangway:energy-class": "H100x8",
        "gangway:carbon-class": "medium",
    }


def test_a_machine_type_names_the_machine_too(edited: Edited) -> None:
    def by_type(values: dict[str, Any]) -> None:
        del values["gangway:cluster"]["accelerator"]
        values["gangway:cluster"].update(machine_type="p4d.24xlarge", zone="us-east-2c")

    planned = plan(edited(by_type))
    assert (planned.machine.accelerator, planned.zone) == ("A100x8", "us-east-2c")


MISTAKES = {
    "accelerator": (cluster(accelerator="H100x9"), "gangway:cluster.accelerator", "H100x9", "did you mean 'H100x8'?"),
    "machine type": (
        lambda v: v["gangway:cluster"].update(accelerator=None, machine_type="p5.48xl"),
        "gangway:cluster.machine_type", "p5.48xl", "did you mean 'p5.48xlarge'?",
    ),
    "region": (
        lambda v: v.update({"gangway:region": "eu-nort-1"}), "gangway:region", "eu-nort-1",
        "did you mean 'eu-north-1'?",
    ),
    "head node": (
        lambda v: v.update({"gangway:head": {"machine_type": "t3.mediun"}}), "gangway:head.machine_type", "t3.mediun",
        "did you mean 't3.medium'?",
    ),
    "zone": (
        cluster(zone="us-east-2z"), "gangway:cluster.zone", "us-east-2z", "set zone: us-east-2a, or leave it out",
    ),
    "zone's letter": (cluster(zone="a"), "gangway:cluster.zone", "a", "set zone: us-east-2a, or leave it out"),
    "Lustre size": (
        lambda v: v["gangway:storage"].update(capacity_gib=9000), "gangway:storage.capacity_gib", 9000,
        "set capacity_gib: 9600 ($3,264 a month in us-east-1)",
    ),
    "Lustre tier": (
        lambda v: v["gangway:storage"].update(throughput_mbps_per_tib=600), "gangway:storage.throughput_mbps_per_tib",
        600, "set throughput_mbps_per_tib: 500",
    ),
    "range": (
        lambda v: v.update({"gangway:network": {"cidr": "10.0.0.0/8"}}), "gangway:network.cidr", "10.0.0.0/8",
        "use 10.42.0.0/16",
    ),
    "tag": (
        lambda v: v["gangway:tags"].update(owner="a;b"), "gangway:tags.owner", "a;b",
        "remove the characters outside that set",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_what_aws_does_not_have_stops_before_anything_is_declared(edited: Edited, what: str) -> None:
    edit, place, value, fix = MISTAKES[what]
    with pytest.raises(InputError) as caught:
        plan(edited(edit))
    assert (caught.value.place, caught.value.value, caught.value.fix) == (place, value, fix)
    assert caught.value.allowed


def test_the_job_meets_at_the_head_node_and_knows_its_bill(demo_config: StackConfig) -> None:
    job = job_spec(demo_config, plan(demo_config), "registry/x@sha256:" + "0" * 64)
    assert (job.name, job.backend, job.processes_per_node) == ("aws-demo", "nccl", 8)
    assert (job.num_nodes_min, job.num_nodes_max, job.processes_per_node) == (2, 2, 8)
    assert (job.rendezvous.host, job.rendezvous.port) == ("head.aws-demo.gangway.internal", 29400)
    assert job.training is not None
    assert job.training.log_format == "json", "metrics are read out of the lines"
    assert job.training.fabric_min_gbps == 800, "a quarter of 3200"
    assert (job.training.config["preset"], job.training.config["kimg"]) == ("dcgan-digits", 150)
    assert job.training.run_dir.startswith("/fsx/")
    assert [volume.target for volume in job.volumes] == ["/fsx"]
    context = RunContext.model_validate_json(job.env["GANGWAY_CONTEXT"])
    assert (context.stack, context.region, context.machine_type) == ("aws-demo", "us-east-2", "p5.48xlarge")
    assert context.capacity == ("spot", "on-demand")
    assert context.usd_per_hour is not None
    assert context.usd_per_hour.value == 14.0818, "of one node, on the first rung"
    assert context.image_digest == "sha256:" + "0" * 64
    assert context.pue is not None
    assert context.pue.value == 1.13


def test_a_checkpoint_has_most_of_the_two_minutes_of_notice(demo_config: StackConfig) -> None:
    job = job_spec(demo_config, plan(demo_config), "x")
    assert 60 <= job.shutdown_timeout_sec <= NOTICE_SEC - STOP_MARGIN_SEC - aws_notices.POLL_SEC - POLL_SEC


@pytest.mark.parametrize("kimg", [25000, 0.5, 1234567.5, 1 / 3])
def test_the_length_of_the_run_is_not_rounded(edited: Edited, kimg: float) -> None:
    config = edited(lambda values: values["gangway:job"].update(kimg=kimg))
    training = job_spec(config, plan(config), "x").training
    assert training is not None
    assert TrainConfig.from_json(training.document).kimg == kimg


def test_every_automatic_choice_gives_its_reason(demo_config: StackConfig) -> None:
    found = {f.code: f for f in findings(demo_config, plan(demo_config), estimate([], 1))}
    assert "1 ENA and 32 EFA interfaces per node, 3200 Gbit/s" in found["fabric.efa"].message
    assert "us-east-2a chosen: the first of us-east-2 that has p5.48xlarge" in found["placement.zone"].message
    assert found["placement.zone"].severity is Severity.INFO


@pytest.mark.parametrize(
    ("accelerator", "why"),
    [
        ("GB200x4", "it is arm64"),
        ("Trainiumx1", "neuron"),
        ("Gaudix8", "hccl"),
        ("V100x1", "Volta"),
    ],
)
def test_a_machine_the_trainers_image_is_not_built_for_is_an_error(edited: Edited, accelerator: str, why: str) -> None:
    config = edited(cluster(accelerator=accelerator))
    (found,) = [f for f in findings(config, plan(config), estimate([], 1)) if f.code == "machine.not-trained-on"]
    assert found.severity is Severity.ERROR
    assert why in found.message


def test_what_was_chosen_by_the_user_is_not_explained(edited: Edited) -> None:
    config = edited(cluster(accelerator="V100x1", zone="us-east-2b", nodes={"min": 1, "max": 1}))
    codes = {f.code for f in findings(config, plan(config), estimate([], 1))}
    assert not codes & {"fabric.efa", "fabric.none", "placement.zone"}
    assert job_spec(config, plan(config), "x").rendezvous.standalone, "a single node connects to no other"


def test_what_a_node_cannot_reach_or_outlive_is_a_warning(edited: Edited) -> None:
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}

    def closed(values: dict[str, Any]) -> None:
        values["gangway:network"] = {"egress": "endpoints"}
        values["gangway:cluster"]["capacity"] = [block]

    config = edited(closed)
    found = {f.code: f for f in findings(config, plan(config), None)}
    assert found["storage.lustre-client"].fix.startswith("set egress: nat")
    assert found["capacity.block-end"].severity is Severity.WARNING
    open_config = edited(cluster(capacity=[{"kind": "on-demand"}]))
    assert not {f.code for f in findings(open_config, plan(open_config), None)} & {
        "storage.lustre-client", "capacity.block-end",
    }  # fmt: skip


@pytest.mark.parametrize(
    "image", ["trainer:latest", f"123456789012.dkr.ecr.us-east-1.amazonaws.com/x@sha256:{'0' * 64}"]
)
def test_the_error_for_a_foreign_image_names_the_registry(edited: Edited, image: str) -> None:
    config = edited(lambda values: values.update({"gangway:image": {"prebuilt": image}}))
    with pytest.raises(InputError) as caught:
        plan(config)
    assert (caught.value.place, caught.value.value) == ("gangway:image.prebuilt", image)
    assert caught.value.allowed == "<account>.dkr.ecr.us-east-2.amazonaws.com/<repository>@sha256:<digest>"
    assert "push the image to ECR in us-east-2" in caught.value.fix
