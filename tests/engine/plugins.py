"""A stand-in for a plugin as a process, and a client that speaks to it as the engine does. Needs no CLI.

Loaded by `running_plugin` of conftest.py: tests are no package.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # ships no types
from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]  # ships no types
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto.provider_pb2_grpc import ResourceProviderStub

STANDINS = Path(__file__).parent / "standin"


def struct(values: dict[str, Any]) -> Any:
    """Plain values as protobuf's."""
    packed = struct_pb2.Struct()
    packed.update(values)
    return packed


def plain(packed: Any) -> dict[str, Any]:
    """Protobuf's values as plain ones."""
    values: dict[str, Any] = json_format.MessageToDict(packed)
    return values


def urn(type_token: str, name: str = "thing") -> str:
    """The URN of a resource in some component."""
    return f"urn:pulumi:test::gangway::gangway:aws:Parent${type_token}::{name}"


@dataclass(frozen=True)
class Made:
    """A resource as the plugin told it."""

    id: str
    outputs: dict[str, Any]


@dataclass(frozen=True)
class Plugin:
    """The running plugin: its port, its process, its stub, and where it keeps its cloud."""

    port: int
    process: subprocess.Popen[bytes]
    stub: Any
    cloud: Path

    def configure(self, **args: Any) -> None:
        """Sets the provider's inputs."""
        self.stub.Configure(pb.ConfigureRequest(args=struct(args)), timeout=30)

    def check_config(self, inputs: dict[str, Any]) -> list[str]:
        """The provider's inputs that are refused."""
        request = pb.CheckRequest(urn=urn("pulumi:providers:any"), news=struct(inputs))
        return [failure.property for failure in self.stub.CheckConfig(request, timeout=30).failures]

    def faults(self, type_token: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        """What is wrong with inputs: paths and reasons."""
        return [(failure.property, failure.reason) for failure in self._check(type_token, inputs, {}).failures]

    def checked(
        self, type_token: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None, name: str = "thing"
    ) -> dict[str, Any]:
        """Inputs as the plugin completes them; nothing may be wrong with them."""
        answer = self._check(type_token, inputs, olds or {}, name)
        assert not answer.failures, answer.failures
        return plain(answer.inputs)

    def _check(self, type_token: str, inputs: dict[str, Any], olds: dict[str, Any], name: str = "thing") -> Any:
        request = pb.CheckRequest(
            urn=urn(type_token, name), type=type_token, news=struct(inputs), olds=struct(olds), randomSeed=b"seed"
        )
        return self.stub.Check(request, timeout=30)

    def create(self, type_token: str, inputs: dict[str, Any], *, preview: bool = False, name: str = "thing") -> Made:
        """Makes a resource, or says what it would tell."""
        request = pb.CreateRequest(
            urn=urn(type_token, name), type=type_token, properties=struct(inputs), preview=preview
        )
        answer = self.stub.Create(request, timeout=30)
        return Made(answer.id, plain(answer.properties))

    def diff(self, type_token: str, old: dict[str, Any], new: dict[str, Any]) -> Any:
        """What is another, and what of it replaces."""
        request = pb.DiffRequest(
            id="any", urn=urn(type_token), type=type_token, old_inputs=struct(old), news=struct(new)
        )
        return self.stub.Diff(request, timeout=30)

    def update(
        self, type_token: str, made: Made, old: dict[str, Any], new: dict[str, Any], *, preview: bool = False
    ) -> dict[str, Any]:
        """Changes a resource, or says what it would tell; returns its outputs."""
        request = {"id": made.id, "urn": urn(type_token), "type": type_token, "olds": struct(made.outputs)}
        request |= {"news": struct(new), "old_inputs": struct(old)}
        return plain(self.stub.Update(pb.UpdateRequest(**request, preview=preview), timeout=30).properties)

    def read(self, type_token: str, made: Made) -> Any:
        """A resource as the cloud holds it; of no id where it is gone."""
        return self.stub.Read(pb.ReadRequest(id=made.id, urn=urn(type_token), type=type_token), timeout=30)

    def delete(self, type_token: str, made: Made) -> None:
        """Ends a resource."""
        self.stub.Delete(pb.DeleteRequest(id=made.id, urn=urn(type_token), type=type_token), timeout=30)

    def invoke(self, function: str, args: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[str]]:
        """Asks a function; returns its answer, and why there is none."""
        answer = self.stub.Invoke(pb.InvokeRequest(tok=function, args=struct(args or {})), timeout=30)
        return plain(getattr(answer, "return")), [failure.reason for failure in answer.failures]


@contextmanager
def running(name: str, cloud: Path, cwd: Path | None = None) -> Iterator[Plugin]:
    """Runs the stand-in of a package over a folder."""
    # Not measured: the plugin runs none of our packages, and coverage would warn of it.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    env = {
        **kept,
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "GANGWAY_STANDIN_STATE": str(cloud),
    }
    with subprocess.Popen([STANDINS / f"pulumi-resource-{name}"], env=env, cwd=cwd, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Plugin(port, process, ResourceProviderStub(channel), cloud)
        finally:
            process.kill()
