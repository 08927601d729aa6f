"""How a worker on Google Cloud gives up, leaves its group and tells of it: real bash, curl, Python; APIs in small."""

import json
from pathlib import Path
from typing import Any

import pytest

from gangway.images.gcp import TpuHostSpec, gcp_docker_argv
from gangway.images.node.gcp.notices import LEAVE_TAG
from tests.images.machines import exited

ENDED = "gangway-records/demo/dcgan-celeba64/ended-"


@pytest.fixture
def worker(gcp_machine: Any, tmp_path: Path) -> Any:
    """A worker whose trainer may start."""
    gcp_machine.plan(run_dir=f"{tmp_path}/run", data_dir=None)
    gcp_machine.fake("docker")
    gcp_machine.fake("install", 'mkdir -p "${@: -1}"')
    return gcp_machine


def test_who_gives_up_is_made_anew_and_says_why(gcp_machine: Any, gce: Any) -> None:
    done = gcp_machine.give_up('no GPU "of mine"\n$HOME \' \\')
    assert done.returncode == 1
    assert gcp_machine.verbs() == ["recreateInstances"]
    (call,) = gce.asked("compute")
    zone = "projects/1/zones/us-central1-a"
    assert call.path.endswith(f"/v1/{zone}/instanceGroupManagers/demo-0-spot/recreateInstances")
    assert call.body == {"instances": [f"{zone}/instances/demo-0-abcd"]}
    reason = 'no GPU "of mine"\n$HOME \' \\'
    assert gcp_machine.events() == [{"event": "node-given-up", "instance_id": "demo-0-abcd", "reason": reason}]
    (entry,) = gce.entries
    assert entry["logName"] == "projects/acme-ml/logs/gangway-demo"
    assert entry["type"] == "gce_instance"
    assert entry["labels"] == {"project_id": "acme-ml", "instance_id": "123", "zone": "us-central1-a"}


def test_who_may_not_speak_to_its_group_stops_itself(gcp_machine: Any, gce: Any) -> None:
    gce.denied.add("recreateInstances")
    done = gcp_machine.give_up("no GPU")
    assert done.returncode == 1
    assert ["poweroff"] in gcp_machine.calls("systemctl")
    assert "permission for demo-0-spot" in done.stderr
    assert "its group recreates it, except a flex-start group" in done.stderr


@pytest.mark.slow
def test_a_log_that_cannot_be_written_stops_nobody(gcp_machine: Any, gce: Any) -> None:
    gce.denied.add("logging")
    done = gcp_machine.give_up("no GPU")
    assert gcp_machine.verbs() == ["recreateInstances"]
    assert "could not send to gangway-demo: node-given-up reason no GPU" in done.stderr
    gcp_machine.plan(log_id=None)
    assert "could not send" not in gcp_machine.give_up("no GPU").stderr


def test_a_host_of_a_slice_and_the_head_try_again_by_themselves(
    gcp_machine: Any, gce: Any, tpu_host: TpuHostSpec, request: pytest.FixtureRequest
) -> None:
    gcp_machine.gcp = tpu_host
    done = gcp_machine.give_up("no image")
    assert (done.returncode, gcp_machine.verbs()) == (1, [])
    assert "a single host of a slice is not replaced: checked again within 30 minutes" in done.stderr
    gcp_machine.gcp = request.getfixturevalue("gcp_head")
    assert gcp_machine.give_up("no image").returncode == 1
    assert gcp_machine.verbs() == []
    assert [line["event"] for line in gcp_machine.events()] == ["node-given-up", "head-not-ready"]
    assert ["poweroff"] not in gcp_machine.calls("systemctl")


def test_the_trainer_starts_as_it_is_told(worker: Any) -> None:
    worker.plan(max_hours=None, nccl=None)
    assert worker.run("run-trainer.sh").returncode == 0
    (call,) = worker.started()
    assert call == gcp_docker_argv(worker.gcp)
    assert call[call.index(worker.gcp.job.image) + 1 :][:2] == ["--watch", "/run/gangway-notices/held"]
    assert call[call.index("--log-driver") + 1] == "none", "the journal has its lines already"


