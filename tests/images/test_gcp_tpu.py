"""A host of TPU slices: its start-up script run as it is, and what it makes of the metadata about its slice."""

import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.images.gcp import TpuHostSpec, render_tpu_startup, tpu_docker_argv
from gangway.images.render import BIN_DIR
from gangway.images.shell import life_argv

TPU_ENV = """ACCELERATOR_TYPE: 'v5p-16'
NODE_ID: 'demo-0'
TPU_PROCESS_BOUNDS: '2,2,1'
WORKER_ID: '{worker}'
ZONE: 'us-east5-a'
"""
MEGASCALE = """MEGASCALE_COORDINATOR_ADDRESS: '{address}'
MEGASCALE_NUM_SLICES: '2'
MEGASCALE_SLICE_ID: '{slice}'
"""


@pytest.fixture
def host(gcp_machine: Any, tpu_host: TpuHostSpec, tmp_path: Path) -> Any:
    """A host of two slices of two hosts, whose docker works."""
    gcp_machine.gcp = replace(tpu_host, run_dir=f"{tmp_path}/run", data_dir=None)
    gcp_machine.fake("docker")
    gcp_machine.fake("install", 'mkdir -p "${@: -1}"')
    return gcp_machine


def tell(host: Any, worker: int, of: int, slice_id: int | None = None, port: str = ":8080") -> None:
    """The metadata of a host: its place in its slice, and the slice's among others."""
    more = "" if slice_id is None else MEGASCALE.format(address=f"127.0.0.1{port}", slice=slice_id)
    addresses = ["127.0.0.1", "10.0.0.12", "10.0.0.13"][:of] if slice_id in (None, 0) else ["10.0.1.1", "10.0.1.2"][:of]
    host.gce.items |= {
        "instance/attributes/tpu-env": TPU_ENV.format(worker=worker) + more,
        "instance/attributes/worker-network-endpoints": ",".join(f"unknown:uid:{ip}" for ip in addresses),
    }


def launcher_of(host: Any) -> tuple[list[str], list[str]]:
    """Docker's own arguments, and what the launcher in the container is given."""
    (call,) = host.started()
    at = call.index(host.gcp.job.image)
    return call[:at], call[at + 1 :]


def starts_store(host: Any) -> bool:
    """Whether this host has started the store in which all meet."""
    return ["start", "gangway-rendezvous.service"] in host.calls("systemctl")


def life_of(host: Any) -> list[str]:
    """How the slice's hosts know of each other, and of the job's hours."""
    return life_argv(host.gcp.job, host.gcp.run_dir, host.gcp.max_hours)


# tests/trainer/xla has the torchrun of the image take these and the ones of the meeting.
LAST = ["--nproc-per-node=4", "--max-restarts=3", "-m", "gangway.trainer"]
TRAIN = ["train", "--config", "/etc/gangway/train.json", "--run-dir", "/var/lib/gangway/runs/demo"]


def test_a_host_alone_meets_nobody(host: Any) -> None:
    host.plan(num_slices=1, max_hours=None, member_key=None)
    tell(host, 0, 1)
    done = host.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    docker, launcher = launcher_of(host)
    assert docker == tpu_docker_argv(host.gcp, BIN_DIR)[: len(docker)]
    assert launcher == [
        "--watch",
        "/run/gangway-notices/held",
        *life_of(host),
        "--standalone",
        "--nnodes=1",
        *LAST,
        *TRAIN,
    ]
    assert {"--privileged", "PJRT_DEVICE=TPU"} <= set(docker)
    assert not [word for word in docker if word.startswith("MEGASCALE_")]


@pytest.mark.parametrize("worker", [0, 1])
def test_the_hosts_of_a_slice_meet_at_its_first(host: Any, worker: int) -> None:
    host.plan(num_slices=1)
    tell(host, worker, 3)
    assert host.run("run-trainer.sh").returncode == 0
    _, launcher = launcher_of(host)
    assert launcher[2:4] == ["--member-key", "/run/gangway-member.pem"]
    assert launcher[4:8] == life_of(host)
    assert launcher[8:13] == [
        "--nnodes=3",
        "--rdzv-backend=gangway",
        "--rdzv-endpoint=127.0.0.1:29400",
        "--rdzv-id=dcgan-celeba64",
        "--rdzv-conf=is_host=0,join_timeout=3600",
    ]
    assert launcher[13:] == [*LAST, *TRAIN]
    assert starts_store(host) is (worker == 0)


