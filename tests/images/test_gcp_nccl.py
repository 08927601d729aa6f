"""NCCL's plug-in on a Google Cloud node: what the host does for it, and the job's container around its profile."""

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.gcp import GcpNodeSpec, gcp_docker_argv
from gangway.images.shell import life_argv

APERTURE = ("0x1ae0", "0x0084")
READS = "[ $1 != login ] || cat >/dev/null; "
"""The password, or who writes it fails."""
LOGIN = ["login", "--username", "oauth2accesstoken", "--password-stdin", "https://us-docker.pkg.dev"]


@pytest.fixture
def host(bare: Any, tmp_path: Path) -> Any:
    """An a3-megagpu-8g whose devices are there, and whose docker works."""
    for number, (vendor, device) in enumerate([APERTURE, ("0x10de", "0x2330"), APERTURE]):
        folder = tmp_path / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    # What a bind mount would show.
    bare.fake("mount", 'touch "${@: -1}/resource0"')
    bare.fake("docker", f"{READS}[ $1 != logs ] || echo 'I0000 Buffer manager initialization complete'")
    bare.env |= {"GANGWAY_SYSFS": f"{tmp_path}/sys", "GANGWAY_APERTURES": f"{tmp_path}/apertures"}
    return bare


def prepare(host: Any) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = host.run("prepare-nccl.sh", NCCL_DEADLINE_SEC="0")
    return done


def test_module_devices_libraries_and_daemon_come_in_their_order(host: Any, tmp_path: Path) -> None:
    done = prepare(host)
    assert done.returncode == 0, done.stderr
    assert host.calls("modprobe") == [["import-helper"]]
    devices = f"{tmp_path}/sys/bus/pci/devices"
    mounted = [
        ["--bind", f"{devices}/{name}", f"{tmp_path}/apertures/{name}"] for name in ("0000:00:00.0", "0000:02:00.0")
    ]
    assert host.calls("mount") == mounted
    assert (tmp_path / "apertures/0000:00:00.0/resource0").stat().st_mode & 0o666 == 0o666
    nccl = host.gcp.nccl
    removed, logs = ["rm", "--force", "gangway-rxdm"], ["logs", "gangway-rxdm"]
    assert host.calls("docker") == [LOGIN, list(nccl.install_argv), removed, list(nccl.side_argv), logs]


def test_after_a_reboot_what_is_mounted_is_left(host: Any, tmp_path: Path) -> None:
    for name in ("0000:00:00.0", "0000:02:00.0"):
        (tmp_path / "apertures" / name).mkdir(parents=True)
        (tmp_path / "apertures" / name / "resource0").touch()
    host.fake("mountpoint")
    assert prepare(host).returncode == 0
    assert host.calls("mount") == []


SOURCE = 'MODULE_LICENSE("GPL");\nMODULE_IMPORT_NS(DMA_BUF);\n'
VERSION = ["-m", "dmabuf-import-helper", "-v", "1.1"]


def has_source(host: Any, kernel: str) -> None:
    """The module is not there, and Google's repository has its source."""
    (host.root / "usr/src").mkdir(parents=True)
    host.fails_at_first("modprobe", 1)
    host.fake("uname", f"echo {kernel}")
    host.fake("apt-get", '[ "$2" != download ] || touch "$3_1.1_all.deb"')
    tree = "usr/src/dmabuf-import-helper-1.1"
    host.fake("dpkg-deb", f"mkdir -p $3/{tree}; printf '%s' '{SOURCE}' >$3/{tree}/import-helper.c")
    host.fake("dkms")


