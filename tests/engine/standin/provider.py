"""Stand-in for a Pulumi resource plugin: what the engine asks about resources, answered from a folder of JSON files.

It refuses inputs that the installed SDK does not declare or misses, and a second resource of the same id. What a
package adds (ids, computed outputs, functions, what cannot be changed) is a `standin.service.Service`. Not a simulation
of a cloud: it accepts any value of the right shape.

    GANGWAY_STANDIN_STATE=/tmp/cloud pulumi-resource-aws     # prints its port, then serves until SIGINT
"""

import hashlib
import importlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from .records import STATE_VARIABLE, get_record, records
from .service import CONTENT, RefusedError, Service
from .shapes import Fault, get_outputs, input_faults, provider_faults


def _to_dict(struct: struct_pb2.Struct) -> dict[str, Any]:
    values: dict[str, Any] = json_format.MessageToDict(struct)
    return values


def _to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(values))
    return struct


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, object by object."""
    both = {key: _merged(below[key], above[key]) for key in {*below} & {*above} if _objects(below[key], above[key])}
    return {**below, **above, **both}


def _beyond(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What of the outputs the inputs did not say, also inside of an object: a system-assigned identity's id."""
    rest = {key: value for key, value in outputs.items() if key not in inputs}
    inside = {
        key: _beyond(outputs[key], inputs[key])
        for key in outputs.keys() & inputs.keys()
        if _objects(outputs[key], inputs[key])
    }
    return {**rest, **{key: value for key, value in inside.items() if value}}