@pytest.mark.parametrize(("worker", "slice_id", "port"), [(0, 0, ":8080"), (1, 0, ""), (0, 1, ":8080"), (1, 1, "")])
def test_the_hosts_of_all_slices_meet_at_the_coordinator(host: Any, worker: int, slice_id: int, port: str) -> None:
    tell(host, worker, 2, slice_id, port)
    done = host.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    docker, launcher = launcher_of(host)
    assert launcher[8:11] == ["--nnodes=4", "--rdzv-backend=gangway", "--rdzv-endpoint=127.0.0.1:29400"]
    assert starts_store(host) is ((worker, slice_id) == (0, 0))
    assert {
        f"MEGASCALE_COORDINATOR_ADDRESS=127.0.0.1{port}",
        "MEGASCALE_NUM_SLICES=2",
        f"MEGASCALE_SLICE_ID={slice_id}",
    } <= set(docker)
    assert docker[0] == "run"


def test_libtpus_own_port_is_handed_on(host: Any) -> None:
    tell(host, 0, 2, 0)
    host.gce.items["instance/attributes/tpu-env"] += "MEGASCALE_PORT: '9999'\n"
    assert host.run("run-trainer.sh").returncode == 0
    assert "MEGASCALE_PORT=9999" in launcher_of(host)[0]


def test_a_slice_that_is_not_told_yet_is_waited_for(host: Any) -> None:
    tell(host, 0, 2)
    late = threading.Timer(0.5, tell, (host, 0, 2, 0))
    late.start()
    assert host.run("run-trainer.sh", TPU_DEADLINE_SEC="20").returncode == 0
    late.join()
    assert len(host.calls("docker")) == 1


def test_a_slice_that_nobody_tells_is_told(host: Any) -> None:
    done = host.run("run-trainer.sh", TPU_DEADLINE_SEC="0")
    assert (done.returncode, host.calls("docker")) == (1, [])
    assert [line["reason"] for line in host.events()] == ["the metadata does not describe this slice after 0 s"]


def test_a_first_host_whose_store_does_not_start_trains_nothing(host: Any) -> None:
    tell(host, 0, 2, 0)
    host.fake("systemctl", '[ "$1" != start ]')
    assert host.run("run-trainer.sh").returncode == 1
    assert host.started() == []


def test_the_store_is_on_each_host_and_of_none_at_boot(tpu_host: TpuHostSpec, machines: Any) -> None:
    text = render_tpu_startup(tpu_host)
    _, unit = machines.files_of(text)["/etc/systemd/system/gangway-rendezvous.service"]
    (line,) = [line for line in unit.splitlines() if "gangway.trainer.launch.rendezvous" in line]
    assert "--mount type=bind,source=/run/gangway-member.pem" in line
    assert " --user 0:0 " in line, "its key is root's"
    assert line.endswith("--member-key /run/gangway-member.pem --port 29400")
    assert "gangway-rendezvous" not in text.rpartition("systemctl enable")[2]
    alone = machines.files_of(render_tpu_startup(replace(tpu_host, member_key=None)))
    assert "/etc/systemd/system/gangway-rendezvous.service" not in alone


def test_the_startup_script_makes_the_machine_and_starts_its_units(
    tpu_host: TpuHostSpec, machines: Any, tmp_path: Path
) -> None:
    text = render_tpu_startup(tpu_host)
    moved = text
    for folder in ("/etc/", "/opt/"):
        moved = moved.replace(f"/dev/stdin {folder}", f"/dev/stdin {tmp_path}{folder}")
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n')
    (tmp_path / "systemctl").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for _ in range(2):  # at each boot
        subprocess.run(["bash", "-s"], input=moved, text=True, env=env, check=True)
    for path, (mode, content) in machines.files_of(text).items():
        written = Path(f"{tmp_path}{path}")
        assert written.read_text() == content, path
        assert stat.S_IMODE(written.stat().st_mode) == int(mode, 8), path
    units = "gangway-metadata.service gangway-trainer.service gangway-watch.timer gangway-logs.service"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["daemon-reload", f"enable {units}", f"start --no-block {units}"] * 2


def test_nothing_of_a_jobs_text_ends_a_file_of_the_script(tpu_host: TpuHostSpec, machines: Any) -> None:
    job = tpu_host.job.model_copy(update={"env": {"A": "x\nGANGWAY_END_OF_FILE\nrm -rf /\n"}})
    text = render_tpu_startup(replace(tpu_host, job=job))
    assert text.isascii()
    names = machines.files_of(render_tpu_startup(tpu_host)).keys()
    assert machines.files_of(text).keys() == names
    assert "\nrm -rf /" not in text


QUEUED = "projects/acme-ml/locations/us-central1-a/queuedResources/demo"


