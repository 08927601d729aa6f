"""What a node says: that it gives up, to its group and to the log group, and the run record."""

import json
import time
from pathlib import Path
from typing import Any

from gangway.components.aws.alarms import events_group

INSTANCE = "i-0123456789abcdef0"
EVENTS = events_group("/gangway/demo")


def test_giving_up_is_one_line_in_the_log_group(machine: Any) -> None:
    reason = "it said \"no\",\nthen \\ and '$HOME' ü \x01"
    assert machine.give_up(reason).returncode == 1
    (event,) = machine.events()
    assert event == {"event": "node-given-up", "instance_id": INSTANCE, "reason": reason}
    stream = ["--region", "us-east-2", "--log-group-name", EVENTS, "--log-stream-name", f"{INSTANCE}/node"]
    created, put = machine.asked("logs")
    assert created == ["logs", "create-log-stream", *stream]
    assert put[:-1] == ["logs", "put-log-events", *stream, "--log-events"]
    (entry,) = json.loads(put[-1])
    assert abs(entry["timestamp"] / 1000 - time.time()) < 600


def test_a_reason_without_end_or_encoding_is_cut_and_sent(machine: Any) -> None:
    assert machine.give_up("\udcff" + "x" * 9000).returncode == 1
    (event,) = machine.events()
    assert event["reason"] == "\ufffd" + "x" * 3999


def test_a_log_group_that_cannot_be_reached_stops_nothing(machine: Any) -> None:
    machine.fake("aws", "[ $1 != logs ]")
    done = machine.give_up("sick")
    assert "could not send to /gangway/demo: node-given-up" in done.stderr
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


def test_without_a_log_group_nothing_is_sent(machine: Any) -> None:
    machine.plan(log_group=None)
    assert machine.give_up("sick").returncode == 1
    assert machine.asked("logs") == []


def test_a_node_that_gave_up_does_not_wait_for_the_hooks_timeout(machine: Any, imds: Any) -> None:
    imds.answers["autoscaling/target-lifecycle-state"] = ["InService", "InService", "Terminated"]
    machine.fake("aws", machine.OWN_GROUP)
    assert machine.give_up("sick", LET_GO_SEC="20").returncode == 1
    assert machine.asked("autoscaling")[0] == machine.UNHEALTHY
    assert machine.asked("autoscaling")[-1][1:] == machine.COMPLETED


def test_the_wait_of_a_node_that_gave_up_has_an_end(machine: Any) -> None:
    assert machine.give_up("sick", LET_GO_SEC="1").returncode == 1
    assert machine.asked("autoscaling") == [machine.UNHEALTHY]


def test_without_a_hook_there_is_nothing_to_wait_for(machine: Any, imds: Any) -> None:
    machine.plan(lifecycle_hook=None)
    assert machine.give_up("sick", LET_GO_SEC="20").returncode == 1
    assert "autoscaling/target-lifecycle-state" not in imds.requests


def test_record_is_put_under_the_jobs_name(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    assert machine.run("upload-record.sh").returncode == 0
    target = "s3://gangway-records/runs/dcgan-celeba64/run.json"
    ((*words, opened, last),) = machine.asked("s3")
    assert (words, last) == (["s3", "cp", "--region", "us-east-2"], target)
    assert opened.startswith("/proc/self/fd/"), "the folder is the job's, and a name in it may be another file by now"


def test_a_record_is_put_again_only_when_it_has_changed(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    for text in ("{}", "{}", '{"id": "x"}'):
        (tmp_path / "run.json").write_text(text)
        assert machine.run("upload-record.sh").returncode == 0
    assert len(machine.asked("s3")) == 2


def test_a_record_that_could_not_be_put_is_put_later(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    (tmp_path / "run.json").write_text("{}")
    machine.fake("aws", f"[ -e {tmp_path}/reachable ]")
    assert machine.run("upload-record.sh").returncode == 1
    (tmp_path / "reachable").touch()
    assert machine.run("upload-record.sh").returncode == 0
    assert len(machine.asked("s3")) == 2
    assert [event["event"] for event in machine.events()] == ["record-not-put", "record-put"]


def test_without_a_record_nothing_is_put(machine: Any, tmp_path: Path) -> None:
    machine.plan(run_dir=str(tmp_path))
    done = machine.run("upload-record.sh")
    assert done.returncode == 0
    assert "no run record" in done.stderr
    assert machine.calls("aws") == []