@pytest.mark.parametrize("how", ["preempted", "shut down"])
def test_the_trainer_is_not_started_on_a_machine_that_goes(worker: Any, gce: Any, how: str) -> None:
    if how == "preempted":
        gce.items["instance/preempted"] = "TRUE"
    else:
        worker.fake("systemctl", "echo stopping")
    done = worker.run("run-trainer.sh")
    assert (done.returncode, worker.calls("docker")) == (0, [])
    assert "about to end" in done.stderr
    worker.env |= exited("0")
    worker.state("ran").touch()
    assert worker.run("leave-node.sh").returncode == 0
    assert not worker.state("ended").exists(), "its end is the machine's, not the job's"
    assert worker.verbs() == []


def asks_to_leave(gce: Any) -> None:
    """As `gangway job --scale` does."""
    gce.items["instance/tags"] = json.dumps(["gangway-node", LEAVE_TAG])


def test_who_is_asked_to_leave_saves_first_and_makes_its_group_smaller(worker: Any, gce: Any) -> None:
    worker.state("ran").touch()
    worker.env |= exited("75")
    assert worker.run("leave-node.sh").returncode == 0
    assert worker.verbs() == [], "an interruption alone is no reason to go"
    asks_to_leave(gce)
    done = worker.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    assert worker.verbs() == ["deleteInstances"]
    assert gce.groups["demo-0-spot"]["targetSize"] == 1
    assert not worker.state("ended").exists(), "the job goes on"
    assert worker.run("run-trainer.sh").returncode == 0
    assert worker.calls("docker") == [], "and is not started here again"


def test_who_could_not_leave_as_asked_tries_again(worker: Any, gce: Any) -> None:
    asks_to_leave(gce)
    gce.denied.add("deleteInstances")
    worker.state("ran").touch()
    worker.env |= exited("75")
    assert worker.run("leave-node.sh").returncode != 0
    worker.fake("systemctl", '[ "$1" = is-active ] && echo active || echo running')
    gce.denied.clear()
    assert worker.run("watch-node.sh").returncode == 0
    assert gce.groups["demo-0-spot"]["targetSize"] == 2, "not while the trainer saves"
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert gce.groups["demo-0-spot"]["targetSize"] == 1


def test_a_host_of_a_slice_is_asked_in_vain(gcp_machine: Any, gce: Any, tpu_host: TpuHostSpec) -> None:
    """Slices come and go together."""
    gcp_machine.gcp = tpu_host
    asks_to_leave(gce)
    gcp_machine.state("ran").touch()
    gcp_machine.env |= exited("75")
    assert gcp_machine.run("leave-node.sh").returncode == 0
    assert gce.asked("tpu") == gce.asked("compute") == []


@pytest.mark.parametrize(("preemptible", "kind"), [("TRUE", "spot"), ("FALSE", "on-demand")])
def test_the_trainer_is_told_which_capacity_its_node_came_from(
    worker: Any, gce: Any, preemptible: str, kind: str
) -> None:
    worker.plan(max_hours=None)
    assert worker.run("run-trainer.sh").returncode == 0
    gce.items["instance/scheduling/preemptible"] = preemptible
    assert worker.run("run-trainer.sh").returncode == 0
    silent, told = worker.started()
    assert told == [silent[0], "--env", f"GANGWAY_CAPACITY={kind}", *silent[1:]]


