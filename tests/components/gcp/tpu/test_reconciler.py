"""What brings slices back: the workflow's own text, run by a small interpreter of its language over HTTP against the
queue, buckets and logs in small, which keep their state; and what is declared around it.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import yaml

from gangway.components.gcp.identity import PROJECT_WIDE
from gangway.components.gcp.tpu.api import TpuApi
from gangway.components.gcp.tpu.queued_tpu import QueueWatch
from gangway.components.gcp.tpu.reconciler import (
    PAUSES_SEC,
    STATE_OBJECT,
    WINDOW_SEC,
    TpuReconciler,
    object_url,
    put_url,
    reconcile_source,
)
from gangway.components.gcp.tpu.request import queued_resource_body
from tests.components.fixture_types import Make, Mistakes

PARENT = "projects/lab/locations/us-east5-a"
NAME = f"{PARENT}/queuedResources/gan-tpu"
ENDED = "demo/gan/ended-0123456789ab"
NOON = 1_800_000_000.0


class Queue:
    """A stack of two slices as it stands in the cloud, and the schedule that looks after it."""

    def __init__(self, gce: Any, cloud: Any, language: Any, body: dict[str, Any]) -> None:
        self.gce, self.cloud, self.language = gce, cloud, language
        gce.tpu = cloud
        gce.objects["files/request.json"] = json.dumps(body).encode()
        environment = {
            "QUEUED_RESOURCE": NAME,
            "REQUEST_ID": "gan-tpu",
            "REQUEST_URL": f"{object_url('files', 'request.json')}?alt=media",
            "STATE_URL": object_url("files", STATE_OBJECT),
            "STATE_PUT_URL": put_url("files", STATE_OBJECT),
            "ENDED_URL": object_url("runs", ENDED),
            "PAUSES_SEC": json.dumps(PAUSES_SEC),
            "WINDOW_SEC": str(WINDOW_SEC),
            "PROJECT": "lab",
            "ZONE": "us-east5-a",
            "LOG_NAME": "projects/lab/logs/gangway-demo",
        }
        gce.tokens.add("of-the-workflow")
        send = language.over_http(gce.url, "of-the-workflow")
        self.flow = language.Interpreter(reconcile_source(), environment, send)
        self.flow.now_sec = NOON

    def look(self, after_sec: float = 300.0) -> Any:
        """The schedule's next look."""
        self.flow.now_sec += after_sec
        return self.flow.run("main", None)

    def state(self) -> str:
        return str(self.cloud.settle(NAME)) if NAME in self.cloud.queued else ""

    def made(self) -> int:
        """How often the request was made."""
        return int(self.cloud.made)

    def kept(self) -> dict[str, Any]:
        """What the workflow keeps in mind."""
        kept: dict[str, Any] = json.loads(self.gce.objects[f"files/{STATE_OBJECT}"])
        return kept

    def end_job(self) -> None:
        self.gce.objects[f"runs/{ENDED}"] = b"0 done\n"

    def lose(self) -> None:
        """The slices come, and are taken away."""
        assert self.state() == "ACTIVE"
        self.cloud.preempt(NAME)


@pytest.fixture
def two_slices(tpu_args: dict[str, Any]) -> dict[str, Any]:
    return queued_resource_body({**tpu_args, "num_slices": 2, "startup_script": "#!/bin/sh\n"})


@pytest.fixture
def queue(gce: Any, workflow_language: Any, two_slices: dict[str, Any], standin: Any) -> Queue:
    made = Queue(gce, standin.cloud, workflow_language, two_slices)
    ask_by_hand(made, two_slices)
    return made


def ask_by_hand(queue: Queue, body: dict[str, Any]) -> None:
    """As `up` does."""
    query = f"queuedResourceId=gan-tpu&requestId=of-up-{queue.made()}"
    queue.cloud.answer("POST", f"/v2/{PARENT}/queuedResources?{query}", body)


def test_what_is_well_is_left_alone(queue: Queue) -> None:
    assert queue.look() == "ACCEPTED"
    assert queue.state() == "ACTIVE"
    assert [queue.look() for _ in range(3)] == ["ACTIVE"] * 3
    assert {call[0] for call in queue.flow.calls} == {"GET"}
    assert (queue.made(), queue.gce.entries) == (1, [])


