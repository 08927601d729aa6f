"""Machines of a Slurm on AWS, and one of them in small."""

from pathlib import Path
from typing import Any

import pytest

from gangway.images.slurm.aws import AwsSlurmHeadSpec, AwsSlurmNodeSpec
from gangway.images.slurm.conf import SlurmMachine, SlurmRung, SlurmSpec, SlurmTeam
from gangway.images.specs import FileSystem

FSX = FileSystem("lustre", "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com@tcp:/abcdefgh", "/fsx")
MUNGE_KEY = "/gangway/demo/munge-key"


@pytest.fixture(scope="session")
def p5_slurm() -> SlurmSpec:
    """Two rungs of p5.48xlarge, with accounts."""
    return SlurmSpec(
        cluster="demo",
        release="23.11",
        head_host="head.demo.gangway.internal",
        head_name="head",
        machine=SlurmMachine(cpus=192, memory_gib=2048, gpus=8, gpu_type="h100", fabric="efa"),
        rungs=(SlurmRung("spot", "spot", 8), SlurmRung("on-demand", "on-demand", 8)),
        nodes_up=1,
        accounting=True,
        teams=(
            SlurmTeam("vision", 6, users={"ann": 20001, "bob": 20002}),
            SlurmTeam("speech", 2, users={"bob": 20002, "cleo": 20003}),
        ),
        state_dir="/fsx/.gangway/slurm",
    )


@pytest.fixture(scope="session")
def slurm_node(p5_slurm: SlurmSpec) -> AwsSlurmNodeSpec:
    """With all that a node may have."""
    return AwsSlurmNodeSpec(
        stack="demo",
        region="us-east-2",
        slurm=p5_slurm,
        munge_key=MUNGE_KEY,
        file_system=FSX,
        efa_interfaces_planned=32,
        lustre_efa_interfaces=8,
        lustre_efa_setup_sha256="ab" * 32,
        scratch_mount_point="/scratch",
        lifecycle_hook="gangway-leave",
    )


@pytest.fixture(scope="session")
def slurm_head(p5_slurm: SlurmSpec) -> AwsSlurmHeadSpec:
    """With all that a controller may have."""
    return AwsSlurmHeadSpec(
        stack="demo",
        region="us-east-2",
        slurm=p5_slurm,
        munge_key=MUNGE_KEY,
        file_system=FSX,
        groups=("demo-0-spot-1a2b3c4", "demo-1-on-demand-5d6e7f8"),
        most=8,
        shared_dir="/fsx/jobs",
    )


@pytest.fixture
def slurm_machine(machine: Any, slurm_node: AwsSlurmNodeSpec, tmp_path: Path) -> Any:
    """A node in small, whose own words are Slurm's."""
    machine.more_settings = {
        "MUNGE_KEY": slurm_node.munge_key,
        "SLURM_HEAD": "head.demo.gangway.internal:6817",
        "SLURM_PACKAGES": "'munge slurmd'",
        "SLURM_USERS": "'ann:20001 bob:20002'",
        "HEALTH_CHECKS": "check-efa.sh",
    }
    machine.env |= {
        "GANGWAY_ROOT": str(tmp_path),
        "GANGWAY_SLURM_NAME": f"{tmp_path}/name",
        "GANGWAY_HELD": f"{tmp_path}/held",
        "GANGWAY_CHECK_ENV": f"{tmp_path}/check.env",
    }
    for name in ("scontrol", "slurmd", "scancel", "systemctl", "apt-get", "chown", "useradd"):
        machine.fake(name)
    return machine
