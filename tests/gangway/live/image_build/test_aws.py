"""CodeBuild under moto; what moto's builds do not do, a hook does: it exports the digest of a push."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from gangway.components.aws.image_builder import BUILDSPEC, builder_policy
from gangway.components.core.findings import InputError
from gangway.live.image_build.aws import CodeBuild
from gangway.live.image_build.remote import run_build
from gangway.live.preflight.aws_api import Aws
from tests.gangway.live.image_build.conftest import context_for

REGION, BUCKET = "us-east-2", "contexts"
REPOSITORY = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/gan/trainer"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """By service, clients of an account with a project, a bucket and a repository with one image."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        names = ("codebuild", "ecr", "logs", "s3")
        clients: dict[str, Any] = {name: boto3.client(name, region_name=REGION) for name in names}  # type: ignore[call-overload]  # one overload a service
        clients["s3"].create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        clients["ecr"].create_repository(repositoryName="gan/trainer")
        image = clients["ecr"].put_image(
            repositoryName="gan/trainer",
            imageManifest="{}",
            imageManifestMediaType="application/vnd.oci.image.manifest.v1+json",
            imageTag="content-1",
        )
        clients["codebuild"].create_project(
            name="builder",
            source={"type": "NO_SOURCE", "location": "moto wants one", "buildspec": BUILDSPEC},
            artifacts={"type": "NO_ARTIFACTS"},
            environment={
                "type": "LINUX_CONTAINER",
                "image": "x",
                "computeType": "BUILD_GENERAL1_MEDIUM",
                "environmentVariables": [{"name": "CONTEXT_BUCKET", "value": BUCKET}],
            },
            serviceRole="arn:aws:iam::123456789012:role/service-role/builder",
        )
        clients["pushed"] = image["image"]["imageId"]["imageDigest"]
        yield clients


def build_in(account: dict[str, Any], project: str = "builder", repository: str = REPOSITORY) -> CodeBuild:
    return CodeBuild(Aws(lambda service, _: account[service], REGION), context_for(repository), project)


def export(account: dict[str, Any], digest: str) -> None:
    def add(parsed: dict[str, Any], **_: Any) -> None:
        for build in parsed["builds"]:
            build["exportedEnvironmentVariables"] = [{"name": "DIGEST", "value": digest}]

    account["codebuild"].meta.events.register("after-call.codebuild.BatchGetBuilds", add)


def test_it_uploads_starts_and_checks_the_digest(account: dict[str, Any]) -> None:
    export(account, account["pushed"])
    sent: dict[str, Any] = {}
    account["codebuild"].meta.events.register(
        "provide-client-params.codebuild.StartBuild", lambda params, **_: sent.update(params)
    )
    build = build_in(account)
    assert run_build(build, 1800, lambda _: None, lambda _: None) == account["pushed"]
    variables = {each["name"]: each["value"] for each in sent["environmentVariablesOverride"]}
    stored = account["s3"].get_object(Bucket=BUCKET, Key=variables["CONTEXT_KEY"])["Body"].read()
    assert stored == context_for(REPOSITORY).archive
    assert variables["IMAGE"] == f"{REPOSITORY}:content-1"
    assert sent["timeoutInMinutesOverride"] == 30


def test_another_digest_in_ecr_is_an_error(account: dict[str, Any], digest: str) -> None:
    export(account, digest)
    with pytest.raises(InputError, match="the registry has another digest"):
        run_build(build_in(account), 1800, lambda _: None, lambda _: None)


def test_cancelling_stops_the_build(account: dict[str, Any]) -> None:
    build = build_in(account)
    name = build.start(1800)
    stopped: list[str] = []
    account["codebuild"].meta.events.register(
        "provide-client-params.codebuild.StopBuild", lambda params, **_: stopped.append(params["id"])
    )
    build.cancel()
    assert stopped == [name]


def test_each_line_of_its_log_comes_once(account: dict[str, Any]) -> None:
    logs = account["logs"]
    logs.create_log_group(logGroupName="g")
    logs.create_log_stream(logGroupName="g", logStreamName="s")
    logs.put_log_events(
        logGroupName="g", logStreamName="s", logEvents=[{"timestamp": 1796083200000, "message": "one\n"}]
    )

    def add(parsed: dict[str, Any], **_: Any) -> None:
        parsed["builds"][0]["logs"] = {"groupName": "g", "streamName": "s"}

    account["codebuild"].meta.events.register("after-call.codebuild.BatchGetBuilds", add)
    build = build_in(account)
    build.start(1800)
    build.state()
    assert build.log_lines(at_end=False) == ["one"]
    assert build.log_lines(at_end=True) == []


def test_without_a_project_the_message_names_the_component(account: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="does not exist") as caught:
        build_in(account, "nobody").start(1800)
    assert "gangway.components.aws.ImageBuilder" in caught.value.fix


@pytest.mark.parametrize("repository", ["r.example/x", REPOSITORY.replace(REGION, "eu-west-1")])
def test_a_repository_elsewhere_is_refused(account: dict[str, Any], repository: str) -> None:
    with pytest.raises(InputError, match="--repository: not in ECR"):
        build_in(account, repository=repository)


def test_the_commands_use_only_variables_that_are_sent(account: dict[str, Any]) -> None:
    spec = yaml.safe_load(BUILDSPEC)
    assert spec["env"]["exported-variables"] == ["DIGEST"]
    assert 'docker push "$IMAGE"' in spec["phases"]["build"]["commands"]


def test_the_role_pushes_to_one_repository_only() -> None:
    policy = builder_policy("arn:aws:ecr:us-east-2:1:repository/x", "arn:aws:s3:::b", "builder", REGION)
    by_name = {each["Sid"]: each for each in policy["Statement"]}
    assert by_name["Push"]["Resource"] == "arn:aws:ecr:us-east-2:1:repository/x"
    assert by_name["ReadContexts"]["Resource"] == "arn:aws:s3:::b/contexts/*"
    assert [name for name, each in by_name.items() if each["Resource"] == "*"] == ["LogIn"]
