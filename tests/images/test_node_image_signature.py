"""The image's signature, looked at by a machine before it runs the image: the real script and OpenSSL's command."""

import base64
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.image_reference import ImageSignature, checked_signature, signed_name
from gangway.components.core.job import JobSpec
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec, render_aws_head, render_aws_node, user_data_base64gzip
from gangway.images.hosts import (
    HostSpec,
    host_docker_argv,
    host_env_text,
    host_files,
    host_job_env_text,
    render_host_installer,
)
from tests.cosigned import key_pair, signed_payload, signed_text

OTHER = "sha256:" + "cd" * 32
ATTACK = pytest.mark.attack("a registry's writer", "an image that the stack's key has not signed")


def signature(folder: Path, image: str, optional: str = "null") -> ImageSignature:
    private, public = key_pair(folder)
    payload, signed = signed_payload(private, signed_name(image), image.partition("@")[2], optional)
    return checked_signature(image, public, payload, signed, signed_name(image))


def with_signature(job: JobSpec, signed: ImageSignature) -> JobSpec:
    return job.model_copy(update={"image_signature": signed})


@pytest.fixture
def signed_machine(machine: Any, tmp_path: Path) -> Any:
    machine.fake("docker")
    job = machine.spec.job
    machine.plan(
        job=with_signature(job, signature(tmp_path, job.image)),
        run_dir=f"{tmp_path}/run",
        data_dir=None,
        log_group="/g",
    )
    machine.more_settings["TRAINER_UID"] = str(os.getuid())
    return machine


def started(machine: Any) -> bool:
    return any(call[0] == "run" for call in machine.calls("docker"))


def says(machine: Any, **changes: str) -> None:
    """Changes what the machine knows of the signature."""
    signed = machine.spec.job.image_signature.model_copy(update=changes)
    machine.plan(job=with_signature(machine.spec.job, signed))


@pytest.mark.parametrize("optional", ["null", '{"build":"17","who":"\\u003cx\\u003e \'Ä\' $(touch /tmp/x)"}'])
def test_an_image_that_is_signed_runs(machine: Any, signed_machine: Any, tmp_path: Path, optional: str) -> None:
    (tmp_path / "again").mkdir()
    image = machine.spec.job.image
    machine.plan(job=with_signature(machine.spec.job, signature(tmp_path / "again", image, optional)))
    done = signed_machine.run("run-trainer.sh")
    assert (done.returncode, started(signed_machine)) == (0, True), done.stderr
    assert "Verified OK" in done.stderr


def refused(machine: Any, why: str, status: int = 2) -> None:
    done = machine.run("run-trainer.sh")
    assert done.returncode == status, done.stderr
    assert why in done.stderr
    assert not started(machine)
    (event,) = [line for line in machine.events() if line["event"] == "image-refused"]
    assert why in event["reason"]


