"""images.lock: every image of others' that is built on or run has its digest there; a line of another form fails."""

import re
from pathlib import Path

import pytest

from gangway.images.aws import AwsHeadSpec, render_aws_head
from gangway.images.lock_images import images_in_use
from gangway.images.pins import LOCK, full_name, locked_digests, pinned_image
from gangway.images.render import render_dockerfile
from gangway.images.specs import DOCKERFILE_FLAVOURS, PROMETHEUS_IMAGE, Flavour


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
