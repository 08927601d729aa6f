"""Local builds with programs that stand in for Docker and Podman and record how they are called."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.live.image_build import local
from gangway.live.image_build.context import pack_context
from tests.gangway.live.image_build.conftest import DIGEST

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program on an otherwise nearly empty PATH; returns the file of its calls."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def run(name: str, body: str) -> Path:
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "$0 $*" >> {calls}\n{body}\n')
        program.chmod(0o755)
        return calls

    return run


def test_docker_builds_pushes_and_asks_the_registry(install: Install) -> None:
    calls = install("docker", f"""case "$*" in *imagetools*) echo '{{"digest": "{DIGEST}"}}';; esac""")
    context = pack_context("cpu", "r.example/x")
    engine = local.need_engine()
    local.build(context, engine)
    assert local.push(context, engine) == DIGEST
    version, build, push, inspect = calls.read_text().splitlines()
    assert version.endswith("docker buildx version")
    assert f"--build-arg REVISION={context.tag}" in build
    assert push.endswith(f"docker push {context.image}")
    assert "imagetools inspect" in inspect


def test_podman_is_used_where_docker_has_no_buildx(install: Install) -> None:
    install("docker", "exit 1")
    calls = install("podman", f'case "$1" in push) printf %s {DIGEST} > "$3";; esac')
    context = pack_context("cpu", "r.example/x")
    engine = local.need_engine()
    local.build(context, engine)
    assert local.push(context, engine) == DIGEST
    assert "podman build --platform linux/amd64" in calls.read_text()


def test_without_either_the_message_names_both_and_the_cloud(install: Install) -> None:
    with pytest.raises(InputError, match="this machine cannot build images") as caught:
        local.need_engine()
    assert "podman" in caught.value.allowed
    assert "--remote" in caught.value.fix


def test_a_failed_command_is_named_with_its_status(install: Install) -> None:
    install("docker", 'case "$*" in *--load*) exit 3;; esac')
    with pytest.raises(InputError, match="docker buildx build: failed with exit status 3"):
        local.build(pack_context("cpu", "r.example/x"), "docker")


def test_a_push_without_a_digest_is_an_error(install: Install) -> None:
    install("docker", "true")
    with pytest.raises(InputError, match="its digest is not known"):
        local.push(pack_context("cpu", "r.example/x"), "docker")
