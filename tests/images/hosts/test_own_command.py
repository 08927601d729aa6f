"""A machine that is there already whose job is a command of one's own: its script, the command run for real, and its
folder put where it outlives the machine.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gangway.components.core.job import JobSpec, Rendezvous
from gangway.images.hosts import HostSpec, host_docker_argv, host_files, render_host_installer

JobOf = Callable[..., JobSpec]


@pytest.fixture(scope="session")
def own(first: HostSpec, get_job: JobOf) -> HostSpec:
    """The first machine, alone with a command."""
    job = get_job("/shared/gangway/runs/lab", "python", "train.py", processes=8, workdir="/work")
    return replace(
        first,
        job=job,
        fabric=None,
        shared_dir=None,
        port=None,
        member_key=None,
        prometheus_image=None,
        workers=(),
        keeps_record=False,
        uid=2_001_000_001,
    )


def test_the_script_of_a_machine_with_a_command_is_golden(
    own: HostSpec, same_as_golden: Callable[[str, str], None]
) -> None:
    same_as_golden("installer-hosts.command.sh", render_host_installer(own))


def test_it_is_installed_and_taken_away_again(owned: Any, own: HostSpec) -> None:
    before = owned.files()
    done = owned.install(own)
    assert done.returncode == 0, done.stderr
    assert {"/opt/gangway/bin/own-node.sh", "/opt/gangway/bin/own-job.sh"} <= owned.files()
    names = {path.rpartition("gangway-")[2] for path in owned.files() if "/systemd/system/gangway-" in path}
    assert names == {"metadata.service", "prepare.service", "trainer.service", "watch.service", "watch.timer"}
    assert owned.remove().returncode == 0
    assert owned.files() == before


def test_the_command_runs_as_the_stacks_own_user(own: HostSpec) -> None:
    argv = host_docker_argv(own)
    image = argv.index(own.job.image)
    assert argv[argv.index("--user") + 1] == "2001000001:2001000001"
    assert argv[image + 1] == "/opt/gangway/bin/own-node.sh"
    assert "--standalone" in argv[image:]
    assert {"--read-only", "no-new-privileges"} <= set(argv[:image])
    assert "/dev/infiniband" not in argv


def test_a_stop_waits_for_the_command_and_not_for_its_folder(own: HostSpec) -> None:
    (unit,) = [file.text for file in host_files(own) if file.path.endswith("gangway-trainer.service")]
    assert f"TimeoutStopSec={own.job.shutdown_timeout_sec + 15}\n" in unit


@pytest.fixture
def first_of_two(first: HostSpec, own: HostSpec) -> HostSpec:
    """The first of two machines that meet, at its store."""
    at = Rendezvous(host="dgx-1", port=29400)
    job = own.job.model_copy(update={"num_nodes_max": 2, "rendezvous": at})
    return replace(own, job=job, shared_dir=first.shared_dir, port=29400)


def test_the_first_of_several_is_golden_and_holds_the_store(
    first_of_two: HostSpec, same_as_golden: Callable[[str, str], None]
) -> None:
    same_as_golden("installer-hosts.command_first.sh", render_host_installer(first_of_two))
    (unit,) = [file.text for file in host_files(first_of_two) if file.path.endswith("gangway-rendezvous.service")]
    assert "TCPStore" in unit
    assert "--user 2001000001:2001000001" in unit
    assert "gangway.trainer.launch" not in unit
    argv = host_docker_argv(first_of_two)
    assert "--rdzv-endpoint=dgx-1:29400" in argv
    assert "--nnodes=1:2" in argv


@pytest.fixture
def machine(host: Any, get_job: JobOf) -> Callable[..., Any]:
    """A machine on which docker runs the command here."""

    def made(script: str, bucket_uri: str) -> Any:
        host.runs_commands()
        host.fake("chown")
        run_dir = str(host.root / "run")
        job = get_job(run_dir, "sh", "-c", script)
        more = {"fabric": None, "shared_dir": None, "port": None, "member_key": None, "allowed": None}
        host.plan(job=job, run_dir=run_dir, bucket_uri=bucket_uri, **more)
        return host

    return made


def test_the_machine_runs_the_command_with_its_environment(machine: Callable[..., Any]) -> None:
    made = machine('echo "$GREETING" >"$GANGWAY_RUN_DIR/said"; exit 75', "/srv/results/lab")
    done = made.run("run-trainer.sh")
    assert done.returncode == 75, done.stderr
    assert (made.root / "run/said").read_text() == "two words\n"


FILES = {"model.pt": "1", "deep/er/two words.bin": "22", ".hidden": "3"}
COPIES = {
    "s3://b/runs": ("aws", 'mkdir -p "$store/${@: -1}" && cp -R "${@: -2:1}/." "$store/${@: -1}"'),
    "gs://b/runs": ("gcloud", 'mkdir -p "$store/${@: -1}" && cp -R "${@: -2:1}/." "$store/${@: -1}"'),
    "az://account/b/runs": (
        "az",
        "while [ $# -gt 0 ]; do case $1 in --file) file=$2 ;; --name) name=$2 ;; esac; shift; done; "
        'install -D "$file" "$store/az:/account/b/$name"',
    ),
}
"""By run store: the client, and what it does in small."""


def has_files(made: Any) -> None:
    for name, text in {**FILES, ".launch/key/used": "9"}.items():
        path = made.root / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("store", [*COPIES, "folder"])
def test_its_folder_is_put_once_the_job_has_ended(machine: Callable[..., Any], store: str) -> None:
    made = machine("exit 0", store)
    root = made.root / "store"
    if store == "folder":
        made.plan(bucket_uri=str(root / store))
    else:
        client, copy = COPIES[store]
        made.fake(client, f"store={root}; {copy}")
    has_files(made)
    assert made.run("upload-record.sh").returncode == 0
    assert not root.exists(), "until then it is where it was"
    made.state("ended").write_text("0 done\n")
    for _ in range(2):
        done = made.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    put = root / store.replace("://", ":/") / "mine"
    found = {str(path.relative_to(put)): path.read_text() for path in put.rglob("*") if path.is_file()}
    assert found == FILES
    if store != "folder":
        assert len(made.calls(COPIES[store][0])) == (len(FILES) if store.startswith("az") else 1), "once"


def test_what_cannot_be_put_is_told_and_tried_again(machine: Callable[..., Any]) -> None:
    made = machine("exit 0", "az://account/b/runs")
    made.fake("az", "echo 'no such container' >&2; exit 1")
    has_files(made)
    made.state("ended").write_text("0 done\n")
    for _ in range(2):
        done: subprocess.CompletedProcess[str] = made.run("upload-record.sh")
        assert done.returncode == 1
        assert "no such container" in done.stderr
    assert len(made.calls("az")) == 2


def test_the_watch_puts_it_and_the_machine_stays(machine: Callable[..., Any]) -> None:
    made = machine("exit 0", "unused")
    made.plan(bucket_uri=str(made.root / "store"))
    made.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    has_files(made)
    made.state("ran").touch()
    made.env |= {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
    assert made.run("leave-node.sh").returncode == 0
    assert made.run("watch-node.sh").returncode == 0
    assert (made.root / "store/mine/model.pt").read_text() == "1"
    assert ["poweroff"] not in made.calls("systemctl")
