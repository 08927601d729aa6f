"""ACR Tasks against a stand-in that keeps the upload and the run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from gangway.components.core.findings import InputError
from gangway.live.image_build.azure import TASKS_VERSION, AcrTask, show_digest
from gangway.live.image_build.remote import run_build
from tests.gangway.live.image_build.conftest import DIGEST, context_for
from tests.gangway.live.image_build.http_standin import Call, serve

REGISTRY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/gan"
LIST = "/subscriptions/s/providers/Microsoft.ContainerRegistry/registries"
LOG = b"Step 1\nStep 2\n"


@dataclass
class Azure:
    """`statuses`: of the run, one per look; `uploaded`: the blob; `request`: of the run."""

    statuses: list[str]
    uploaded: Call | None = None
    request: dict[str, Any] = field(default_factory=dict)
    url: str = ""

    def answer(self, call: Call) -> tuple[int, Any]:
        action = call.path.removeprefix(f"{REGISTRY}/")
        if action != call.path and call.query.get("api-version") != TASKS_VERSION:
            return 400, {}
        match call.method, action:
            case "GET", path if path == LIST:
                return 200, {"value": [{"id": REGISTRY, "properties": {"loginServer": "gan.azurecr.io"}}]}
            case "POST", "listBuildSourceUploadUrl":
                return 200, {"uploadUrl": f"{self.url}/blob?sig=x", "relativePath": "source/1.tar.gz"}
            case "PUT", "/blob":
                self.uploaded = call
                return 201, b""
            case "POST", "scheduleRun":
                self.request = call.body
                return 200, {"properties": {"runId": "r1"}}
            case "GET", "runs/r1":
                return 200, {"properties": self._run(self.statuses.pop(0) if self.statuses[1:] else self.statuses[0])}
            case "POST", "runs/r1/listLogSasUrl":
                return 200, {"logLink": f"{self.url}/log?sig=x"}
            case "GET", "/log":
                return 206, LOG[call.first_byte :]
            case "POST", "runs/r1/cancel":
                self.statuses = ["Canceled"]
                return 202, b""
        return 404, {}

    def _run(self, status: str) -> dict[str, Any]:
        repository, _, tag = self.request["imageNames"][0].partition(":")
        row = {"registry": "gan.azurecr.io", "repository": repository, "tag": tag, "digest": DIGEST}
        images = {"outputImages": [row]} if status == "Succeeded" else {}
        return {"status": status, "runErrorMessage": "no space", **images}


@pytest.fixture
def azure() -> Iterator[Azure]:
    state = Azure(["Queued", "Running", "Succeeded"])
    with serve(state.answer) as state.url:
        yield state


def run_in(azure: Azure, repository: str = "gan.azurecr.io/team/trainer") -> AcrTask:
    session, plain = requests.Session(), requests.Session()
    session.headers["Authorization"] = "Bearer secret"
    session.trust_env = plain.trust_env = False
    return AcrTask(session, plain, context_for(repository), "s", show=lambda *_: DIGEST, api_url=azure.url)


def test_it_uploads_builds_streams_and_checks(azure: Azure) -> None:
    told: list[str] = []
    assert run_build(run_in(azure), 1800, told.append, lambda _: None) == DIGEST
    assert azure.uploaded is not None
    assert azure.uploaded.content == b"archive"
    assert "Authorization" not in azure.uploaded.headers, "the address has its own signature"
    assert azure.request["sourceLocation"] == "source/1.tar.gz"
    assert azure.request["imageNames"] == ["team/trainer:content-1"]
    assert [line for line in told if line.startswith("Step")] == ["Step 1", "Step 2"]


def test_a_failure_says_why(azure: Azure) -> None:
    azure.statuses = ["Failed"]
    with pytest.raises(InputError, match="ended as Failed: no space"):
        run_build(run_in(azure), 1800, lambda _: None, lambda _: None)


def test_it_is_cancelled_although_the_answer_is_empty(azure: Azure) -> None:
    run = run_in(azure)
    run.start(60)
    run.cancel()
    assert run.state().phase == "Canceled"


def test_another_subscriptions_registry_is_refused(azure: Azure) -> None:
    with pytest.raises(InputError, match="no such registry in the subscription") as caught:
        run_in(azure, "other.azurecr.io/x").start(60)
    assert caught.value.allowed == "gan.azurecr.io"


def test_az_has_the_registrys_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "az"
    program.write_text(f"""#!/bin/sh\n[ "$5" = gan ] && echo '{{"digest": "{DIGEST}"}}'\n""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert show_digest("gan", "team/trainer:content-1") == DIGEST
    with pytest.raises(InputError, match="az cannot read it"):
        show_digest("other", "x:y")
