"""Runs a Pulumi program without the engine, in Pulumi's mock runtime with a fake cloud."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi
from google.protobuf import json_format  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime import mocks, register_stack_transformation, rpc, settings

from gangway.components.core.findings import InputError
from gangway.components.core.lookup import STASH
from gangway.stacks.base.ownership import READ_STATE

# Outputs that other resources or the exports read; a plan uses references for them.
_COMPUTED = (
    *("accessKey", "address", "arn", "bucket", "clientId", "digest", "dnsName", "email", "immutableId"),
    "keyUriWithVersion",
    *("latestVersion", "loginServer", "member", "mountName", "mountPoint", "name", "principalId", "privateIp"),
    *("registryUri", "repositoryUrl", "secret", "selfLink", "selfLinkUnique", "uniqueId", "url", "vaultUri"),
)
# The same in lists.
_COMPUTED_IN_LISTS = {"exportLocations": "path", "externalFixedIps": "ipAddress"}
_ANSWERED_IN_LISTS = {"kubeconfigs": "value"}
# The functions that a program may call, with the fields that it may read. Others would need a cloud.
_ANSWERS = {
    "aws:ssm/getParameter:getParameter": ("insecureValue",),
    "aws:ecr/getAuthorizationToken:getAuthorizationToken": ("password", "proxyEndpoint", "userName"),
    "azure-native:authorization:getClientConfig": ("tenantId",),
    "azure-native:authorization:getClientToken": ("token",),
    "azure-native:containerservice:listManagedClusterUserCredentials": ("kubeconfigs",),
    "openstack:networking/getNetwork:getNetwork": (),
    "openstack:networking/getSecGroup:getSecGroup": (),
    "openstack:networking/getSubnet:getSubnet": (),
    "openstack:sharedfilesystem/getShare:getShare": (),
    "gcp:artifactregistry/getRepository:getRepository": (),
    "gcp:compute/getImage:getImage": ("selfLink",),
    "gcp:compute/getNetwork:getNetwork": (),
    "gcp:compute/getSubnetwork:getSubnetwork": (),
    "gcp:filestore/getInstance:getInstance": (),
    "gcp:kms/getKMSCryptoKey:getKMSCryptoKey": (),
    "gcp:logging/getProjectCmekSettings:getProjectCmekSettings": ("serviceAccountId",),
    "gcp:lustre/getInstance:getInstance": ("mountPoint",),
    "gcp:organizations/getClientConfig:getClientConfig": ("accessToken",),
    "gcp:organizations/getProject:getProject": ("number",),
    "gcp:serviceaccount/getAccount:getAccount": (),
    "gcp:storage/getBucket:getBucket": (),
    "gcp:storage/getProjectServiceAccount:getProjectServiceAccount": ("emailAddress", "member"),
}


_BUILT_IMAGE = "aws:imagebuilder/image:Image"
_EKS_CLUSTER = "aws:eks/cluster:Cluster"


class Cloud(Protocol):
    """The cloud behind a program."""

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The id and the outputs of a declared resource; inputs and outputs as on the wire."""
        ...

    def ask(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a provider's function, such as `aws:ecr/getAuthorizationToken:getAuthorizationToken`."""
        ...


class PlaceholderCloud:
    """A fake cloud: ids and computed outputs are references such as `${Vpc.aws-demo-vpc.id}`."""

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """See Cloud."""
        if type_token == STASH:
            return name, {**inputs, "output": inputs["input"]}
        # Resources of different types may share a name; the last word of the type tells them apart.
        label = f"{type_token.rpartition(':')[2]}.{name}"
        computed: dict[str, Any] = {key: f"${{{label}.{key}}}" for key in _COMPUTED}
        computed |= {key: [{part: f"${{{label}.{key}[0].{part}}}"}] for key, part in _COMPUTED_IN_LISTS.items()}
        if type_token == _BUILT_IMAGE:
            computed["outputResources"] = [{"amis": [{"image": f"${{{label}.outputResources[0].amis[0].image}}"}]}]
        known = _identities(label, inputs) | (_control_plane(label, inputs) if type_token == _EKS_CLUSTER else {})
        return f"${{{label}.id}}", {**computed, **inputs, **known}

    def ask(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """See Cloud."""
        assert function in _ANSWERS, f"the program calls {function}, but a plan has no cloud"
        fields = {key: f"${{{function.rpartition(':')[2]}.{key}}}" for key in _ANSWERS[function]}
        in_lists = {key: [{part: fields[key]}] for key, part in _ANSWERED_IN_LISTS.items() if key in fields}
        return {**fields, **in_lists}


def _control_plane(label: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    group = f"${{{label}.vpcConfig.clusterSecurityGroupId}}"
    return {
        "endpoint": f"${{{label}.endpoint}}",
        "certificateAuthority": {"data": f"${{{label}.certificateAuthority.data}}"},
        "vpcConfig": {**inputs["vpcConfig"], "clusterSecurityGroupId": group},
    }


def _identities(label: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Azure takes identities as a list of ids and returns a mapping; for a system-assigned one, the principal."""
    identity = inputs.get("identity")
    if isinstance(identity, dict) and identity.get("type") == "SystemAssigned":
        return {"identity": {**identity, "principalId": f"${{{label}.identity.principalId}}"}}
    if not isinstance(identity, dict) or not isinstance(identity.get("userAssignedIdentities"), list):
        return {}
    return {"identity": {**identity, "userAssignedIdentities": {one: {} for one in identity["userAssignedIdentities"]}}}


@dataclass(frozen=True)
class PlannedResource:
    """A resource as the program registered it.

    Inputs are the wire's, in camelCase. `dependencies` are the URNs of resources that are created before it and deleted
    after it. `is_retained`: `retain_on_delete` is set. `deleted_with`: the URN in that option.
    `replace_on_changes` and `ignore_changes`: the paths of inputs in those options, in camelCase.
    """

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    inputs: dict[str, Any]
    id: str
    dependencies: frozenset[str] = frozenset()
    delete_before_replace: bool = False
    is_retained: bool = False
    deleted_with: str = ""
    replace_on_changes: tuple[str, ...] = ()
    ignore_changes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; secrets are not shown."""
        return {
            **{k: getattr(self, k) for k in ("urn", "type", "name", "parent")},
            "inputs": _plain(self.inputs),
        }


@dataclass(frozen=True)
class Recording:
    """The result of a program. `outputs`: names by component's URN; `result`: what it returned, resolved."""

    resources: tuple[PlannedResource, ...]
    outputs: Mapping[str, frozenset[str]]
    result: Mapping[str, Any]


class _Recorder(mocks.MockMonitor):
    """Pulumi's mock engine, which also records registered resources with their parents."""

    def __init__(self, cloud: mocks.Mocks) -> None:
        super().__init__(cloud)
        self.registered: dict[str, tuple[Any, str]] = {}
        self.outputs: dict[str, frozenset[str]] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name is gRPC's
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]  # the SDK's mocks have no types
        self.registered[response.urn] = (request, response.id)
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 - the name is gRPC's
        self.outputs[request.urn] = frozenset(request.outputs.fields)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]  # as above


# A plan has no engine and no state. With the state of an existing stack, no cloud is asked for another owner.
_BUILT = {
    f"urn:pulumi:stack::gangway::{type_}::stack": {"type": type_} for type_ in ("pulumi:providers:any", "any:x:Y")
}


class _CloudMocks(mocks.Mocks):
    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.inputs: dict[tuple[str, str], dict[str, Any]] = {}

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.inputs[args.typ, args.name] = args.inputs
        return self._cloud(args.typ, args.name, args.inputs) if args.custom else ("", args.inputs)

    def call(self, args: mocks.MockCallArgs) -> Any:
        if args.token == READ_STATE:
            return {"outputs": _BUILT}
        return self._cloud.ask(args.token, args.args)


def _without_aliases(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Removes aliases, which have no effect here; Azure's, 15 per resource, would take half of a plan's time."""
    if not args.opts.aliases:
        return None
    opts = pulumi.ResourceOptions.merge(args.opts, None)
    opts.aliases = None
    return pulumi.ResourceTransformationResult(args.props, opts)


@contextmanager
def _short_stacks() -> Iterator[None]:
    """Limits stack traces: for the engine's messages, Pulumi reads the sources of 30 frames per resource."""
    limit = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = 8
    try:
        yield
    finally:
        if limit is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = limit


def record(program: Callable[[], Mapping[str, Any]], cloud: Cloud, stack: str) -> Recording:
    """Runs `program`, which declares resources and returns outputs, against `cloud`. Raises what the program raises;
    InputError also if the SDK has wrapped it, as for one that an output's function raises.
    """
    stand_in = _CloudMocks(cloud)
    recorder = _Recorder(stand_in)
    result: dict[str, Any] = {}
    settings.set_root_resource(None)  # type: ignore[arg-type]  # a second run in this process is another stack
    mocks.set_mocks(stand_in, project="gangway", stack=stack, preview=False, monitor=recorder)
    register_stack_transformation(_without_aliases)
    run = mocks.test(lambda: pulumi.Output.from_input(dict(program())).apply(result.update))  # type: ignore[no-untyped-call]
    with _short_stacks():
        try:
            run()
        except Exception as error:
            if (found := _wrapped(error)) is not None:
                raise found from None
            raise
    resources = [
        PlannedResource(
            urn=urn,
            type=request.type,
            name=request.name,
            parent=request.parent,
            custom=request.custom,
            inputs=_sorted(
                _as_sent(json_format.MessageToDict(request.object), stand_in.inputs[request.type, request.name])
            ),
            id=id_,
            dependencies=frozenset(request.dependencies),
            delete_before_replace=request.deleteBeforeReplace,
            is_retained=request.retainOnDelete,
            deleted_with=request.deletedWith,
            replace_on_changes=tuple(request.replaceOnChanges),
            ignore_changes=tuple(request.ignoreChanges),
        )
        for urn, (request, id_) in sorted(recorder.registered.items())
        if request.type != "pulumi:pulumi:Stack"
    ]
    return Recording(tuple(resources), recorder.outputs, result)


def _wrapped(error: BaseException) -> InputError | None:
    """The InputError that led to this error, if any."""
    cause, seen = error, set[int]()
    while not isinstance(cause, InputError):
        seen.add(id(cause))
        following = cause.__cause__ or cause.__context__
        if following is None or id(following) in seen:  # the SDK makes circles
            return None
        cause = following
    return cause


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.get(rpc._special_sig_key) == rpc._special_secret_sig


def _as_sent(sent: Any, value: Any) -> Any:
    """`value` with secrets as they were `sent`: read back, a mapping with a secret is a secret as a whole."""
    if _is_secret(sent):
        return value
    inner = value["value"] if _is_secret(value) else value
    if isinstance(sent, dict) and isinstance(inner, dict):
        return {key: _marked(sent.get(key), item) for key, item in inner.items()}
    if isinstance(sent, list) and isinstance(inner, list):
        return [_marked(part, item) for part, item in zip(sent, inner, strict=True)]
    return inner


def _marked(sent: Any, value: Any) -> Any:
    """The same for a part, whose mark has moved to the whole."""
    if _is_secret(sent) and not _is_secret(value):
        return {rpc._special_sig_key: rpc._special_secret_sig, "value": value}
    return _as_sent(sent, value)


def _plain(value: Any) -> Any:
    if isinstance(value, pulumi.AssetArchive):
        return {"archive": sorted(value.assets)}
    if isinstance(value, pulumi.StringAsset):
        return {"asset": f"{len(value.text)} characters"}
    if isinstance(value, dict):
        return "[secret]" if _is_secret(value) else {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _sorted(value: Any) -> Any:
    """`value` with all mappings sorted by key, since protobuf's order differs between processes."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