@pytest.mark.parametrize("how", ["preempted", "failed"])
def test_what_was_lost_is_made_anew(queue: Queue, two_slices: dict[str, Any], how: str) -> None:
    assert queue.state() == "ACTIVE"
    if how == "preempted":
        queue.cloud.preempt(NAME)
    else:
        queue.cloud.fail(NAME, "no capacity")
    assert queue.look() == "made anew"
    assert (queue.made(), queue.state()) == (2, "ACTIVE")
    assert sorted(queue.cloud.nodes) == [f"{PARENT}/nodes/gan-tpu-0", f"{PARENT}/nodes/gan-tpu-1"]
    assert {node["state"] for node in queue.cloud.nodes.values()} == {"READY"}
    assert queue.cloud.queued[NAME]["tpu"] == two_slices["tpu"]
    assert queue.kept() == {"times": [NOON + 300], "begun": False, "given_up": False}
    (line,) = queue.gce.payloads()
    assert line == {"event": "slices-recreated", "reason": "asked for again, the 1. time of late"}
    assert (queue.gce.entries[0]["type"], queue.gce.entries[0]["logName"]) == (
        "gce_instance",
        "projects/lab/logs/gangway-demo",
    )
    assert queue.look() == "ACTIVE"


def test_a_job_that_has_ended_gets_no_slices(queue: Queue) -> None:
    queue.lose()
    queue.end_job()
    assert queue.look() == "the job has ended"
    assert (queue.made(), queue.cloud.queued[NAME]["state"]["state"]) == (1, "SUSPENDED")


def test_what_has_left_by_itself_or_was_stopped_stays_away(queue: Queue) -> None:
    assert queue.state() == "ACTIVE"
    queue.cloud.answer("DELETE", f"/v2/{NAME}?force=true", None)
    assert [queue.look() for _ in range(3)] == ["there is no request"] * 3
    assert (queue.made(), queue.cloud.queued, queue.cloud.nodes) == (1, {}, {})


def test_what_a_person_has_suspended_stays_so(queue: Queue) -> None:
    queue.lose()
    queue.cloud.queued[NAME]["state"] = {"state": "SUSPENDED", "stateInitiator": "USER"}
    assert queue.look() == "suspended by a user"
    assert queue.made() == 1


def test_the_job_may_end_while_slices_are_deleted(queue: Queue) -> None:
    queue.lose()

    def end_after_the_deletion() -> None:
        if queue.flow.calls[-1:] and queue.flow.calls[-1][0] == "DELETE":
            queue.end_job()

    queue.flow.moment = end_after_the_deletion
    assert queue.look() == "the job has ended"
    assert (queue.made(), queue.state()) == (1, "")
    queue.flow.moment = lambda: None
    assert queue.look() == "the job has ended"


@pytest.mark.parametrize("at", range(4, 13))
def test_an_execution_that_dies_anywhere_is_finished_by_a_later_one(queue: Queue, at: int) -> None:
    """However often it is asked for: there is one request in the end, it lives, and nothing is left half done."""
    queue.lose()
    alive_at = len(queue.flow.calls)

    def die() -> None:
        if len(queue.flow.calls) - alive_at == at:
            raise queue.language.Raised(queue.language.Fields(message="the execution was killed"))

    queue.flow.moment = die
    with suppress(queue.language.Raised):
        queue.look()
    queue.flow.moment = lambda: None
    for _ in range(4):
        queue.look()
    assert queue.state() == "ACTIVE"
    assert queue.look() == "ACTIVE"
    assert queue.made() == 2
    assert (queue.kept()["begun"], len(queue.cloud.queued)) == (False, 1)


def test_pauses_grow_and_come_to_an_end(queue: Queue) -> None:
    """Slices that are taken away as soon as they come: each look, for hours."""
    asked: list[float] = []
    for minute in range(0, 8 * 60, 5):
        if queue.state() == "ACTIVE":
            queue.cloud.preempt(NAME)
        if queue.look() == "made anew":
            asked.append(minute)
    between = [later - before for before, later in pairwise(asked)]
    assert between == [pause / 60 for pause in PAUSES_SEC[1:]]
    assert queue.made() == 1 + len(PAUSES_SEC)
    last = queue.gce.payloads()[-1]
    assert last["event"] == "slices-given-up"
    assert "8 times asked for again within 21600 s, and lost again (SUSPENDED)" in last["reason"]
    assert [line["event"] for line in queue.gce.payloads()].count("slices-given-up") == 1


def test_slices_that_live_for_hours_are_brought_back_without_end(queue: Queue) -> None:
    for _ in range(30):
        queue.lose()
        assert queue.look(after_sec=3 * 3600) == "made anew"
    assert queue.made() == 31


def test_who_asks_again_by_hand_begins_from_the_beginning(queue: Queue, two_slices: dict[str, Any]) -> None:
    while queue.look() != "given up":
        if queue.state() == "ACTIVE":
            queue.cloud.preempt(NAME)
    made = queue.made()
    # `pulumi up --refresh`.
    queue.cloud.answer("DELETE", f"/v2/{NAME}?force=true", None)
    assert queue.state() == ""
    ask_by_hand(queue, two_slices)
    assert queue.state() == "ACTIVE"
    assert queue.look() == "ACTIVE"
    assert queue.kept() == {"times": [], "begun": False, "given_up": False}
    queue.lose()
    assert queue.look() == "made anew"
    assert queue.made() == made + 2


