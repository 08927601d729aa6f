"""Moto as the judge of policies: what it is given, and what it sees."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ClientError
from moto.iam import access_control
from moto.iam.access_control import PermissionResult

from gangway.live.permissions.needs import Document
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import SandboxRow
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import run_program
from gangway.stacks.recording import Cloud, PlaceholderCloud

# Moto's names, by IAM's: the service that signs a request, and the request.
RENAMED = {
    "cloudwatch:": ("monitoring:",),
    "budgets:ModifyBudget": ("budgets:CreateBudget",),
    "budgets:ViewBudget": tuple(
        f"budgets:Describe{what}" for what in ("Budget", "NotificationsForBudget", "SubscribersForNotification")
    ),
}
# What the sandbox alone reads: the provider does not.
SANDBOX_READS = frozenset({"autoscaling:DescribeLifecycleHooks", "ec2:DescribeInstances", "s3:GetBucketLocation"})


@dataclass
class Watch:
    """The actions that moto judges, with the resource of the first request, and those that it refuses."""

    seen: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


class Partial(PlaceholderCloud):
    """Moto for AWS, placeholders for what is in a Kubernetes cluster, and for all after the first refusal."""

    def __init__(self, cloud: Cloud, watch: Watch) -> None:
        self._cloud, self._watch = cloud, watch
        self.arns: dict[str, list[str]] = {}

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if type_token.startswith("kubernetes:") or self._watch.refused:
            return super().__call__(type_token, name, inputs)
        id_, outputs = self._cloud(type_token, name, inputs)
        if str(outputs.get("arn", "")).startswith("arn:"):
            self.arns.setdefault(type_token, []).append(outputs["arn"])
        return id_, outputs

    def ask(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._cloud.ask(function, args)
        except ClientError:
            if not self._watch.refused:
                raise
            return super().ask(function, args)


def simplified(documents: Sequence[Document], without: Collection[str] = ()) -> list[dict[str, Any]]:
    """The policies as moto can judge them: it knows no conditions on tags, and resources of S3 alone."""
    found = []
    for document in documents:
        statements = [_simplified(each, without) for each in document.content["Statement"]]
        found.append({"Version": "2012-10-17", "Statement": [each for each in statements if each["Action"]]})
    needed = {action for document in documents for each in document.content["Statement"] for action in each["Action"]}
    own = {"Effect": "Allow", "Action": sorted(SANDBOX_READS - needed), "Resource": "*"}
    return [*found, {"Version": "2012-10-17", "Statement": [own]}]


def _simplified(statement: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    given = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
    buckets = [arn.replace("?", ".") for arn in given if ":s3:::" in arn]  # moto reads them as regular expressions
    actions = [name for action in statement["Action"] if action not in without for name in moto_names(action)]
    return {"Effect": "Allow", "Action": actions, "Resource": buckets or ["*"]}


def moto_names(action: str) -> list[str]:
    """The names by which moto knows an action."""
    for start, names in RENAMED.items():
        if action.startswith(start):
            return [name + action.removeprefix(start) for name in names]
    return [action]


def permits(policies: Sequence[Mapping[str, Any]], action: str, resource: str) -> bool:
    """Whether moto permits a request, by its own judge."""
    judges = [access_control.IAMPolicy(json.dumps(policy)) for policy in policies if policy["Statement"]]
    return any(judge.is_action_permitted(action, resource) is PermissionResult.PERMITTED for judge in judges)


@contextmanager
def watched() -> Iterator[Watch]:
    """Moto's verdicts in the block. Its own check of signatures fails for paths with escaped words."""
    found, judge = Watch(), access_control.IAMRequestBase
    check: Callable[..., None] = judge.check_action_permitted

    def watch(request: Any, resource: str) -> None:
        found.seen.setdefault(request._action, resource)
        try:
            check(request, resource)
        except Exception:
            found.refused.append(request._action)
            raise

    unsigned = patch.object(judge, "check_signature", lambda _request: None)
    with patch.object(judge, "check_action_permitted", watch), unsigned:
        yield found


def apply(
    config: StackConfig, policies: Sequence[Mapping[str, Any]]
) -> tuple[tuple[SandboxRow, ...], Watch, Mapping[str, list[str]]]:
    """The rows of a stack that such a user applies up to the first refusal, moto's verdicts, and ARNs by type."""
    with MotoCloud(config.region) as cloud, watched() as watch:
        partial = Partial(cloud, watch)
        with cloud.as_user(policies):
            run_program(config, partial)
            return cloud.read_back(), watch, partial.arns
