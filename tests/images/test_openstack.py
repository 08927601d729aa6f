"""What machines on OpenStack do, by real bash and Python; mounts, apt, Keystone and Swift in small. And refusals."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.keys import new_member_key
from gangway.components.openstack.launch import check_user_data
from gangway.images.openstack import (
    OpenstackHeadSpec,
    OpenstackNodeSpec,
    OpenstackSecrets,
    openstack_docker_argv,
    openstack_env_text,
)
from gangway.images.render import base64gzip
from gangway.images.specs import FileSystem

UNITS = "/etc/systemd/system/"
PEM = new_member_key("demo")


def values(machines: Any, spec: Any, name: str, key: str) -> list[str]:
    """Of one key of a unit."""
    _, text = machines.files_of(machines.rendered(spec))[f"{UNITS}{name}"]
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def steps(machines: Any, spec: Any) -> list[str]:
    return [word.rpartition("/")[2] for word in values(machines, spec, "gangway-prepare.service", "ExecStart")]


def started(machines: Any, spec: Any) -> list[str]:
    named: list[str] = yaml.safe_load(machines.rendered(spec))["runcmd"][1][2:]
    return named


def test_what_a_worker_prepares_is_what_was_planned(
    machines: Any, openstack_node: OpenstackNodeSpec, openstack_plain_node: OpenstackNodeSpec
) -> None:
    first = ["check-gpu.sh", "check-rdma.sh", "fetch-secrets.sh", "fetch-key.sh", "install-docker.sh"]
    assert steps(machines, openstack_node) == [*first, "mount-nfs.sh", "pull-image.sh"]
    alone = ["check-gpu.sh", "fetch-secrets.sh", "install-docker.sh", "pull-image.sh"]
    assert steps(machines, openstack_plain_node) == alone


def test_what_the_head_starts(machines: Any, openstack_head: OpenstackHeadSpec) -> None:
    timers = ["gangway-record.timer"]
    services = ["gangway-rendezvous.service", "gangway-prometheus.service"]
    assert started(machines, openstack_head) == ["gangway-metadata.service", *services, *timers]
    plain = replace(openstack_head, file_system=None, prometheus_image=None)
    assert started(machines, plain) == ["gangway-metadata.service", "gangway-rendezvous.service"]


def test_prometheus_knows_where_the_workers_are(machines: Any, openstack_head: OpenstackHeadSpec) -> None:
    _, text = machines.files_of(machines.rendered(openstack_head))["/etc/gangway/prometheus.yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (targets,) = job["static_configs"]
    assert targets == {"targets": ["10.42.0.16:9400", "10.42.0.17:9400"], "labels": {"stack": "demo"}}


def test_an_end_keeps_within_what_nova_waits(
    machines: Any, openstack_node: OpenstackNodeSpec, openstack_plain_node: OpenstackNodeSpec
) -> None:
    """Nova's `shutdown_timeout` is 60 s; results of a run on the node's own disk take longer, while it still runs."""
    assert values(machines, openstack_node, "gangway-trainer.service", "TimeoutStopSec") == ["30"]
    (stop_sec,) = values(machines, openstack_plain_node, "gangway-trainer.service", "TimeoutStopSec")
    assert int(stop_sec) >= 330


@pytest.mark.parametrize("name", ["openstack_node", "openstack_head"])
def test_what_services_say_is_on_the_console_too(machines: Any, name: str, request: pytest.FixtureRequest) -> None:
    files = machines.files_of(machines.rendered(request.getfixturevalue(name)))
    services = [path for path in files if path.endswith(".service")]
    assert len(services) >= 3
    for path in services:
        _, text = files[f"{path}.d/console.conf"]
        assert "StandardOutput=journal+console\nStandardError=journal+console\n" in text


def test_secrets_are_in_what_is_fetched_and_nowhere_shown() -> None:
    secrets = OpenstackSecrets(
        "https://cloud.example.com:5000/v3", "RegionOne", "id", "credential-secret", PEM, "SIGNING PEM", "AQA8=="
    )
    assert json.loads(secrets.text()) == {
        "credential": {
            "auth_url": "https://cloud.example.com:5000/v3",
            "id": "id",
            "region": "RegionOne",
            "secret": "credential-secret",
        },
        "member_key": PEM,
        "mount_key": "AQA8==",
        "signing_key": "SIGNING PEM",
    }
    for secret in ("credential-secret", PEM, "SIGNING PEM", "AQA8=="):
        assert secret not in repr(secrets)


def test_a_job_over_rdma_gets_the_devices(
    openstack_node: OpenstackNodeSpec, openstack_plain_node: OpenstackNodeSpec
) -> None:
    argv = openstack_docker_argv(openstack_node)
    assert argv[argv.index("--device") + 1] == "/dev/infiniband"
    assert "NCCL_NET=IB" in argv
    assert "--watch" not in argv, "nothing announces an end"
    assert "--device" not in openstack_docker_argv(openstack_plain_node)


@pytest.mark.parametrize("name", ["openstack_node", "openstack_plain_node", "openstack_head"])
def test_user_data_fit(machines: Any, name: str, request: pytest.FixtureRequest) -> None:
    packed = base64gzip(machines.rendered(request.getfixturevalue(name)))
    assert check_user_data(packed) == packed
    assert len(packed) < 20_000, "room for a job's own environment"


@pytest.mark.parametrize("name", ["openstack_node", "openstack_head"])
def test_a_machines_python_is_all_there(machines: Any, name: str, request: pytest.FixtureRequest) -> None:
    files = machines.files_of(machines.rendered(request.getfixturevalue(name)))
    place, found = "/opt/gangway/lib/", set[str]()
    for path, (_, text) in files.items():
        if path.startswith(place):
            wanted = re.findall(r"^from (gangway\.images\.\S+) import", text, re.MULTILINE)
            assert {f"{place}{module.replace('.', '/')}.py" for module in wanted} <= files.keys(), path
            found.update(wanted)
    assert "gangway.images.node.web" in found


def test_a_record_is_put(openstack_machine: Any, swift: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    openstack_machine.plan(run_dir=f"{tmp_path}/run")
    done = openstack_machine.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    assert swift.objects == {"demo-runs/demo/dcgan-celeba64/run.json": b"{}"}
    assert openstack_machine.run("upload-record.sh").returncode == 0
    assert len(swift.logins) == 1, "once"


def test_a_record_that_cannot_be_put_is_tried_again(openstack_machine: Any, swift: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    openstack_machine.plan(run_dir=f"{tmp_path}/run")
    swift.refusals.append(503)
    done = openstack_machine.run("upload-record.sh")
    assert done.returncode == 1
    assert "503: PUT" in done.stderr
    assert openstack_machine.run("upload-record.sh").returncode == 0
    assert len(swift.objects) == 1


def test_results_go_with_a_record_where_nothing_is_shared(
    openstack_machine: Any, openstack_plain_node: OpenstackNodeSpec, swift: Any, tmp_path: Path
) -> None:
    openstack_machine.spec_ = replace(openstack_plain_node, run_dir=f"{tmp_path}/run")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "000100.pt").write_text("weights")
    (tmp_path / "run" / "run.json").write_text("{}")
    assert openstack_machine.run("upload-record.sh").returncode == 0
    assert set(swift.objects) == {
        f"demo-runs/demo/dcgan-celeba64/{name}" for name in ("run.json", "checkpoints/000100.pt")
    }


def test_a_node_that_gives_up_stops_and_says_who_can_help(openstack_machine: Any) -> None:
    done = openstack_machine.give_up("no GPU")
    assert done.returncode == 1
    assert openstack_machine.calls("systemctl") == [["poweroff"]]
    assert "this node gives up: no GPU" in done.stderr
    assert "the next pulumi up" in done.stderr


def test_a_job_that_has_ended_lets_the_machine_stop(openstack_machine: Any, swift: Any) -> None:
    openstack_machine.state("ran").touch()
    assert openstack_machine.run_ended(0).returncode == 0
    openstack_machine.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    done = openstack_machine.run("watch-node.sh")
    assert done.returncode == 0, done.stderr
    assert ["poweroff"] in openstack_machine.calls("systemctl")
    assert "stays allocated until pulumi destroy" in done.stderr


def test_a_machine_that_shuts_down_starts_no_trainer(openstack_machine: Any, tmp_path: Path) -> None:
    openstack_machine.plan(run_dir=f"{tmp_path}/run")
    openstack_machine.fake("systemctl", "[ $1 != is-system-running ] || echo stopping")
    openstack_machine.fake("docker")
    assert openstack_machine.run("run-trainer.sh").returncode == 0
    assert openstack_machine.calls("docker") == []


@pytest.fixture
def bare(openstack_machine: Any, tmp_path: Path) -> Any:
    """A fresh machine: nothing is mounted, and apt has all that it is asked for."""
    openstack_machine.fake("mountpoint", "exit 1")
    for name in ("apt-get", "mount", "mount.nfs", "mount.ceph"):
        openstack_machine.fake(name)
    files = openstack_machine.spec_.file_system
    openstack_machine.plan(file_system=replace(files, mount_point=f"{tmp_path}/shared"))
    return openstack_machine


def test_a_share_is_mounted_over_nfs(bare: Any, tmp_path: Path) -> None:
    done = bare.run("mount-nfs.sh")
    assert done.returncode == 0, done.stderr
    options = "nfsvers=4.1,proto=tcp,hard,noatime"
    assert bare.calls("mount") == [["-t", "nfs", "-o", options, "198.51.100.7:/volumes/demo", f"{tmp_path}/shared"]]
    assert bare.calls("apt-get") == []


def test_a_share_is_mounted_as_cephfs_without_its_key_on_any_command_line(bare: Any, tmp_path: Path) -> None:
    source = "192.0.2.1:6789,192.0.2.2:6789:/volumes/a"
    bare.plan(file_system=FileSystem("ceph", source, f"{tmp_path}/shared"), mount_user="gangway-demo")
    bare.secrets = replace(bare.secrets, mount_key="AQsecret==")
    done = bare.run("mount-ceph.sh", CEPH_SECRET=f"{tmp_path}/ceph.secret")
    assert done.returncode == 0, done.stderr
    options = f"name=gangway-demo,secretfile={tmp_path}/ceph.secret,noatime"
    assert bare.calls("mount") == [["-t", "ceph", "-o", options, source, f"{tmp_path}/shared"]]
    assert "AQsecret" not in str(bare.every_call())
    assert (tmp_path / "ceph.secret").read_text() == "AQsecret=="
    assert (tmp_path / "ceph.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("script", "client", "package"),
    [("mount-nfs.sh", "mount.nfs", "nfs-common"), ("mount-ceph.sh", "mount.ceph", "ceph-common")],
)
def test_a_client_that_is_missing_is_installed(
    bare: Any, script: str, client: str, package: str, tmp_path: Path
) -> None:
    (tmp_path / "fake" / client).unlink()
    bare.without(client)
    assert bare.run(script, CEPH_SECRET=f"{tmp_path}/ceph.secret").returncode == 0
    assert bare.calls("apt-get")[-1][-2:] == ["install", package]


@pytest.mark.parametrize(("script", "deadline"), [("mount-nfs.sh", "NFS"), ("mount-ceph.sh", "CEPH")])
def test_what_cannot_be_mounted_gives_the_node_up(bare: Any, script: str, deadline: str, tmp_path: Path) -> None:
    bare.fake("mount", "exit 32")
    done = bare.run(script, **{f"{deadline}_DEADLINE_SEC": "0", "CEPH_SECRET": f"{tmp_path}/ceph.secret"})
    assert done.returncode == 1
    assert "this node gives up: cannot mount 198.51.100.7:/volumes/demo" in done.stderr


@pytest.mark.parametrize("script", ["mount-nfs.sh", "mount-ceph.sh"])
def test_what_is_mounted_is_left(bare: Any, script: str) -> None:
    bare.fake("mountpoint")
    assert bare.run(script).returncode == 0
    assert bare.calls("mount") == []


def test_the_head_installs_docker(openstack_machine: Any, openstack_head: OpenstackHeadSpec, tmp_path: Path) -> None:
    openstack_machine.spec_ = openstack_head
    openstack_machine.without("docker")
    openstack_machine.fake("apt-get")
    done = openstack_machine.run("install-docker.sh", DOCKER_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    assert openstack_machine.calls("apt-get")[-1][-2:] == ["install", "docker.io"]


def test_a_head_that_is_not_ready_is_tried_again_and_not_stopped(
    openstack_machine: Any, openstack_head: OpenstackHeadSpec
) -> None:
    openstack_machine.spec_ = openstack_head
    openstack_machine.fake("docker", "exit 1")
    done = openstack_machine.run("pull-image.sh", PULL_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "not ready: cannot pull registry.example.com/gan/trainer" in done.stderr
    assert openstack_machine.calls("systemctl") == []


def test_settings_of_a_head_have_nothing_of_a_worker(openstack_head: OpenstackHeadSpec) -> None:
    text = openstack_env_text(openstack_head)
    assert "ROLE=head\n" in text
    assert "RDMA" not in text
    assert "GPUS_PLANNED=0\n" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"file_system": FileSystem("lustre", "a@tcp:/b", "/shared")}, r"allowed: 'nfs', 'ceph'"),
        ({"file_system": FileSystem("ceph", "a:/b", "/shared")}, "a user with 'ceph'"),
        ({"mount_user": "gangway-demo"}, "with 'ceph' only"),
        ({"max_hours": 0}, "allowed: above 0"),
    ],
)
def test_what_a_machine_would_find_out_too_late(
    openstack_node: OpenstackNodeSpec, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(openstack_node, **changes)


def test_rdma_without_a_word_for_nccl_is_refused(openstack_node: OpenstackNodeSpec) -> None:
    job = openstack_node.job.model_copy(update={"env": {}})
    with pytest.raises(ValueError, match="a fabric without NCCL_NET"):
        replace(openstack_node, job=job)


def test_prometheus_is_pinned(openstack_head: OpenstackHeadSpec) -> None:
    with pytest.raises(ValueError, match="pin the tag"):
        replace(openstack_head, prometheus_image="prom/prometheus:latest")


@pytest.fixture
def fresh(openstack_machine: Any, swift: Any, tmp_path: Path) -> Any:
    """A machine at its first boot."""
    openstack_machine.write_settings(None)
    (tmp_path / "secrets.json").unlink()
    openstack_machine.secrets = None
    swift.publish("one.json", {"credential": {}, "member_key": PEM, "mount_key": ""})
    return openstack_machine


def test_secrets_come_at_the_first_boot_and_the_key_with_them(fresh: Any, tmp_path: Path) -> None:
    done = fresh.run("fetch-secrets.sh")
    assert done.returncode == 0, done.stderr
    fresh.more_settings["TRAINER_UID"] = str(os.getuid())
    assert fresh.run("fetch-key.sh", MEMBER_FILE=f"{tmp_path}/member.pem").returncode == 0
    assert (tmp_path / "member.pem").read_text() == PEM
    assert "PRIVATE" not in done.stdout + done.stderr


def test_a_machine_without_its_secrets_stops(fresh: Any, swift: Any) -> None:
    swift.publish("one.json", {}, ttl_sec=-1)
    done = fresh.run("fetch-secrets.sh", SECRETS_DEADLINE_SEC="0")
    assert done.returncode == 1
    assert "cannot fetch this machine's secrets" in done.stderr
    assert fresh.calls("systemctl") == [["poweroff"]]
