"""A machine that is there already, in small: a folder for its root, fake commands, and the real scripts."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.job import JobSpec, Volume
from gangway.images.hosts import HostSpec, host_env_text, host_job_env_text, render_host_installer
from gangway.images.shell import bash_array
from gangway.images.specs import RdmaSetup

IB = RdmaSetup("InfiniBand", 8, 400, devices=("/dev/infiniband",))


@pytest.fixture(scope="session")
def host_job(job: JobSpec) -> JobSpec:
    volumes = (
        Volume(source="/shared/gangway", target="/shared/gangway"),
        Volume(source="/data", target="/data", read_only=True),
    )
    return job.model_copy(update={"volumes": volumes, "env": {**job.env, "NCCL_NET": "IB"}})


@pytest.fixture(scope="session")
def first(host_job: JobSpec) -> HostSpec:
    """The first of two machines, with all that there is."""
    return HostSpec(
        stack="lab",
        job=host_job,
        image_registry="registry.example.com",
        bucket_uri="s3://my-bucket/runs/lab",
        run_dir="/shared/gangway/runs/lab",
        max_hours=8,
        fabric=IB,
        shared_dir="/shared/gangway",
        labels={"team": "ml-platform", "gangway.stack": "lab"},
        port=29400,
        member_key="/etc/gangway/member.pem",
        prometheus_image="prom/prometheus:v3.7.3",
        workers=("10.30.0.11", "fd00::12"),
        allowed=("10.30.0.11", "fd00::12", "10.99.0.0/16"),
        keeps_record=True,
    )


@pytest.fixture(scope="session")
def alone(host_job: JobSpec) -> HostSpec:
    """A machine without GPUs or a fabric that trains alone, and runs podman."""
    return HostSpec(
        stack="lab",
        job=host_job.model_copy(update={"backend": "gloo", "volumes": (), "env": {}}),
        image_registry="registry.example.com",
        bucket_uri="/srv/results/lab",
        run_dir="/var/lib/gangway/runs/lab",
        container_engine="podman",
    )


@dataclass
class Owned:
    """What an installer takes for the whole machine."""

    small: Any
    root: Path

    def script(self, spec: HostSpec) -> tuple[Path, str]:
        """The installer where SFTP has put it, and its sum."""
        text = render_host_installer(spec)
        path = self.root / "home" / ".gangway-lab.sh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path, hashlib.sha256(text.encode()).hexdigest()

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Runs bash with the fakes first on PATH."""
        env = {"PATH": f"{self.small.root}/fake:/usr/bin:/bin:/usr/sbin:/sbin", "GANGWAY_ROOT": str(self.root)}
        return subprocess.run(
            ["bash", *map(str, words)], env=env, capture_output=True, text=True, timeout=60, check=False
        )

    def install(self, spec: HostSpec, name: str = "dgx-1") -> subprocess.CompletedProcess[str]:
        """As `up` does it."""
        path, digest = self.script(spec)
        return self.run(path, "install", digest, name)

    def remove(self, name: str = "dgx-1") -> subprocess.CompletedProcess[str]:
        """As `destroy` does it: with the machine's own copy."""
        return self.run(self.root / "opt/gangway/installer.sh", "remove", name)

    def files(self) -> set[str]:
        """Everything below /etc, /opt and /run."""
        found = (path for part in ("etc", "opt", "run") for path in (self.root / part).rglob("*"))
        return {f"/{path.relative_to(self.root)}" for path in found if path.is_file()}

    def systemctl(self) -> list[list[str]]:
        """What was asked of systemd."""
        calls: list[list[str]] = self.small.calls("systemctl")
        return calls


@pytest.fixture
def owned(tmp_path: Path, first: HostSpec, machines: Any) -> Owned:
    """A machine with all that is needed, and files of its owner."""
    small = tmp_path / "small"
    (small / "fake").mkdir(parents=True)
    made = machines.Machine(small, first)
    for name in ("systemctl", "docker", "nvidia-smi", "aws", "gcloud", "az"):
        made.fake(name)
    made.fake("id", "echo 0")
    made.fake("uname", "echo x86_64")
    root = tmp_path / "root"
    for folder in ("etc/systemd/system", "opt", "usr/bin", "var/lib/gangway/runs/lab"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/docker").symlink_to(small / "fake" / "docker")
    (root / "etc/systemd/system/sshd.service").write_text("[Service]\n")
    (root / "var/lib/gangway/runs/lab/run.json").write_text("{}")
    return Owned(made, root)


@pytest.fixture(scope="session")
def hosts_scripts(tmp_path_factory: pytest.TempPathFactory, machines: Any) -> Path:
    """The scripts of such a machine side by side."""
    folder: Path = machines.scripts_of("hosts", tmp_path_factory.mktemp("hosts") / "bin")
    return folder


@pytest.fixture
def host(tmp_path: Path, first: HostSpec, hosts_scripts: Path, machines: Any) -> Any:
    """A machine on which scripts run as they are shipped."""

    class Host(machines.Machine):  # type: ignore[misc]  # a module that is loaded by its path has no types
        def write_settings(self, head: None) -> None:
            (self.root / "node.env").write_text(host_env_text(self.spec))
            trainer = bash_array("DOCKER_ARGV", ["run", self.spec.job.image])
            own = host_job_env_text(self.spec, str(self.bin))
            (self.root / "job.env").write_text(trainer if self.spec.job.command is None else own)

    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "python3").symlink_to(sys.executable)
    made = Host(tmp_path, first, {"GANGWAY_ROOT": str(tmp_path)}, hosts_scripts)
    made.fake("systemctl", "[ $1 != is-system-running ] || echo running")
    return made


@pytest.fixture(scope="session")
def given_up() -> Callable[..., str]:
    """Runs a script that gives the machine up, and says what it said."""

    def run(machine: Any, script: str) -> str:
        done = machine.run(script)
        assert done.returncode == 1, done.stderr
        assert "this machine is not replaced" in done.stderr
        said: str = done.stderr
        return said

    return run
