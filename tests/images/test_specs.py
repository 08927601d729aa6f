"""Specs refuse what a node could only find out after it has begun to cost money."""

from dataclasses import FrozenInstanceError, replace

import pytest

from components.job import JobSpec
from images import DOCKERFILE_FLAVOURS, DockerfileSpec, NodeInitSpec


@pytest.mark.parametrize("image", ["python", "python:latest", "registry.example:5000/python"])
def test_a_base_image_that_moves_is_refused_by_name(image: str) -> None:
    with pytest.raises(ValueError, match=r"base_image: '.*does not name one version.*fix: pin the tag"):
        DockerfileSpec(flavour="cpu", base_image=image, python_version="3.12")


@pytest.mark.parametrize("image", ["registry.example:5000/python:3.12.12", "python@sha256:" + "ab" * 32])
def test_a_fixed_tag_or_a_digest_is_a_base_image(image: str) -> None:
    assert DockerfileSpec(flavour="cpu", base_image=image, python_version="3.12").base_image == image


def test_flavours_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        DOCKERFILE_FLAVOURS["cpu"] = DOCKERFILE_FLAVOURS["cuda-efa"]  # type: ignore[index]  # the point of the test
    with pytest.raises(FrozenInstanceError):
        DOCKERFILE_FLAVOURS["cpu"].version = "2"  # type: ignore[misc]  # the point of the test


def test_an_image_named_by_tag_is_refused(node: NodeInitSpec, job: JobSpec) -> None:
    tagged = job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"'example/gangway:v1' can change between two nodes.*@sha256"):
        replace(node, job=tagged)


def test_half_a_file_system_is_refused(node: NodeInitSpec) -> None:
    with pytest.raises(ValueError, match=r"lustre_dns_name: None with lustre_mount_name 'abcdefgh'.*both or neither"):
        replace(node, lustre_dns_name=None)


@pytest.mark.parametrize(("name", "value"), [("", "x"), ("A=B", "x"), ("A", "x\0y"), ("A\0", "x")])
def test_what_cannot_be_an_environment_variable_is_refused(
    node: NodeInitSpec, job: JobSpec, name: str, value: str
) -> None:
    with pytest.raises(ValueError, match=r"job\.env: .* cannot be an environment variable"):
        replace(node, job=job.model_copy(update={"env": {name: value}}))