def test_a_deletion_that_is_refused_is_an_execution_that_failed_and_tried_again(queue: Queue) -> None:
    queue.lose()
    queue.cloud.undeletable_looks = 1
    with pytest.raises(queue.language.Raised):
        queue.look()
    assert queue.look(after_sec=60) == "too soon"
    assert queue.look() == "made anew"
    assert (queue.state(), queue.made()) == ("ACTIVE", 2)


def test_pulumi_takes_what_was_made_anew_for_its_own(
    queue: Queue, standin: Any, props: dict[str, Any], tpu_args: dict[str, Any]
) -> None:
    """The request holds the mark by which QueuedTpu knows its own."""
    queue.lose()
    assert queue.look() == "made anew"
    args = {**tpu_args, "num_slices": 2, "startup_script": "#!/bin/sh\n"}
    watch = QueueWatch(TpuApi(standin.url), props["timeouts"])
    assert watch.request(args) == NAME
    assert queue.made() == 2
    assert watch.look(NAME, args)["replace_reason"] == ""
    watch.remove(NAME)
    assert (queue.cloud.queued, queue.cloud.nodes) == ({}, {})
    assert queue.look() == "there is no request"


@pytest.mark.slow
def test_every_request_is_one_of_the_apis(queue: Queue, published_call: Callable[..., set[str]]) -> None:
    test_pauses_grow_and_come_to_an_end(queue)
    assert len(queue.flow.calls) > 100
    for call in queue.flow.calls:
        assert published_call(*call), call


def test_it_fits_into_a_workflow(workflow_language: Any) -> None:
    source = reconcile_source()
    assert len(source.encode()) < 128_000
    names = [name for flow in yaml.safe_load(source).values() for name in workflow_language.step_names(flow["steps"])]
    assert len(names) > 30
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)
    assert all(len(expression) <= 400 for expression in re.findall(r"\$\{.*\}", source))


@pytest.fixture
def reconciler_args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "region": "us-east5",
        "zone": "us-east5-a",
        "stack": "demo",
        "queued_resource": NAME,
        "request_object": "request.json",
        "files_bucket_name": "files",
        "run_bucket_name": "runs",
        "ended_uri": f"gs://runs/{ENDED}",
        "service_account": "demo-node@lab.iam.gserviceaccount.com",
        "log_name": "projects/lab/logs/gangway-demo",
        "tags": labels,
    }


@pytest.fixture
def declared(make: Make, reconciler_args: dict[str, Any]) -> Any:
    return make(TpuReconciler, reconciler_args)


def test_the_workflow_is_the_file_and_has_what_it_reads(
    declared: Any, queue: Queue, labels: dict[str, str], api_mistakes: Mistakes
) -> None:
    workflow = declared.one("Workflow").inputs
    assert workflow["userEnvVars"] == queue.flow.environment
    assert set(re.findall(r'sys\.get_env\("(\w+)"\)', reconcile_source())) == set(workflow["userEnvVars"])
    assert (workflow["sourceContents"], workflow["labels"]) == (reconcile_source(), labels)
    assert workflow["deletionProtection"] is False
    named = ("sourceContents", "userEnvVars", "serviceAccount", "callLogLevel", "labels")
    assert api_mistakes("workflows.v1", "Workflow", {key: workflow[key] for key in named}) == []


def test_the_schedule_starts_the_workflow(declared: Any, api_mistakes: Mistakes) -> None:
    job = declared.one("Job").inputs
    assert (job["schedule"], job["paused"]) == ("*/5 * * * *", False)
    target = dict(job["httpTarget"])
    workflow = declared.one("Workflow").id
    assert target["uri"] == f"https://workflowexecutions.googleapis.com/v1/{workflow}/executions"
    assert target["oauthToken"] == {"serviceAccountEmail": "${Account.demo-slices.email}"}
    body = {"schedule": job["schedule"], "timeZone": job["timeZone"], "httpTarget": target}
    assert api_mistakes("cloudscheduler.v1", "Job", body) == []


def test_its_account_may_do_that_and_no_more(declared: Any) -> None:
    roles = {member.inputs["role"] for member in declared.of("IAMMember") if "project" in member.inputs}
    assert roles == {"roles/tpu.admin", "roles/workflows.invoker", "roles/logging.logWriter"}
    assert roles <= PROJECT_WIDE.keys()
    acts = [member.inputs for member in declared.of("IAMMember") if "serviceAccountId" in member.inputs]
    assert acts == [
        {
            "serviceAccountId": "projects/lab/serviceAccounts/demo-node@lab.iam.gserviceaccount.com",
            "role": "roles/iam.serviceAccountUser",
            "member": "${Account.demo-slices.member}",
        }
    ]
    buckets = {member.inputs["bucket"]: member.inputs["role"] for member in declared.of("BucketIAMMember")}
    assert buckets == {"files": "roles/storage.objectUser", "runs": "roles/storage.objectViewer"}
