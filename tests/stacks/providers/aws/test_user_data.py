"""What the machines read at boot: the names of the stack's own resources, and a limit that is checked beforehand."""

import base64
import gzip
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.images.aws import USER_DATA_LIMIT_BYTES
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import run_program
from gangway.stacks.providers.aws.plan import plan
from gangway.stacks.providers.aws.user_data import check_user_data
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, Recording

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
IMAGE = "${Repository.edited-trainer.repositoryUrl}@${Image.edited-trainer.digest}"


def run(config: StackConfig) -> Recording:
    return run_program(config, PlaceholderCloud())


def files_of(packed: str) -> dict[str, str]:
    """Path -> content of what a machine's user data writes."""
    text = gzip.decompress(base64.b64decode(packed)).decode()
    assert text.startswith("#cloud-config")
    return {entry["path"]: entry["content"] for entry in yaml.safe_load(text)["write_files"]}


def worker(program: Recording) -> dict[str, str]:
    templates = [r for r in program.resources if r.type.endswith(":LaunchTemplate") and "EfaNodePool" in r.parent]
    (packed,) = {template.inputs["userData"] for template in templates}
    return files_of(packed)


def head(program: Recording) -> dict[str, str]:
    (instance,) = [r for r in program.resources if r.type.endswith(":Instance")]
    return files_of(instance.inputs["userDataBase64"])


def with_egress(egress: str) -> Callable[[dict[str, Any]], object]:
    return lambda values: values.update({"gangway:network": {"egress": egress}})


@pytest.fixture
def nat(edited: Edited, recorded: Callable[[StackConfig], Recording]) -> Recording:
    return recorded(edited(with_egress("nat")))


def test_a_worker_knows_job_bucket_file_system_and_log(nat: Recording) -> None:
    files = worker(nat)
    command = files["/etc/gangway/job.env"]
    assert IMAGE in command
    assert "--rdzv-endpoint=head.edited.gangway.internal:29400" in command
    node = files["/etc/gangway/node.env"]
    for name in (
        "s3://${Bucket.edited-runs.bucket}/edited",
        "${LustreFileSystem.edited-lustre.dnsName}",
        "${LustreFileSystem.edited-lustre.mountName}",
        "/fsx/runs/edited",
        "us-east-2",
    ):
        assert name in node, name
    arguments = files["/etc/gangway/job.env"]
    assert IMAGE in arguments
    assert "awslogs-group=/gangway/edited" in arguments
    assert "gangway:stack=edited" in arguments, "the container's label"
    assert "ml-platform" not in arguments, "a user's tags may change while nodes run"
    assert "/opt/gangway/bin/mount-lustre.sh" in files
    assert "/opt/gangway/bin/check-efa.sh" in files
    assert "/opt/gangway/bin/mount-scratch.sh" in files, "a p5 has instance store"


def test_the_head_node_knows_store_image_and_record(nat: Recording) -> None:
    files = head(nat)
    node = files["/etc/gangway/node.env"]
    for name in (IMAGE, "s3://${Bucket.edited-runs.bucket}/edited", "${LustreFileSystem.edited-lustre.dnsName}"):
        assert name in node, name
    store = files["/etc/systemd/system/gangway-rendezvous.service"]
    assert "29400" in store
    assert "/etc/systemd/system/gangway-record.timer" in files


def settings(files: dict[str, str]) -> dict[str, str]:
    """What the node's scripts read, by name; quoted where bash needs it."""
    return dict(line.split("=", 1) for line in files["/etc/gangway/node.env"].splitlines())


@pytest.mark.slow
def test_both_know_the_log_group_and_the_jobs_hours(edited: Edited) -> None:
    program = run(edited(lambda values: values["gangway:job"].update(max_hours=1.5)))
    for files in (worker(program), head(program)):
        assert settings(files)["LOG_GROUP"] == "/gangway/edited"
        assert settings(files)["MAX_SEC"] == "5400"
    assert "awslogs-group=/gangway/edited" in head(program)["/etc/systemd/system/gangway-rendezvous.service"]


def test_scratch_is_the_jobs_place_for_temporary_files(nat: Recording) -> None:
    assert "TMPDIR=/scratch" in worker(nat)["/etc/gangway/job.env"]


