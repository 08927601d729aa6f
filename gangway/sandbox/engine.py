"""The real Pulumi engine with the sandbox's cloud: the Automation API runs the program in this process, and the engine
sends resource requests to a provider on localhost that passes them to a `Cloud`.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc  # type: ignore[import-untyped]  # ships no types
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import build
from gangway.stacks.recording import Cloud

if TYPE_CHECKING:
    from pulumi.automation import PulumiCommand

PACKAGES = ("aws", "docker-build")
"""Pulumi packages that the sandbox's cloud builds."""


def up(
    command: "PulumiCommand", config: StackConfig, cloud: Cloud, on_created: Callable[[int], None]
) -> dict[str, int]:
    """Resources by operation, such as {"create": 61}; the engine's state is discarded. InputError: it failed."""
    from pulumi import automation, export

    def program() -> None:
        for name, value in build(config).items():
            export(name, value)

    created = 0

    def count(event: automation.EngineEvent) -> None:
        nonlocal created
        if event.res_outputs_event is not None:
            created += 1
            on_created(created)

    with ExitStack() as serving:
        folder = Path(serving.enter_context(TemporaryDirectory(prefix="gangway-sandbox-")))
        ports = {package: serving.enter_context(_serve(cloud, version(f"pulumi-{package}"))) for package in PACKAGES}
        options = automation.LocalWorkspaceOptions(
            work_dir=str(folder),
            pulumi_home=str(folder / "home"),
            pulumi_command=command,
            env_vars={
                "PULUMI_BACKEND_URL": folder.as_uri(),
                "PULUMI_CONFIG_PASSPHRASE": "sandbox",
                "PULUMI_DEBUG_PROVIDERS": ",".join(f"{package}:{port}" for package, port in ports.items()),
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                "PULUMI_SKIP_UPDATE_CHECK": "true",
            },
        )
        try:
            stack = automation.create_stack(config.stack_name, "gangway", program, opts=options)
            changes = stack.up(on_event=count).summary.resource_changes
        except automation.CommandError as error:
            raise InputError(command.command, f"`up` failed: {error}", fix="take pulumi off PATH") from None
    return {str(operation): number for operation, number in (changes or {}).items()}


@contextmanager
def _serve(cloud: Cloud, sdk_version: str) -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(_CloudProvider(cloud, sdk_version), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=None).wait()


class _CloudProvider(provider_pb2_grpc.ResourceProviderServicer):
    """A provider of new resources only: there is nothing to compare, change or delete."""

    def __init__(self, cloud: Cloud, sdk_version: str) -> None:
        self._cloud, self._sdk_version = cloud, sdk_version

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's names, here and below
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=self._sdk_version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.ConfigureResponse(acceptSecrets=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        name = request.urn.rpartition("::")[2]
        id_, outputs = self._cloud(request.type, name, _to_dict(request.properties))
        return provider_pb2.CreateResponse(id=id_, properties=_to_struct(outputs))

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = self._cloud.ask(request.tok, _to_dict(request.args))
        return provider_pb2.InvokeResponse(**{"return": _to_struct(answer)})

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()


def _to_dict(struct: struct_pb2.Struct) -> dict[str, Any]:
    values: dict[str, Any] = json_format.MessageToDict(struct)
    return values


def _to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(values))
    return struct
