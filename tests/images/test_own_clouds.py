"""Nodes of other clouds than AWS whose job is a command of one's own: what docker is told, the scripts run for real,
what is put of it, and heads: those that run nothing of it, and those that hold the store of several nodes.
"""

import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.job import JobSpec, Rendezvous
from gangway.images.azure import azure_docker_argv
from gangway.images.gcp import gcp_docker_argv
from gangway.images.openstack import openstack_docker_argv
from gangway.images.shell import STORE_OF_A_COMMAND
from gangway.images.specs import job_key

ARGV: dict[str, Callable[[Any], list[str]]] = {
    "gcp": gcp_docker_argv,
    "azure": azure_docker_argv,
    "openstack": openstack_docker_argv,
}
ALONE: dict[str, dict[str, Any]] = {"gcp": {"nccl": None}, "azure": {"fabric": None}, "openstack": {"fabric": None}}
"""What a node alone has no use for."""
LOCAL: dict[str, dict[str, Any]] = {
    "gcp": {"file_system": None, "data": None, "data_dir": None, "scratch_mount_point": None},
    "azure": {"file_system": None, "data_dir": None, "scratch_mount_point": None},
    "openstack": {"file_system": None, "data_dir": None},
}
"""What a run on the node's own disk is without."""
JobOf = Callable[..., JobSpec]
every_cloud = pytest.mark.parametrize("cloud", list(ARGV))


@pytest.fixture
def worker_of(request: pytest.FixtureRequest, get_job: JobOf) -> Callable[[str], Any]:
    """A worker alone, whose command is started eight times by torchrun."""

    def spec(cloud: str) -> Any:
        job = get_job("/shared/runs/mine", "python", "train.py", "--note", 'it\'s "50 %"', processes=8, workdir="/work")
        own = {"job": job, "run_dir": "/shared/runs/mine", "member_key": None}
        return replace(request.getfixturevalue(f"{cloud}_node"), **own, **ALONE[cloud])

    return spec


@every_cloud
def test_the_command_runs_by_scripts_of_the_node_in_its_own_image(cloud: str, worker_of: Callable[[str], Any]) -> None:
    spec = worker_of(cloud)
    argv = ARGV[cloud](spec)
    image = argv.index(spec.job.image)
    assert argv[argv.index("--entrypoint") + 1] == "/bin/sh"
    assert argv[argv.index("--workdir") + 1] == "/work"
    assert argv[argv.index("--user") + 1] == "10001:10001"
    for script in ("own-node.sh", "own-job.sh"):
        path = f"/opt/gangway/bin/{script}"
        assert argv[argv.index(f"type=bind,source={path},target={path},readonly") - 1] == "--mount"
    folder = f"/shared/runs/mine/.launch/{job_key(spec.job)}"
    assert argv[image + 1 :] == [
        *("/opt/gangway/bin/own-node.sh", "/run/gangway-notices/held", folder, "28800", "3", "60"),
        *("--standalone", "--nnodes=1", "--nproc-per-node=8", "--max-restarts=0"),
        *("--", "python", "train.py", "--note", 'it\'s "50 %"'),
    ]
    assert {"--read-only", "no-new-privileges"} <= set(argv[:image]), "it is contained as the trainer is"
    told = "type=bind,source=/run/gangway-notices,target=/run/gangway-notices,readonly" in argv[:image]
    assert told == (cloud != "openstack"), "nothing there announces an end"
    assert "/dev/infiniband" not in argv, "one node has nobody to reach"


@every_cloud
def test_a_node_with_a_command_is_golden(
    cloud: str, worker_of: Callable[[str], Any], machines: Any, same_as_golden: Callable[[str, str], None]
) -> None:
    same_as_golden(f"cloud-init-{cloud}.command_node.yaml", machines.rendered(worker_of(cloud)))


