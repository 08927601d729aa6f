"""Specs refuse what a node could only find out after it has begun to cost money."""

import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.job import JobSpec
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec, render_aws_head
from gangway.images.lock_images import images_in_use
from gangway.images.render import render_dockerfile
from gangway.images.specs import (
    DOCKERFILE_FLAVOURS,
    LOCK,
    PROMETHEUS_IMAGE,
    DockerfileSpec,
    FileSystem,
    Flavour,
    full_name,
    locked_digests,
    pinned_image,
    stack_uid,
)


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
    with pytest.raises(ValueError, match=r"with terminate_when_done, idle_stop or lifecycle_hook.*gangway:stack"):
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


def test_the_lock_holds_what_is_in_use_and_nothing_else() -> None:
    assert sorted(locked_digests()) == images_in_use()


@pytest.mark.parametrize("flavour", DOCKERFILE_FLAVOURS)
def test_an_image_is_built_on_bytes_and_says_their_tag(flavour: Flavour) -> None:
    spec = DOCKERFILE_FLAVOURS[flavour]
    bases = re.findall(r"^FROM (\S+) AS", render_dockerfile(spec), re.MULTILINE)
    assert bases == [f"{spec.base_image}@{locked_digests()[full_name(spec.base_image)]}"] * 2


def test_the_head_runs_prometheus_by_its_digest(head: AwsHeadSpec) -> None:
    from dataclasses import replace

    text = render_aws_head(replace(head, prometheus_image=PROMETHEUS_IMAGE))
    assert f"{PROMETHEUS_IMAGE}@{locked_digests()[PROMETHEUS_IMAGE]}" in text
    other = f"example.com/prom:v9@sha256:{'a' * 64}"
    assert f" {other}" in render_aws_head(replace(head, prometheus_image=other))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("python:3", "docker.io/library/python:3"),
        ("prom/prometheus:v3", "docker.io/prom/prometheus:v3"),
        ("localhost/x:1", "localhost/x:1"),
        ("host:5000/x:1", "host:5000/x:1"),
        ("[::1]:5000/x:1", "[::1]:5000/x:1"),
    ],
)
def test_names_mean_what_docker_takes_them_for(image: str, name: str) -> None:
    assert full_name(image) == name


def test_what_is_not_locked_stays_as_it_is() -> None:
    assert pinned_image("example.com/none:1") == "example.com/none:1"
    own = f"python:3.12.12-slim-bookworm@sha256:{'b' * 64}"
    assert pinned_image(own) == own


@pytest.mark.parametrize("line", ["python:3", "python:3 sha256:12", f"python:3  sha256:{'a' * 64}", "x; y sha256:1"])
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "lock").write_text(f"{LOCK.read_text()}{line}\n")
    with pytest.raises(ValueError, match=re.escape(repr(line))):
        locked_digests(tmp_path / "lock")
