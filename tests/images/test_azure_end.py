"""How a worker on Azure gives up, leaves its scale set and tells of it: real bash and Python; APIs in small."""

from pathlib import Path
from typing import Any

import pytest

from gangway.images.azure import azure_docker_argv
from tests.images.machines import exited

RUNS = "gwdemo/runs/demo"


@pytest.fixture
def worker(azure_machine: Any, tmp_path: Path) -> Any:
    """A worker whose trainer may start."""
    azure_machine.plan(run_dir=f"{tmp_path}/run", data_dir=None)
    azure_machine.fake("docker")
    azure_machine.fake("install", 'mkdir -p "${@: -1}"')
    return azure_machine


def test_who_gives_up_leaves_its_scale_set_and_says_why(azure_machine: Any, azure_vm: Any, tmp_path: Path) -> None:
    reason = 'no GPU "of mine"\n$HOME \' \\'
    done = azure_machine.give_up(reason)
    assert done.returncode == 1
    assert azure_machine.verbs() == ["DELETE 3"]
    assert azure_vm.sets["demo-0-spot"] == {"capacity": 1, "machines": {"4": "running"}, "model": {"priority": "Spot"}}
    (row,) = azure_vm.rows
    assert row.pop("TimeGenerated")
    line = {"event": "node-given-up", "instance_id": "demo-0-spot_3", "reason": reason}
    assert row == {
        "Node": "demo-0-spot_3",
        "Role": "node",
        "Unit": "gangway-node",
        "Event": "node-given-up",
        "Line": line,
    }
    assert (tmp_path / "state/given-up").exists(), "the health probe says so"


def test_who_may_not_leave_stops_and_the_head_deletes_it(azure_machine: Any, azure_vm: Any) -> None:
    azure_vm.denied.add("DELETE")
    done = azure_machine.give_up("no GPU")
    assert done.returncode == 1
    assert ["poweroff"] in azure_machine.calls("systemctl")
    assert "AuthorizationFailed: DELETE demo-0-spot" in done.stderr


def test_a_log_that_cannot_be_written_stops_nobody(azure_machine: Any, azure_vm: Any) -> None:
    azure_vm.denied.add("ingest.monitor.azure.com")
    done = azure_machine.give_up("no GPU")
    assert azure_machine.verbs() == ["DELETE 3"]
    assert "could not send to https://demo-lines" in done.stderr
    azure_machine.plan(ingestion_url=None)
    assert "could not send" not in azure_machine.give_up("no GPU").stderr


def test_the_head_tries_again_by_itself(azure_machine: Any, request: pytest.FixtureRequest) -> None:
    azure_machine.azure = request.getfixturevalue("azure_head")
    assert azure_machine.give_up("no image").returncode == 1
    assert azure_machine.verbs() == []
    assert [line["event"] for line in azure_machine.events()] == ["head-not-ready"]
    assert azure_machine.vm.rows[0]["Role"] == "head"


def test_the_trainer_meets_the_nodes_of_its_own_scale_set_alone(worker: Any) -> None:
    worker.plan(max_hours=None)
    done = worker.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    (call,) = worker.started()
    planned = azure_docker_argv(worker.azure)
    assert [(ours, said) for ours, said in zip(planned, call, strict=True) if ours != said] == [
        ("--rdzv-id=dcgan-celeba64", "--rdzv-id=dcgan-celeba64-demo-0-spot")
    ]
    assert call[call.index(worker.azure.job.image) + 1 :][:2] == ["--watch", "/run/gangway-notices/held"]
    assert call[call.index("--device") + 1] == "/dev/infiniband"
    assert "memlock=-1" in call


