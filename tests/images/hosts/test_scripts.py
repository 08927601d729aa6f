"""What a machine that is there already does before, during and after a job: real bash, other commands in small."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.images.specs import RdmaSetup, stack_uid
from tests.shellcheck import shell_mistakes

GivenUp = Callable[..., str]


def test_every_script_passes_shellcheck(hosts_scripts: Path) -> None:
    scripts = sorted(hosts_scripts.glob("*.sh"))
    assert {"check-rdma.sh", "check-shared.sh", "check-container.sh", "cloud.sh"} <= {path.name for path in scripts}
    assert shell_mistakes(scripts) == ""


def adapter(
    root: Path, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", layer: str = "InfiniBand"
) -> None:
    """A device as sysfs shows it."""
    port = root / "sys/class/infiniband" / name / "ports/1"
    port.mkdir(parents=True, exist_ok=True)
    for file, text in {"link_layer": layer, "state": state, "rate": rate}.items():
        (port / file).write_text(f"{text}\n")


@pytest.fixture
def ib(host: Any, tmp_path: Path) -> Any:
    """A machine with its eight adapters, and one for storage."""
    for number in range(8):
        adapter(tmp_path, f"mlx5_{number}")
    adapter(tmp_path, "mlx5_bond_0", rate="100 Gb/sec (4X EDR)", layer="Ethernet")
    host.env |= {"GANGWAY_SYSFS": f"{tmp_path}/sys", "GANGWAY_RDMA_DEADLINE_SEC": "0"}
    return host


def test_a_machine_with_all_its_adapters_up_is_taken(ib: Any) -> None:
    done = ib.run("check-rdma.sh")
    assert done.returncode == 0, done.stderr
    assert "RDMA over InfiniBand: 8 adapters up at 400 Gb/s" in done.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "1: DOWN"}, "mlx5_3: 1: DOWN, 400 Gb/sec (4X NDR)"),
        ({"rate": "200 Gb/sec (2X NDR)"}, "mlx5_3: 4: ACTIVE, 200 Gb/sec"),
        ({"rate": "2.5 Gb/sec (1X SDR)"}, "mlx5_3: 4: ACTIVE, 2.5 Gb/sec"),
        ({"layer": "Ethernet"}, "7 adapters up at 400 Gb/s, 8 planned"),
    ],
)
def test_one_adapter_that_is_not_up_gives_the_machine_up(
    ib: Any, tmp_path: Path, given_up: GivenUp, changed: dict[str, str], said: str
) -> None:
    adapter(tmp_path, "mlx5_3", **changed)
    told = given_up(ib, "check-rdma.sh")
    assert "7 adapters up at 400 Gb/s, 8 planned" in told
    assert said in told


def test_only_the_named_adapters_count(ib: Any, tmp_path: Path, given_up: GivenUp) -> None:
    """Names are whole: mlx5_1 is not mlx5_10."""
    adapter(tmp_path, "mlx5_10")
    ib.plan(fabric=RdmaSetup("InfiniBand", 2, 400, ("mlx5_0", "mlx5_1")))
    assert ib.run("check-rdma.sh").returncode == 0
    adapter(tmp_path, "mlx5_1", state="1: DOWN")
    assert "1 adapters up at 400 Gb/s, 2 planned" in given_up(ib, "check-rdma.sh")


def test_roce_is_looked_for_on_ethernet(ib: Any, given_up: GivenUp) -> None:
    ib.plan(fabric=RdmaSetup("Ethernet", 1, 100))
    assert ib.run("check-rdma.sh").returncode == 0
    ib.plan(fabric=RdmaSetup("Ethernet", 1, 200))
    assert "RDMA over Ethernet after 0 s: 0 adapters up at 200 Gb/s" in given_up(ib, "check-rdma.sh")


@pytest.fixture
def sharing(host: Any, tmp_path: Path) -> Any:
    """A machine with its shared folder mounted."""
    (tmp_path / "shared").mkdir()
    host.plan(shared_dir=f"{tmp_path}/shared", run_dir=f"{tmp_path}/shared/runs/lab", uid=stack_uid("lab"))
    host.fake("findmnt", f"echo {tmp_path}/shared")
    host.fake("chown")
    return host


def test_a_mounted_folder_gets_the_runs_own(sharing: Any, tmp_path: Path) -> None:
    assert sharing.run("check-shared.sh").returncode == 0
    uid = str(stack_uid("lab"))
    assert sharing.calls("chown") == [["--no-dereference", f"{uid}:{uid}", f"{tmp_path}/shared/runs/lab"]]
    assert (tmp_path / "shared/runs/lab").is_dir()


@pytest.mark.attack("another stack's job on the same file system", "owns the folder that root is to give away a run in")
def test_a_folder_of_runs_that_somebody_else_owns_is_refused(sharing: Any, tmp_path: Path, given_up: GivenUp) -> None:
    (tmp_path / "shared/runs").mkdir()
    sharing.fake("stat", "echo 4242")
    assert f"{tmp_path}/shared/runs is a link or owned by user 4242: make it a folder owned by root" in given_up(
        sharing, "check-shared.sh"
    )
    (tmp_path / "shared/runs").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shared/runs").symlink_to(tmp_path / "elsewhere")
    sharing.fake("stat", "echo 0")
    assert "is a link" in given_up(sharing, "check-shared.sh")
    assert sharing.calls("chown") == []


@pytest.mark.attack("another stack's job on the same file system", "plants a link where root gives a run's folder away")
def test_what_a_link_in_the_runs_place_leads_to_stays_its_owners(sharing: Any, tmp_path: Path) -> None:
    (tmp_path / "shared/runs").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "shared/runs/lab").symlink_to(tmp_path / "victim")
    sharing.run("check-shared.sh")
    assert sharing.calls("chown")
    assert all(call[0] == "--no-dereference" for call in sharing.calls("chown"))


def test_a_folder_that_is_not_mounted_gives_the_machine_up(sharing: Any, tmp_path: Path, given_up: GivenUp) -> None:
    sharing.fake("findmnt", "echo /")
    assert "is on this machine's own disk: mount the shared file system" in given_up(sharing, "check-shared.sh")
    (tmp_path / "shared").rmdir()
    assert "shared does not exist: mount the shared file system" in given_up(sharing, "check-shared.sh")


def test_a_share_that_squashes_root_is_told(sharing: Any, given_up: GivenUp) -> None:
    sharing.fake("chown", "exit 1")
    assert "without root_squash" in given_up(sharing, "check-shared.sh")


def test_a_machine_that_trains_alone_needs_no_share(host: Any) -> None:
    host.plan(shared_dir=None)
    host.fake("findmnt", "exit 1")
    assert (host.run("check-shared.sh").returncode, host.calls("findmnt")) == (0, [])


GPUS = 'for number in {0..7}; do echo "GPU $number: NVIDIA H100 80GB HBM3 (UUID: GPU-$number)"; done'


def test_a_container_that_sees_all_gpus_is_taken(host: Any) -> None:
    host.fake("docker", GPUS)
    assert host.run("check-container.sh").returncode == 0
    (call,) = host.calls("docker")
    options = ["run", "--rm", "--gpus", "all", "--entrypoint", "nvidia-smi"]
    assert call == [*options, host.spec.job.image, "--list-gpus"]


def test_a_container_without_gpus_gives_the_machine_up(host: Any, given_up: GivenUp) -> None:
    host.fake("docker", 'echo "could not select device driver" >&2; exit 125')
    told = given_up(host, "check-container.sh")
    assert "install NVIDIA's container toolkit and configure it for docker; could not select" in told
    host.fake("docker", f"({GPUS}) | head -7")
    assert "a container sees 7 GPUs, 8 planned" in given_up(host, "check-container.sh")


@pytest.fixture
def finished(host: Any, tmp_path: Path) -> Any:
    """A machine whose job has written its record."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text('{"id": 1}')
    host.plan(run_dir=f"{tmp_path}/run")
    for name in ("aws", "gcloud", "az"):
        host.fake(name)
    return host


