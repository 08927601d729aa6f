"""QueuedTpu: its provider against the stand-in over HTTP, its component under Pulumi's mocks."""

import base64
import json
from importlib.resources import files
from typing import Any

import pytest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.rpc import UNKNOWN

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import InputError
from gangway.components.gcp.pricing import price_resources
from gangway.components.gcp.tpu.api import QuotaError, TpuError
from gangway.components.gcp.tpu.queued_tpu import ActiveTpuProvider, QueuedTpu, QueuedTpuProvider, TpuVm
from gangway.components.gcp.tpu.request import FINGERPRINT_KEY, queued_resource_body
from tests.components.fixture_types import Make

NAME = "projects/lab/locations/us-east5-a/queuedResources/gan-tpu"
NODE = "projects/lab/locations/us-east5-a/nodes/gan-tpu"


def ctrl_c(*_: object) -> None:
    raise KeyboardInterrupt


def posts(standin: Any) -> int:
    return sum(seen.method == "POST" for seen in standin.cloud.seen)


def test_created_means_accepted_by_the_queue(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.hold_at = "ACCEPTED"
    made = QueuedTpuProvider().create(props)
    assert made.id == NAME
    assert made.outs is not None
    assert made.outs["state"] == "ACCEPTED"
    assert made.outs["node_names"] == [NODE]
    assert made.outs["replace_reason"] == ""
    assert made.outs["labels"] == {"team": "ml"}
    assert "__provider" not in made.outs


def test_the_wait_ends_with_active_after_delays(
    standin: Any, props: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    standin.cloud.looks_per_state = 3
    made = QueuedTpuProvider().create({**props, "num_slices": 12})
    assert made.outs is not None
    followed = {"name": NAME, "create_time": made.outs["create_time"], "timeouts": props["timeouts"]}
    active = ActiveTpuProvider().create({**followed, "api_url": standin.url})
    assert active.outs is not None
    assert active.outs["state"] == "ACTIVE"
    assert active.outs["addresses"] == [f"10.0.0.{slice_ + 1}" for slice_ in range(12)]
    said = capsys.readouterr().out
    assert said.index("WAITING_FOR_RESOURCES after 0 s") < said.index("PROVISIONING after 0 s") < said.index("ACTIVE")


def test_a_wait_too_long_leaves_the_request(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.hold_at = "WAITING_FOR_RESOURCES"
    QueuedTpuProvider().create(props)
    soon = {**props["timeouts"], "active_sec": 0.02}
    with pytest.raises(
        TpuError, match=r"after 0.02 s \(timeouts.active_sec\) it is WAITING_FOR_RESOURCES; it keeps its place"
    ):
        ActiveTpuProvider().create({**props, "name": NAME, "create_time": "t", "timeouts": soon})
    assert NAME in standin.cloud.queued


def test_a_wait_for_what_failed_says_why(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.hold_at = "ACCEPTED"
    QueuedTpuProvider().create(props)
    standin.cloud.hold_at, standin.cloud.fail_with = None, "no v5p in us-east5-a before 12:00"
    with pytest.raises(
        TpuError, match=r"it is FAILED \(no v5p in us-east5-a before 12:00\): run `pulumi up --refresh`"
    ):
        ActiveTpuProvider().create({**props, "name": NAME, "create_time": "t"})
    with pytest.raises(TpuError, match="is gone"):
        ActiveTpuProvider().create({**props, "name": f"{NAME}-other", "create_time": "t"})


def test_what_fails_before_it_is_accepted_leaves_nothing(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.operation_error = {"code": 8, "message": "Quota limit TPUV5P exceeded"}
    with pytest.raises(QuotaError, match=r"Quota limit TPUV5P exceeded\n  fix: ask for quota"):
        QueuedTpuProvider().create(props)
    standin.cloud.operation_error = {"code": 3, "message": "no such runtime"}
    with pytest.raises(TpuError, match="no such runtime"):
        QueuedTpuProvider().create(props)
    standin.cloud.operation_error = None
    standin.cloud.fail_with, standin.cloud.fail_at = "no such topology", "ACCEPTED"
    with pytest.raises(TpuError, match=r"it is FAILED \(no such topology\)"):
        QueuedTpuProvider().create(props)
    assert standin.cloud.queued == {}


def test_a_queue_that_never_answers_is_not_waited_for(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.hold_at = "CREATING"
    soon = {**props["timeouts"], "accept_sec": 0.02}
    with pytest.raises(TpuError, match=r"timeouts.accept_sec\) the queue has not accepted it: run `up` again"):
        QueuedTpuProvider().create({**props, "timeouts": soon})
    assert NAME in standin.cloud.queued


def test_ctrl_c_while_creating_leaves_what_read_and_the_next_create_find(
    standin: Any, props: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.cloud.hold_at = "CREATING"
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            QueuedTpuProvider().create(props)
    found = QueuedTpuProvider().read(NAME, props)
    assert (found.id, found.outs and found.outs["state"]) == (NAME, "CREATING")
    standin.cloud.hold_at = None
    assert QueuedTpuProvider().create(props).id == NAME
    assert posts(standin) == 1
    assert "taken over from an interrupted run" in capsys.readouterr().out


def test_what_died_after_an_interruption_is_asked_for_again(standin: Any, props: dict[str, Any]) -> None:
    QueuedTpuProvider().create(props)
    standin.cloud.preempt(NAME)
    made = QueuedTpuProvider().create(props)
    assert made.outs is not None
    assert made.outs["create_time"] == "2026-01-01T00:00:02Z"
    assert posts(standin) == 2


def test_somebody_elses_request_of_that_name_is_left_alone(standin: Any, props: dict[str, Any]) -> None:
    QueuedTpuProvider().create(props)
    with pytest.raises(
        TpuError,
        match=r"exists .* asks for something else; its labels: team ml\n  fix: choose another queued_resource_id",
    ):
        QueuedTpuProvider().create({**props, "accelerator_type": "v5p-8"})
    del standin.cloud.queued[NAME]["tpu"]
    with pytest.raises(TpuError, match="asks for something else"):
        QueuedTpuProvider().create(props)
    assert [seen.method for seen in standin.cloud.seen].count("DELETE") == 0


def test_an_identical_request_of_another_stack_is_not_taken_over(standin: Any, props: dict[str, Any]) -> None:
    theirs, ours = ({**props, "labels": {"team": team, "gangway-stack": stack}} for team, stack in
                    (("speech", "speech-dev-1a2b3c"), ("vision", "vision-dev-4d5e6f")))  # fmt: skip
    QueuedTpuProvider().create(theirs)
    # As if the whole request were the same: labels alone tell whose it is.
    found = standin.cloud.queued[NAME]["tpu"]["nodeSpec"][0]["node"]["metadata"]
    for again in (ours, {**ours, "labels": {"team": "vision"}}):
        (spec,) = queued_resource_body(again)["tpu"]["nodeSpec"]
        found[FINGERPRINT_KEY] = spec["node"]["metadata"][FINGERPRINT_KEY]
        with pytest.raises(TpuError, match="its labels: gangway-stack speech-dev-1a2b3c, team speech") as told:
            QueuedTpuProvider().create(again)
        assert "delete" not in str(told.value)
    assert [seen.method for seen in standin.cloud.seen].count("DELETE") == 0
    assert posts(standin) == 1


@pytest.mark.parametrize("nodes_only", [False, True])
def test_preemption_replaces_and_deletes_first(
    standin: Any, props: dict[str, Any], nodes_only: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = QueuedTpuProvider()
    made = provider.create(props)
    wait_until_active(standin)
    standin.cloud.preempt(NAME, nodes_only=nodes_only)
    state = provider.read(made.id, {**(made.outs or {})}).outs
    assert state is not None
    diff = provider.diff(NAME, state, props)
    assert (diff.changes, diff.replaces, diff.delete_before_replace) == (True, ["replace_reason"], True)
    reason = f"{NODE} is PREEMPTED" if nodes_only else "it is SUSPENDED (by the service)"
    assert f"{NAME}: {reason}: it is replaced" in capsys.readouterr().out
    provider.delete(NAME, state)
    assert (standin.cloud.queued, standin.cloud.nodes) == ({}, {})
    assert provider.create(props).id == NAME
    assert posts(standin) == 2


def wait_until_active(standin: Any) -> None:
    while standin.cloud.queued[NAME]["state"]["state"] != "ACTIVE":
        standin.cloud.answer("GET", f"/v2/{NAME}", None)


def test_read_tells_what_is_gone(standin: Any, props: dict[str, Any]) -> None:
    provider = QueuedTpuProvider()
    assert provider.read(NAME, props).id == ""
    provider.create(props)
    wait_until_active(standin)
    standin.cloud.nodes.clear()
    state = provider.read(NAME, props).outs
    assert state is not None
    assert state["replace_reason"] == f"{NODE} is gone"


def test_only_labels_and_our_own_settings_change_in_place(props: dict[str, Any]) -> None:
    diff, labels = QueuedTpuProvider().diff, {"labels": {"team": "vision"}}
    active, queued = {**props, "state": "ACTIVE"}, {**props, "state": "WAITING_FOR_RESOURCES"}
    assert diff(NAME, active, {**props, "__provider": "newer"}).changes is False
    changes: list[tuple[dict[str, Any], list[str]]] = [
        (labels, []),
        ({"timeouts": {}}, []),
        ({"tier": "on-demand"}, ["tier"]),
        ({"startup_script": "x", **labels}, ["startup_script"]),
    ]
    for change, replaces in changes:
        found = diff(NAME, active, {**props, **change})
        assert (found.changes, found.replaces) == (True, replaces)
    found = diff(NAME, queued, {**props, **labels})
    assert (found.changes, found.replaces) == (False, []), "a place in the queue is not given up for a label"


def test_new_labels_reach_the_nodes(standin: Any, props: dict[str, Any]) -> None:
    provider = QueuedTpuProvider()
    provider.create(props)
    wait_until_active(standin)
    state = provider.read(NAME, props).outs
    assert state is not None
    changed = provider.update(NAME, state, {**props, "labels": {"team": "vision"}}).outs
    assert changed is not None
    assert standin.cloud.nodes[NODE]["labels"] == changed["labels"] == {"team": "vision"}
    assert changed["state"] == "ACTIVE"
    provider.update(NAME, changed, {**props, "labels": {"team": "vision"}, "timeouts": {}})
    assert [seen.method for seen in standin.cloud.seen].count("PATCH") == 1


def test_labels_wait_for_the_nodes(props: dict[str, Any]) -> None:
    """They are changed in a queue, beside a setting of ours: once there are nodes, the difference shows again."""
    provider = QueuedTpuProvider()
    queued, wanted = {**props, "state": "WAITING_FOR_RESOURCES"}, {**props, "labels": {"team": "vision"}}
    kept = provider.update(NAME, queued, {**wanted, "timeouts": {"accept_sec": 1}}).outs
    assert kept is not None
    assert kept["labels"] == props["labels"]
    found = provider.diff(NAME, {**kept, "state": "ACTIVE"}, wanted)
    assert (found.changes, found.replaces) == (True, [])


@pytest.mark.parametrize("orphans", [False, True])
def test_delete_leaves_nothing(standin: Any, props: dict[str, Any], orphans: bool) -> None:
    provider = QueuedTpuProvider()
    provider.create({**props, "num_slices": 3})
    wait_until_active(standin)
    standin.cloud.orphans, standin.cloud.undeletable_looks = orphans, 2
    provider.delete(NAME, {**props, "num_slices": 3})
    assert (standin.cloud.queued, standin.cloud.nodes) == ({}, {})
    # What is gone already is no error.
    provider.delete(NAME, {**props, "num_slices": 3})


def test_a_node_of_that_name_that_is_not_ours_stays(standin: Any, props: dict[str, Any]) -> None:
    standin.cloud.nodes[NODE] = {"name": NODE, "state": "READY", "labels": {"owner": "somebody"}}
    standin.cloud.operation_error = {"code": 6, "message": "the node exists"}
    with pytest.raises(TpuError, match="the node exists"):
        QueuedTpuProvider().create(props)
    QueuedTpuProvider().delete(NAME, props)
    assert list(standin.cloud.nodes) == [NODE]


def test_a_deletion_that_does_not_end_says_why(standin: Any, props: dict[str, Any]) -> None:
    QueuedTpuProvider().create(props)
    standin.cloud.undeletable_looks = 10**6
    soon = {**props, "timeouts": {**props["timeouts"], "delete_sec": 0.02}}
    with pytest.raises(TpuError, match=r"timeouts.delete_sec\) it is not deleted \(.*nodes are being provisioned"):
        QueuedTpuProvider().delete(NAME, soon)
    standin.cloud.refusals = [0, 403]
    with pytest.raises(TpuError, match="PERMISSION_DENIED"):
        QueuedTpuProvider().delete(NAME, props)


def test_check_names_the_mistake_and_leaves_unknowns_alone(props: dict[str, Any]) -> None:
    check = QueuedTpuProvider().check
    assert check({}, props).failures == []
    (failure,) = check({}, {**props, "tier": "sport"}).failures
    assert failure.property == "tier"
    assert "did you mean 'spot'?" in failure.reason
    assert check({}, {**props, "tier": "sport", "network": UNKNOWN}).failures == []


def test_the_wait_is_repeated_only_for_a_new_request() -> None:
    provider, old = (
        ActiveTpuProvider(),
        {"name": NAME, "create_time": "1", "state": "ACTIVE", "addresses": ["10.0.0.1"]},
    )
    assert provider.diff("", old, {"name": NAME, "create_time": "1"}).changes is False
    assert provider.diff("", old, {"name": NAME, "create_time": "2"}).replaces == ["create_time"]
    retimed = {"name": NAME, "create_time": "1", "timeouts": {"active_sec": 9}}
    assert (provider.diff("", old, retimed).changes, provider.diff("", old, retimed).replaces) == (True, [])
    assert provider.update("", old, retimed).outs == {**old, "timeouts": {"active_sec": 9}}


@pytest.mark.parametrize("provider", [QueuedTpuProvider(), ActiveTpuProvider()])
def test_state_holds_a_reference_to_the_provider_and_no_code(provider: Any) -> None:
    stored = base64.b64decode(serialize_provider(provider))
    assert b"gangway.components.gcp.tpu.queued_tpu" in stored
    assert len(stored) < 150


def test_the_component_declares_the_request_alone(declare: Make, tpu_args: dict[str, Any]) -> None:
    args: Any = {key: value for key, value in tpu_args.items() if key != "queued_resource_id"}
    declared = declare(lambda: QueuedTpu("gan", args))
    request = declared.one("QueuedTpuRequest")
    assert request.inputs["queued_resource_id"] == "gan"
    assert request.inputs["accelerator_type"] == "v5p-256"
    assert declared.of("ActiveTpu") == []
    # What only the API tells is not known without it.
    assert [keys for keys in declared.outputs.values() if keys] == [{"name", "addresses"}]


def test_the_component_waits_where_asked(declare: Make, tpu_args: dict[str, Any]) -> None:
    args: Any = {**tpu_args, "wait_active": True, "api_url": "http://127.0.0.1:1"}
    declared = declare(lambda: QueuedTpu("gan", args))
    request, active = declared.one("QueuedTpuRequest"), declared.one("ActiveTpu")
    assert "wait_active" not in request.inputs
    assert active.inputs["api_url"] == "http://127.0.0.1:1"
    assert "gangway:gcp:QueuedTpu" in request.parent
    assert "gangway:gcp:QueuedTpu" in active.parent


def test_the_component_refuses_a_mistake(declare: Make, tpu_args: dict[str, Any]) -> None:
    args: Any = {**tpu_args, "tier": "cheap"}
    with pytest.raises(InputError, match="tier: no such choice"):
        declare(lambda: QueuedTpu("gan", args))


@pytest.fixture
def vm(make: Make, labels: dict[str, str]) -> Make:
    """Declares a slice with changes; None takes an argument out."""

    def run(**changes: Any) -> Any:
        args: dict[str, Any] = {
            "project": "lab",
            "zone": "us-west4-a",
            "accelerator_type": "v5litepod-4",
            "runtime_version": "v2-alpha-tpuv5-lite",
            "tier": "on-demand",
            "service_account": "nodes@lab.iam.gserviceaccount.com",
            "labels": labels,
            **changes,
        }
        return make(TpuVm, {key: value for key, value in args.items() if value is not None})

    return run


def test_one_closed_slice(vm: Make, labels: dict[str, str]) -> None:
    inputs = vm(subnetwork="main", network_tags=["demo-fabric"], startup_script="#!/bin/sh\n").one("V2Vm").inputs
    assert (inputs["acceleratorType"], inputs["runtimeVersion"]) == ("v5litepod-4", "v2-alpha-tpuv5-lite")
    assert (inputs["project"], inputs["zone"]) == ("lab", "us-west4-a")
    assert inputs["networkConfig"] == {"subnetwork": "main", "enableExternalIps": False}
    assert inputs["serviceAccount"]["email"] == "nodes@lab.iam.gserviceaccount.com"
    assert inputs["metadata"] == {"startup-script": "#!/bin/sh\n"}
    assert inputs["tags"] == ["demo-fabric"]
    assert inputs["labels"] == labels
    assert inputs["shieldedInstanceConfig"] == {"enableSecureBoot": False}


@pytest.mark.parametrize(
    ("tier", "spot", "reserved"), [("spot", True, False), ("guaranteed", False, True), ("on-demand", False, False)]
)
def test_a_tier_is_one_way_of_being_had(vm: Make, tier: str, spot: bool, reserved: bool) -> None:
    assert vm(tier=tier).one("V2Vm").inputs["schedulingConfig"] == {"spot": spot, "reserved": reserved}


def test_a_shape_in_place_of_a_type(vm: Make) -> None:
    shape = {"type": "V5LITE_POD", "topology": "2x4"}
    inputs = vm(accelerator_type=None, accelerator_config=shape, secure_boot=True).one("V2Vm").inputs
    assert inputs["acceleratorConfig"] == shape
    assert "acceleratorType" not in inputs
    assert inputs["shieldedInstanceConfig"] == {"enableSecureBoot": True}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"tier": "sport"}, "tier"),
        ({"accelerator_type": None}, "accelerator_type"),
        ({"accelerator_config": {"type": "V5P", "topology": "2x2x1"}}, "accelerator_config"),
        ({"labels": {"Team": "ml"}}, "labels.Team"),
    ],
)
def test_a_mistake_is_told_before_anything_is_declared(vm: Make, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as told:
        vm(**changes)
    assert told.value.place == place


def test_the_api_has_every_field(vm: Make) -> None:
    """The provider's names are the API's; the discovery document ships with google-api-python-client."""
    text = (files("googleapiclient.discovery_cache") / "documents" / "tpu.v2.json").read_text("utf-8")
    schemas = json.loads(text)["schemas"]
    inputs = vm(subnetwork="main", network_tags=["t"], startup_script="x", tier="spot").one("V2Vm").inputs
    place = {"project", "zone"}
    assert inputs.keys() - place <= schemas["Node"]["properties"].keys()
    for key, schema in (("networkConfig", "NetworkConfig"), ("schedulingConfig", "SchedulingConfig")):
        assert inputs[key].keys() <= schemas[schema]["properties"].keys()
    # The provider says scopes where the API says scope.
    assert inputs["serviceAccount"].keys() == {"email", "scopes"}


@pytest.mark.parametrize(("tier", "market"), [("spot", "spot"), ("guaranteed", "reservation"), ("on-demand",) * 2])
def test_it_is_in_the_bill(vm: Make, tier: str, market: str) -> None:
    (line,) = price_resources(vm(tier=tier).resources, load_provider("gcp"), "us-west4")
    assert line.name == f"demo-tpu: 1 x v5litepod-4, 4 chips, {market}"
    assert line.hourly is not None
    assert line.hourly > 0