@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_a_head_of_a_command_fills_groups_and_runs_no_container(
    cloud: str, get_job: JobOf, machines: Any, request: pytest.FixtureRequest
) -> None:
    head = request.getfixturevalue(f"{cloud}_head")
    own = replace(head, job=get_job("/shared/runs/mine", "true"), member_key=None, prometheus_image=None)
    files = machines.files_of(machines.rendered(own))
    units = {path.rpartition("/")[2] for path in files if path.startswith("/etc/systemd/system/")}
    assert {"gangway-fill.timer", "gangway-fill.service", "gangway-logs.service"} <= units
    theirs = ("gangway-rendezvous", "gangway-prepare", "gangway-prometheus", "gangway-record", "gangway-trainer")
    assert not [name for name in units if name.startswith(theirs)]
    assert not {"/opt/gangway/bin/pull-image.sh", "/opt/gangway/bin/upload-record.sh"} & files.keys()
    wanted = {name for _, text in files.values() for name in text.split() if name.startswith("gangway-prepare")}
    assert not wanted - {"gangway-prepare.service"}, "an order may speak of it, and nothing needs it"
    assert not [path for path, (_, text) in files.items() if "Requires=gangway-prepare" in text]


def several(job: JobSpec, host: str = "head.mine.gangway.internal", port: int = 29400) -> JobSpec:
    """The same job on two to four nodes, which meet there."""
    at = Rendezvous(host=host, port=port)
    return job.model_copy(update={"num_nodes_min": 2, "num_nodes_max": 4, "rendezvous": at})


@every_cloud
def test_several_nodes_meet_at_the_head(cloud: str, worker_of: Callable[[str], Any]) -> None:
    alone = worker_of(cloud)
    spec = replace(alone, job=several(alone.job))
    argv = ARGV[cloud](spec)
    words = argv[argv.index(spec.job.image) + 1 :]
    assert words[6] == "--rdzv-endpoint=head.mine.gangway.internal:29400", "own-node.sh goes by the first word"
    assert {"--rdzv-backend=c10d", "--nnodes=2:4", "--nproc-per-node=8", "--max-restarts=0"} <= set(words)
    assert "--standalone" not in words
    assert words[words.index("--") + 1 :] == ["python", "train.py", "--note", 'it\'s "50 %"']


@pytest.mark.parametrize("cloud", ["gcp", "azure", "openstack"])
def test_a_head_of_several_nodes_is_golden_and_holds_the_store(
    cloud: str,
    get_job: JobOf,
    machines: Any,
    request: pytest.FixtureRequest,
    same_as_golden: Callable[[str, str], None],
) -> None:
    head = request.getfixturevalue(f"{cloud}_head")
    job = several(get_job("/shared/runs/mine", "python", "train.py", processes=8))
    none = {
        "member_key": None,
        "prometheus_image": None,
        "file_system": None,
        **({"data": None} if cloud == "gcp" else {}),
    }
    own = replace(head, job=job, **none)
    text = machines.rendered(own)
    same_as_golden(f"cloud-init-{cloud}.command_head.yaml", text)
    files = machines.files_of(text)
    _, unit = files["/etc/systemd/system/gangway-rendezvous.service"]
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert f'--entrypoint python {job.image} -c "{STORE_OF_A_COMMAND}" 29400' in start
    assert "--read-only" in start, "it is contained as the trainer's is"
    assert "/opt/gangway/bin/pull-image.sh" in files
    assert not [path for path in files if "record" in path or "prometheus" in path or "fetch-key" in path]


def test_the_plug_in_of_nccl_goes_with_the_trainers_image_alone(gcp_node: Any, get_job: JobOf) -> None:
    with pytest.raises(ValueError, match="remove nccl"):
        replace(gcp_node, job=get_job("/shared/runs/mine", "true"))


@pytest.fixture
def get_machine(request: pytest.FixtureRequest, get_job: JobOf) -> Callable[..., Any]:
    """A machine of that cloud on which docker runs the command here; its run is on its own disk."""

    def made(cloud: str, script: str, **more: Any) -> Any:
        machine = request.getfixturevalue(f"{cloud}_machine")
        machine.runs_commands()
        machine.fake("chown")
        run_dir = str(machine.root / "run")
        own = {"job": get_job(run_dir, "sh", "-c", script), "run_dir": run_dir, "member_key": None}
        machine.plan(**{**own, **ALONE[cloud], **LOCAL[cloud], **more})
        return machine

    return made


@pytest.mark.slow
@every_cloud
def test_the_node_runs_the_command_with_its_environment(cloud: str, get_machine: Callable[..., Any]) -> None:
    machine = get_machine(cloud, 'echo "$GREETING" >"$GANGWAY_RUN_DIR/said"; exit 75')
    done = machine.run("run-trainer.sh")
    assert done.returncode == 75, done.stderr
    assert (machine.root / "run/said").read_text() == "two words\n"


