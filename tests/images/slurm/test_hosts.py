"""A Slurm on machines that are there already: what each is given, and a real one begun from it."""

import hashlib
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gangway.images.render import NodeFile
from gangway.images.slurm.conf import SlurmHost, SlurmMachine, SlurmRung, SlurmSpec, slurm_conf
from gangway.images.slurm.hosts import MUNGE_SOCKET, SlurmHostSpec, render_slurm_host_installer, slurm_host_files
from gangway.images.specs import RdmaSetup
from tests.slurm_cluster import SlurmCluster, begin_munge, end_all, free_port, why_not

HOSTS = (SlurmHost("dgx-1", "10.30.0.11"), SlurmHost("dgx-2", "10.30.0.12"))
SLURM = SlurmSpec(
    cluster="lab",
    release="22.05",
    head_host="10.30.0.11",
    head_name="dgx-1",
    machine=SlurmMachine(cpus=224, memory_gib=2048, gpus=8, gpu_type="h100", fabric="InfiniBand"),
    rungs=(SlurmRung("main", "on-demand", 2, HOSTS),),
    nodes_up=2,
    munge_socket=MUNGE_SOCKET,
)
FIRST = SlurmHostSpec(
    stack="lab",
    slurm=SLURM,
    node="dgx-1",
    is_head=True,
    fabric=RdmaSetup("InfiniBand", 8, 400, devices=("/dev/infiniband",)),
    allowed=("10.30.0.11", "10.30.0.12"),
)
SECOND = replace(FIRST, node="dgx-2", is_head=False)


def files(spec: SlurmHostSpec) -> dict[str, NodeFile]:
    return {file.path: file for file in slurm_host_files(spec)}


def test_its_nodes_are_the_machines_and_nobody_gives_them_back() -> None:
    text = slurm_conf(SLURM)
    nodes = [line.split() for line in text.splitlines() if line.startswith("NodeName")]
    assert [(line[0], line[1]) for line in nodes] == [
        ("NodeName=dgx-1", "NodeAddr=10.30.0.11"), ("NodeName=dgx-2", "NodeAddr=10.30.0.12"),
    ]  # fmt: skip
    assert "PartitionName=main Nodes=dgx-1,dgx-2 Default=YES" in text
    assert not [line for line in text.splitlines() if line.startswith(("Suspend", "Resume"))]
    assert "CLOUD" not in text
    assert f"AuthInfo=socket={MUNGE_SOCKET}" in text


def test_the_first_alone_is_the_controller() -> None:
    first, second = files(FIRST), files(SECOND)
    assert "/etc/gangway/slurm/slurm.conf" in first
    assert "SlurmctldHost=@HEAD@(10.30.0.11)" in first["/etc/gangway/slurm/slurm.conf"].text
    assert second["/etc/gangway/slurm/slurm.conf"] == first["/etc/gangway/slurm/slurm.conf"]
    units = {path.rpartition("/")[2] for path in first if path.endswith(".service")}
    assert units - {path.rpartition("/")[2] for path in second} == {"gangway-slurmctld.service"}
    assert second["/etc/gangway/slurmd.env"].text == "SLURM_NODE=dgx-2\n"


def test_ports_are_those_that_slurm_listens_at() -> None:
    env = files(FIRST)["/etc/gangway/node.env"].text
    assert "JOB_PORTS=6817,6818,60001:60100" in env
    assert "10.30.0.11 10.30.0.12" in env
    steps = files(FIRST)["/etc/systemd/system/gangway-prepare.service"].text
    assert "ExecStart=/opt/gangway/bin/close-ports.sh\n" in steps
    assert not any("close-ports" in path for path in files(replace(FIRST, allowed=None)))


def test_a_node_that_is_none_of_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="dgx-1, dgx-2"):
        replace(FIRST, node="dgx-3")
    with pytest.raises(ValueError, match="munge_socket"):
        replace(FIRST, slurm=replace(SLURM, munge_socket=""))
    with pytest.raises(ValueError, match="allowed: none, or "):
        SlurmRung("main", "on-demand", 3, HOSTS)


def installed(tmp_path: Path, *, own_slurm: bool) -> subprocess.CompletedProcess[str]:
    """The first machine's script, where commands are fakes and the root is a folder."""
    fake, root = tmp_path / "fake", tmp_path / "root"
    fake.mkdir()
    for name in ("systemctl", "nvidia-smi", "munged", "slurmd", "slurmctld", "wg-quick"):
        (fake / name).write_text("#!/bin/sh\n")
        (fake / name).chmod(0o755)
    for name, said in {"id": "0", "uname": "x86_64"}.items():
        (fake / name).write_text(f"#!/bin/sh\necho {said}\n")
        (fake / name).chmod(0o755)
    if own_slurm:
        (root / "etc/slurm").mkdir(parents=True)
        (root / "etc/slurm/slurm.conf").touch()
    text = render_slurm_host_installer(FIRST)
    (tmp_path / "installer.sh").write_text(text)
    env = {"PATH": f"{fake}:{os.environ['PATH']}", "GANGWAY_ROOT": str(root)}
    words = ["bash", str(tmp_path / "installer.sh"), "install", hashlib.sha256(text.encode()).hexdigest(), "dgx-1"]
    return subprocess.run(words, env=env, capture_output=True, text=True)