@pytest.mark.parametrize(
    ("store", "command", "said"),
    [
        ("s3://b/runs/lab", "aws", "s3 cp --only-show-errors FILE s3://b/runs/lab/JOB/run.json"),
        ("gs://b/runs/lab/", "gcloud", "storage cp --quiet FILE gs://b/runs/lab/JOB/run.json"),
        (
            "az://acct/box/runs/lab", "az",
            "storage blob upload --auth-mode login --overwrite --only-show-errors --output none --account-name acct "
            "--container-name box --name runs/lab/JOB/run.json --file FILE",
        ),
        (
            "az://acct/box", "az",
            "storage blob upload --auth-mode login --overwrite --only-show-errors --output none --account-name acct "
            "--container-name box --name JOB/run.json --file FILE",
        ),
    ],
)  # fmt: skip
def test_the_record_goes_to_the_bucket_by_the_machines_own_client(
    finished: Any, store: str, command: str, said: str
) -> None:
    finished.plan(bucket_uri=store)
    assert finished.run("upload-record.sh").returncode == 0
    words = said.replace("JOB", finished.spec.job.name).split()
    (call,) = finished.calls(command)
    assert ["FILE" if word.startswith("/proc/self/fd/") else word for word in call] == words
    # Once is enough.
    finished.run("upload-record.sh")
    assert len(finished.calls(command)) == 1


