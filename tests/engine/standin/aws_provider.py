"""Stand-in for Pulumi's AWS plugin: what the engine asks about resources, answered from a folder of JSON files.

It refuses inputs that the installed `pulumi_aws` SDK does not declare. What it answers has the form of AWS's answers:
prefixed ids, ARNs, versions that count up, outputs unknown until they exist. Not a simulation of AWS: it accepts any
value of the right shape, and knows no functions (`get_ami` and the like).

    GANGWAY_STANDIN_STATE=/tmp/cloud pulumi-resource-aws     # prints its port, then serves until SIGINT
"""

import hashlib
import importlib
import json
import os
import secrets
import signal
import typing
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # ships no types
from pulumi import _types as sdk_types  # the SDK's only door to the wire names of an argument class
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN, get_resource_module

STATE_VARIABLE = "GANGWAY_STANDIN_STATE"
ACCOUNT = "123456789012"
# Provider inputs that belong to the engine, not to the SDK's class.
ENGINE_INPUTS = frozenset({"version", "pluginDownloadURL"})

ID_PREFIXES = {
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/instance:Instance": "i",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/route:Route": "r-rtb",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/spotFleetRequest:SpotFleetRequest": "sfr",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dra",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
}

# Inputs AWS cannot change on a living resource. Kept by hand: the SDK does not say which they are.
REPLACING_INPUTS: Mapping[str, frozenset[str]] = {
    "aws:autoscaling/group:Group": frozenset({"name", "placementGroup"}),
    "aws:autoscaling/policy:Policy": frozenset({"name", "autoscalingGroupName"}),
    "aws:budgets/budget:Budget": frozenset({"name", "budgetType"}),
    "aws:cloudwatch/metricAlarm:MetricAlarm": frozenset({"name"}),
    "aws:ec2/launchTemplate:LaunchTemplate": frozenset({"name"}),
    "aws:ec2/placementGroup:PlacementGroup": frozenset({"name", "strategy"}),
    "aws:ec2/securityGroup:SecurityGroup": frozenset({"name", "description", "vpcId"}),
    "aws:ec2/subnet:Subnet": frozenset({"availabilityZone", "cidrBlock", "vpcId"}),
    "aws:ec2/vpc:Vpc": frozenset({"cidrBlock", "instanceTenancy"}),
    "aws:ec2/vpcEndpoint:VpcEndpoint": frozenset({"serviceName", "vpcEndpointType", "vpcId"}),
    "aws:ecr/repository:Repository": frozenset({"name", "encryptionConfigurations"}),
    "aws:fsx/lustreFileSystem:LustreFileSystem": frozenset(
        {"deploymentType", "securityGroupIds", "storageType", "subnetIds"}
    ),
    "aws:iam/role:Role": frozenset({"name"}),
    "aws:s3/bucket:Bucket": frozenset({"bucket"}),
    "aws:sns/topic:Topic": frozenset({"name"}),
}


@cache
def _sdk_classes(type_token: str) -> tuple[Any, Any] | None:
    """The SDK's resource class for a type token and the class of its arguments; None for a token it does not know."""
    package, path, _ = type_token.split(":")
    registered = get_resource_module(package, path, "")
    if registered is None:
        return None
    info = registered.mod_info  # type: ignore[attr-defined]  # pulumi_aws's own subclass keeps its record here
    name = info["classes"][type_token]
    module = importlib.import_module(info["fqn"])
    # BucketArgs may be the arguments of Bucket or a nested object of that name; then the arguments are BucketInitArgs.
    return getattr(module, name), getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")


@cache
def _inputs_of(args_class: type) -> dict[str, Any]:
    """Wire name -> type hint of every input of an argument class."""
    return sdk_types.input_type_types(args_class)


@cache
def _outputs_of(type_token: str) -> frozenset[str]:
    classes = _sdk_classes(type_token)
    assert classes is not None, "Check has let it pass"
    return frozenset(sdk_types.resource_types(classes[0]))