def test_its_script_puts_all_of_it_there_without_a_container_engine(tmp_path: Path) -> None:
    done = installed(tmp_path, own_slurm=False)
    assert done.returncode == 0, done.stderr
    there = {f"/{path.relative_to(tmp_path / 'root')}" for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert set(files(FIRST)) <= there


def test_a_machine_with_a_slurm_of_its_own_is_left_alone(tmp_path: Path) -> None:
    done = installed(tmp_path, own_slurm=True)
    assert done.returncode == 1
    assert "already has Slurm" in done.stderr
    assert not (tmp_path / "root/opt").exists()


def ready(tmp_path: Path, release: str, spec: SlurmHostSpec = FIRST) -> subprocess.CompletedProcess[str]:
    """slurm-ready.sh of a machine, with a Slurm of that release."""
    fake, root, bin_dir = tmp_path / "fake", tmp_path / "root", tmp_path / "bin"
    for folder in (fake, root, bin_dir):
        folder.mkdir()
    for name, text in {"slurmd": f"echo slurm-wlm {release}", "chown": "", "hostname": "echo here"}.items():
        (fake / name).write_text(f"#!/bin/sh\n{text}\n")
        (fake / name).chmod(0o755)
    (fake / "install").write_text("#!/bin/sh\nexec /usr/bin/install $(echo \"$@\" | sed 's/-o slurm -g slurm//')\n")
    (fake / "install").chmod(0o755)
    for path, file in files(spec).items():
        target = bin_dir / path.rpartition("/")[2] if path.endswith(".sh") else root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
    env = {
        "PATH": f"{fake}:{os.environ['PATH']}", "GANGWAY_ROOT": str(root),
        "GANGWAY_NODE_ENV": str(root / "etc/gangway/node.env"),
    }  # fmt: skip

    return subprocess.run(["bash", str(bin_dir / "slurm-ready.sh")], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("release", ["22.05.8", "23.11.4", "24.05.0"])
def test_the_controllers_name_is_the_machines_own(tmp_path: Path, release: str) -> None:
    done = ready(tmp_path, release)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "root/run/slurm/conf"
    assert "SlurmctldHost=here(10.30.0.11)" in (made / "slurm.conf").read_text()
    assert {path.name for path in made.iterdir()} == {"slurm.conf", "gres.conf", "topology.conf", "cgroup.conf"}


def test_other_machines_call_the_controller_by_its_nodes_name(tmp_path: Path) -> None:
    assert ready(tmp_path, "22.05.8", SECOND).returncode == 0
    assert "SlurmctldHost=dgx-1(10.30.0.11)" in (tmp_path / "root/run/slurm/conf/slurm.conf").read_text()


@pytest.mark.parametrize("release", ["21.08.5", "20.11", "unknown"])
def test_an_older_release_is_refused(tmp_path: Path, release: str) -> None:
    done = ready(tmp_path, release)
    assert done.returncode != 0
    assert "release" in done.stderr or "22.05 or later" in done.stderr


@pytest.mark.slurm
@pytest.mark.xdist_group("slurm")
def test_a_real_slurm_takes_it(tmp_path: Path) -> None:
    """One machine that is controller and node: on loopback, without cgroups, in folders of its own."""
    if why := why_not():
        pytest.skip(why)
    folder = Path("/tmp") / f"gw-hosts-{os.getpid()}"  # munged's socket has a short name
    folder.mkdir(mode=0o755)
    (folder / "bin").mkdir()
    (folder / "bin" / "slurm-health.sh").write_text("#!/bin/sh\nexit 0\n")
    (folder / "bin" / "slurm-health.sh").chmod(0o755)
    spec = SlurmSpec(
        cluster="lab", release="22.05", head_host="127.0.0.1", head_name="lab-1",
        machine=SlurmMachine(cpus=1, memory_gib=0.5), nodes_up=1, user="root",
        rungs=(SlurmRung("main", "on-demand", 1, (SlurmHost("lab-1", "127.0.0.1"),)),),
        controller_port=free_port(), node_port=free_port(), state_dir=str(folder), log_dir=str(folder),
        bin_dir=str(folder / "bin"), munge_socket=f"{folder}/munge.sock",
    )  # fmt: skip
    for each in ("state", "spool"):
        (folder / each).mkdir()
    text = slurm_conf(spec).replace("SlurmctldHost=lab-1", f"SlurmctldHost={socket.gethostname().split('.')[0]}")
    for there, here in {
        "proctrack/cgroup": "proctrack/linuxproc", "task/cgroup,task/affinity": "task/none",
        "/run/slurm": f"{folder}/slurm", "/var/spool/slurmd": f"{folder}/spool",
    }.items():  # fmt: skip
        text = text.replace(there, here)
    (folder / "slurm.conf").write_text(text + "SlurmdUser=root\nSlurmdParameters=config_overrides\n")
    outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    cluster = SlurmCluster(folder, {**outer, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}, nodes=1)
    try:
        begin_munge(cluster)
        cluster.begin("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        cluster.until(("scontrol", "ping"), "UP")
        cluster.begin("slurmd-lab-1", "slurmd", "-D", "-N", "lab-1", "-f", str(folder / "slurm.conf"))
        cluster.until(("sinfo", "--noheader", "--format=%P %t %N"), "main* idle lab-1")
        assert cluster.run("srun", "--partition=main", "sh", "-c", "echo $SLURMD_NODENAME") == "lab-1\n"
        limits = "ulimit -S -l; ulimit -S -n"
        submit = f"ulimit -S -l 64; ulimit -S -n 300; exec srun --partition=main sh -c '{limits}'"
        assert cluster.run("sh", "-c", submit) == cluster.run("sh", "-c", limits), "the node's, not the submitter's"
    finally:
        end_all(cluster)
        shutil.rmtree(folder, ignore_errors=True)