@pytest.mark.parametrize(
    ("priority", "kind"), [("Spot", "spot"), ("Low", "spot"), ("Regular", "on-demand"), ("", "on-demand")]
)
def test_the_trainer_is_told_which_capacity_its_node_came_from(
    worker: Any, azure_vm: Any, priority: str, kind: str
) -> None:
    worker.plan(max_hours=None, fabric=None)
    azure_vm.compute["priority"] = priority
    assert worker.run("run-trainer.sh").returncode == 0
    ((*_, said),) = [call[:3] for call in worker.calls("docker")]
    assert said == f"GANGWAY_CAPACITY={kind}"


def test_over_ethernet_nodes_of_all_scale_sets_meet(worker: Any) -> None:
    worker.plan(max_hours=None, fabric=None)
    assert worker.run("run-trainer.sh").returncode == 0
    assert worker.started() == [azure_docker_argv(worker.azure)]


def test_who_does_not_know_its_scale_set_does_not_start_the_trainer(worker: Any, azure_vm: Any) -> None:
    azure_vm.compute.clear()
    done = worker.run("run-trainer.sh", NAME_DEADLINE_SEC="0")
    assert done.returncode != 0
    assert worker.calls("docker") == []


@pytest.mark.parametrize("how", ["Preempt", "Terminate", "shut down"])
def test_the_trainer_is_not_started_on_a_machine_that_goes(worker: Any, azure_vm: Any, how: str) -> None:
    event = azure_vm.schedule(how) if how != "shut down" else None
    if event is None:
        worker.fake("systemctl", "echo stopping")
    done = worker.run("run-trainer.sh")
    assert (done.returncode, worker.calls("docker")) == (0, [])
    assert "about to end" in done.stderr
    assert azure_vm.started == []
    worker.env |= exited("75")
    worker.state("ran").touch()
    assert worker.run("leave-node.sh").returncode == 0
    assert not worker.state("ended").exists(), "its end is the machine's, not the job's"
    assert worker.verbs() == []
    assert azure_vm.started == ([] if event is None else [event]), "it has saved: nobody need wait"


def test_an_end_that_has_begun_or_is_others_as_well_begins_at_nobodys_word(worker: Any, azure_vm: Any) -> None:
    azure_vm.schedule("Terminate", "demo-0-spot_3", "demo-0-spot_4")
    azure_vm.schedule("Preempt", status="Started")
    worker.env |= exited("75")
    assert worker.run("leave-node.sh").returncode == 0
    assert azure_vm.started == []


def test_a_restart_is_let_begin_and_waited_for(worker: Any, azure_vm: Any) -> None:
    """The trainer has saved and gone; systemd starts it again, and here it waits for the machine to go down."""
    event = azure_vm.schedule("Reboot")
    azure_vm.on_start = azure_vm.events.clear
    done = worker.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert azure_vm.started == [event]
    assert "starting the scheduled restart" in done.stderr
    assert len(worker.calls("docker")) == 1, "this one was called off"


def test_what_is_left_in_the_list_of_a_restart_that_was_does_not_hold_up_the_job(worker: Any, azure_vm: Any) -> None:
    azure_vm.schedule("Redeploy", status="Started")
    azure_vm.schedule("Reboot", "demo-0-spot_3", "demo-0-spot_4")
    azure_vm.schedule("Reboot", "demo-0-spot_4")
    assert worker.run("run-trainer.sh").returncode == 0
    assert (len(worker.calls("docker")), azure_vm.started) == (1, [])


def test_a_metadata_service_that_is_away_holds_up_nothing(worker: Any) -> None:
    worker.env["GANGWAY_METADATA_URL"] = "http://127.0.0.1:9"
    worker.plan(fabric=None)
    done = worker.run("run-trainer.sh")
    assert len(worker.calls("docker")) == 1
    assert "starting the job" in done.stderr


