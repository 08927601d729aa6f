"""Docker, network interfaces and disks of a machine on Google Cloud, before its trainer: real bash, fake apt."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.images.gcp import DataSource, GcpHeadSpec, GcpNodeSpec, TpuHostSpec, gcp_env_text
from gangway.images.specs import DOCKERFILE_FLAVOURS

APT = ["-q", "-y", "-o", "DPkg::Lock::Timeout=120"]


def test_docker_and_the_toolkit_are_installed_where_they_are_missing(bare: Any) -> None:
    bare.without("docker", "nvidia-ctk")
    bare.brings("nvidia-container-toolkit", "nvidia-ctk")
    done = bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    installed = [call[-1] for call in bare.calls("apt-get") if call[-1] != "update"]
    assert installed == ["docker.io", "nvidia-container-toolkit"]
    assert all(call[:4] == APT for call in bare.calls("apt-get"))
    assert bare.repository("nvidia-container-toolkit") == (
        "deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit.gpg] "
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n"
    )
    last = bare.calls("systemctl")
    assert last == [["restart", "docker.service"], ["start", "docker.service"]]


def test_what_is_there_is_not_installed_again(bare: Any) -> None:
    for name in ("docker", "nvidia-ctk"):
        bare.fake(name)
    assert bare.run("install-docker.sh").returncode == 0
    assert bare.calls("apt-get") == []
    assert bare.calls("nvidia-ctk") == [["runtime", "configure", "--runtime=docker"]]


PACKAGES = "ii linux-gcp\nhi nvidia-utils-580-server\nrc nvidia-old\nii libnvidia-gl:amd64\nun runc\nii docker.io\n"


def test_what_a_job_runs_on_is_held(bare: Any) -> None:
    bare.fake("docker")
    bare.fake("nvidia-ctk")
    bare.fake("dpkg-query", f"printf '%s' '{PACKAGES}'; exit 1")
    assert bare.run("install-docker.sh").returncode == 0
    (asked,) = bare.calls("dpkg-query")
    assert {"linux-*", "*nvidia*", "docker.io", "containerd", "runc"} < set(asked)
    installed = ["linux-gcp", "nvidia-utils-580-server", "libnvidia-gl:amd64", "docker.io"]
    assert bare.calls("apt-mark") == [["hold", *installed]]


def test_a_hold_waits_for_dpkg_and_stops_no_node(bare: Any) -> None:
    bare.fake("docker")
    bare.fake("nvidia-ctk")
    bare.fake("dpkg-query", f"printf '%s' '{PACKAGES}'")
    bare.fails_at_first("apt-mark", 2)
    assert bare.run("install-docker.sh", HOLD_SEC="20").returncode == 0
    assert len(bare.calls("apt-mark")) == 3
    bare.fake("apt-mark", "exit 100")
    done = bare.run("install-docker.sh", HOLD_SEC="0")
    assert done.returncode == 0
    assert "cannot hold packages" in done.stderr
    assert bare.events() == []


def test_a_host_without_gpus_needs_no_toolkit(bare: Any, tpu_host: TpuHostSpec) -> None:
    bare.gcp = tpu_host
    bare.fake("docker")
    assert bare.run("install-docker.sh").returncode == 0
    assert (bare.calls("apt-get"), bare.calls("systemctl")) == ([], [["start", "docker.service"]])


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("apt-get", "cannot install docker within 0 s"),
        ("gpg", "cannot install NVIDIA's container toolkit within 0 s"),
        ("nvidia-ctk", "cannot configure NVIDIA's runtime for docker"),
        ("systemctl", "cannot configure NVIDIA's runtime for docker"),
    ],
)
def test_a_machine_that_gets_no_docker_is_given_up(bare: Any, broken: str, reason: str) -> None:
    there = {"apt-get": (), "gpg": ("docker",)}.get(broken, ("docker", "nvidia-ctk"))
    bare.without("docker", "nvidia-ctk")
    for name in (*there, broken):
        bare.fake(name, "exit 1" if name == broken else "exit 0")
    assert bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="0").returncode == 1
    assert [line["reason"] for line in bare.events()] == [reason]
    assert bare.verbs() == ["recreateInstances"]


def test_apt_that_fails_at_first_is_tried_again(bare: Any) -> None:
    bare.without("docker")
    bare.gcp = replace(bare.gcp, job=bare.gcp.job.model_copy(update={"backend": "gloo"}))
    bare.fails_at_first("apt-get", 2)
    assert bare.run("install-docker.sh", DOCKER_DEADLINE_SEC="20").returncode == 0
    assert bare.events() == []


def make_nics(sysfs: Path, gvnics: int, rdma: int, driver: str = "gve") -> None:
    (sysfs / "drivers" / driver).mkdir(parents=True)
    (sysfs / "drivers/virtio_net").mkdir()
    for number in range(gvnics):
        device = sysfs / f"class/net/enp{number}s0/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(sysfs / "drivers" / driver)
    other = sysfs / "class/net/other/device"
    other.mkdir(parents=True)
    (other / "driver").symlink_to(sysfs / "drivers/virtio_net")
    (sysfs / "class/net/lo").mkdir()
    for number in range(rdma):
        (sysfs / f"class/infiniband/mlx5_{number}").mkdir(parents=True)


@pytest.mark.parametrize(("gvnics", "rdma", "driver"), [(9, 0, "gve"), (9, 0, "gvnic"), (2, 8, "gve")])
def test_planned_nics_let_the_node_go_on(bare: Any, tmp_path: Path, gvnics: int, rdma: int, driver: str) -> None:
    bare.plan(gvnics_planned=gvnics, rdma_nics_planned=rdma)
    make_nics(tmp_path / "sys", gvnics, rdma, driver)
    done = bare.run("check-nics.sh", SYSFS=f"{tmp_path}/sys", NIC_DEADLINE_SEC="0")
    assert (done.returncode, done.stderr) == (0, f"gangway: NICs: {gvnics} gVNIC, {rdma} RDMA\n")


@pytest.mark.parametrize(("gvnics", "rdma"), [(8, 0), (2, 7), (1, 8), (0, 0)])
def test_fewer_nics_than_planned_give_the_node_up(bare: Any, tmp_path: Path, gvnics: int, rdma: int) -> None:
    planned = (2, 8) if gvnics < 3 else (9, 0)
    bare.plan(gvnics_planned=planned[0], rdma_nics_planned=planned[1])
    make_nics(tmp_path / "sys", gvnics, rdma)
    assert bare.run("check-nics.sh", SYSFS=f"{tmp_path}/sys", NIC_DEADLINE_SEC="0").returncode == 1
    (event,) = bare.events()
    assert event["reason"] == (f"NICs after 0 s: {gvnics} gVNIC, {rdma} RDMA; planned: {planned[0]}, {planned[1]}")


def test_googles_local_disks_become_one_scratch(bare: Any, tmp_path: Path) -> None:
    by_id = tmp_path / "by-id"
    by_id.mkdir()
    for number in range(2):
        (tmp_path / f"nvme{number}").touch()
        (by_id / f"google-local-nvme-ssd-{number}").symlink_to(tmp_path / f"nvme{number}")
    (tmp_path / "boot").touch()
    (by_id / "google-persistent-disk-0").symlink_to(tmp_path / "boot")
    for name in ("mdadm", "mkfs.ext4", "chown"):
        bare.fake(name)
    bare.fake("blkid", f"[ -e {tmp_path}/formatted ] && echo /dev/md127")
    bare.fake("mkfs.ext4", f"touch {tmp_path}/formatted")
    bare.plan(scratch_mount_point=f"{tmp_path}/scratch")
    done = bare.run("mount-scratch.sh", DISK_BY_ID=str(by_id))
    assert done.returncode == 0, done.stderr
    (striped,) = bare.calls("mdadm")
    assert striped[-2:] == [f"{tmp_path}/nvme0", f"{tmp_path}/nvme1"]
    assert bare.calls("mount") == [["-o", "noatime", "/dev/md127", f"{tmp_path}/scratch"]]


ETC = "/etc/systemd/system/"


def test_what_a_worker_prepares_is_what_was_planned(
    unit: Any, steps: Any, gcp_node: GcpNodeSpec, gcp_plain_node: GcpNodeSpec
) -> None:
    first = ["check-gpu.sh", "check-nics.sh", "mount-scratch.sh", "install-docker.sh", "prepare-nccl.sh"]
    assert steps(gcp_node) == [*first, "mount-lustre.sh", "fill-data.sh", "fetch-key.sh", "pull-image.sh"]
    assert steps(gcp_plain_node) == ["check-gpu.sh", "install-docker.sh", "pull-image.sh"]
    assert "check-nics.sh" in steps(replace(gcp_plain_node, rdma_nics_planned=8))
    assert unit(gcp_node, "gangway-prepare.service", "Restart") == [], "a worker is given up, not prepared again"


def test_a_tpu_host_prepares_again_and_then_starts_what_the_first_failure_took_along(
    unit: Any, steps: Any, tpu_host: TpuHostSpec
) -> None:
    last = "start --no-block gangway-trainer.service"
    assert steps(tpu_host) == [
        *("install-docker.sh", "mount-bucket.sh", "fetch-key.sh", "pull-image.sh"),
        f"systemctl {last}",
    ]
    assert unit(tpu_host, "gangway-prepare.service", "Restart") == ["on-failure"]


@pytest.mark.parametrize(("shutdown_sec", "stop_sec"), [(25, 30), (10, 25), (29, 30), (60, 61)])
def test_a_preempted_machines_30_seconds_are_kept(
    unit: Any, gcp_node: GcpNodeSpec, tpu_host: TpuHostSpec, shutdown_sec: int, stop_sec: int
) -> None:
    for spec in (gcp_node, tpu_host):
        job = spec.job.model_copy(update={"shutdown_timeout_sec": shutdown_sec})
        changed = replace(spec, job=job)
        assert unit(changed, "gangway-trainer.service", "TimeoutStopSec") == [str(stop_sec)]


def test_a_run_on_the_machines_own_disk_has_time_to_be_put(unit: Any, gcp_plain_node: GcpNodeSpec) -> None:
    """What follows a command that ran out of time is not run: the node would not learn that its job has ended."""
    (stop_sec,) = unit(gcp_plain_node, "gangway-trainer.service", "TimeoutStopSec")
    assert "RESULTS_SEC=300\n" in gcp_env_text(gcp_plain_node)
    assert int(stop_sec) >= 300 + 30


def test_the_trainers_time_to_save_fits_into_the_30_seconds(gcp_node: GcpNodeSpec) -> None:
    assert type(gcp_node.job).model_fields["shutdown_timeout_sec"].default < 30


def test_the_trainers_lines_are_sent_where_a_log_is_planned(
    unit: Any, machines: Any, gcp_node: GcpNodeSpec, gcp_plain_node: GcpNodeSpec
) -> None:
    (command,) = unit(gcp_node, "gangway-logs.service", "ExecStart")
    shipped = "gangway-prepare.service gangway-trainer.service"
    assert command == f"/usr/bin/python3 -m gangway.images.node.gcp.logs acme-ml gangway-demo {shipped}"
    files = machines.files_of(machines.rendered(gcp_plain_node))
    assert f"{ETC}gangway-logs.service" not in files
    assert not [path for path in files if path.endswith("ship.py")]


def test_the_head_fills_imports_and_puts_what_it_is_told(unit: Any, gcp_head: GcpHeadSpec, machines: Any) -> None:
    (fill,) = unit(gcp_head, "gangway-fill.service", "ExecStart")
    assert fill.split()[-2:] == [
        "gs://gangway-records/demo/fallback.json",
        f"gs://gangway-records/demo/{gcp_head.job.name}/breaker/held.json",
    ]
    files = machines.files_of(machines.rendered(gcp_head))
    assert "def plan_fill(" in files["/opt/gangway/lib/gangway/images/node/fill_order.py"][1]
    assert yaml.safe_load(files["/etc/gangway/import.json"][1])["url"].endswith(":importData")
    assert unit(gcp_head, "gangway-data.service", "ExecStart") == [
        "/opt/gangway/bin/mount-lustre.sh",
        "/opt/gangway/bin/fill-data.sh",
    ]
    started = yaml.safe_load(machines.rendered(gcp_head))["runcmd"][1][3:]
    timers = ["gangway-record.timer", "gangway-fill.timer"]
    services = ["rendezvous", "prometheus", "data", "logs"]
    assert started == [*(f"gangway-{name}.service" for name in services), *timers]


def test_what_the_head_does_for_the_others_is_in_the_stacks_log(unit: Any, gcp_head: GcpHeadSpec) -> None:
    def shipped(spec: GcpHeadSpec) -> list[str]:
        (command,) = unit(spec, "gangway-logs.service", "ExecStart")
        (before,) = unit(spec, "gangway-logs.service", "Before")
        names = command.partition(" gangway-demo ")[2]
        assert names == before
        return [name.removeprefix("gangway-").removesuffix(".service") for name in names.split()]

    assert shipped(gcp_head) == ["prepare", "rendezvous", "data", "record", "fill"]
    assert shipped(replace(gcp_head, data=None, fallback_uri=None, file_system=None)) == [
        "prepare",
        "rendezvous",
    ]


def test_a_head_that_only_keeps_the_rendezvous(gcp_head: GcpHeadSpec, machines: Any) -> None:
    plain = replace(
        gcp_head,
        file_system=None,
        data=None,
        prometheus_image=None,
        fallback_uri=None,
    )
    started = yaml.safe_load(machines.rendered(plain))["runcmd"][1][3:]
    assert started == ["gangway-rendezvous.service", "gangway-logs.service"]


def test_hours_are_the_nodes_alone(
    gcp_head: GcpHeadSpec, gcp_node: GcpNodeSpec, tpu_host: TpuHostSpec, machines: Any
) -> None:
    """Other hours make another mark of the job's end, and another node, but the same head."""
    assert tpu_host.ended_object != gcp_node.ended_object, "another job"
    assert replace(gcp_node, max_hours=9).ended_object != gcp_node.ended_object
    assert machines.rendered(replace(gcp_node, max_hours=9)) != machines.rendered(gcp_node)
    assert machines.rendered(replace(gcp_head, max_hours=9)) == machines.rendered(gcp_head)