@pytest.mark.parametrize(
    ("kernel", "namespace"),
    [("6.8.0-1020-gcp", "DMA_BUF"), ("6.13.0-1", '"DMA_BUF"'), ("6.17.0-1020-gcp", '"DMA_BUF"')],
)
def test_the_module_is_built_for_the_running_kernel_where_it_is_missing(host: Any, kernel: str, namespace: str) -> None:
    has_source(host, kernel)
    done = prepare(host)
    assert done.returncode == 0, done.stderr
    steps = [call[4:] if call[1] == "-y" else call[1:] for call in host.calls("apt-get")]
    assert steps == [
        ["update"],
        ["install", "apt-transport-artifact-registry"],
        ["update"],
        ["install", "dkms", f"linux-headers-{kernel}"],
        ["download", "dmabuf-import-helper"],
    ]
    assert host.repository("gpudirect") == (
        "deb [signed-by=/usr/share/keyrings/gpudirect.gpg arch=all] "
        "ar+https://us-apt.pkg.dev/projects/gce-ai-infra gpudirect-tcpxo-apt main\n"
    )
    source = host.root / "usr/src/dmabuf-import-helper-1.1/import-helper.c"
    assert source.read_text() == SOURCE.replace("DMA_BUF", namespace)
    built = [["remove", *VERSION, "--all"], ["add", *VERSION], ["build", *VERSION], ["install", *VERSION]]
    assert host.calls("dkms") == built
    assert host.calls("modprobe") == [["import-helper"]] * 2


def test_a_module_that_could_not_be_built_is_built_anew(host: Any) -> None:
    has_source(host, "6.17.0-1020-gcp")
    host.fails_at_first("modprobe", 2)
    host.fails_at_first("dkms", 3)
    done = host.run("prepare-nccl.sh", NCCL_DEADLINE_SEC="20")
    assert done.returncode == 0, done.stderr
    assert [call[0] for call in host.calls("dkms")][-4:] == ["remove", "add", "build", "install"]
    assert host.events() == []


def test_a_module_that_does_not_build_gives_the_node_up(host: Any) -> None:
    has_source(host, "6.17.0-1020-gcp")
    host.fake("dkms", "[ $1 != build ]")
    assert prepare(host).returncode == 1
    assert [line["reason"] for line in host.events()] == ["cannot load kernel module import-helper within 0 s"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "body", "reason"),
    [
        ("modprobe", "exit 1", "cannot load kernel module import-helper within 0 s"),
        ("mount", "exit 32", "no device 1ae0:0084 after 0 s"),
        ("docker", "[ $1 != login ]", "cannot log in to us-docker.pkg.dev within 0 s"),
        ("docker", "[ $1 != run ] || [ $2 != --rm ]", "cannot install NCCL's plug-in within 0 s"),
        ("docker", "[ $1 != run ] || [ $2 != --detach ]", "cannot start gangway-rxdm within 0 s"),
        ("docker", "[ $1 != logs ] || echo still starting", "gangway-rxdm does not serve after 0 s"),
    ],
)
def test_whatever_fails_gives_the_node_up(host: Any, command: str, body: str, reason: str) -> None:
    host.fake(command, READS + body if command == "docker" else body)
    assert prepare(host).returncode == 1
    assert [line["reason"] for line in host.events()] == [reason]
    assert host.verbs() == ["recreateInstances"]


def test_a_machine_without_such_devices_is_given_up(host: Any, tmp_path: Path) -> None:
    for folder in (tmp_path / "sys/bus/pci/devices").iterdir():
        (folder / "vendor").write_text("0x8086\n")
    assert prepare(host).returncode == 1
    assert [line["reason"] for line in host.events()] == ["no device 1ae0:0084 after 0 s"]


def test_a_daemon_that_says_nothing_has_to_run(host: Any) -> None:
    host.plan(nccl=replace(host.gcp.nccl, side_ready=""))
    host.fake("docker", READS + "[ $1 != inspect ] || echo true")
    assert prepare(host).returncode == 0
    host.fake("docker", READS + "[ $1 != inspect ] || echo false")
    assert prepare(host).returncode == 1


def test_a_plugin_without_a_daemon_is_installed_alone(host: Any) -> None:
    host.plan(nccl=replace(host.gcp.nccl, side_name="", kernel_modules=(), aperture_device=""))
    assert prepare(host).returncode == 0
    assert host.calls("docker") == [LOGIN, list(host.gcp.nccl.install_argv)]
    assert (host.calls("modprobe"), host.calls("mount")) == ([], [])


