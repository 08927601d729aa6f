"""What is sent to the TPU API, and what its stand-in answers, against the API's own discovery document.

google-api-python-client ships the document, so nothing is fetched.
"""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import pytest

from gangway.components.gcp.tpu.api import GOOGLE_API_URL, SCOPE, TpuApi
from gangway.components.gcp.tpu.queued_tpu import (
    DEAD,
    DEAD_NODE,
    NOT_YET_ACCEPTED,
    ActiveTpuProvider,
    QueuedTpuProvider,
)
from gangway.components.gcp.tpu.request import queued_resource_body

PARENT = "projects/lab/locations/us-east5-a"
NAME = f"{PARENT}/queuedResources/gan-tpu"
TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}
FORMATS = {"google-duration": r"\d+(\.\d+)?s", "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    text = (files("googleapiclient.discovery_cache") / "documents" / "tpu.v2.json").read_text("utf-8")
    return dict(json.loads(text))


def mistakes(document: Mapping[str, Any], schema: Mapping[str, Any], value: Any, sent: bool, at: str) -> Iterator[str]:
    """What is wrong with a value by its schema. `sent` forbids what only the API may set."""
    if "$ref" in schema:
        schema = document["schemas"][schema["$ref"]]
    kind = schema["type"]
    if kind == "any":
        return
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{at}: {value!r} is no {kind}"
    elif kind == "object" and "additionalProperties" in schema:
        for key, inner in value.items():
            yield from mistakes(document, schema["additionalProperties"], inner, sent, f"{at}.{key}")
    elif kind == "object":
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key)
            if known is None or (sent and known.get("readOnly")):
                yield f"{at}.{key}: {'unknown' if known is None else 'read-only'}"
            else:
                yield from mistakes(document, known, inner, sent, f"{at}.{key}")
    elif kind == "array":
        for index, inner in enumerate(value):
            yield from mistakes(document, schema["items"], inner, sent, f"{at}[{index}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    elif schema.get("format") in FORMATS and not re.fullmatch(FORMATS[schema["format"]], value):
        yield f"{at}: {value!r} is no {schema['format']}"


def wrong(document: Mapping[str, Any], schema: str, value: Any, *, sent: bool = True) -> list[str]:
    return list(mistakes(document, {"$ref": schema}, value, sent, schema))


def methods(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


def method_for(document: Mapping[str, Any], verb: str, path: str) -> dict[str, Any]:
    """The method that a verb and a path reach; the pattern of its path parameter says which."""
    reached = []
    for method in methods(document):
        (variable,) = [key for key, value in method["parameters"].items() if value["location"] == "path"]
        pattern = method["parameters"][variable]["pattern"].strip("^$")
        whole = re.escape(method["path"]).replace(re.escape(f"{{+{variable}}}"), pattern)
        if method["httpMethod"] == verb and re.fullmatch(whole, path.lstrip("/")):
            reached.append(method)
    (found,) = reached
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tier": "on-demand", "valid_for_sec": 60},
        {"tier": "guaranteed", "min_duration_sec": 60, "num_slices": 2.0},
    ],
)
def test_every_body_is_one_of_the_api(document: Any, tpu_args: dict[str, Any], changes: dict[str, Any]) -> None:
    assert wrong(document, "QueuedResource", queued_resource_body({**tpu_args, **changes})) == []


def test_the_body_with_everything_is_one_of_the_api(document: Any, full_tpu_args: dict[str, Any]) -> None:
    assert wrong(document, "QueuedResource", queued_resource_body(full_tpu_args)) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"bestEffort": {}}, "QueuedResource.bestEffort: unknown"),
        ({"name": "x"}, "QueuedResource.name: read-only"),
        ({"guaranteed": {"minDuration": "1h"}}, "QueuedResource.guaranteed.minDuration: '1h' is no google-duration"),
        ({"tpu": {"nodeSpec": {}}}, "QueuedResource.tpu.nodeSpec: {} is no array"),
        (
            {"tpu": {"nodeSpec": [{"node": {"shieldedInstanceConfig": {"enableSecureBoot": "yes"}}}]}},
            "QueuedResource.tpu.nodeSpec[0].node.shieldedInstanceConfig.enableSecureBoot: 'yes' is no boolean",
        ),
        (
            {"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": True}}]}},
            "QueuedResource.tpu.nodeSpec[0].multisliceParams.nodeCount: True is no integer",
        ),
        (
            {"tpu": {"nodeSpec": [{"node": {"labels": {"a": 1}}}]}},
            "QueuedResource.tpu.nodeSpec[0].node.labels.a: 1 is no string",
        ),
    ],
)
def test_the_validator_finds_what_is_wrong(document: Any, body: dict[str, Any], said: str) -> None:
    assert wrong(document, "QueuedResource", body) == [said]


def test_the_validator_knows_the_words_of_an_enumeration(document: Any) -> None:
    (said,) = wrong(document, "AttachedDisk", {"mode": "RW"})
    assert said.startswith("AttachedDisk.mode: 'RW' is none of")


def test_every_request_of_a_life_is_one_of_the_api(document: Any, standin: Any, props: dict[str, Any]) -> None:
    provider, cloud = QueuedTpuProvider(), standin.cloud
    cloud.orphans = True
    made = provider.create(props)
    assert made.outs is not None
    ActiveTpuProvider().create({**props, "name": NAME, "create_time": made.outs["create_time"]})
    provider.update(NAME, {**made.outs, "state": "ACTIVE"}, {**props, "labels": {"team": "vision"}})
    api = TpuApi(standin.url)
    answers = [("QueuedResource", api.get_queued_resource(NAME)), *(("Node", node) for node in api.list_nodes(PARENT))]
    assert len(answers) == 2
    provider.delete(NAME, made.outs)
    used = set()
    for request in cloud.seen:
        method = method_for(document, request.method, request.path)
        used.add(method["id"].removeprefix("tpu.projects.locations."))
        assert request.query.keys() <= method["parameters"].keys()
        assert (request.body is None) == ("request" not in method)
        if request.body is not None:
            assert wrong(document, method["request"]["$ref"], request.body) == []
        assert SCOPE in method["scopes"]
    queue, nodes = "queuedResources", "nodes"
    assert used >= {f"{queue}.create", f"{queue}.get", f"{queue}.delete", "operations.get"}
    assert used >= {f"{nodes}.list", f"{nodes}.patch", f"{nodes}.delete"}
    answers += [("Operation", operation) for operation in cloud.operations.values()]
    assert [wrong(document, schema, answer, sent=False) for schema, answer in answers] == [[]] * len(answers)


def test_the_words_we_know_are_the_apis(document: Any) -> None:
    schemas = document["schemas"]
    states = set(schemas["QueuedResourceState"]["properties"]["state"]["enum"])
    living = {"ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"}
    assert living | DEAD | NOT_YET_ACCEPTED == states
    assert set(schemas["Node"]["properties"]["state"]["enum"]) > DEAD_NODE
    assert "labels" in method_for(document, "PATCH", f"v2/{PARENT}/nodes/x")["parameters"]["updateMask"]["description"]
    assert document["baseUrl"].rstrip("/") == GOOGLE_API_URL
