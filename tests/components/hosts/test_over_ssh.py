"""What HostPool hands to a machine and tells it, through a real SSH server on loopback: SFTP, login shell, both words.

The machine is small: systemd, docker and root's name are fakes first on PATH, and its root is a folder. Skipped where
there is no OpenSSH server (`apt-get install openssh-server`; nobody has to start it).
"""

import getpass
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from gangway.components.core.job import JobSpec, Rendezvous, Training
from gangway.components.hosts.node_pool import HostPool, HostPoolArgs
from gangway.images.hosts import HostSpec, render_host_installer
from tests.components.fixture_types import Make

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
pytestmark = pytest.mark.skipif(
    not (Path(SSHD).is_file() and shutil.which("sftp")), reason="no OpenSSH server on this machine"
)


@dataclass
class Reached:
    """A machine behind an SSH server.

    Attributes:
        root: what the installer takes for the machine's root.
        options: of OpenSSH's clients, to reach it.
        host_key: the server's public key.
    """

    root: Path
    options: list[str]
    host_key: str

    def _ssh(self, program: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *self.options, *words], input=text, capture_output=True, text=True, timeout=60, check=False
        )

    def copy(self, source: Path, target: str) -> None:
        """As CopyToRemote does: SFTP, to a path in the user's home."""
        done = self._ssh("sftp", "-b", "-", "127.0.0.1", text=f"put {source} {target}\n")
        assert done.returncode == 0, done.stderr

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """As Command does: one string, for the user's login shell."""
        return self._ssh("ssh", "127.0.0.1", command)

    def files(self) -> set[str]:
        """Everything on the machine."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


def new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[Reached]:
    """A server for this user alone, on a port of its own."""
    root, fake = tmp_path / "root", tmp_path / "fake"
    (root / "usr/bin").mkdir(parents=True)
    fake.mkdir()
    for name, body in {"systemctl": "", "docker": "", "id": "echo 0", "uname": "echo x86_64"}.items():
        (fake / name).write_text(f"#!/bin/sh\n{body}\n")
        (fake / name).chmod(0o755)
    (root / "usr/bin/docker").symlink_to(fake / "docker")
    for key in ("host", "user"):
        new_key(tmp_path / key)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "Subsystem": "sftp internal-sftp",
        "SetEnv": f"GANGWAY_ROOT={root} PATH={fake}:{os.environ['PATH']}",
    }
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    host_key = (tmp_path / "host.pub").read_text().rpartition(" ")[0]
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    options = [
        *("-F", "none", "-i", str(tmp_path / "user"), "-o", f"Port={port}", "-o", f"User={getpass.getuser()}"),
        *("-o", f"UserKnownHostsFile={tmp_path}/known", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"),
    ]
    with subprocess.Popen([SSHD, "-D", "-e", "-f", tmp_path / "sshd_config"], stderr=subprocess.PIPE) as server:
        try:
            wait_for(port, server)
            yield Reached(root, options, host_key)
        finally:
            server.terminate()


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until it answers."""
    for _ in range(100):
        assert server.poll() is None, server.stderr and server.stderr.read().decode()
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no server at {port}")


def installer(kimg: int = 1) -> str:
    job = JobSpec(
        name="lab",
        image="registry.example.com/trainer@sha256:" + "ab" * 32,
        backend="gloo",
        num_nodes_min=1,
        num_nodes_max=1,
        processes_per_node=1,
        rendezvous=Rendezvous(standalone=True),
        env={"NOTE": 'it\'s "50 %" of $HOME\nüñí'},
        training=Training(config={"kimg": kimg}, run_dir="/var/lib/gangway/runs/lab"),
    )
    spec = HostSpec(
        stack="lab", job=job, image_registry="", bucket_uri="/srv/results", run_dir="/var/lib/gangway/runs/lab"
    )
    return render_host_installer(spec)


@pytest.fixture
def pool() -> Iterator[str]:
    """A name nobody else has: the user's home, where copies go, is shared with every other run of these tests."""
    name = f"test-{secrets.token_hex(6)}"
    yield name
    for copy in copies(name):
        copy.unlink()


def copies(pool: str) -> list[Path]:
    """What was handed over for the pool and still lies in the user's home: the account's, whatever $HOME says."""
    return list(Path(pwd.getpwuid(os.getuid()).pw_dir).glob(f".gangway-{pool}-*"))


@pytest.fixture
def words(declare: Make, reached: Reached, pool: str, tmp_path: Path) -> Callable[[str], Any]:
    """Hands a script over, and gives the command's inputs."""
    machine = {"name": "dgx-1", "address": "127.0.0.1", "port": 22, "user": "me", "host_key": reached.host_key}

    def hand_over(script: str) -> Any:
        args = cast("HostPoolArgs", {"machines": [{**machine, "installer": script}]})
        made = declare(lambda: HostPool(pool, args))
        copy = made.one("CopyToRemote").inputs
        (tmp_path / "script").write_text(copy["source"].text)
        reached.copy(tmp_path / "script", copy["remotePath"])
        return made.one("Command").inputs

    return hand_over


def test_a_machine_is_installed_changed_and_freed(reached: Reached, words: Callable[[str], Any], pool: str) -> None:
    empty = reached.files()
    first = words(installer())
    done = reached.run(first["create"])
    assert done.returncode == 0, done.stderr
    assert "gangway: stack lab is installed: " in done.stderr
    assert "etc/systemd/system/gangway-trainer.service" in reached.files()
    assert (reached.root / "etc/gangway/job.env").read_text().count("\\303\\274\\303\\261\\303\\255") == 1

    assert "nothing to do" in reached.run(first["update"]).stderr
    second = words(installer(kimg=2))
    assert copies(pool), "else the last line would hold of anything"
    # The old word no longer fits the new copy.
    assert reached.run(first["update"]).returncode == 1
    assert reached.run(second["update"]).returncode == 0
    assert "--kimg\n    2\n" in (reached.root / "etc/gangway/job.env").read_text()

    # What stands in the command is the place on a real machine; here its root is a folder.
    inside = second["delete"].replace("/opt/gangway", f"{reached.root}/opt/gangway")
    done = reached.run(inside)
    assert done.returncode == 0, done.stderr
    assert reached.files() == empty
    assert not copies(pool)


def test_a_machine_that_is_not_ready_says_why_and_the_command_fails(
    reached: Reached, words: Callable[[str], Any]
) -> None:
    (reached.root / "usr/bin/docker").unlink()
    done = reached.run(words(installer())["create"])
    assert done.returncode == 1
    assert "no /usr/bin/docker: install Docker Engine" in done.stderr
    assert reached.files() == set()