def _objects(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


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
        held: Mapping[str, Any] = (get_record(self.file(type_token, id_)) or {}).get("inputs", {})
        return held

    def others(self, than: Path) -> Iterator[Mapping[str, Any]]:
        """All resources but the one of a file."""
        yield from (record for file, record in records(self._folder) if file != than)

    def owner(self, type_token: str, id_: str) -> str | None:
        """The URN of who made it first; None where there is no such thing."""
        record = get_record(self.file(type_token, id_))
        return str(record["urn"]) if record is not None else None

    def write(self, type_token: str, id_: str, urn: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        record = {"type": type_token, "id": id_, "urn": urn, "inputs": inputs, "outputs": outputs}
        file = self.file(type_token, id_)
        file.with_suffix(".new").write_text(json.dumps(record, indent=2), "utf-8")
        file.with_suffix(".new").replace(file)  # whoever looks meanwhile sees all of it or nothing


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider. It is served by one thread, so the cloud answers one request after the other without locks."""

    def __init__(self, service: Service, disk: Disk) -> None:
        self._service = service
        self._disk = disk

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - these names are gRPC's, here and below
        return provider_pb2.ProviderHandshakeResponse()

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: N802
        """An engine that has not started this process itself says so (PULUMI_DEBUG_PROVIDERS)."""
        return empty_pb2.Empty()

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
            answer = self._service.ask(request.tok, _to_dict(request.args), self._disk.inputs)
        except RefusedError as refusal:
            return provider_pb2.InvokeResponse(failures=_failures([("", str(refusal))]))
        return provider_pb2.InvokeResponse(**{"return": _to_struct(answer)})

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuses what the SDK does not declare; names what has no name, once, as the real plugin does."""
        type_token = request.type or request.urn.split("::")[2].rpartition("$")[2]
        inputs, before = _to_dict(request.news), _to_dict(request.olds)
        self._service.complete(type_token, request.urn.rpartition("::")[2], request.randomSeed, inputs, before)
        sdk = f"{self._service.sdk} {self._service.version}"
        own = self._service.keys_of(type_token)
        if own is None:
            found = input_faults(type_token, inputs, sdk, self._service.open_enums)
        else:
            found = [(key, "no such input") for key in sorted(inputs.keys() - own) if not key.startswith("__")]
        failures = _failures(found or self._service.faults(type_token, inputs))
        return provider_pb2.CheckResponse(inputs=_to_struct(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        old, new = (self._service.compared(_to_dict(inputs)) for inputs in (request.old_inputs, request.news))
        answer = self._differences(old, new, self._service.replaced(request.type))
        answer.deleteBeforeReplace = bool(answer.replaces) and self._service.goes_first(old)
        return answer

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        inputs = _to_dict(request.properties)
        if request.preview:
            coming = {**dict.fromkeys(self._declared(request.type), UNKNOWN), **self._service.foreseen(request.type)}
            return provider_pb2.CreateResponse(properties=_to_struct(_merged(coming, self._service.told(inputs))))
        id_ = self._service.identify(request.type, request.urn.rpartition("::")[2], inputs)
        owner = self._disk.owner(request.type, id_) or request.urn
        if self._disk.file(request.type, id_).exists() and request.type not in self._service.settings:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there is a {request.type} {id_} already")
        outputs = self._outputs(request.type, id_, inputs, {}, context)
        self._ask(context, self._service.admit, request.type, inputs, self._disk.inputs)
        self._disk.write(request.type, id_, owner, inputs, outputs)
        return provider_pb2.CreateResponse(id=id_, properties=_to_struct(outputs))

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """An empty answer tells the engine that the resource is gone."""
        file = self._disk.file(request.type, request.id)
        if (record := get_record(file)) is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id, inputs=_to_struct(record["inputs"]), properties=_to_struct(record["outputs"])
        )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        inputs, old_inputs = _to_dict(request.news), _to_dict(request.old_inputs)
        kept = {key: value for key, value in old_inputs.items() if key in inputs}
        olds = {key: value for key, value in _to_dict(request.olds).items() if key in inputs or key not in old_inputs}
        before = _beyond(olds, kept)
        self._ask(context, self._service.admit_change, request.type, old_inputs, inputs)
        if request.preview:
            coming = {key: UNKNOWN if key in self._service.volatile else value for key, value in before.items()}
            return provider_pb2.UpdateResponse(properties=_to_struct(_merged(coming, self._service.told(inputs))))
        outputs = self._outputs(request.type, request.id, inputs, before, context)
        self._disk.write(request.type, request.id, request.urn, inputs, outputs)
        return provider_pb2.UpdateResponse(properties=_to_struct(outputs))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        file = self._disk.file(request.type, request.id)
        is_setting = request.type in self._service.settings
        if is_setting and self._disk.owner(request.type, request.id) not in (None, request.urn):
            return empty_pb2.Empty()  # another stack made it first, and keeps it
        others = list(self._disk.others(file))
        inputs = self._disk.inputs(request.type, request.id)
        self._ask(context, self._service.release, request.type, request.id, others)
        for content in self._ask(context, self._service.empty, request.type, request.id, inputs, others):
            self._disk.file(CONTENT, content).unlink()
        for other in others:
            if self._service.contains(request.type, request.id, other["id"]):
                self._disk.file(other["type"], other["id"]).unlink()
        for part in self._service.parts.get(request.type, ()):
            self._disk.file(part, request.id).unlink(missing_ok=True)
        file.unlink(missing_ok=is_setting)
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def _declared(self, type_token: str) -> frozenset[str]:
        own = self._service.keys_of(type_token)
        return get_outputs(type_token) if own is None else own

    def _outputs(self, type_token: str, id_: str, inputs: Any, before: Any, context: Any) -> dict[str, Any]:
        computed = self._ask(context, self._service.computed, type_token, id_, inputs, before)
        declared = self._declared(type_token)
        outputs = {key: value for key, value in computed.items() if key in declared}
        return _merged(outputs, self._service.told(inputs))

    @staticmethod
    def _ask(context: Any, question: Callable[..., Any], *args: Any) -> Any:
        """Asks the service something that it may refuse."""
        try:
            return question(*args)
        except RefusedError as refusal:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))

    @staticmethod
    def _differences(old: Mapping[str, Any], new: Mapping[str, Any], replacing: frozenset[str]) -> Any:
        paths = dict(_changes(old, new, ""))
        keys = sorted({re.split(r"[.\[]", path)[0] for path in paths})
        some = provider_pb2.DiffResponse.DIFF_SOME if keys else provider_pb2.DiffResponse.DIFF_NONE
        answer = provider_pb2.DiffResponse(changes=some, diffs=keys, hasDetailedDiff=True)
        answer.replaces.extend(key for key in keys if key in replacing)
        for path, kind in paths.items():
            # Each kind is followed by the one that replaces.
            replaces = re.split(r"[.\[]", path)[0] in replacing
            answer.detailedDiff[path].kind = kind + 1 if replaces else kind
            answer.detailedDiff[path].inputDiff = True
        return answer


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, int]]:
    """Every place at which two values differ, as the engine writes it, and how."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(key for key in {*old, *new} if not key.startswith("__")):
            below = f"{path}.{key}" if path else key
            # What is no plain word is written in brackets.
            if not re.fullmatch(r"\w+", key):
                below = f"{path}[{json.dumps(key)}]"
            yield from _changes(old.get(key), new.get(key), below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _changes(before, after, f"{path}[{index}]")
    elif old != new:
        kinds = provider_pb2.PropertyDiff
        yield path, kinds.ADD if old is None else kinds.DELETE if new is None else kinds.UPDATE


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