def test_the_record_goes_to_a_folder_whole(finished: Any, tmp_path: Path) -> None:
    finished.plan(bucket_uri=f"{tmp_path}/results/lab")
    assert finished.run("upload-record.sh").returncode == 0
    put = tmp_path / "results/lab" / finished.spec.job.name / "run.json"
    assert put.read_text() == '{"id": 1}'
    assert [path.name for path in put.parent.iterdir()] == ["run.json"]


def test_a_record_that_cannot_be_put_is_told_and_tried_again(finished: Any) -> None:
    finished.fake("aws", "echo AccessDenied >&2; exit 1")
    done = finished.run("upload-record.sh")
    assert done.returncode == 1
    assert "gangway: event: record-not-put reason AccessDenied" in done.stderr
    finished.fake("aws")
    assert finished.run("upload-record.sh").returncode == 0


def test_the_job_is_run_and_its_end_kept_until_the_stack_changes(host: Any, tmp_path: Path) -> None:
    host.plan(run_dir=f"{tmp_path}/run")
    host.fake("docker")
    host.fake("install", 'mkdir -p "${@: -1}"')
    host.fake("mv")
    assert host.run("run-trainer.sh").returncode == 0
    (call,) = host.calls("docker")
    assert call[0] == "run"
    assert call[-1] == host.spec.job.image
    assert host.state("first-start").exists()
    host.env |= {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
    assert host.run("leave-node.sh").returncode == 0
    assert host.state("ended").read_text() == "0 done\n"
    assert host.run("run-trainer.sh").returncode == 0
    assert len(host.calls("docker")) == 1


def test_a_machine_that_goes_down_starts_no_trainer(host: Any) -> None:
    host.fake("systemctl", "echo stopping")
    host.fake("docker")
    assert (host.run("run-trainer.sh").returncode, host.calls("docker")) == (0, [])


def test_a_machine_that_has_been_up_for_days_has_all_of_the_jobs_hours(host: Any, tmp_path: Path) -> None:
    """The watch looks before the trainer has started: it pulls its image."""
    host.plan(run_dir=f"{tmp_path}/run", bucket_uri=f"{tmp_path}/results/lab")
    host.up_for(864_000)
    host.fake("systemctl", "[ $1 = is-system-running ] && echo running || { echo inactive; exit 3; }")
    done = host.run("watch-node.sh")
    assert done.returncode == 0, done.stderr
    assert not host.state("ended").exists()
    assert not (tmp_path / "results").exists()
    host.started_trainer(9 * 3600)
    assert host.run("watch-node.sh").returncode == 0
    assert host.state("ended").read_text() == "6 max-hours\n"


def test_a_night_in_which_the_trainer_rests_is_none_of_the_jobs_hours(host: Any) -> None:
    def looks(state: str, up_hours: float) -> None:
        host.fake("systemctl", f"[ $1 = is-system-running ] && echo running || echo {state}")
        host.up_for(up_hours * 3600)
        assert host.run("watch-node.sh").returncode == 0

    host.up_for(864_000)
    host.state("first-start").write_text("864000\n")
    looks("active", 241)
    for hours in range(242, 255):
        looks("inactive", hours)
    looks("active", 259)
    assert ["stop", "gangway-trainer.service"] not in host.calls("systemctl")
    assert not host.state("ended").exists()


@pytest.mark.parametrize(("status", "told"), [("2", True), ("0", False), ("75", False)])
def test_a_job_that_has_failed_for_good_is_told_beside_its_record(
    host: Any, tmp_path: Path, status: str, told: bool
) -> None:
    job = host.spec.job.model_copy(update={"run_id": "private-s0"})
    host.plan(run_dir=f"{tmp_path}/run", bucket_uri=f"{tmp_path}/results/lab", job=job)
    host.state("ran").touch()
    host.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": status}
    assert host.run("leave-node.sh").returncode == 0
    put = tmp_path / "results/lab" / host.spec.job.name / "ended.json"
    assert put.exists() == told
    if told:
        said = json.loads(put.read_text())
        assert (said["run_id"], said["stack"], said["reason"]) == ("private-s0", "lab", "bad-input")


START = ["start", "--no-block", "gangway-trainer.service"]


@pytest.fixture
def failing(host: Any, tmp_path: Path) -> Any:
    """A machine whose trainer has just failed too often, while others go on."""
    host.plan(run_dir=f"{tmp_path}/run", fabric=None, shared_dir=f"{tmp_path}/shared")
    (tmp_path / "shared").mkdir()
    host.fake("findmnt", f"echo {tmp_path}/shared")
    host.fake("nvidia-smi", "[[ $1 != --query-gpu=index ]] || seq 0 7")
    host.fake("dmesg")
    host.fake("install", 'mkdir -p "${@: -1}"')
    host.fake("docker", f"[ $1 != run ] || {{ {GPUS}; }}")
    host.fake("systemctl", "[ $1 != is-system-running ] || echo running; [ $1 != is-active ] || echo failed")
    host.state("ran").touch()
    host.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "4"}
    done = host.run("leave-node.sh")
    assert done.returncode == 1
    assert "this machine is not replaced: fix it; it is checked again within 30 minutes" in done.stderr
    return host


