"""Specs refuse what a node could only find out after it has begun to cost money."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from gangway.components.core.job import JobSpec
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec
from gangway.images.specs import DOCKERFILE_FLAVOURS, DockerfileSpec, FileSystem, stack_uid


@pytest.mark.parametrize("image", ["python", "python:latest", "registry.example:5000/python"])
def test_a_base_image_that_moves_is_refused_by_name(image: str) -> None:
    with pytest.raises(ValueError, match=r"base_image: '.*has no fixed version.*fix: pin the tag"):
        DockerfileSpec(flavour="cpu", base_image=image, python_version="3.12")


@pytest.mark.parametrize("image", ["registry.example:5000/python:3.12.12", "python@sha256:" + "ab" * 32])
def test_a_fixed_tag_or_a_digest_is_a_base_image(image: str) -> None:
    assert DockerfileSpec(flavour="cpu", base_image=image, python_version="3.12").base_image == image


def test_flavours_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        DOCKERFILE_FLAVOURS["cpu"] = DOCKERFILE_FLAVOURS["cuda-efa"]  # type: ignore[index]  # the point of the test
    with pytest.raises(FrozenInstanceError):
        DOCKERFILE_FLAVOURS["cpu"].version = "2"  # type: ignore[misc]  # the point of the test


def test_an_image_named_by_tag_is_refused(node: AwsNodeSpec, job: JobSpec) -> None:
    tagged = job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"'example/gangway:v1' can change between two nodes.*@sha256"):
        replace(node, job=tagged)


@pytest.mark.parametrize(
    "files", [FileSystem("nfs", "10.0.0.2:/share", "/fsx"), FileSystem("lustre", "fs-1.fsx.example", "/fsx")]
)
def test_another_file_system_than_fsx_is_refused(node: AwsNodeSpec, files: FileSystem) -> None:
    with pytest.raises(ValueError, match=r"AwsNodeSpec\.file_system: .*allowed: 'lustre' at DNS_NAME@tcp:/MOUNT_NAME"):
        replace(node, file_system=files)


@pytest.mark.parametrize("change", [{"efa_interfaces_planned": 0}, {"file_system": None}])
def test_lustre_over_efa_needs_both(node: AwsNodeSpec, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"lustre_efa: True with .*fix: lustre_efa=False"):
        replace(node, lustre_efa=True, **change)


@pytest.mark.parametrize("change", [{"lifecycle_hook": None}, {"terminate_when_done": False}])
def test_a_node_that_speaks_to_its_groups_must_know_their_tag(node: AwsNodeSpec, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"stack: '' with terminate_when_done or lifecycle_hook.*gangway:stack"):
        replace(node, stack="", **change)


def test_a_job_needs_some_time(node: AwsNodeSpec) -> None:
    with pytest.raises(ValueError, match=r"max_hours: 0; allowed: above 0"):
        replace(node, max_hours=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_hours": 0}, r"AwsHeadSpec.max_hours: 0; allowed: above 0"),
        ({"prometheus_image": "prom/prometheus"}, r"prometheus_image: 'prom/prometheus' has no fixed version"),
    ],
)
def test_a_head_node_is_checked_as_well(head: AwsHeadSpec, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(head, **change)


def test_a_head_nodes_image_is_named_by_digest_too(head: AwsHeadSpec) -> None:
    tagged = head.job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"AwsHeadSpec\.job\.image: 'example/gangway:v1' can change"):
        replace(head, job=tagged)


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0", "x")])
def test_an_invalid_environment_variable_is_refused(node: AwsNodeSpec, job: JobSpec, name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"job\.env: .* is not a valid environment variable"):
        replace(node, job=job.model_copy(update={"env": {name: value}}))


def test_each_stack_has_its_own_user() -> None:
    """On a file system where jobs of several stacks write."""
    uids = {stack_uid(f"lab-{number}") for number in range(300)}
    assert len(uids) == 300
    assert stack_uid("lab-7") in uids
    # SSSD's users end there; Docker takes 31 bits, and systemd's foreign users begin below their end.
    assert min(uids) > 2_000_200_000
    assert max(uids) < 2_147_352_576
