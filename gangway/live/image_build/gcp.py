"""Builds with Google Cloud Build, for a repository in Artifact Registry. A project needs the API and a bucket only."""

import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

from gangway.components.core.findings import InputError
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, TpuError, open_session
from gangway.jobs.systemd.scaling.base import Rest
from gangway.live.image_build.context import PLATFORM, BuildContext
from gangway.live.image_build.remote import BuildState, BytesSession, GrowingLog, RemoteBuild, read_from, send_bytes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import get_program
from gangway.stacks.providers.gcp.plan import REGISTRY_IMAGE

_FIX = "gcloud auth application-default login, with the roles Cloud Build Editor and Storage Object Admin"
_BUILDER = "gcr.io/cloud-builders/docker"


class CloudBuild:
    """One build in a project and region. `root`: address of a host's API; `{host}` is replaced."""

    service = "Cloud Build"

    def __init__(
        self, session: BytesSession, context: BuildContext, place: str, bucket: str, root: str = "https://{host}"
    ) -> None:
        match = re.fullmatch(REGISTRY_IMAGE, context.repository)
        if match is None:
            allowed = "<region>-docker.pkg.dev/<project>/<repository>/<image>"
            fix = "name an image in a repository of Artifact Registry"
            raise InputError(
                "--repository", "not in Artifact Registry", value=context.repository, allowed=allowed, fix=fix
            )
        self._session, self._context, self._place, self._bucket = session, context, place, bucket
        self._parts, self._root = match, root
        self._builds = Rest(session, root.format(host="cloudbuild.googleapis.com"), _FIX)
        self._artifacts = Rest(session, root.format(host="artifactregistry.googleapis.com"), _FIX)
        self._id, self._log = "", GrowingLog(self._read_log)

    def start(self, timeout_sec: int) -> str:
        """Uploads to the bucket, then starts."""
        context = self._context
        fix = f"gcloud storage buckets create gs://{self._bucket} --location=REGION, or name yours: --bucket; {_FIX}"
        send_bytes(
            self._session,
            f"bucket {self._bucket}",
            "POST",
            f"{self._storage}/upload/storage/v1/b/{self._bucket}/o",
            fix,
            params={"uploadType": "media", "name": context.object_name},
            data=context.archive,
            headers={"Content-Type": "application/gzip"},
        )
        path = f"/v1/{self._place}/builds"
        answer = self._builds.call(f"a build in {self._place}", "POST", path, body=self._request(timeout_sec))
        self._id = str(answer["metadata"]["build"]["id"])
        return self._id

    def _request(self, timeout_sec: int) -> dict[str, Any]:
        context = self._context
        options = ["--platform", PLATFORM, "--tag", context.image, "--build-arg", f"REVISION={context.tag}"]
        return {
            "source": {"storageSource": {"bucket": self._bucket, "object": context.object_name}},
            "steps": [{"name": _BUILDER, "args": ["build", *options, "."], "env": ["DOCKER_BUILDKIT=1"]}],
            "images": [context.image],
            "timeout": f"{timeout_sec}s",
            "logsBucket": f"gs://{self._bucket}",
            "options": {"logging": "GCS_ONLY"},
        }

    def state(self) -> BuildState:
        """The digest is in the build's results."""
        found = self._builds.call(f"build {self._id}", "GET", f"/v1/{self._place}/builds/{self._id}")
        phase = str(found["status"])
        if phase in ("STATUS_UNKNOWN", "PENDING", "QUEUED", "WORKING"):
            return BuildState(phase)
        if phase != "SUCCESS":
            why = found.get("statusDetail") or found.get("failureInfo", {}).get("detail", "")
            return BuildState(phase, "failed", reason=str(why))
        images = found.get("results", {}).get("images", ())
        digests = [str(each["digest"]) for each in images if each["name"] == self._context.image]
        return BuildState(phase, "succeeded", digests[0] if digests else None)

    def log_lines(self, *, at_end: bool) -> Sequence[str]:
        """From the log object in the bucket, which grows."""
        return self._log.lines(at_end=at_end)

    def cancel(self) -> None:
        """Cancels the build."""
        self._builds.call(f"build {self._id}", "POST", f"/v1/{self._place}/builds/{self._id}:cancel", body={})

    def registry_digest(self, digest: str) -> str | None:
        """The digest if Artifact Registry has it under the build's tag."""
        region, project, repository, name = self._parts.groups()
        image = f"{quote(name, safe='')}@{digest}"
        path = f"/v1/projects/{project}/locations/{region}/repositories/{repository}/dockerImages/{image}"
        found = self._artifacts.call(f"image {self._context.repository}@{digest}", "GET", path)
        return digest if self._context.tag in found.get("tags", ()) else None

    @property
    def _storage(self) -> str:
        return self._root.format(host="storage.googleapis.com")

    def _read_log(self, offset: int) -> bytes:
        url = f"{self._storage}/storage/v1/b/{self._bucket}/o/log-{self._id}.txt"
        return read_from(self._session, url, offset, {"alt": "media"})


def open_build(config: StackConfig, context: BuildContext, project: str | None, bucket: str | None) -> RemoteBuild:
    """For a stack's project and region. InputError: not logged in, or an option of another cloud."""
    if project is not None:
        fix = "remove --codebuild-project"
        raise InputError("--codebuild-project", "only on AWS", value=project, allowed="not given", fix=fix)
    own = str(get_program(config.provider).plan(config).project)
    try:
        session = open_session(GOOGLE_API_URL)
    except TpuError as problem:
        fix = "gcloud auth application-default login"
        raise InputError(f"Google Cloud, project {own}", str(problem), fix=fix) from None
    place = f"projects/{own}/locations/{config.region}"
    return CloudBuild(cast("BytesSession", session), context, place, bucket or f"{own}_cloudbuild")