def _alternatives(hint: Any) -> Iterator[Any]:
    """The types a hint allows, without the Awaitable and Output that never reach the wire."""
    if typing.get_origin(hint) is typing.Union:
        for part in typing.get_args(hint):
            yield from _alternatives(part)
    elif getattr(hint, "__module__", "") != "pulumi.output":
        yield hint


def faults(hint: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, reason) for every undeclared key and every list or mapping that stands in the wrong place."""
    if value == UNKNOWN or value is None:
        return
    hints = list(_alternatives(hint))
    classes = [h for h in hints if isinstance(h, type) and sdk_types.is_input_type(h)]
    lists = [h for h in hints if typing.get_origin(h) is Sequence]
    mappings = [h for h in hints if typing.get_origin(h) is Mapping]
    if isinstance(value, dict) and classes:
        yield from _object_faults(_inputs_of(classes[0]), value, f"{path}.")
    elif isinstance(value, dict) and not mappings and typing.Any not in hints:
        yield path, "an object is not expected here"
    elif isinstance(value, list) and lists:
        for index, item in enumerate(value):
            yield from faults(typing.get_args(lists[0])[0], item, f"{path}[{index}]")
    elif isinstance(value, list) and typing.Any not in hints:
        yield path, "a list is not expected here"
    elif not isinstance(value, dict | list) and hints and len(hints) == len(classes + lists + mappings):
        yield path, f"a list or an object is expected here, not {value!r}"


def _object_faults(declared: Mapping[str, Any], value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if key in declared:
            yield from faults(declared[key], item, f"{prefix}{key}")
        elif not key.startswith("__"):
            yield f"{prefix}{key}", f"no such input; there are: {', '.join(sorted(declared))}"


def input_faults(type_token: str, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the SDK's argument class of `type_token` does not allow in `inputs`."""
    classes = _sdk_classes(type_token)
    if classes is None:
        return [("", f"no resource type {type_token} in pulumi_aws {version('pulumi-aws')}")]
    return list(_object_faults(_inputs_of(classes[1]), inputs, ""))


def name_input(type_token: str) -> str | None:
    """The input by which the real plugin names a resource that was given no name; None for those that have none."""
    classes = _sdk_classes(type_token)
    key = "bucket" if type_token == "aws:s3/bucket:Bucket" else "name"
    return key if classes and key in _inputs_of(classes[1]) else None


def _to_dict(struct: struct_pb2.Struct) -> dict[str, Any]:
    values: dict[str, Any] = json_format.MessageToDict(struct)
    return values


def _to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(values))
    return struct


