"""What a pod of GKE's nodes does for pods without rights."""

import subprocess
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest

from gangway.components.gcp.gke_limits import node_limits

PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
"""
CAT = """#!/bin/sh
case $1 in */4711/comm) echo containerd ;; *) echo other ;; esac
"""


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
def test_kubernetes_knows_every_field(version: str) -> None:
    kubernetes_validate.validate(node_limits(), version, strict=True)


def test_containers_may_lock_memory_and_open_chips(tmp_path: Path) -> None:
    (container,) = node_limits()["spec"]["template"]["spec"]["containers"]
    programs = {"prlimit": PROGRAM, "chmod": PROGRAM, "cat": CAT, "sleep": '#!/bin/sh\nkill "$PPID"\n'}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    for pid in ("1", "4711"):
        (tmp_path / "proc" / pid).mkdir(parents=True)
    shell, flag, script = container["command"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    subprocess.run([shell, flag, script.replace("/proc", f"{tmp_path}/proc")], env=env, check=False, timeout=60)
    called = (tmp_path / "log").read_text().splitlines()
    assert called[0] == "prlimit --pid 4711 --memlock=unlimited"
    assert called[1].startswith("chmod a+rw ")
    assert all(device in called[1] for device in ("/dev/accel", "/dev/vfio/"))
    assert len(called) == 2