@pytest.mark.slow
def test_the_trainers_user_gets_the_folder_that_the_job_reads(edited: Edited) -> None:
    def source(value: str | None) -> Callable[[dict[str, Any]], object]:
        return lambda values: values["gangway:storage"].update(source=value)

    assert settings(worker(run(edited(source("s3://my-bucket/digits")))))["DATA_DIR"] == "/fsx/data"
    assert settings(worker(run(edited(source(None)))))["DATA_DIR"] == "''"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine_type", "efa", "told"),
    [("p5.48xlarge", True, "8"), ("p5.48xlarge", False, "''"), ("g5.xlarge", True, "''")],
)
def test_workers_with_efa_reach_the_file_system_over_it(
    edited: Edited, machine_type: str, efa: bool, told: str
) -> None:
    def over_efa(values: dict[str, Any]) -> None:
        values["gangway:cluster"].pop("accelerator", None)
        values["gangway:cluster"].update(machine_type=machine_type)
        values["gangway:storage"].update(efa=efa, capacity_gib=9600, throughput_mbps_per_tib=500)

    config = edited(over_efa)
    check_user_data(config, plan(config))
    program = run(config)
    assert settings(worker(program))["LUSTRE_EFA"] == told
    assert settings(head(program))["LUSTRE_EFA"] == "''", "the head node has no EFA"


@pytest.mark.slow
def test_prometheus_comes_from_outside_and_so_needs_nat(nat: Recording, edited: Edited) -> None:
    unit, scraped = "/etc/systemd/system/gangway-prometheus.service", "/etc/gangway/prometheus.yaml"
    assert "docker.io/prom/prometheus:v3.5.0" in head(nat)[unit]
    assert "9400" in head(nat)[scraped]

    def left_out(values: dict[str, Any]) -> None:
        values["gangway:head"] = {"prometheus_image": None}

    for config in (edited(with_egress("endpoints")), edited(left_out)):
        assert not {unit, scraped} & head(run(config)).keys()


@pytest.mark.slow
def test_without_a_file_system_nothing_is_mounted_and_no_record_is_put_for_others(edited: Edited) -> None:
    program = run(edited(lambda values: values.pop("gangway:storage")))
    assert "/opt/gangway/bin/mount-lustre.sh" not in worker(program)
    assert "/etc/systemd/system/gangway-record.timer" not in head(program)
    assert "/var/lib/gangway/runs/edited" in worker(program)["/etc/gangway/node.env"]


def test_a_single_node_has_no_rendezvous(edited: Edited) -> None:
    def one(values: dict[str, Any]) -> None:
        values["gangway:cluster"].update(nodes={"min": 1, "max": 1})

    program = run(edited(one))
    assert "--standalone" in worker(program)["/etc/gangway/job.env"]
    assert not [r for r in program.resources if r.type.endswith(":Instance")]


def long_command(count: int) -> Callable[[dict[str, Any]], object]:
    """A command with so many variables of letters that do not compress."""
    letters = "".join(map(chr, range(0x4E00, 0x9FFF)))
    env = {f"K{n}": letters[n * 250 : n * 250 + 250] for n in range(count)}
    image = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0' * 64}"
    job = {"command": ["python", "train.py"], "image": image, "max_hours": 4, "env": env}
    return lambda values: values.update({"gangway:job": job})


def test_the_limit_is_checked_with_names_that_do_not_exist_yet(edited: Edited) -> None:
    config = edited(long_command(40))
    with pytest.raises(InputError) as caught:
        check_user_data(config, plan(config))
    assert caught.value.place == "gangway:job"
    assert str(USER_DATA_LIMIT_BYTES) in caught.value.allowed
    assert caught.value.fix == "shorten the command, its env or the settings"


def sizes(program: Recording) -> int:
    def packed(resource: PlannedResource) -> str:
        data: str = resource.inputs.get("userData") or resource.inputs.get("userDataBase64") or ""
        return data

    return max(len(base64.b64decode(packed(resource))) for resource in program.resources)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1])
def test_what_passes_the_check_fits(edited: Edited, count: int) -> None:
    """Whatever names AWS gives: the check used the longest."""
    config = edited(long_command(count))
    check_user_data(config, plan(config))
    assert 0 < sizes(run(config)) <= USER_DATA_LIMIT_BYTES
