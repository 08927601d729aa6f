"""QueuedTpu under the real Pulumi engine: a program of a few lines, the TPU API's stand-in behind it over HTTP."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine

PARENT = "projects/lab/locations/us-east5-a"
NAME = f"{PARENT}/queuedResources/gan-tpu"
PROGRAM = """
import json
from pathlib import Path

import pulumi

from gangway.components.gcp.tpu.queued_tpu import QueuedTpu

tpu = QueuedTpu("gan-tpu", json.loads(Path("args.json").read_text()))
for key in ("name", "state", "node_names", "addresses", "replace_reason"):
    pulumi.export(key, getattr(tpu, key))
"""


@pytest.fixture
def tpu_engine(make_program_engine: Callable[[str, dict[str, Any]], Any], standin: Any) -> Any:
    """An engine whose project is the program above; nothing of the repository but `components` can be imported."""
    args = {
        "project": "lab",
        "zone": "us-east5-a",
        "accelerator_type": "v5p-256",
        "runtime_version": "v2-alpha-tpuv5",
        "tier": "spot",
        "num_slices": 2,
        "service_account": "nodes@lab.iam.gserviceaccount.com",
        "startup_script": "#!/bin/sh",
        "labels": {"team": "ml"},
        "wait_active": True,
        "timeouts": {"accept_sec": 10, "active_sec": 10, "delete_sec": 10, "poll_sec": 0.02},
        "api_url": standin.url,
    }
    return make_program_engine(PROGRAM, args)


def change(engine: Any, **changes: Any) -> None:
    file = engine.project / "args.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}), "utf-8")


def outputs(engine: Any) -> dict[str, Any]:
    return dict(json.loads(engine.plain("stack", "output", "--json", "--show-secrets")))


def of_api(outcome: Any, operation: str) -> set[str]:
    """The dynamic resources that saw an operation, by their last word."""
    return {token.rpartition(":")[2] for token in outcome.types(operation) if token.startswith("pulumi-python:")}


def test_up_preempted_replaced_and_gone(tpu_engine: Any, standin: Any) -> None:
    engine, cloud = tpu_engine, standin.cloud
    first = engine.applied("up")
    assert of_api(first, "create") == {"QueuedTpuRequest", "ActiveTpu"}
    nodes = [f"{PARENT}/nodes/gan-tpu-0", f"{PARENT}/nodes/gan-tpu-1"]
    told = {"name": NAME, "node_names": nodes, "addresses": ["10.0.0.1", "10.0.0.2"], "replace_reason": ""}
    assert outputs(engine) == {**told, "state": "ACTIVE"}
    assert sum(engine.applied("up", "--refresh").changes[op] for op in ("create", "update", "replace", "delete")) == 0

    change(engine, labels={"team": "vision"})
    assert of_api(engine.applied("up"), "update") == {"QueuedTpuRequest"}
    assert [cloud.nodes[node]["labels"] for node in nodes] == [{"team": "vision"}] * 2

    cloud.preempt(NAME)
    replaced = engine.applied("up", "--refresh")
    assert of_api(replaced, "replace") == {"QueuedTpuRequest", "ActiveTpu"}
    assert f"{NAME}: it is SUSPENDED (by the service): it is replaced" in replaced.text
    assert [node["state"] for node in cloud.nodes.values()] == ["READY", "READY"]
    assert outputs(engine) == {**told, "state": "ACTIVE"}

    engine.applied("destroy")
    assert (cloud.queued, cloud.nodes) == ({}, {})


@pytest.mark.parametrize("refresh", [(), ("--refresh",)], ids=["up", "up --refresh"])
def test_what_was_made_anew_meanwhile_is_no_difference_and_goes_with_destroy(
    tpu_engine: Any, standin: Any, refresh: tuple[str, ...]
) -> None:
    """As what brings slices back does it: the same request, deleted and made again (components/gcp/tpu)."""
    engine, cloud = tpu_engine, standin.cloud
    change(engine, wait_active=False)
    engine.applied("up")
    assert cloud.settle(NAME) == "ACTIVE"
    body = {"tpu": cloud.queued[NAME]["tpu"], "spot": {}}
    cloud.preempt(NAME)
    cloud.answer("DELETE", f"/v2/{NAME}?force=true", None)
    assert cloud.settle(NAME) == ""
    cloud.answer("POST", f"/v2/{PARENT}/queuedResources?queuedResourceId=gan-tpu&requestId=again", body)
    assert cloud.settle(NAME) == "ACTIVE"
    again = engine.applied("up", *refresh)
    assert sum(again.changes[op] for op in ("create", "update", "replace", "delete")) == 0
    assert cloud.made == 2
    engine.applied("destroy")
    assert (cloud.queued, cloud.nodes) == ({}, {})


def test_a_wait_that_fails_keeps_the_request_and_destroy_gives_it_up(tpu_engine: Any, standin: Any) -> None:
    engine, cloud = tpu_engine, standin.cloud
    cloud.hold_at = "WAITING_FOR_RESOURCES"
    change(engine, timeouts={"active_sec": 0.1, "delete_sec": 10, "poll_sec": 0.02})
    outcome = engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    assert (
        "(timeouts.active_sec) it is WAITING_FOR_RESOURCES; it keeps its place in the queue: run `up`" in outcome.text
    )
    assert list(cloud.queued) == [NAME]
    engine.applied("destroy")
    assert cloud.queued == {}


def test_what_somebody_deleted_is_asked_for_again(tpu_engine: Any, standin: Any) -> None:
    tpu_engine.applied("up")
    standin.cloud.queued.clear()
    standin.cloud.nodes.clear()
    again = tpu_engine.applied("up", "--refresh")
    assert of_api(again, "create") == {"QueuedTpuRequest"}
    assert of_api(again, "replace") == {"ActiveTpu"}
    assert list(standin.cloud.queued) == [NAME]


def test_a_mistake_fails_before_anything_is_asked(tpu_engine: Any, standin: Any) -> None:
    change(tpu_engine, tier="spott")
    outcome = tpu_engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    assert "did you mean 'spot'?" in outcome.text
    assert standin.cloud.seen == []


def test_no_credentials_and_no_code_are_in_the_state(
    tpu_engine: Any, standin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tpu_engine.env, "GOOGLE_APPLICATION_CREDENTIALS", os.devnull)
    tpu_engine.applied("up")
    state = tpu_engine.plain("stack", "export")
    assert os.devnull not in state
    for resource in json.loads(state)["deployment"]["resources"]:
        assert len(resource.get("inputs", {}).get("__provider", "")) < 200