@pytest.fixture
def leaving(host: Any, gce: Any, load_module: Any) -> Any:
    """A host of slices that leave when the job is done; they are there."""
    gce.tpu = load_module(Path(__file__).parents[1] / "tpu_standin.py").TpuCloud()
    many = {"nodeCount": 2, "nodeIdPrefix": "demo"}
    spec = {"parent": QUEUED.partition("/queuedResources/")[0], "node": {}, "multisliceParams": many}
    query = "queuedResourceId=demo&requestId=r"
    gce.tpu.answer("POST", f"/v2/{spec['parent']}/queuedResources?{query}", {"tpu": {"nodeSpec": [spec]}})
    assert gce.tpu.settle(QUEUED) == "ACTIVE"
    host.plan(queued_resource=QUEUED)
    host.fake("systemctl", "[ $1 != is-active ] || echo inactive")
    return host


def train_and_end(host: Any, status: int) -> subprocess.CompletedProcess[str]:
    """The trainer runs and exits; what systemd starts then."""
    assert host.run("run-trainer.sh").returncode == 0
    (host.root / "run" / "run.json").write_text("{}")
    result = "success" if status == 0 else "exit-code"
    host.env |= {"SERVICE_RESULT": result, "EXIT_CODE": "exited", "EXIT_STATUS": str(status)}
    done: subprocess.CompletedProcess[str] = host.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    return done


def ended_there(gce: Any) -> bool:
    return any("/dcgan-celeba64/ended-" in key for key in gce.objects)


@pytest.mark.parametrize("status", [0, 2])
def test_the_first_host_has_all_slices_leave_when_the_job_has_ended(leaving: Any, gce: Any, status: int) -> None:
    tell(leaving, 0, 2, 0)
    done = train_and_end(leaving, status)
    assert f"deleting {QUEUED} with its slices" in done.stderr
    assert gce.tpu.queued[QUEUED]["state"] == {"state": "DELETING"}
    assert gce.tpu.nodes == {}
    assert ended_there(gce)
    # The last word comes after all that has to outlive the slices.
    assert [call.path for call in gce.calls][-1] == f"/tpu.googleapis.com/v2/{QUEUED}"
    assert gce.calls[-1].query == {"force": "true"}
    # Once it is gone there is nothing left to do, and nothing to complain of.
    gce.tpu.queued.clear()
    assert leaving.run("watch-node.sh").returncode == 0


@pytest.mark.parametrize(("worker", "slice_id"), [(1, 0), (0, 1)])
def test_other_hosts_leave_it_to_the_first(leaving: Any, gce: Any, worker: int, slice_id: int) -> None:
    tell(leaving, worker, 2, slice_id)
    done = train_and_end(leaving, 0)
    assert "the first host deletes the slices" in done.stderr
    assert (list(gce.tpu.queued), len(gce.tpu.nodes)) == ([QUEUED], 2)
    assert ended_there(gce)


def test_an_interrupted_job_keeps_its_slices(leaving: Any, gce: Any) -> None:
    tell(leaving, 0, 2, 0)
    train_and_end(leaving, 75)
    assert (list(gce.tpu.queued), ended_there(gce)) == ([QUEUED], False)


def test_slices_that_may_stay_stay(leaving: Any, gce: Any) -> None:
    leaving.plan(queued_resource=None)
    tell(leaving, 0, 2, 0)
    train_and_end(leaving, 0)
    assert (list(gce.tpu.queued), ended_there(gce)) == ([QUEUED], True)


def test_a_deletion_that_is_refused_is_tried_again(leaving: Any, gce: Any) -> None:
    tell(leaving, 0, 2, 0)
    gce.tpu.undeletable_looks = 1
    assert "watch-node.sh will retry" in train_and_end(leaving, 0).stderr
    assert list(gce.tpu.queued) == [QUEUED]
    assert leaving.run("watch-node.sh").returncode == 0
    assert gce.tpu.queued[QUEUED]["state"]["state"] == "DELETING"


def test_a_host_on_which_the_trainer_failed_too_often_is_started_again(host: Any) -> None:
    """Nobody replaces it: its slice is deleted as a whole, and others of the job go on."""
    tell(host, 0, 1)
    host.plan(num_slices=1)
    host.fake("systemctl", "[ $1 != is-active ] || echo inactive")
    assert host.run("run-trainer.sh").returncode == 0
    host.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "4"}
    done = host.run("leave-node.sh")
    assert (done.returncode, host.state("failed").exists()) == (1, True)
    assert "a single host of a slice is not replaced: checked again within 30 minutes" in done.stderr
    assert host.run("watch-node.sh").returncode == 0
    assert ["start", "--no-block", "gangway-trainer.service"] in host.calls("systemctl")