def rest_ago(host: Any, seconds: float) -> None:
    """Its last rest began so long ago."""
    host.up_for(1e6)
    *before, _ = host.state("rests").read_text().splitlines()
    host.state("rests").write_text("".join(f"{line}\n" for line in (*before, round(1e6 - seconds))))


def starts_after(host: Any, seconds: float) -> bool:
    """Whether the watch starts the trainer when so much time has passed since the machine was found unfit."""
    rest_ago(host, seconds)
    before = host.calls("systemctl").count(START)
    assert host.run("watch-node.sh").returncode == 0
    return bool(host.calls("systemctl").count(START) > before)


def test_a_machine_on_which_the_trainer_failed_too_often_is_looked_at_and_started_again(failing: Any) -> None:
    assert starts_after(failing, 0)
    done = failing.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert len(failing.calls("dmesg")) == 1, "its health was looked at"
    assert failing.calls("docker")[-1][-1] == failing.spec.job.image
    assert not failing.state("unfit").exists()
    assert failing.run("watch-node.sh").returncode == 0
    assert failing.calls("systemctl").count(START) == 1


@pytest.mark.slow
def test_a_machine_that_stays_unfit_is_looked_at_after_growing_pauses(failing: Any) -> None:
    failing.fake("findmnt", "echo /")
    for pause in (60, 180, 420, 900, 1740, 1740):
        assert failing.run("run-trainer.sh").returncode == 4
        failing.run("leave-node.sh")
        assert (starts_after(failing, pause - 5), starts_after(failing, pause)) == (False, True)
    # Six hours later it is another matter.
    rest_ago(failing, 6 * 3600 + 120)
    assert failing.run("run-trainer.sh").returncode == 4
    assert starts_after(failing, 0)