@ATTACK
def test_another_key_is_refused(signed_machine: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = signature(tmp_path / "other", signed_machine.spec.job.image)
    says(signed_machine, key=other.key)
    refused(signed_machine, "is invalid for the key")


@ATTACK
def test_a_signature_of_another_digest_is_refused(signed_machine: Any) -> None:
    job = signed_machine.spec.job
    signed_machine.plan(job=job.model_copy(update={"image": f"{signed_name(job.image)}@{OTHER}"}))
    refused(signed_machine, f"the signature of {signed_name(job.image)}@{OTHER} is invalid")


@ATTACK
@pytest.mark.parametrize("name", ["registry.example.com/other/trainer", ""])
def test_a_signature_of_another_name_is_refused(signed_machine: Any, name: str) -> None:
    says(signed_machine, name=name)
    refused(signed_machine, "is invalid for the key")


@ATTACK
@pytest.mark.parametrize("cut", [slice(0, 40), slice(0, 0), slice(0, 41), slice(4, None)])
def test_a_part_of_a_signature_is_refused(signed_machine: Any, cut: slice) -> None:
    says(signed_machine, signature=signed_machine.spec.job.image_signature.signature[cut])
    refused(signed_machine, "is invalid for the key")


@ATTACK
def test_remarks_that_bring_a_second_digest_are_refused(signed_machine: Any, tmp_path: Path) -> None:
    """Signed by the key's owner for another image: whatever is put around the digest that runs, it does not fit."""
    image = signed_machine.spec.job.image
    twice = f'null,"critical":{{"image":{{"docker-manifest-digest":"{image.partition("@")[2]}"}}}}'
    payload = signed_payload(tmp_path / "own.key", signed_name(image), OTHER, twice)
    says(signed_machine, signature=payload[1], optional=twice)
    refused(signed_machine, "is invalid for the key")


def test_a_machine_without_openssl_is_not_fit(signed_machine: Any, machines: Any, tmp_path: Path) -> None:
    signed_machine.env["PATH"] = f"{tmp_path}/fake:{machines.system_without(tmp_path, ['openssl'])}"
    refused(signed_machine, "no openssl to verify", status=4)


@ATTACK
def test_what_is_looked_at_is_what_runs(signed_machine: Any) -> None:
    signed_machine.write_settings(None)
    script = shlex.quote(str(signed_machine.bin / "verify-image.sh"))
    env = {
        "PATH": f"{signed_machine.root}/fake:{os.environ['PATH']}",
        "GANGWAY_NODE_ENV": f"{signed_machine.root}/node.env",
        "GANGWAY_STATE_DIR": f"{signed_machine.root}/state",
    }
    other = f"{script} docker run {signed_name(signed_machine.spec.job.image)}@{OTHER} python"
    done = subprocess.run(["bash", "-c", other], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the command does not run" in done.stderr
    assert not started(signed_machine)


@pytest.mark.parametrize(("status", "reason"), [(2, "bad-input")])
def test_the_job_ends_where_the_signature_does_not_hold(signed_machine: Any, status: int, reason: str) -> None:
    """No node that comes in its place would find another one."""
    says(signed_machine, signature="MEUC")
    assert signed_machine.run("run-trainer.sh").returncode == status
    signed_machine.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": str(status)}
    signed_machine.run("leave-node.sh")
    assert signed_machine.state("ended").read_text() == f"{status} {reason}\n"


def test_nothing_is_there_where_nothing_is_asked(node: AwsNodeSpec, head: AwsHeadSpec, tmp_path: Path) -> None:
    for text in (render_aws_node(node), render_aws_head(head)):
        assert "verify-image" not in text
        assert "IMAGE_KEY" not in text


def packed_bytes(spec: AwsNodeSpec | AwsHeadSpec) -> int:
    text = render_aws_node(spec) if isinstance(spec, AwsNodeSpec) else render_aws_head(spec)
    return len(base64.b64decode(user_data_base64gzip(text)))


@pytest.mark.parametrize("name", ["node", "head"])
def test_a_machine_on_aws_carries_it_in_little(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spec = request.getfixturevalue(name)
    asks = replace(spec, job=with_signature(spec.job, signature(tmp_path, spec.job.image)))
    assert 0 < packed_bytes(asks) - packed_bytes(spec) < 900


EVERY = [
    "node", "head", "gcp_node", "gcp_head", "tpu_host", "azure_node", "azure_head", "openstack_node", "openstack_head",
]  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_whatever_runs_the_image_on_any_cloud_looks_first(
    name: str, machines: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spec = request.getfixturevalue(name)
    asks = replace(spec, job=with_signature(spec.job, signature(tmp_path, spec.job.image)))
    files = {path: text for path, (_, text) in machines.files_of(machines.rendered(asks)).items()}
    assert "/opt/gangway/bin/verify-image.sh" in files
    settings = files["/etc/gangway/node.env"]
    assert all(f"\nIMAGE_{what}=" in settings for what in ("KEY", "NAME", "REMARKS", "SIGNATURE"))
    looks = 0
    for path, text in files.items():
        if path.endswith("/job.env"):
            words = text.partition("RUN=(\n")[2].split()
            assert words[0] == "/opt/gangway/bin/verify-image.sh", words
            looks += 1
        if path.endswith("gangway-rendezvous.service"):
            assert "\nExecStart=/opt/gangway/bin/verify-image.sh /usr/bin/docker run " in text
            looks += 1
    runs = [path for path, text in files.items() if spec.job.image in text and not path.endswith(("node.env", ".json"))]
    assert looks == len(runs) > 0, runs


def test_a_machine_of_ones_own_looks_before_it_pulls(job: JobSpec, tmp_path: Path) -> None:
    spec = HostSpec(
        stack="lab",
        job=with_signature(job, signature(tmp_path, job.image)),
        image_registry="r",
        bucket_uri="/results",
        run_dir="/runs/lab",
    )
    unit = next(file.text for file in host_files(spec) if file.path.endswith("gangway-prepare.service"))
    steps = [line.rpartition("/")[2] for line in unit.splitlines() if line.startswith("ExecStart=/opt/gangway")]
    assert steps.index("verify-image.sh") < steps.index("pull-image.sh") < steps.index("check-container.sh")
    assert "openssl: install it" in render_host_installer(spec)
    assert "IMAGE_KEY=" in host_env_text(spec)
    assert "/opt/gangway/bin/verify-image.sh" in host_job_env_text(spec)
    assert spec.job.image in host_docker_argv(spec)


@ATTACK
def test_a_signature_over_other_bytes_is_no_signature(signed_machine: Any, tmp_path: Path) -> None:
    """The same words with a space between: what cosign writes is known to the byte."""
    image = signed_machine.spec.job.image
    text = f'{{"critical": {{"image": {{"docker-manifest-digest": "{image.partition("@")[2]}"}}}}}}'
    says(signed_machine, signature=signed_text(tmp_path / "own.key", text)[1])
    refused(signed_machine, "is invalid for the key")
