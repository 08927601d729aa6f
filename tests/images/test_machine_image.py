"""The script that provisions a machine image, run with fake commands: it installs what nodes install, and no more."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangway.images import render
from gangway.images.machine_image import END_OF_INSTALL, MachineImageSpec, render_machine_image
from gangway.images.render import TEMPLATES
from gangway.images.specs import EXPORTER_IMAGES, pinned_image

REGISTRY = "123456789012.dkr.ecr.us-east-2.amazonaws.com"
CONTAINER = f"{REGISTRY}/trainer@sha256:{'ab' * 32}"
AWS = MachineImageSpec(
    cloud="aws",
    lustre=True,
    container=CONTAINER,
    registry=REGISTRY,
    exporters=tuple(EXPORTER_IMAGES),
    settings={"REGION": "us-east-2"},
)


@pytest.fixture
def builder(machine: Any, tmp_path: Path) -> Any:
    """A machine on which the packages of a node can be installed."""
    for name in ("modprobe", "docker", "mount", "mountpoint", "sync"):
        machine.fake(name)
    machine.fake("mountpoint", "exit 1")
    machine.fake("mkdir")
    (tmp_path / "tmp").mkdir()
    return machine


def provision(builder: Any, spec: MachineImageSpec, **more: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": f"{builder.root}/fake:{os.environ['PATH']}",
        "TMPDIR": f"{builder.root}/tmp",
        "GANGWAY_ROOT": f"{builder.root}/image",
        "GANGWAY_POLL_SEC": "0.05",
        "GANGWAY_PULL_DEADLINE_SEC": "0",
        **more,
    }
    script = render_machine_image(spec)
    return subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_the_image_has_the_client_the_container_and_the_exporters(builder: Any) -> None:
    done = provision(builder, AWS)
    assert done.returncode == 0, done.stderr
    assert builder.calls("modprobe") == [["lustre"]]
    pulled = [call[-1] for call in builder.calls("docker") if call[0] == "pull"]
    assert pulled == [CONTAINER, *(pinned_image(image) for image in EXPORTER_IMAGES.values())]
    assert ["login", "--username", "AWS", "--password-stdin", REGISTRY] in builder.calls("docker")


def test_azures_image_has_docker_and_the_container(builder: Any, azure_vm: Any) -> None:
    builder.fake("systemctl")
    builder.fake("docker", 'if [ "$1" = login ]; then cat >/dev/null; fi')
    host = "ourimages.azurecr.io"
    container = f"{host}/trainer@sha256:{'ab' * 32}"
    settings = {"CLIENT_ID": "11111111-2222-3333-4444-555555555555", "SCRATCH_TEMPORARY": ""}
    spec = MachineImageSpec(
        cloud="azure", docker=True, lustre=True, container=container, registry=host, settings=settings
    )
    done = provision(builder, spec, GANGWAY_METADATA_URL=azure_vm.url, GANGWAY_API_URL=azure_vm.url)
    assert done.returncode == 0, done.stderr
    assert builder.calls("modprobe") == [["lustre"]]
    assert ["pull", "--quiet", container] in builder.calls("docker")
    assert any(call[0] == "login" and call[-1] == host for call in builder.calls("docker"))


def test_googles_image_has_docker_and_the_container(builder: Any, gce: Any) -> None:
    builder.fake("systemctl")
    builder.fake("docker", 'if [ "$1" = login ]; then cat >/dev/null; fi')
    host = "us-central1-docker.pkg.dev"
    container = f"{host}/acme-ml/gan/trainer@sha256:{'ab' * 32}"
    settings = {"PROJECT": "acme-ml", "REGION": "us-central1"}
    spec = MachineImageSpec(
        cloud="gcp", docker=True, lustre=True, container=container, registry=host, settings=settings
    )
    done = provision(builder, spec, GANGWAY_METADATA_URL=gce.url, GANGWAY_API_URL=gce.url)
    assert done.returncode == 0, done.stderr
    assert builder.calls("modprobe") == [["lustre"]]
    assert ["pull", "--quiet", container] in builder.calls("docker")
    assert any(call[0] == "login" and f"https://{host}" in call[-1] for call in builder.calls("docker"))


def test_it_mounts_nothing_and_leaves_neither_scripts_nor_a_login(builder: Any, tmp_path: Path) -> None:
    assert provision(builder, AWS).returncode == 0
    assert builder.calls("mount") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    (left,) = [path for path in (tmp_path / "image").rglob("*") if path.is_file()]
    assert left.read_text() == render.NO_UPGRADES.text, "the kernel stays"


def test_a_step_that_gives_up_fails_the_build_and_replaces_no_machine(builder: Any) -> None:
    builder.fake("docker", "exit 1")
    done = provision(builder, AWS)
    assert done.returncode != 0
    assert f"cannot pull {CONTAINER}" in done.stderr
    assert builder.asked("autoscaling") == []


def test_slurm_is_installed_and_no_key_is_read(builder: Any) -> None:
    builder.fake("dpkg-query", "exit 1")
    for name in ("apt-get", "systemctl"):
        builder.fake(name)
    done = provision(builder, MachineImageSpec(cloud="aws", slurm=True, settings={"REGION": "us-east-2"}))
    assert done.returncode == 0, done.stderr
    installed = next(call for call in builder.calls("apt-get") if "install" in call)
    assert {"munge", "slurmd"} <= set(installed)
    assert builder.asked("ssm") == []


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_what_needs_the_node_is_not_in_the_script(cloud: str) -> None:
    text = (TEMPLATES / cloud / "mount-lustre.sh").read_text("utf-8")
    install, mark, boot = text.partition(END_OF_INSTALL)
    assert mark
    assert "install_client" in install
    assert "mount_once ||" in boot
    script = render_machine_image(MachineImageSpec(cloud=cloud, docker=cloud != "aws", lustre=True))
    assert boot.strip().splitlines()[-1] not in script
