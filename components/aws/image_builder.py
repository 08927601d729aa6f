"""ImageBuilder: what `gangway image build --remote` uses on AWS: a CodeBuild project, its role, a bucket for contexts.

It belongs to no stack: a stack needs its image before its first `up`, and several stacks use one image.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import codebuild, iam, s3

from gangway.components.aws.identity import allow, document, get_account, get_partition, trust
from gangway.components.core.outputs import register_outputs

PROJECT_NAME = "gangway-image-builder"
CONTEXT_BUCKET = "CONTEXT_BUCKET"
"""The project's variable with the bucket's name."""
CONTEXT_DAYS = 7
TIMEOUT_MINUTES = 60
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
"""AWS's own, with Docker and its command line."""
MACHINE = "BUILD_GENERAL1_MEDIUM"
"""The smallest with 128 GB of disk: builder, layers and a CUDA image may fill the 64 GB of the one below."""
# `docker push` tells the digest to the local image; the registry is asked again for it.
BUILDSPEC = """\
version: 0.2
env:
  exported-variables: [DIGEST]
phases:
  pre_build:
    commands:
      - aws s3 cp --only-show-errors "s3://$CONTEXT_BUCKET/$CONTEXT_KEY" context.tar.gz
      - echo "$CONTEXT_SHA256  context.tar.gz" | sha256sum --check
      - mkdir context && tar -xzf context.tar.gz -C context
      - aws ecr get-login-password | docker login --username AWS --password-stdin "${IMAGE%%/*}"
  build:
    commands:
      - docker build --platform linux/amd64 --build-arg "REVISION=$REVISION" --tag "$IMAGE" context
      - docker push "$IMAGE"
      - export DIGEST="$(docker image inspect --format '{{index .RepoDigests 0}}' "$IMAGE" | cut -d@ -f2)"
"""
_PUSH = [
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
]


class ImageBuilderArgs(TypedDict):
    """Inputs of ImageBuilder. `repository_arn`: where it pushes, and nowhere else; `project_name`: the value of
    `--codebuild-project`, by default `gangway-image-builder`.
    """

    repository_arn: pulumi.Input[str]
    region: str
    project_name: NotRequired[str]
    tags: dict[str, str]


def builder_policy(repository_arn: str, bucket_arn: str, project_name: str, region: str) -> dict[str, Any]:
    """Read contexts, push to one repository, write its own log."""
    partition, account = get_partition(repository_arn), get_account(repository_arn)
    group = f"arn:{partition}:logs:{region}:{account}:log-group:/aws/codebuild/{project_name}"
    return document(
        [
            allow("ReadContexts", ["s3:GetObject"], f"{bucket_arn}/contexts/*"),
            allow("LogIn", ["ecr:GetAuthorizationToken"], "*"),
            allow("Push", _PUSH, repository_arn),
            allow("Log", ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], f"{group}:*"),
        ]
    )


class ImageBuilder(pulumi.ComponentResource):
    """A CodeBuild project that builds and pushes the trainer's image. It is billed by the minute of a build."""

    project_name: pulumi.Output[str]
    bucket_name: pulumi.Output[str]

    def __init__(self, name: str, args: ImageBuilderArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:ImageBuilder", name, None, opts)
        self._child, self._args = pulumi.ResourceOptions(parent=self), args
        project_name = args.get("project_name", PROJECT_NAME)
        bucket = self._bucket(f"{name}-contexts")
        role = iam.Role(
            f"{name}-builder",
            assume_role_policy=pulumi.Output.json_dumps(trust("codebuild.amazonaws.com")),
            tags=args["tags"],
            opts=self._child,
        )
        policy = pulumi.Output.all(args["repository_arn"], bucket.arn).apply(
            lambda arns: builder_policy(str(arns[0]), str(arns[1]), project_name, args["region"])
        )
        iam.RolePolicy(f"{name}-builder", role=role.id, policy=pulumi.Output.json_dumps(policy), opts=self._child)
        project = self._project(f"{name}-builder", project_name, role, bucket)
        self.project_name, self.bucket_name = project.name, bucket.bucket
        register_outputs(self)

    def _bucket(self, name: str) -> s3.Bucket:
        bucket = s3.Bucket(name, force_destroy=True, tags=self._args["tags"], opts=self._child)
        child = pulumi.ResourceOptions(parent=self, deleted_with=bucket)
        s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        rule = s3.BucketLifecycleConfigurationRuleArgs(
            id="used-contexts",
            status="Enabled",
            filter=s3.BucketLifecycleConfigurationRuleFilterArgs(),  # all objects
            expiration=s3.BucketLifecycleConfigurationRuleExpirationArgs(days=CONTEXT_DAYS),
        )
        s3.BucketLifecycleConfiguration(name, bucket=bucket.id, rules=[rule], opts=child)
        return bucket

    def _project(self, name: str, project_name: str, role: iam.Role, bucket: s3.Bucket) -> codebuild.Project:
        variable = codebuild.ProjectEnvironmentEnvironmentVariableArgs(name=CONTEXT_BUCKET, value=bucket.bucket)
        return codebuild.Project(
            name,
            name=project_name,
            description="Builds the trainer's image for `gangway image build --remote`",
            service_role=role.arn,
            artifacts=codebuild.ProjectArtifactsArgs(type="NO_ARTIFACTS"),
            source=codebuild.ProjectSourceArgs(type="NO_SOURCE", buildspec=BUILDSPEC),
            environment=codebuild.ProjectEnvironmentArgs(
                type="LINUX_CONTAINER",
                compute_type=MACHINE,
                image=BUILD_IMAGE,
                # Without it there is no Docker daemon.
                privileged_mode=True,
                environment_variables=[variable],
            ),
            build_timeout=TIMEOUT_MINUTES,
            tags=self._args["tags"],
            # The name is fixed.
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(delete_before_replace=True)),
        )
