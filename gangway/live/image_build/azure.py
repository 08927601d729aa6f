"""Builds with Azure Container Registry's Tasks, in the registry that gets the image. It needs nothing else."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, cast

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import open_session
from gangway.components.core.image_reference import REPOSITORY
from gangway.jobs.systemd.scaling.azure import API_URL
from gangway.jobs.systemd.scaling.base import Rest
from gangway.live.image_build.context import DOCKERFILE, BuildContext
from gangway.live.image_build.remote import BuildState, BytesSession, GrowingLog, RemoteBuild, read_from, send_bytes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.settings import AzureConfig

TASKS_VERSION, REGISTRIES_VERSION = "2019-06-01-preview", "2025-04-01"
_FIX = "az login, with the role Contributor on the registry"
_ACR = re.compile(rf"([a-z0-9-]+)\.azurecr\.io/({REPOSITORY})")
_RUNNING = ("Queued", "Started", "Running")


class AcrTask:
    """One run of ACR Tasks. `plain`: a session without login, for addresses that carry their own signature;
    `show`: reads the registry's digest of `name` and `repository:tag`.
    """

    service = "ACR Tasks"

    def __init__(
        self,
        session: BytesSession,
        plain: BytesSession,
        context: BuildContext,
        subscription: str,
        *,
        show: "Callable[[str, str], str | None] | None" = None,
        api_url: str = API_URL,
    ) -> None:
        match = _ACR.fullmatch(context.repository)
        if match is None:
            allowed, fix = "<registry>.azurecr.io/<repository>", "name a repository in Azure Container Registry"
            raise InputError("--repository", "not in ACR", value=context.repository, allowed=allowed, fix=fix)
        self._rest, self._plain, self._context = Rest(session, api_url, _FIX), plain, context
        self._host, self._repository = context.repository.partition("/")[0], match[2]
        self._session, self._api_url = session, api_url
        self._subscription, self._show = subscription, show or show_digest
        self.registry_id, self._run, self._log = "", "", GrowingLog(self._read_log)

    def start(self, timeout_sec: int) -> str:
        """Uploads to where the registry says, then starts."""
        self.registry_id, context = self._find_registry(), self._context
        place = self._call("POST", "listBuildSourceUploadUrl")
        send_bytes(
            self._plain, f"the upload to {self._host}", "PUT", str(place["uploadUrl"]), _FIX, data=context.archive,
            headers={"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"},
        )  # fmt: skip
        request = {
            "type": "DockerBuildRequest",
            "sourceLocation": place["relativePath"],
            "dockerFilePath": DOCKERFILE,
            "imageNames": [f"{self._repository}:{context.tag}"],
            "isPushEnabled": True,
            "arguments": [{"name": "REVISION", "value": context.tag, "isSecret": False}],
            "platform": {"os": "Linux", "architecture": "amd64"},
            "timeout": timeout_sec,
        }
        self._run = str(self._call("POST", "scheduleRun", request)["properties"]["runId"])
        return self._run

    def state(self) -> BuildState:
        """The digest is among the run's images."""
        found = self._call("GET", f"runs/{self._run}")["properties"]
        phase = str(found["status"])
        if phase in _RUNNING:
            return BuildState(phase)
        if phase != "Succeeded":
            return BuildState(phase, "failed", reason=str(found.get("runErrorMessage") or ""))
        wanted = (self._repository, self._context.tag)
        rows = [each for each in found.get("outputImages", ()) if (each["repository"], each["tag"]) == wanted]
        return BuildState(phase, "succeeded", str(rows[0]["digest"]) if rows else None)

    def log_lines(self, *, at_end: bool) -> Sequence[str]:
        """From the run's log blob, which grows."""
        return self._log.lines(at_end=at_end)

    def cancel(self) -> None:
        """Cancels the run; the answer has no body."""
        url = f"{self._api_url}{self._path(f'runs/{self._run}/cancel')}"
        send_bytes(self._session, f"run {self._run}", "POST", url, _FIX, params=_version(TASKS_VERSION))

    def registry_digest(self, digest: str) -> str | None:
        """What the registry has under the tag."""
        return self._show(self._host.partition(".")[0], f"{self._repository}:{self._context.tag}")

    def _find_registry(self) -> str:
        path = f"/subscriptions/{self._subscription}/providers/Microsoft.ContainerRegistry/registries"
        what = f"the registries of subscription {self._subscription}"
        rows = self._rest.call(what, "GET", path, _version(REGISTRIES_VERSION)).get("value", [])
        for row in rows:
            if row["properties"].get("loginServer") == self._host:
                return str(row["id"])
        known = ", ".join(str(row["properties"].get("loginServer")) for row in rows) or "none"
        fix = "az acr create, or name another registry"
        raise InputError(
            "--repository", "no such registry in the subscription", value=self._host, allowed=known, fix=fix
        )

    def _path(self, action: str) -> str:
        return f"{self.registry_id}/{action}"

    def _call(self, method: str, action: str, body: Any = None) -> dict[str, Any]:
        return self._rest.call(f"{action} of {self._host}", method, self._path(action), _version(TASKS_VERSION), body)

    def _read_log(self, offset: int) -> bytes:
        try:
            link = str(self._call("POST", f"runs/{self._run}/listLogSasUrl")["logLink"])
        except InputError:  # as in read_from
            return b""
        return read_from(self._plain, link, offset)


def _version(version: str) -> dict[str, str]:
    return {"api-version": version}


def show_digest(registry: str, image: str) -> str | None:
    """The digest that a registry has of `repository:tag`, from `az`, which has the token for its other API."""
    argv = ["az", "acr", "repository", "show", "--name", registry, "--image", image, "--output", "json"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        why = " ".join(done.stderr.split())[:200] or f"exit status {done.returncode}"
        raise InputError(f"{registry}: {image}", f"az cannot read it: {why}", fix="az acr login, with the role AcrPull")
    return str(json.loads(done.stdout)["digest"])


def open_build(config: StackConfig, context: BuildContext, project: str | None, bucket: str | None) -> RemoteBuild:
    """For a stack's subscription. InputError: not logged in, or an option of another cloud."""
    for flag, value in (("--codebuild-project", project), ("--bucket", bucket)):
        if value is not None:
            fix = f"remove {flag}: the registry keeps its build contexts itself"
            raise InputError(flag, "without effect on Azure", value=value, allowed="not given", fix=fix)
    subscription = config.section(AzureConfig).subscription_id
    session = cast("BytesSession", open_session(subscription))
    import requests

    return AcrTask(session, requests.Session(), context, subscription)