def test_prometheus_finds_the_workers_of_its_stack_alone(gcp_head: GcpHeadSpec, machines: Any) -> None:
    _, text = machines.files_of(machines.rendered(gcp_head))["/etc/gangway/prometheus.yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert [found["zone"] for found in job["gce_sd_configs"]] == ["us-central1-a", "us-central1-c"]
    for found in job["gce_sd_configs"]:
        assert (found["project"], found["port"]) == ("acme-ml", 9400)
        assert found["filter"] == 'labels.gangway-stack = "demo" AND status = "RUNNING"'
    head = {"source_labels": ["__meta_gce_label_gangway_role"], "regex": "head", "action": "drop"}
    assert head in job["relabel_configs"]


def test_what_a_machine_would_find_out_too_late_is_refused(gcp_node: GcpNodeSpec, gcp_head: GcpHeadSpec) -> None:
    tagged = gcp_node.job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"GcpNodeSpec\.job\.image: 'example/gangway:v1' can change"):
        replace(gcp_node, job=tagged)
    with pytest.raises(ValueError, match=r"GcpNodeSpec\.max_hours: 0"):
        replace(gcp_node, max_hours=0)
    with pytest.raises(ValueError, match=r"GcpNodeSpec\.job\.env: 'A=B'='c' is not a valid environment variable"):
        replace(gcp_node, job=gcp_node.job.model_copy(update={"env": {"A=B": "c"}}))
    with pytest.raises(ValueError, match=r"GcpNodeSpec\.data: 'gs://acme-data/celeba' without a file system"):
        replace(gcp_node, file_system=None)
    with pytest.raises(ValueError, match=r"GcpHeadSpec\.prometheus_image: 'prom/prometheus' has no fixed version"):
        replace(gcp_head, prometheus_image="prom/prometheus")


@pytest.mark.parametrize(("by", "request_"), [("import", None), ("copy", {"url": "u", "body": {}})])
def test_an_import_has_a_request_and_a_copy_has_none(by: Any, request_: Any) -> None:
    with pytest.raises(ValueError, match=r"DataSource\.request: .* allowed: a request only with by='import'"):
        DataSource("gs://acme-data", by, request_)


def test_the_tpus_image_has_the_library_that_drives_the_chips(repo: Any) -> None:
    spec = DOCKERFILE_FLAVOURS["xla"]
    lock = (repo / "images/locks" / spec.lock).read_text("utf-8")
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", lock, re.MULTILINE))
    assert pins["libtpu"], "torch_xla asks for it as an extra only"
    # Both drop support for a Python in every other version, and have wheels for this one.
    assert (pins["torch"].rpartition(".")[0], pins["torch-xla"].rpartition(".")[0]) == ("2.9", "2.9")
    assert spec.python_version == "3.12"
    for other in DOCKERFILE_FLAVOURS.values():
        assert (repo / "images/locks" / other.lock).is_file()
