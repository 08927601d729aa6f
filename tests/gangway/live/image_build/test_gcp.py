"""Cloud Build against a stand-in that keeps builds and objects; every request is a published method of Google's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests

from gangway.components.core.findings import InputError
from gangway.live.image_build.gcp import CloudBuild
from gangway.live.image_build.remote import run_build
from tests.gangway.live.image_build.conftest import DIGEST, context_for
from tests.gangway.live.image_build.http_standin import Call, serve
from tests.google_methods import published

PLACE = "projects/p/locations/us-central1"
REPOSITORY = "us-central1-docker.pkg.dev/p/gan/trainer"
BUILDS = f"/cloudbuild.googleapis.com/v1/{PLACE}/builds"
STORAGE = "/storage.googleapis.com"
IMAGE = f"/artifactregistry.googleapis.com/v1/{PLACE}/repositories/gan/dockerImages/trainer@{DIGEST}"


@dataclass
class Google:
    """`statuses`: of the build, one per look; `objects`: of the bucket, by name; `tags`: of the pushed image."""

    statuses: list[str]
    objects: dict[str, bytes] = field(default_factory=dict)
    tags: list[str] = field(default_factory=lambda: ["content-1"])
    request: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    def answer(self, call: Call) -> tuple[int, Any]:
        self.calls.append(call)
        match call.method, call.path:
            case "POST", path if path == f"{STORAGE}/upload/storage/v1/b/b/o":
                self.objects[call.query["name"]] = call.content
                return 200, {}
            case "POST", path if path == BUILDS:
                self.request = call.body
                return 200, {"metadata": {"build": {"id": "1"}}}
            case "GET", path if path == f"{BUILDS}/1":
                return 200, self._build(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])
            case "POST", path if path == f"{BUILDS}/1:cancel":
                self.statuses = ["CANCELLED"]
                return 200, {}
            case "GET", path if path == f"{STORAGE}/storage/v1/b/b/o/log-1.txt":
                new = self.objects.get("log-1.txt", b"")[call.first_byte :]
                return (206, new) if new else (416, {})
            case "GET", path if path == IMAGE:
                return 200, {"tags": self.tags}
        return 404, {}

    def _build(self, status: str) -> dict[str, Any]:
        self.objects["log-1.txt"] = self.objects.get("log-1.txt", b"") + f"{status}\n".encode()
        results = {"images": [{"name": self.request["images"][0], "digest": DIGEST}]} if status == "SUCCESS" else {}
        return {"status": status, "statusDetail": "step 0 failed", "results": results}


@pytest.fixture
def google() -> Iterator[Google]:
    state = Google(["QUEUED", "WORKING", "SUCCESS"])
    with serve(state.answer) as state.url:
        yield state


@pytest.fixture
def build(google: Google) -> Iterator[CloudBuild]:
    with requests.Session() as session:
        session.trust_env = False
        yield CloudBuild(session, context_for(REPOSITORY), PLACE, "b", f"{google.url}/{{host}}")


def test_it_uploads_builds_streams_and_checks(google: Google, build: CloudBuild) -> None:
    told: list[str] = []
    assert run_build(build, 1800, told.append, lambda _: None) == DIGEST
    source = google.request["source"]["storageSource"]
    assert google.objects[source["object"]] == b"archive"
    assert google.request["timeout"] == "1800s"
    assert [line for line in told if line.isupper()] == ["QUEUED", "WORKING", "SUCCESS"], "each log line once"
    unknown = [call.path for call in google.calls if not published(call)]
    assert not unknown


def test_a_failure_says_why(google: Google, build: CloudBuild) -> None:
    google.statuses = ["FAILURE"]
    with pytest.raises(InputError, match="ended as FAILURE: step 0 failed"):
        run_build(build, 1800, lambda _: None, lambda _: None)


def test_an_image_without_its_tag_is_not_the_one(google: Google, build: CloudBuild) -> None:
    google.tags = []
    with pytest.raises(InputError, match="the registry has another digest"):
        run_build(build, 1800, lambda _: None, lambda _: None)


def test_it_is_cancelled(google: Google, build: CloudBuild) -> None:
    build.start(60)
    build.cancel()
    assert build.state().phase == "CANCELLED"
    assert all(published(call) for call in google.calls)


def test_a_missing_bucket_comes_with_its_command(google: Google) -> None:
    with requests.Session() as session:
        session.trust_env = False
        build = CloudBuild(session, context_for(REPOSITORY), PLACE, "nowhere", f"{google.url}/{{host}}")
        with pytest.raises(InputError, match="bucket nowhere") as caught:
            build.start(60)
    assert "gcloud storage buckets create gs://nowhere" in caught.value.fix


def test_a_repository_elsewhere_is_refused() -> None:
    with requests.Session() as session, pytest.raises(InputError, match="not in Artifact Registry"):
        CloudBuild(session, context_for("gcr.io/p/x"), PLACE, "b")