def test_a_job_that_is_done_stands_in_the_bucket_before_its_node_leaves(worker: Any, gce: Any) -> None:
    worker.state("ran").touch()
    worker.env |= exited("0")
    done = worker.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    ((key, content),) = gce.objects.items()
    assert key == f"gangway-records/demo/{worker.gcp.ended_object}"
    assert (key.startswith(ENDED), content) == (True, b"0 done\n")
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert worker.verbs() == ["deleteInstances"]
    assert gce.groups["demo-0-spot"]["targetSize"] == 1, "the group became smaller"
    assert worker.events() == [{"event": "job-ended", "instance_id": "demo-0-abcd", "exit_status": 0, "reason": "done"}]
    hosts = [call.path.split("/")[1].partition(".")[0] for call in gce.calls]
    assert hosts.index("storage") < hosts.index("compute"), "or the head fills the gap"


def test_who_cannot_tell_the_bucket_stays_and_is_asked_again(worker: Any, gce: Any) -> None:
    worker.state("ran").touch()
    worker.env |= exited("2")
    gce.denied.add("storage")
    assert worker.run("leave-node.sh").returncode == 0
    assert (worker.verbs(), worker.state("ended").read_text()) == ([], "2 bad-input\n")
    gce.denied.clear()
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    assert worker.run("watch-node.sh").returncode == 0
    assert worker.verbs() == ["deleteInstances"]


def test_nothing_is_bought_for_a_job_that_has_ended_whoever_stays(worker: Any, gce: Any) -> None:
    worker.plan(terminate_when_done=False)
    worker.state("ran").touch()
    worker.env |= exited("0")
    gce.denied.add("storage")
    done = worker.run("leave-node.sh")
    assert done.returncode == 0
    assert "watch-node.sh will retry" in done.stderr
    gce.denied.clear()
    worker.fake("systemctl", '[ "$1" = is-active ] && echo inactive || echo running')
    for _ in range(2):
        assert worker.run("watch-node.sh").returncode == 0
    assert gce.objects == {f"gangway-records/demo/{worker.gcp.ended_object}": b"0 done\n"}
    assert [call.query["name"] for call in gce.asked("storage")] == [f"demo/{worker.gcp.ended_object}"] * 2, "once"
    assert worker.verbs() == [], "it stays"


def test_another_job_has_not_ended_with_this_one(worker: Any) -> None:
    first = worker.gcp.ended_object
    worker.plan(max_hours=9)
    assert worker.gcp.ended_object != first
    worker.plan(max_hours=8)
    assert worker.gcp.ended_object == first


def test_the_record_is_put_once_for_each_change(worker: Any, gce: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes(b'{"status": "\xc3\xbc"}\0')
    for _ in range(2):
        done = worker.run("upload-record.sh")
        assert done.returncode == 0, done.stderr
    assert gce.objects == {"gangway-records/demo/dcgan-celeba64/run.json": b'{"status": "\xc3\xbc"}\0'}
    assert len(gce.asked("storage")) == 1
    (event,) = worker.events()
    assert (event["event"], event["reason"]) == ("record-put", "gs://gangway-records/demo/dcgan-celeba64/run.json")


def test_a_record_that_is_refused_is_told(worker: Any, gce: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    gce.denied.add("storage")
    assert worker.run("upload-record.sh").returncode == 1
    (event,) = worker.events()
    assert event["event"] == "record-not-put"
    assert "gangway: put: 403: POST " in event["reason"]


def test_the_image_comes_from_artifact_registry_with_the_machines_token(worker: Any, gce: Any) -> None:
    worker.fake("docker", "[ $1 != login ] || cat")
    done = worker.run("pull-image.sh", PULL_DEADLINE_SEC="0")
    assert done.returncode == 0, done.stderr
    login = ["login", "--username", "oauth2accesstoken", "--password-stdin", "https://us-central1-docker.pkg.dev"]
    assert worker.calls("docker") == [login, ["pull", "--quiet", worker.gcp.job.image]]
    assert done.stdout.strip() in gce.tokens


def test_an_image_that_nobody_gives_gives_the_node_up(worker: Any) -> None:
    worker.fake("docker", "exit 1")
    assert worker.run("pull-image.sh", PULL_DEADLINE_SEC="0").returncode == 1
    assert worker.verbs() == ["recreateInstances"]
