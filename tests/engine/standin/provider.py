"""Stand-in for a Pulumi resource plugin: what the engine asks about resources, answered from a folder of JSON files.

It refuses inputs that the installed SDK does not declare, and a second resource of the same id. What a package adds
(ids, computed outputs, functions, what cannot be changed) is a `Service`: `standin.aws`, `standin.docker_build`. Not a
simulation of a cloud: it accepts any value of the right shape.

    GANGWAY_STANDIN_STATE=/tmp/cloud pulumi-resource-aws     # prints its port, then serves until SIGINT
"""

import hashlib
import importlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from .shapes import Fault, input_faults, name_input, outputs_of, provider_faults

STATE_VARIABLE = "GANGWAY_STANDIN_STATE"


class RefusedError(Exception):
    """What a service does not do; the text is what the user of the engine reads."""


Look = Callable[[str, str], Mapping[str, Any]]
"""Type and id of a resource -> its inputs as the cloud holds them; none where there is no such resource."""


class Service:
    """What one package adds to the common stand-in. This one adds nothing.

    Attributes:
        sdk: the Python package whose classes say what is declared.
        replacing: by type, the inputs that a living resource cannot change. Kept by hand: no SDK says which they are.
        volatile: outputs that an update computes anew, so that a preview does not know them.
    """

    sdk: str
    replacing: Mapping[str, frozenset[str]] = {}
    volatile: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        """That of the SDK."""
        return version(self.sdk.replace("_", "-"))

    def configure(self, args: Mapping[str, Any]) -> None:
        """Takes the provider's inputs."""

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """What is wrong with inputs that the SDK allows."""
        yield from ()

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """Judges a new resource by others that the cloud holds.

        Raises:
            RefusedError: it does not go together with them.
        """

    def compared(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The part of the inputs whose change is a change of the resource."""
        return inputs

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """The id of a new resource."""
        return name

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Outputs beside the inputs; `before` holds them as they were, and nothing for a new resource.

        Raises:
            RefusedError: the resource cannot be made of these inputs.
        """
        return dict(before)

    def ask(self, function: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Answers a function.

        Raises:
            RefusedError: there is no such function.
        """
        raise RefusedError(f"the stand-in for {self.sdk} knows no function {function}")


def _to_dict(struct: struct_pb2.Struct) -> dict[str, Any]:
    values: dict[str, Any] = json_format.MessageToDict(struct)
    return values


def _to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(values))
    return struct


def _failures(faults: Iterable[Fault]) -> list[Any]:
    return [provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in faults]


class Disk:
    """The cloud: one JSON file a resource, `{type, id, urn, inputs, outputs}`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, type_token: str, id_: str) -> Path:
        """Two kinds of resource may share an id, as a bucket and its versioning do."""
        return self._folder / f"{hashlib.sha256(f'{type_token}|{id_}'.encode()).hexdigest()}.json"

    def inputs(self, type_token: str, id_: str) -> Mapping[str, Any]:
        """See Look."""
        file = self.file(type_token, id_)
        held: Mapping[str, Any] = json.loads(file.read_text("utf-8"))["inputs"] if file.exists() else {}
        return held

    def write(self, type_token: str, id_: str, urn: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        record = {"type": type_token, "id": id_, "urn": urn, "inputs": inputs, "outputs": outputs}
        self.file(type_token, id_).write_text(json.dumps(record, indent=2), "utf-8")


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider. It is served by one thread, so the cloud answers one request after the other without locks."""

    def __init__(self, service: Service, disk: Disk) -> None:
        self._service = service
        self._disk = disk

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - these names are gRPC's, here and below
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self._service.version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        faults = provider_faults(self._service.sdk, _to_dict(request.news))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(faults))

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._differences(_to_dict(request.old_inputs), _to_dict(request.news), frozenset({"region"}))

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._service.configure(_to_dict(request.args))
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            answer = self._service.ask(request.tok, _to_dict(request.args))
        except RefusedError as refusal:
            return provider_pb2.InvokeResponse(failures=_failures([("", str(refusal))]))
        return provider_pb2.InvokeResponse(**{"return": _to_struct(answer)})

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuses what the SDK does not declare; names what has no name, once, as the real plugin does."""
        type_token = request.type or request.urn.split("::")[2].rpartition("$")[2]
        inputs, before = _to_dict(request.news), _to_dict(request.olds)
        found = input_faults(type_token, inputs, f"{self._service.sdk} {self._service.version}")
        key = name_input(type_token)
        if key and key not in inputs:
            inputs[key] = before.get(key, f"{request.urn.rpartition('::')[2]}-{request.randomSeed.hex()[:7]}")
        failures = _failures(found or self._service.faults(type_token, inputs))
        return provider_pb2.CheckResponse(inputs=_to_struct(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        old, new = (self._service.compared(_to_dict(inputs)) for inputs in (request.old_inputs, request.news))
        return self._differences(old, new, self._service.replacing.get(request.type, frozenset()))

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        inputs = _to_dict(request.properties)
        if request.preview:
            coming = dict.fromkeys(outputs_of(request.type), UNKNOWN)
            return provider_pb2.CreateResponse(properties=_to_struct({**coming, **inputs}))
        id_ = self._service.identify(request.type, request.urn.rpartition("::")[2], inputs)
        if self._disk.file(request.type, id_).exists():
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there is a {request.type} {id_} already")
        outputs = self._outputs(request.type, id_, inputs, {}, context)
        try:
            self._service.admit(request.type, inputs, self._disk.inputs)
        except RefusedError as refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))
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
        inputs, old_inputs = _to_dict(request.news), _to_dict(request.old_inputs)
        before = {key: value for key, value in _to_dict(request.olds).items() if key not in old_inputs}
        if request.preview:
            coming = {key: UNKNOWN if key in self._service.volatile else value for key, value in before.items()}
            return provider_pb2.UpdateResponse(properties=_to_struct({**coming, **inputs}))
        outputs = self._outputs(request.type, request.id, inputs, before, context)
        self._disk.write(request.type, request.id, request.urn, inputs, outputs)
        return provider_pb2.UpdateResponse(properties=_to_struct(outputs))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._disk.file(request.type, request.id).unlink()
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def _outputs(self, type_token: str, id_: str, inputs: Any, before: Any, context: Any) -> dict[str, Any]:
        try:
            computed = self._service.computed(type_token, id_, inputs, before)
        except RefusedError as refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))
        declared = outputs_of(type_token)
        return {**{key: value for key, value in computed.items() if key in declared}, **inputs}

    @staticmethod
    def _differences(old: Mapping[str, Any], new: Mapping[str, Any], replacing: frozenset[str]) -> Any:
        changed = (key for key in {*old, *new} if old.get(key) != new.get(key))
        keys = sorted(key for key in changed if not key.startswith("__"))
        some = provider_pb2.DiffResponse.DIFF_SOME if keys else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=keys, replaces=[key for key in keys if key in replacing])


def serve(service: Service) -> None:
    """Serves until the engine says stop. The first line on stdout is the port; the engine waits for it."""
    # Blocked in every thread and taken by sigwait below, so that neither signal ends the process half way.
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    disk = Disk(Path(os.environ[STATE_VARIABLE]))
    importlib.import_module(service.sdk)  # registers its resource classes
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(StandIn(service, disk), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    signal.sigwait(ends)
    server.stop(grace=None).wait()