def test_a_job_that_is_done_stands_in_the_container_before_its_node_leaves(worker: Any, azure_vm: Any) -> None:
    worker.state("ran").touch()
    worker.env |= exited("0")
    done = worker.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    assert azure_vm.blobs == {f"{RUNS}/{worker.azure.ended_object}": b"0 done\n"}
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert worker.verbs() == ["DELETE 3"]
    (event,) = worker.events()
    assert event == {"event": "job-ended", "instance_id": "demo-0-spot_3", "exit_status": 0, "reason": "done"}
    hosts = [call.path.split("/")[1] for call in azure_vm.calls]
    assert hosts.index("gwdemo.blob.core.windows.net") < hosts.index("management.azure.com"), (
        "or the head fills the gap"
    )


def test_who_cannot_tell_the_container_stays_and_is_asked_again(worker: Any, azure_vm: Any) -> None:
    worker.state("ran").touch()
    worker.env |= exited("2")
    azure_vm.denied.add("blob.core.windows.net")
    assert worker.run("leave-node.sh").returncode == 0
    assert (worker.verbs(), worker.state("ended").read_text()) == ([], "2 bad-input\n")
    azure_vm.denied.clear()
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert worker.verbs() == ["DELETE 3"]


def test_a_node_that_is_deleted_by_itself_need_not_wait_for_its_notice(worker: Any, azure_vm: Any) -> None:
    worker.state("ended").write_text("0 done\n")
    event = azure_vm.schedule("Terminate")
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert (azure_vm.started, worker.verbs()) == ([event], [])


def test_who_stays_when_the_job_is_done_tells_the_head(worker: Any, azure_vm: Any) -> None:
    worker.plan(terminate_when_done=False)
    worker.state("ran").touch()
    worker.env |= exited("0")
    assert worker.run("leave-node.sh").returncode == 0
    assert azure_vm.blobs == {f"{RUNS}/{worker.azure.ended_object}": b"0 done\n"}
    assert worker.verbs() == []


def test_the_record_is_put_once_for_each_change(worker: Any, azure_vm: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes(b'{"status": "\xc3\xbc"}\0')
    for _ in range(2):
        done = worker.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    assert azure_vm.blobs == {f"{RUNS}/dcgan-celeba64/run.json": b'{"status": "\xc3\xbc"}\0'}
    assert len(azure_vm.asked("blob.core.windows.net")) == 1
    (event,) = worker.events()
    url = "https://gwdemo.blob.core.windows.net/runs/demo/dcgan-celeba64/run.json"
    assert (event["event"], event["reason"]) == ("record-put", url)


def test_a_record_that_is_refused_is_told(worker: Any, azure_vm: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    azure_vm.denied.add("blob.core.windows.net")
    assert worker.run("upload-record.sh").returncode == 1
    (event,) = worker.events()
    assert event["event"] == "record-not-put"
    assert "gangway: put: 403: PUT " in event["reason"]


def test_a_run_on_the_machines_own_disk_is_put_with_it(worker: Any, azure_vm: Any, tmp_path: Path) -> None:
    worker.plan(file_system=None)
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/run.json").write_text("{}")
    (tmp_path / "run/checkpoints/10.pt").write_bytes(b"weights")
    done = worker.run("upload-record.sh")
    assert done.returncode == 0, done.stderr
    assert azure_vm.blobs[f"{RUNS}/dcgan-celeba64/checkpoints/10.pt"] == b"weights"


def test_the_image_comes_from_the_registry_with_the_machines_token(worker: Any) -> None:
    worker.fake("docker", "[ $1 != login ] || cat")
    done = worker.run("pull-image.sh", PULL_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    nobody = "00000000-0000-0000-0000-000000000000"
    login = ["login", "--username", nobody, "--password-stdin", "gangwaydemo.azurecr.io"]
    assert worker.calls("docker") == [login, ["pull", "--quiet", worker.azure.job.image]]
    assert done.stdout.strip() == "refresh-gangwaydemo.azurecr.io"


def test_an_image_that_nobody_gives_gives_the_node_up(worker: Any) -> None:
    worker.fake("docker", "exit 1")
    assert worker.run("pull-image.sh", PULL_DEADLINE_SEC="0").returncode == 1
    assert worker.verbs() == ["DELETE 3"]