LINES = """if true; then
	printf '%s' "$0" >"$GANGWAY_RUN_DIR/word"
fi
"""
WORD = "a\n\tb 'c' \"d\" $HOME `e` \\ %n\n"


@pytest.mark.slow
@every_cloud
def test_words_of_several_lines_come_through_as_they_are_written(
    cloud: str, get_machine: Callable[..., Any], get_job: JobOf
) -> None:
    machine = get_machine(cloud, "exit 0")
    run_dir = machine.root / "run"
    machine.plan(job=get_job(str(run_dir), "sh", "-c", LINES, WORD))
    done = machine.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert (run_dir / "word").read_text() == WORD


TORCHRUN = 'while [ "$1" != --no-python ]; do shift; done; shift; exec "$@"'


@pytest.mark.slow
@every_cloud
def test_a_node_of_several_runs_it_once_there_is_a_store_and_ends_the_job_for_all(
    cloud: str, get_machine: Callable[..., Any], get_job: JobOf
) -> None:
    machine = get_machine(cloud, "exit 0")
    run_dir = machine.root / "run"
    machine.fake("torchrun", TORCHRUN)
    (machine.root / "fake" / "python").symlink_to(sys.executable)
    with socket.create_server(("127.0.0.1", 0)) as server:
        job = get_job(str(run_dir), "sh", "-c", 'echo up >"$GANGWAY_RUN_DIR/said"', processes=1)
        machine.plan(job=several(job, *server.getsockname()))
        done = machine.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert (run_dir / "said").read_text() == "up\n"
    assert (run_dir / ".launch" / machine.key() / "over").read_text() == "0\n"


@every_cloud
def test_hours_count_over_all_starts(cloud: str, get_machine: Callable[..., Any]) -> None:
    machine = get_machine(cloud, "exit 0")
    used = machine.root / "run/.launch" / machine.key() / "used"
    used.parent.mkdir(parents=True)
    used.write_text("28800\n")
    done = machine.run("run-trainer.sh")
    assert done.returncode == 6, done.stderr


@pytest.mark.slow
@every_cloud
@pytest.mark.parametrize(
    ("code", "reason"), [(0, "done"), (2, "bad-input"), (5, "too-many-failures"), (6, "max-hours")]
)
def test_an_end_for_all_ends_the_job(cloud: str, code: int, reason: str, get_machine: Callable[..., Any]) -> None:
    machine = get_machine(cloud, "exit 0", terminate_when_done=False)
    machine.state("ran").touch()
    machine.env |= {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": str(code)}
    assert machine.run("leave-node.sh").returncode == 0
    assert machine.state("ended").read_text() == f"{code} {reason}\n"


FILES = {"model.pt": "1", "deep/er/weights.bin": "22", ".hidden": "3", "run.json": "its own"}


def in_store(cloud: str, machine: Any, request: pytest.FixtureRequest) -> dict[str, str]:
    if cloud == "gcp":
        objects, prefix = machine.gce.objects, "gangway-records/demo/mine/"
    elif cloud == "azure":
        objects, prefix = machine.vm.blobs, "gwdemo/runs/demo/mine/"
    else:
        objects, prefix = request.getfixturevalue("swift").objects, "demo-runs/demo/mine/"
    return {key.removeprefix(prefix): content.decode() for key, content in objects.items()}


def has_files(run: Path) -> None:
    for name, text in {**FILES, ".launch/key/used": "9"}.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@every_cloud
def test_all_of_the_run_folder_is_put_when_it_has_changed(
    cloud: str, get_machine: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    machine = get_machine(cloud, "exit 0")
    has_files(machine.root / "run")
    for _ in range(2):
        done = machine.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    assert in_store(cloud, machine, request) == FILES
    (machine.root / "run/model.pt").write_text("later")
    assert machine.run("upload-record.sh").returncode == 0
    assert in_store(cloud, machine, request)["model.pt"] == "later"


@every_cloud
def test_on_a_file_system_it_is_put_once_the_job_has_ended(
    cloud: str, get_machine: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    files = request.getfixturevalue(f"{cloud}_node").file_system
    machine = get_machine(cloud, "exit 0", file_system=files)
    has_files(machine.root / "run")
    assert machine.run("upload-record.sh").returncode == 0
    assert in_store(cloud, machine, request) == {}
    machine.state("ended").write_text("0 done\n")
    done = machine.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    assert in_store(cloud, machine, request) == FILES
