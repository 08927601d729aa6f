"""MotoCloud: an in-process AWS for the offline plan. Resources become boto3 requests, rows come from describe calls."""

import base64
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Self

from gangway.components.core.lookup import STASH
from gangway.sandbox import compute, images, monitoring, network, storage
from gangway.sandbox.aws import Aws, Wire
from gangway.sandbox.rows import Applied, SandboxRow, Status, verdict
from gangway.stacks.recording import PlaceholderCloud

HANDLERS = {
    **compute.HANDLERS,
    **images.HANDLERS,
    **monitoring.HANDLERS,
    **network.HANDLERS,
    **storage.HANDLERS,
}
"""Builders by Pulumi type token."""

TOKEN_FUNCTION = "aws:ecr/getAuthorizationToken:getAuthorizationToken"


@contextmanager
def _fake_credentials(region: str) -> Iterator[None]:
    """Replaces all AWS_* variables (profiles, endpoints, real keys) with fakes."""
    real = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    fake = {
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_SESSION_TOKEN": "sandbox",
        "AWS_DEFAULT_REGION": region,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    _replace_environment(real, fake)
    try:
        yield
    finally:
        _replace_environment(fake, real)


def _replace_environment(old: dict[str, str], new: dict[str, str]) -> None:
    for key in old:
        os.environ.pop(key, None)
    os.environ.update(new)


class MotoCloud:
    """The cloud of one sandbox run: `with MotoCloud("us-east-2") as cloud: run_program(config, cloud)`.

    Called with (type token, name, inputs) it builds the resource and returns (id, outputs), both as on Pulumi's wire. A
    refused request does not raise: the resource gets a placeholder id and its row the reason.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._stack = ExitStack()
        # Pulumi registers resources from several threads; moto's state is plain dictionaries.
        self._lock = Lock()
        self._built: list[tuple[Wire, tuple[str, ...], Applied | str]] = []

    def __enter__(self) -> Self:
        import moto

        with ExitStack() as stack:
            stack.enter_context(_fake_credentials(self._region))
            stack.enter_context(warnings.catch_warnings())
            # A gap of moto: EC2 refusals that surface through Auto Scaling are not modelled there.
            warnings.filterwarnings("ignore", r"Exception\(.*does not match an error shape", UserWarning)
            # AWS's managed policies exist in every account; moto loads them on request only.
            stack.enter_context(moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}))
            self._aws = Aws(self._region)
            self._stack = stack.pop_all()
        return self

    @contextmanager
    def as_user(self, policies: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """Makes the requests of the block as a user who has only these policies. Moto refuses all other actions; it
        judges names of actions, and resources of S3 alone.
        """
        from moto import settings
        from moto.core.authorization import ActionAuthenticatorMixin

        everyone, unlimited = self._aws, settings.INITIAL_NO_AUTH_ACTION_COUNT
        user = {"UserName": "limited"}
        everyone.call("iam", "CreateUser", user)
        for number, policy in enumerate(policies):
            document = {"PolicyName": f"policy-{number}", "PolicyDocument": json.dumps(policy)}
            everyone.call("iam", "PutUserPolicy", {**user, **document})
        key = everyone.call("iam", "CreateAccessKey", user)["AccessKey"]
        settings.INITIAL_NO_AUTH_ACTION_COUNT, ActionAuthenticatorMixin.request_count = 0, 0
        self._aws = Aws(self._region, (key["AccessKeyId"], key["SecretAccessKey"]))
        try:
            yield
        finally:
            settings.INITIAL_NO_AUTH_ACTION_COUNT, self._aws = unlimited, everyone

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The id and outputs (inputs and computed values) of a new resource."""
        if type_token.startswith("pulumi:providers:"):
            return name, inputs
        if type_token == STASH or type_token.startswith("pulumi-python:dynamic/"):
            return PlaceholderCloud()(type_token, name, inputs)
        assert type_token in HANDLERS, f"the sandbox has no handler for {type_token} ({name})"
        with self._lock:
            return self._build(Wire(type_token, name, inputs))

    def ask(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a provider function: push permission for the stack's registry, the newest AMI, roles by name."""
        if function == "aws:iam/getRoles:getRoles":
            names = [role["RoleName"] for role in self._aws.read("iam", "ListRoles", {})["Roles"]]
            return {"names": [name for name in names if re.search(args["nameRegex"], name)]}
        if function == "aws:ssm/getParameter:getParameter":
            found = self._aws.read("ssm", "GetParameters", {"Names": [args["name"]]})["Parameters"]
            # Moto knows only Amazon Linux; its own resolution accepts any AMI.
            return {"insecureValue": found[0]["Value"] if found else f"resolve:ssm:{args['name']}"}
        assert function == TOKEN_FUNCTION, f"the sandbox cannot answer {function}"
        (granted,) = self._aws.read("ecr", "GetAuthorizationToken", {})["authorizationData"]
        user, _, password = base64.b64decode(granted["authorizationToken"]).decode().partition(":")
        return {"userName": user, "password": password, "proxyEndpoint": granted["proxyEndpoint"]}

    def _build(self, wire: Wire) -> tuple[str, dict[str, Any]]:
        from botocore.exceptions import BotoCoreError, ClientError

        calls = self._aws.start()
        try:
            applied = HANDLERS[wire.type](self._aws, wire)
        except (BotoCoreError, ClientError) as error:
            self._built.append((wire, tuple(calls), str(error)))
            return PlaceholderCloud()(wire.type, wire.name, wire.inputs)
        self._built.append((wire, tuple(calls), applied))
        return applied.id, applied.outputs

    def read_back(self) -> tuple[SandboxRow, ...]:
        """Compare every built resource with its declaration. Returns a row per resource, by type and name."""
        rows = [self._row(wire, calls, result) for wire, calls, result in self._built]
        return tuple(sorted(rows, key=lambda row: (row.type, row.name)))

    def _row(self, wire: Wire, calls: tuple[str, ...], result: Applied | str) -> SandboxRow:
        from botocore.exceptions import ClientError

        if isinstance(result, str):
            return SandboxRow(wire.type, wire.name, Status.REFUSED, calls, result)
        if result.read is None:
            return SandboxRow(wire.type, wire.name, Status.VALIDATED, calls, result.note)
        try:
            read_back = result.read()
        except ClientError as error:
            return SandboxRow(wire.type, wire.name, Status.DIFFERENT, calls, f"gone when read back: {error}")
        status, note, fields = verdict(result, read_back, wire.unsent())
        return SandboxRow(wire.type, wire.name, status, calls, note, fields)