def in_container(spec: GcpNodeSpec, tmp_path: Path, profile: str | None) -> subprocess.CompletedProcess[str]:
    """Runs what the container would, with a `python` that shows its variables; the image's environment is the job's."""
    path = tmp_path / "it's a profile.sh"
    if profile is not None:
        path.write_text(profile)
    assert spec.nccl is not None
    argv = gcp_docker_argv(replace(spec, nccl=replace(spec.nccl, env_script=str(path))))
    env = dict(word.split("=", 1) for flag, word in itertools.pairwise(argv) if flag == "--env")
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@"\nexec /usr/bin/env\n')
    (tmp_path / "python").chmod(0o755)
    command = ["bash", *argv[argv.index(spec.job.image) + 1 :]]
    assert argv[argv.index("--entrypoint") + 1] == "bash"
    env["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    # Bash itself does not need the libraries of that machine.
    env.pop("LD_LIBRARY_PATH")
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def life_of(spec: GcpNodeSpec) -> list[str]:
    return life_argv(spec.job, spec.run_dir, spec.max_hours)


def test_the_profile_comes_first_and_the_jobs_variables_win(gcp_node: GcpNodeSpec, tmp_path: Path) -> None:
    profile = 'NCCL_TUNER_PLUGIN=tuner.so\nfalse\nNCCL_SOCKET_IFNAME=eth0\n[ -n "$UNSET" ] && NCCL_X=1\n'
    done = in_container(gcp_node, tmp_path, profile)
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    life = ["--member-key", "/run/gangway-member.pem", *life_of(gcp_node)]
    assert first == " ".join(
        ["-m gangway.trainer.launch --watch /run/gangway-notices/held", *life, *gcp_node.job.torchrun_argv()]
    )
    assert {"NCCL_TUNER_PLUGIN=tuner.so", "NCCL_SOCKET_IFNAME=enp0s12"} <= set(lines)
    assert "LD_LIBRARY_PATH=/var/lib/tcpxo/lib64" in lines


@pytest.mark.parametrize("profile", ["export NCCL_NET=Other\n", "NCCL_TUNER_PLUGIN=tuner.so\n", ""])
def test_nccl_is_told_the_plugin_whatever_the_profile_sets(gcp_node: GcpNodeSpec, tmp_path: Path, profile: str) -> None:
    """Without the name NCCL would go on over TCP where the plug-in does not load."""
    done = in_container(gcp_node, tmp_path, profile)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NCCL_NET=Plugin" in done.stdout.splitlines()


def test_a_plugin_that_nobody_names_is_refused(gcp_node: GcpNodeSpec) -> None:
    job = gcp_node.job
    env = {name: value for name, value in job.env.items() if name != "NCCL_NET"}
    with pytest.raises(ValueError, match=r"GcpNodeSpec.job.env: nccl without NCCL_NET; .*fix: pass gangway.components"):
        replace(gcp_node, job=job.model_copy(update={"env": env}))


def test_a_profile_that_is_not_there_is_a_failure(gcp_node: GcpNodeSpec, tmp_path: Path) -> None:
    done = in_container(gcp_node, tmp_path, None)
    assert done.returncode == 1
    assert "NCCL's plug-in has no profile at" in done.stderr


def test_without_a_profile_the_images_own_entrypoint_is_left(gcp_node: GcpNodeSpec) -> None:
    assert gcp_node.nccl is not None
    argv = gcp_docker_argv(replace(gcp_node, nccl=replace(gcp_node.nccl, env_script="")))
    assert "--entrypoint" not in argv
    own = ["--watch", "/run/gangway-notices/held", "--member-key", "/run/gangway-member.pem", *life_of(gcp_node)]
    assert argv[argv.index(gcp_node.job.image) + 1 :] == [*own, *gcp_node.job.torchrun_argv()]
    assert argv[argv.index("--device") + 1] == "/dev/infiniband"
