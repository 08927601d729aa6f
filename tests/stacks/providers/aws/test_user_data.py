"""What the machines read at boot: the names of the stack's own resources, and a limit that is checked beforehand."""

import base64
import gzip
import random
import string
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.images.aws import USER_DATA_LIMIT_BYTES, user_data_base64gzip
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import run_program
from gangway.stacks.providers.aws.plan import plan
from gangway.stacks.providers.aws.slurm import check_slurm
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
def test_both_know_the_log_group_and_the_nodes_the_jobs_hours(edited: Edited) -> None:
    """Other hours must not make another head, which would end the job's meeting."""
    program = run(edited(lambda values: values["gangway:job"].update(max_hours=1.5)))
    for files in (worker(program), head(program)):
        assert settings(files)["LOG_GROUP"] == "/gangway/edited"
    assert settings(worker(program))["MAX_SEC"] == "5400"
    assert "MAX_SEC" not in settings(head(program))
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


def long_command(length: int) -> Callable[[dict[str, Any]], object]:
    """A command with variables of so many letters, which do not compress."""
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + length)))
    env = {f"K{start}": letters[start : start + 250] for start in range(0, length, 250)}
    image = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@sha256:{'0' * 64}"
    job = {"command": ["python", "train.py"], "image": image, "max_hours": 4, "env": env}
    return lambda values: values.update({"gangway:job": job})


def test_the_limit_is_checked_with_names_that_do_not_exist_yet(edited: Edited) -> None:
    config = edited(long_command(10_000))
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


def aws_letters(length: int, letters: str = "0123456789abcdef") -> str:
    return "".join(random.choices(letters, k=length))


class RandomNames(PlaceholderCloud):
    """Names in the form and length of those that AWS and Pulumi give."""

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        resource, outputs = super().__call__(type_token, name, inputs)
        account = aws_letters(12, "0123456789")
        given = {
            "bucket": f"{name}-{aws_letters(7)}",
            "digest": f"sha256:{aws_letters(64)}",
            "repositoryUrl": f"{account}.dkr.ecr.us-east-2.amazonaws.com/{name}-{aws_letters(7)}",
            "dnsName": f"fs-{aws_letters(17)}.fsx.us-east-2.amazonaws.com",
            "mountName": aws_letters(8, string.ascii_lowercase + string.digits),
        }
        if type_token == "aws:autoscaling/group:Group":
            given["name"] = f"{name}-{aws_letters(7)}"
        return resource, {**outputs, **{key: value for key, value in given.items() if key not in inputs}}


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["aws-demo", "aws-g5-dev", "aws-p5-spot", "aws-p5-slurm"])
def test_no_name_of_aws_takes_more_bytes_than_its_stand_in(
    stack: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what passes the check never exceeds the limit, however near it is."""
    config = from_file(repo / f"stacks/Pulumi.{stack}.yaml")
    checked: list[int] = []

    def record(text: str) -> str:
        packed = user_data_base64gzip(text)
        checked.append(len(base64.b64decode(packed)))
        return packed

    monkeypatch.setattr("gangway.stacks.providers.aws.user_data.check_user_data_size", record)
    monkeypatch.setattr("gangway.stacks.providers.aws.slurm.user_data_base64gzip", record)
    random.seed(stack)
    planned = plan(config)
    if isinstance(config.engine, SlurmConfig):
        check_slurm(config, config.engine, planned)
    else:
        check_user_data(config, planned)
    most = max(checked)
    for _ in range(3):
        assert most - 200 < sizes(run_program(config, RandomNames())) <= most


@pytest.mark.slow
def test_the_longest_command_that_passes_the_check_fits(edited: Edited) -> None:
    def is_refused(length: int) -> bool:
        config = edited(long_command(length))
        try:
            check_user_data(config, plan(config))
        except InputError:
            return True
        return False

    longest = bisect_left(range(10_000), True, key=is_refused) - 1
    assert longest > 0
    size = sizes(run_program(edited(long_command(longest)), RandomNames()))
    assert USER_DATA_LIMIT_BYTES - 200 < size <= USER_DATA_LIMIT_BYTES
