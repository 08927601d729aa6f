"""Builds with AWS CodeBuild, in a project of `gangway.components.aws.ImageBuilder`, for a repository in ECR."""

import re
from collections.abc import Sequence
from typing import Any

from gangway.components.aws.image_builder import BUILDSPEC, CONTEXT_BUCKET, PROJECT_NAME
from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import one_line
from gangway.live.image_build.context import BuildContext
from gangway.live.image_build.remote import BuildState, RemoteBuild
from gangway.live.preflight.aws_api import LOG_IN, Aws, open_clients
from gangway.live.preflight.check import NoAnswerError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.plan import ECR_REPOSITORY

_DOCS = "docs/deploying.md shows how to declare it"


class CodeBuild:
    """One build in a CodeBuild project."""

    service = "CodeBuild"

    def __init__(self, aws: Aws, context: BuildContext, project: str) -> None:
        match = re.fullmatch(ECR_REPOSITORY, context.repository)
        if match is None or match[2] != aws.region:
            allowed = f"<account>.dkr.ecr.{aws.region}.amazonaws.com/<name>"
            fix = "name a repository in ECR in the stack's region"
            raise InputError("--repository", "not in ECR", value=context.repository, allowed=allowed, fix=fix)
        self._aws, self._context, self._project = aws, context, project
        self._account, self._name = match[1], match[3]
        self._id, self._found, self._token = "", dict[str, Any](), ""

    def start(self, timeout_sec: int) -> str:
        """Uploads to the bucket that the project names, then starts."""
        context, bucket = self._context, self._bucket()
        self._call("s3:PutObject", Bucket=bucket, Key=context.object_name, Body=context.archive)
        variables = {
            CONTEXT_BUCKET: bucket,
            "CONTEXT_KEY": context.object_name,
            "CONTEXT_SHA256": context.sha256,
            "IMAGE": context.image,
            "REVISION": context.tag,
        }
        answer = self._call(
            "codebuild:StartBuild",
            projectName=self._project,
            buildspecOverride=BUILDSPEC,
            timeoutInMinutesOverride=max(5, -(-timeout_sec // 60)),
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()
            ],
        )
        self._id = str(answer["build"]["id"])
        return self._id

    def state(self) -> BuildState:
        """The digest is an exported variable of the build."""
        self._found = self._call("codebuild:BatchGetBuilds", ids=[self._id])["builds"][0]
        status, phase = self._found["buildStatus"], str(self._found.get("currentPhase", "QUEUED"))
        if status == "IN_PROGRESS":
            return BuildState(phase)
        if status != "SUCCEEDED":
            contexts = [each for one in self._found.get("phases", ()) for each in one.get("contexts", ())]
            reasons = [str(each["message"]) for each in contexts if each.get("message")]
            return BuildState(str(status), "failed", reason="; ".join(reasons))
        exported = {each["name"]: each["value"] for each in self._found.get("exportedEnvironmentVariables", ())}
        return BuildState(phase, "succeeded", exported.get("DIGEST"))

    def log_lines(self, *, at_end: bool) -> Sequence[str]:
        """Events of CloudWatch Logs, which are whole lines."""
        logs = self._found.get("logs", {})
        if not logs.get("streamName"):
            return []
        found: list[str] = []
        while True:
            token = {"nextToken": self._token} if self._token else {}
            place = {"logGroupName": logs["groupName"], "logStreamName": logs["streamName"]}
            try:
                page = self._aws.call("logs:GetLogEvents", **place, startFromHead=True, **token)
            except NoAnswerError:  # the stream comes with the first line; a log is no reason to end a build
                return found
            found += [one_line(str(event["message"]).rstrip("\n")) for event in page["events"]]
            if page["nextForwardToken"] == self._token:
                return found
            self._token = str(page["nextForwardToken"])

    def cancel(self) -> None:
        """Stops the build."""
        self._call("codebuild:StopBuild", id=self._id)

    def registry_digest(self, digest: str) -> str | None:
        """What ECR has under the tag."""
        rows = self._call(
            "ecr:DescribeImages",
            registryId=self._account,
            repositoryName=self._name,
            imageIds=[{"imageTag": self._context.tag}],
        )["imageDetails"]
        return str(rows[0]["imageDigest"]) if rows else None

    def _bucket(self) -> str:
        found = self._call("codebuild:BatchGetProjects", names=[self._project])["projects"]
        if not found:
            fix = f"declare one with gangway.components.aws.ImageBuilder, or name another: {_DOCS}"
            where = f"a CodeBuild project in {self._aws.region}"
            raise InputError("--codebuild-project", "does not exist", value=self._project, allowed=where, fix=fix)
        variables = found[0].get("environment", {}).get("environmentVariables", ())
        bucket = next((each["value"] for each in variables if each["name"] == CONTEXT_BUCKET), None)
        if bucket is None:
            problem = f"the project has no variable {CONTEXT_BUCKET}, which names the bucket for build contexts"
            fix = f"declare it with gangway.components.aws.ImageBuilder: {_DOCS}"
            raise InputError("--codebuild-project", problem, value=self._project, fix=fix)
        return str(bucket)

    def _call(self, source: str, **parameters: Any) -> Any:
        try:
            return self._aws.call(source, **parameters)
        except NoAnswerError as refusal:
            raise InputError(source, str(refusal), fix=refusal.fix or LOG_IN) from None


def open_build(config: StackConfig, context: BuildContext, project: str | None, bucket: str | None) -> RemoteBuild:
    """For a stack's region. InputError: the repository is elsewhere, or an option of another cloud."""
    if bucket is not None:
        fix = "remove --bucket: the CodeBuild project names its own"
        raise InputError("--bucket", "without effect on AWS", value=bucket, allowed="not given", fix=fix)
    return CodeBuild(Aws(open_clients(), config.region), context, project or PROJECT_NAME)