class Disk:
    """The cloud: one JSON file a resource, `{type, id, urn, inputs, outputs}`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, type_token: str, id_: str) -> Path:
        """Two kinds of resource may share an id, as a bucket and its versioning do."""
        return self._folder / f"{hashlib.sha256(f'{type_token}|{id_}'.encode()).hexdigest()}.json"

    def write(self, type_token: str, id_: str, urn: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        record = {"type": type_token, "id": id_, "urn": urn, "inputs": inputs, "outputs": outputs}
        self.file(type_token, id_).write_text(json.dumps(record, indent=2), "utf-8")


class AwsStandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider. It is served by one thread, so the cloud answers one request after the other without locks."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._region = "us-east-1"

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - these names are gRPC's, here and below
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=version("pulumi-aws"))

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        provider_args = importlib.import_module("pulumi_aws").ProviderArgs
        unknown = set(_to_dict(request.news)) - set(_inputs_of(provider_args)) - ENGINE_INPUTS
        failures = [provider_pb2.CheckFailure(property=key, reason="no such provider input") for key in sorted(unknown)]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        old, new = _to_dict(request.old_inputs), _to_dict(request.news)
        moved = ["region"] if old.get("region") != new.get("region") else []
        return self._differences([key for key in {*old, *new} if old.get(key) != new.get(key)], moved)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._region = _to_dict(request.args).get("region", self._region)
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuses what the SDK does not declare; names what has no name, once, as the real plugin does."""
        type_token = request.type or request.urn.split("::")[2].rpartition("$")[2]
        inputs, before = _to_dict(request.news), _to_dict(request.olds)
        found = input_faults(type_token, inputs)
        failures = [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in found]
        key = name_input(type_token)
        if key and key not in inputs:
            inputs[key] = before.get(key, f"{request.urn.rpartition('::')[2]}-{request.randomSeed.hex()[:7]}")
        return provider_pb2.CheckResponse(inputs=_to_struct(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        old, new = _to_dict(request.old_inputs), _to_dict(request.news)
        changed = [key for key in {*old, *new} if old.get(key) != new.get(key)]
        return self._differences(changed, REPLACING_INPUTS.get(request.type, frozenset()))

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        inputs = _to_dict(request.properties)
        if request.preview:
            coming = dict.fromkeys(_outputs_of(request.type), UNKNOWN)
            return provider_pb2.CreateResponse(properties=_to_struct({**coming, **inputs}))
        id_, computed = self._new(request.type, request.urn.rpartition("::")[2], inputs)
        outputs = {**computed, **inputs}
        self._disk.write(request.type, id_, request.urn, inputs, outputs)
        return provider_pb2.CreateResponse(id=id_, properties=_to_struct(outputs))

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """An empty answer tells the engine that the resource is gone."""
        file = self._disk.file(request.type, request.id)
        if not file.exists():
            return provider_pb2.ReadResponse()
        record = json.loads(file.read_text("utf-8"))
        return provider_pb2.ReadResponse(
            id=request.id, inputs=_to_struct(record["inputs"]), properties=_to_struct(record["outputs"])
        )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        before, inputs = _to_dict(request.olds), _to_dict(request.news)
        computed = {key: value for key, value in before.items() if key not in _to_dict(request.old_inputs)}
        if "latestVersion" in computed:
            computed["latestVersion"] = UNKNOWN if request.preview else computed["latestVersion"] + 1
        outputs = {**computed, **inputs}
        if not request.preview:
            self._disk.write(request.type, request.id, request.urn, inputs, outputs)
        return provider_pb2.UpdateResponse(properties=_to_struct(outputs))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._disk.file(request.type, request.id).unlink()
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    @staticmethod
    def _differences(changed: Sequence[str], replacing: Sequence[str] | frozenset[str]) -> Any:
        keys = sorted(key for key in changed if not key.startswith("__"))
        some = provider_pb2.DiffResponse.DIFF_SOME if keys else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=keys, replaces=[key for key in keys if key in replacing])

    def _new(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Id and computed outputs of a new resource, in AWS's spelling."""
        service, _, kind = type_token.removeprefix("aws:").partition(":")[0].partition("/")
        if prefix := ID_PREFIXES.get(type_token):
            id_ = f"{prefix}-{secrets.token_hex(9)[:17]}"
        else:
            id_ = inputs.get("name") or inputs.get("bucket") or f"{name}-{secrets.token_hex(4)}"
        place = f"{'' if service in {'iam', 's3'} else self._region}:{'' if service == 's3' else ACCOUNT}"
        arn = f"arn:aws:{service}:{place}:{id_ if service in {'s3', 'sns'} else f'{kind}/{id_}'}"
        computed = {
            "arn": arn,
            "dnsName": f"{id_}.{service}.{self._region}.amazonaws.com",
            "mountName": secrets.token_hex(4),
            "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{self._region}.amazonaws.com/{id_}",
            "latestVersion": 1,
            "tagsAll": inputs.get("tags", {}),
        }
        declared = _outputs_of(type_token)
        return arn if kind == "topic" else id_, {key: value for key, value in computed.items() if key in declared}


def main() -> None:
    """Serves until the engine says stop. The first line on stdout is the port; the engine waits for it."""
    # Blocked in every thread and taken by sigwait below, so that neither signal ends the process half way.
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    disk = Disk(Path(os.environ[STATE_VARIABLE]))
    importlib.import_module("pulumi_aws")  # registers its resource classes
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AwsStandIn(disk), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    signal.sigwait(ends)
    server.stop(grace=None).wait()
