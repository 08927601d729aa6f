"""The stand-in of the TPU API, running, and arguments that fit it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from gangway.stacks import recording

GOOGLE_OUTPUTS = ("address", "email", "member", "mountPoint", "registryUri", "selfLink", "selfLinkUnique", "uniqueId")
GOOGLE_ANSWERS = {
    "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": ("emailAddress", "member"),
    "gcp:logging/getProjectCmekSettings:getProjectCmekSettings": ("serviceAccountId",),
    "gcp:organizations/getClientConfig:getClientConfig": ("accessToken",),
}


@pytest.fixture(autouse=True)
def google_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the recording answer for Google's resources and functions too."""
    monkeypatch.setattr(recording, "_COMPUTED", (*recording._COMPUTED, *GOOGLE_OUTPUTS))
    monkeypatch.setattr(recording, "_ANSWERS", {**recording._ANSWERS, **GOOGLE_ANSWERS})


@pytest.fixture
def labels() -> dict[str, str]:
    return {"team": "ml", "gangway-stack": "demo"}


TYPES: dict[str, Any] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}
FORMATS = {"google-duration": r"\d+(\.\d+)?s", "int64": r"-?\d+"}


def _mistakes(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = schemas[schema["$ref"]]
    kind = schema["type"]
    if kind == "any":
        return
    if isinstance(value, float) and value.is_integer():
        # The engine's wire knows one kind of number; the API's own, of 64 bits, are strings.
        value = str(int(value)) if schema.get("format") == "int64" else int(value)
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{at}: {value!r} is no {kind}"
    elif kind == "object":
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if known is None:
                yield f"{at}.{key}: unknown"
            else:
                yield from _mistakes(schemas, known, inner, f"{at}.{key}")
    elif kind == "array":
        for index, inner in enumerate(value):
            yield from _mistakes(schemas, schema["items"], inner, f"{at}[{index}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    elif schema.get("format") in FORMATS and not re.fullmatch(FORMATS[schema["format"]], value):
        yield f"{at}: {value!r} is no {schema['format']}"


@pytest.fixture(scope="session")
def api_document() -> Callable[[str], dict[str, Any]]:
    """The discovery document of an API, such as `compute.v1`: google-api-python-client ships them."""

    def load(api: str) -> dict[str, Any]:
        text = (files("googleapiclient.discovery_cache") / "documents" / f"{api}.json").read_text("utf-8")
        return dict(json.loads(text))

    return load


@pytest.fixture(scope="session")
def api_mistakes(api_document: Callable[[str], dict[str, Any]]) -> Callable[[str, str, Any], list[str]]:
    """What is wrong with a value by a schema of an API; what is wrong by no schema is an empty list."""

    def find(api: str, schema: str, value: Any) -> list[str]:
        return list(_mistakes(api_document(api)["schemas"], {"$ref": schema}, value, schema))

    return find


@pytest.fixture(scope="session")
def workflow_language(load_module: Callable[[Path], Any]) -> Any:
    """The module that runs a workflow's text; see tests/cloud_workflows.py."""
    return load_module(Path(__file__).parents[2] / "cloud_workflows.py")


APIS = {
    "https://cloudscheduler.googleapis.com/": "cloudscheduler.v1",
    "https://compute.googleapis.com/compute/v1/": "compute.v1",
    "https://container.googleapis.com/": "container.v1",
    "https://logging.googleapis.com/": "logging.v2",
    "https://storage.googleapis.com/storage/v1/": "storage.v1",
    "https://storage.googleapis.com": "storage.v1",
    "https://tpu.googleapis.com/": "tpu.v2",
}


def _matches(template: str, path: str) -> bool:
    pattern = re.sub(r"\\\{(\\\+)?[a-zA-Z]+\\\}", lambda m: ".+" if m[1] else "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None


def _paths(method: Mapping[str, Any]) -> list[str]:
    """Where a method is called: its place, and that of an upload."""
    upload = method.get("mediaUpload", {}).get("protocols", {}).get("simple", {}).get("path")
    return [method["path"], *([upload] if upload else [])]


@pytest.fixture(scope="session")
def published_call(
    api_document: Callable[[str], dict[str, Any]], workflow_language: Any
) -> Callable[[str, str, Mapping[str, Any]], set[str]]:
    """The ids of the methods that a workflow's call may be, with all of its parameters known."""

    def find(verb: str, url: str, query: Mapping[str, Any]) -> set[str]:
        address, _, words = url.partition("?")
        asked = {*query, *parse_qs(words)}
        return {
            method["id"]
            for host, api in APIS.items()
            if address.startswith(host)
            for method in workflow_language.methods(api_document(api))
            if method["httpMethod"] == verb
            and any(_matches(path, address.removeprefix(host)) for path in _paths(method))
            and asked <= {"uploadType", *api_document(api)["parameters"], *method.get("parameters", {})}
        }

    return find


@pytest.fixture
def standin(load_module: Callable[[Path], Any]) -> Iterator[Any]:
    """A TpuStandin of its own for each test."""
    with load_module(Path(__file__).parents[2] / "tpu_standin.py").TpuStandin() as running:
        yield running


@pytest.fixture
def tpu_args() -> dict[str, Any]:
    """The least that QueuedTpu takes, its name included."""
    return {
        "project": "lab",
        "zone": "us-east5-a",
        "queued_resource_id": "gan-tpu",
        "accelerator_type": "v5p-256",
        "runtime_version": "v2-alpha-tpuv5",
        "tier": "spot",
        "service_account": "nodes@lab.iam.gserviceaccount.com",
        "labels": {"team": "ml"},
    }


@pytest.fixture
def full_tpu_args(tpu_args: dict[str, Any]) -> dict[str, Any]:
    """Every input that reaches the API."""
    shape = {"accelerator_config": {"type": "V5P", "topology": "4x4x8"}}
    return {
        **{key: value for key, value in tpu_args.items() if key != "accelerator_type"},
        **shape,
        "tier": "guaranteed",
        "num_slices": 3,
        "min_duration_sec": 3600,
        "reservation_name": "projects/lab/locations/us-east5-a/reservations/r1",
        "valid_until": "2026-03-01T12:00:00Z",
        "network": "projects/lab/global/networks/train",
        "subnetwork": "projects/lab/regions/us-east5/subnetworks/train",
        "network_tags": ["train"],
        "startup_script": "#!/bin/sh\n",
        "metadata": {"job": "x"},
        "data_disks": [{"source_disk": "projects/lab/zones/us-east5-a/disks/data"}],
        "kms_key_name": "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k",
        "secure_boot": True,
    }


@pytest.fixture
def props(standin: Any, tpu_args: dict[str, Any]) -> dict[str, Any]:
    """What the engine hands the provider: arguments, the stand-in's address, and no time to lose."""
    quick = {"accept_sec": 5.0, "active_sec": 5.0, "delete_sec": 5.0, "poll_sec": 0.005}
    return {**tpu_args, "api_url": standin.url, "timeouts": quick, "__provider": "serialised"}
