"""The client of the TPU API against the stand-in over HTTP, and the body it is given."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, QuotaError, TpuApi, TpuError, open_session
from gangway.components.gcp.tpu.request import FINGERPRINT_KEY, node_ids, queued_resource_body

PARENT = "projects/lab/locations/us-east5-a"
NAME = f"{PARENT}/queuedResources/gan-tpu"


def node_of(body: dict[str, Any]) -> dict[str, Any]:
    (spec,) = body["tpu"]["nodeSpec"]
    return dict(spec["node"])


def test_the_body_of_a_spot_slice(tpu_args: dict[str, Any]) -> None:
    body = queued_resource_body(tpu_args)
    mark = node_of(body)["metadata"][FINGERPRINT_KEY]
    assert len(mark) == 32
    node = {
        "acceleratorType": "v5p-256",
        "runtimeVersion": "v2-alpha-tpuv5",
        "networkConfig": {"enableExternalIps": False},
        "serviceAccount": {
            "email": "nodes@lab.iam.gserviceaccount.com",
            "scope": ["https://www.googleapis.com/auth/cloud-platform"],
        },
        "labels": {"team": "ml"},
        "metadata": {FINGERPRINT_KEY: mark},
    }
    assert body == {"spot": {}, "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "gan-tpu", "node": node}]}}


def test_the_body_with_everything(full_tpu_args: dict[str, Any]) -> None:
    body = queued_resource_body(full_tpu_args)
    (spec,) = body["tpu"]["nodeSpec"]
    assert spec["multisliceParams"] == {"nodeCount": 3, "nodeIdPrefix": "gan-tpu"}
    assert "nodeId" not in spec
    assert node_ids(full_tpu_args) == ["gan-tpu-0", "gan-tpu-1", "gan-tpu-2"]
    assert body["guaranteed"] == {"minDuration": "3600s"}
    assert body["reservationName"].endswith("/reservations/r1")
    assert body["queueingPolicy"] == {"validUntilTime": "2026-03-01T12:00:00Z"}
    node = spec["node"]
    assert node["acceleratorConfig"] == {"type": "V5P", "topology": "4x4x8"}
    assert node["networkConfig"] == {
        "network": "projects/lab/global/networks/train",
        "subnetwork": "projects/lab/regions/us-east5/subnetworks/train",
        "enableExternalIps": False,
    }
    assert {key: node["metadata"][key] for key in ("startup-script", "job")} == {
        "startup-script": "#!/bin/sh\n",
        "job": "x",
    }
    assert node["dataDisks"] == [{"sourceDisk": "projects/lab/zones/us-east5-a/disks/data", "mode": "READ_ONLY"}]
    assert node["bootDiskConfig"]["customerEncryptionKey"]["kmsKeyName"].endswith("/cryptoKeys/k")
    assert node["shieldedInstanceConfig"] == {"enableSecureBoot": True}
    assert node["tags"] == ["train"]


RESERVED = "projects/lab/locations/us-east5-a/reservations/-"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"tier": "on-demand"}, {}),
        ({"tier": "guaranteed"}, {"guaranteed": {}}),
        ({"tier": "guaranteed", "reservation_name": RESERVED}, {"reservationName": RESERVED}),
        ({"valid_for_sec": 21600.0}, {"spot": {}, "queueingPolicy": {"validUntilDuration": "21600s"}}),
    ],
)
def test_tiers_and_ends(tpu_args: dict[str, Any], changes: dict[str, Any], part: dict[str, Any]) -> None:
    body = queued_resource_body({**tpu_args, **changes})
    assert {key: value for key, value in body.items() if key != "tpu"} == part


def test_the_mark_tells_requests_apart(tpu_args: dict[str, Any]) -> None:
    def mark(**changes: Any) -> str:
        return str(node_of(queued_resource_body({**tpu_args, **changes}))["metadata"][FINGERPRINT_KEY])

    assert mark() == mark() == mark(num_slices=1.0)
    # The labels name the stack: without them, two stacks alike would take over each other's request.
    others = [mark(tier="on-demand"), mark(zone="us-east5-b"), mark(metadata={"a": "b"}), mark(labels={"team": "b"})]
    assert len({mark(), *others}) == 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tier": "spott"}, r"tier: no such choice\n  got:     'spott'\n.*\n  fix:     did you mean 'spot'\?"),
        ({"accelerator_config": {"type": "V5P", "topology": "2x2x1"}}, "accelerator_config: accelerator_type says it"),
        ({"accelerator_type": None}, "accelerator_type: not given"),
        ({"reservation_name": f"{PARENT}/reservations/r"}, "reservation_name: spot does not use reservations"),
        ({"min_duration_sec": 60}, "min_duration_sec: of no effect with tier spot"),
        ({"tier": "guaranteed", "min_duration_sec": 0}, "min_duration_sec: no length of time"),
        ({"tier": "guaranteed", "reservation_name": "r"}, "reservation_name: not of the form"),
        ({"valid_until": "tomorrow"}, "valid_until: not of the form"),
        ({"valid_until": "2026-03-01T12:00:00Z", "valid_for_sec": 5}, "valid_for_sec: valid_until says it already"),
        ({"queued_resource_id": "Gan_TPU"}, "queued_resource_id: no name"),
        ({"num_slices": 0}, "num_slices: no number of slices"),
        ({"data_disks": [{"source_disk": "d", "mode": "RW"}]}, r"data_disks\[0\].mode: no such choice"),
        ({"metadata": {FINGERPRINT_KEY: "x"}}, "this key is set by the component"),
        ({"metadata": {"startup-script": "x"}, "startup_script": "y"}, "startup_script says it already"),
        ({"labels": {"gangway:stack": "x"}}, "labels.gangway:stack: no label of GCP"),
        ({"labels": {f"k{index}": "v" for index in range(65)}}, "labels: 65 labels"),
    ],
)
def test_a_mistake_is_named(tpu_args: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    args = {key: value for key, value in {**tpu_args, **changes}.items() if value is not None}
    with pytest.raises(InputError, match=said):
        queued_resource_body(args)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def api(standin: Any, pauses: list[float]) -> TpuApi:
    return TpuApi(f"{standin.url}/", sleep=pauses.append)


def test_a_queued_resource_there_and_back(standin: Any, api: TpuApi, tpu_args: dict[str, Any]) -> None:
    assert api.get_queued_resource(NAME) is None
    operation = api.create_queued_resource(PARENT, "gan-tpu", queued_resource_body(tpu_args))
    assert api.get_operation(operation["name"])["done"] is True
    states = [(api.get_queued_resource(NAME) or {})["state"]["state"] for _ in range(5)]
    assert states == ["ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "ACTIVE"]
    assert [node["state"] for node in api.list_nodes(PARENT)] == ["READY"]
    api.delete_queued_resource(NAME)
    assert standin.cloud.seen[-1].query["force"] == "true"
    assert api.get_queued_resource(NAME) is None
    assert list(api.list_nodes(PARENT)) == []


def test_nodes_are_read_to_the_last_page(standin: Any, api: TpuApi) -> None:
    names = [f"{PARENT}/nodes/n{index}" for index in range(5)]
    standin.cloud.nodes = {name: {"name": name, "state": "READY"} for name in names}
    assert [node["name"] for node in api.list_nodes(PARENT)] == names


def test_a_busy_api_is_asked_again_with_the_same_request_id(
    standin: Any, api: TpuApi, pauses: list[float], tpu_args: dict[str, Any]
) -> None:
    standin.cloud.refusals = [429, 503]
    api.create_queued_resource(PARENT, "gan-tpu", queued_resource_body(tpu_args))
    assert len({seen.query["requestId"] for seen in standin.cloud.seen}) == 1
    first, second = pauses
    assert 0.5 <= first <= 1.0 <= second <= 2.0


def test_each_request_has_an_id_of_its_own(standin: Any, api: TpuApi, tpu_args: dict[str, Any]) -> None:
    """With the same one, what replaces a preempted request would be ignored as its repetition."""
    body = queued_resource_body(tpu_args)
    for _ in range(2):
        api.create_queued_resource(PARENT, "gan-tpu", body)
        standin.cloud.queued.clear()
    assert standin.cloud.made == 2


def test_quota_is_one_message_after_several_attempts(standin: Any, api: TpuApi, pauses: list[float]) -> None:
    standin.cloud.refusals = [429] * 6
    with pytest.raises(
        QuotaError, match=r"429 RESOURCE_EXHAUSTED: as told by the test\n  fix: ask for quota"
    ) as caught:
        api.get_queued_resource(NAME)
    assert (caught.value.status, len(pauses), standin.cloud.refusals) == (429, 5, [])


def test_a_refusal_is_not_repeated(standin: Any, api: TpuApi, pauses: list[float]) -> None:
    standin.cloud.refusals = [403]
    with pytest.raises(TpuError, match=f"GET {NAME}: 403 PERMISSION_DENIED: as told by the test"):
        api.get_queued_resource(NAME)
    assert pauses == []


def test_an_api_out_of_reach_is_named(pauses: list[float]) -> None:
    with pytest.raises(TpuError, match=r"http://127.0.0.1:1 cannot be reached"):
        TpuApi("http://127.0.0.1:1", sleep=pauses.append).get_queued_resource(NAME)
    assert len(pauses) == 5


def test_an_answer_that_is_no_json_is_quoted() -> None:
    def no_json() -> None:
        raise ValueError

    class Gateway:
        def request(self, method: str, url: str, **_: Any) -> Any:
            return SimpleNamespace(status_code=418, text="<html>teapot</html>", headers={}, json=no_json)

    with pytest.raises(TpuError, match="418 : <html>teapot</html>"):
        TpuApi(session=Gateway()).get_queued_resource(NAME)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Any:
    """google-auth as far as it is used, with credentials unless told otherwise."""
    error = type("DefaultCredentialsError", (Exception,), {})
    auth: Any = ModuleType("google.auth")
    auth.exceptions = SimpleNamespace(DefaultCredentialsError=error)
    auth.default = lambda scopes: (f"credentials for {scopes[0]}", "project")
    transport: Any = ModuleType("google.auth.transport.requests")
    transport.AuthorizedSession = lambda credentials: SimpleNamespace(credentials=credentials)
    monkeypatch.setitem(sys.modules, "google.auth", auth)
    monkeypatch.setitem(sys.modules, "google.auth.transport", ModuleType("google.auth.transport"))
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", transport)
    return auth


@pytest.mark.parametrize("url", [GOOGLE_API_URL, "https://tpu-lab.p.googleapis.com"])
def test_google_gets_the_callers_credentials(google: Any, url: str) -> None:
    session: Any = open_session(url)
    assert session.credentials == "credentials for https://www.googleapis.com/auth/cloud-platform"


@pytest.mark.parametrize("url", ["http://tpu.googleapis.com", "https://evilgoogleapis.com", "http://127.0.0.1:1"])
def test_nobody_else_gets_them(google: Any, url: str) -> None:
    assert not hasattr(open_session(url), "credentials")


def test_without_credentials_the_fix_is_named(google: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(scopes: list[str]) -> None:
        raise google.exceptions.DefaultCredentialsError

    google.default = refuse
    with pytest.raises(TpuError, match="gcloud auth application-default login"):
        open_session(GOOGLE_API_URL)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(TpuError, match="install google-auth"):
        open_session(GOOGLE_API_URL)
