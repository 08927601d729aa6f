"""Declares components under Pulumi's mocks and hands back what reached the wire."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks, settings

COMPUTED = ("arn", "name", "bucket", "dnsName", "mountName", "repositoryUrl", "latestVersion")


@dataclass(frozen=True)
class Declared:
    """One registered resource; `inputs` as on the wire."""

    type: str
    name: str
    urn: str
    id: str
    parent: str
    inputs: dict[str, Any]


@dataclass
class Declaration:
    """Everything a program registered, and the outputs its components announced."""

    resources: list[Declared] = field(default_factory=list)
    outputs: dict[str, set[str]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Declared]:
        """The AWS resources of that class, by name."""
        found = (r for r in self.resources if r.type.startswith("aws:") and r.type.endswith(f":{kind}"))
        return sorted(found, key=lambda r: r.name)

    def one(self, kind: str) -> Declared:
        """The only resource of that kind."""
        (found,) = self.of(kind)
        return found


class _Cloud(mocks.Mocks):
    def __init__(self) -> None:
        self.inputs: dict[tuple[str, str], dict[str, Any]] = {}

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        self.inputs[args.typ, args.name] = args.inputs
        label = f"{args.typ.rpartition(':')[2]}.{args.name}"
        return f"<{label}.id>", {**{key: f"<{label}.{key}>" for key in COMPUTED}, **args.inputs}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        raise AssertionError(f"a component calls {args.token}")


class _Monitor(mocks.MockMonitor):
    def __init__(self, cloud: _Cloud) -> None:
        super().__init__(cloud)
        self.cloud, self.declaration = cloud, Declaration()

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the name is gRPC's
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]  # the SDK's mocks have no types
        if request.type != "pulumi:pulumi:Stack":
            inputs = self.cloud.inputs[request.type, request.name]
            self.declaration.resources.append(
                Declared(request.type, request.name, response.urn, response.id, request.parent, inputs)
            )
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 - the name is gRPC's
        self.declaration.outputs[request.urn] = set(request.outputs.fields)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]  # as above


Program = Callable[[], object]
Declare = Callable[[Program], Declaration]


def _declare(program: Program) -> Declaration:
    cloud = _Cloud()
    monitor = _Monitor(cloud)
    settings.set_root_resource(None)  # type: ignore[arg-type]  # a second program in this process is another stack
    mocks.set_mocks(cloud, project="gangway", stack="test", preview=False, monitor=monitor)
    mocks.test(program)()  # type: ignore[no-untyped-call]  # the SDK's mocks have no types
    return monitor.declaration


@pytest.fixture
def declare() -> Declare:
    """Runs a function that makes components; gives the resources it declared."""
    return _declare


@pytest.fixture
def tags() -> dict[str, str]:
    return {"team": "ml", "gangway:stack": "test"}


@pytest.fixture
def pool_args(tags: dict[str, str]) -> dict[str, Any]:
    """Arguments of EfaNodePool, to be varied."""
    return {
        "machine_type": "p4d.24xlarge",
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": [{"kind": "spot", "max_usd_per_hour": 9.5}, {"kind": "on-demand"}],
        "subnet_ids": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "image_id": "ami-01234567",
        "instance_profile_arn": "arn:aws:iam::1:instance-profile/x",
        "user_data": "IyE=",
        "root_volume_gib": 200,
        "tags": tags,
    }


@pytest.fixture
def network_args(tags: dict[str, str]) -> dict[str, Any]:
    """Arguments of TrainingNetwork, to be varied."""
    return {
        "cidr": "10.42.0.0/16",
        "region": "us-east-2",
        "zones": ["us-east-2a", "us-east-2b"],
        "egress": "endpoints",
        "tags": tags,
    }


@pytest.fixture
def example_args(
    tags: dict[str, str], pool_args: dict[str, Any], network_args: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Arguments that make each component declare everything it can, by class name."""
    return {
        "Budget": {
            "monthly_usd": 100.0,
            "emails": ["a@example.com"],
            "alert_percent": [50.0],
            "tag_key": "gangway:stack",
            "tag_value": "test",
            "tags": tags,
        },
        "EfaNodePool": pool_args,
        "ImageRegistry": {"tags": tags},
        "LustreFileSystem": {
            "capacity_gib": 1200,
            "throughput_mbps_per_tib": 125,
            "subnet_id": "subnet-1",
            "security_group_id": "sg-1",
            "source": "s3://bucket/prefix",
            "tags": tags,
        },
        "NodeIdentity": {
            "run_bucket_arn": "arn:aws:s3:::runs",
            "repository_arn": "arn:aws:ecr:us-east-2:1:repository/x",
            "stack": "test",
            "data_source": "s3://bucket/prefix",
            "tags": tags,
        },
        "RunBucket": {"tags": tags},
        "SpotFleet": {
            "num_nodes": 2,
            "launch_template_id": "lt-1",
            "launch_template_version": "1",
            "machine_types": ["p4d.24xlarge", "p5.48xlarge"],
            "subnet_ids": ["subnet-1", "subnet-2"],
            "fleet_role_arn": "arn:aws:iam::1:role/fleet",
            "max_usd_per_hour": 23.125,
            "tags": tags,
        },
        "TrainingNetwork": {**network_args, "egress": "nat"},
    }


@pytest.fixture
def make(declare: Declare, example_args: dict[str, dict[str, Any]]) -> Callable[..., Declaration]:
    """Declares one component with its example arguments and the given changes."""

    def run(component: type[pulumi.ComponentResource], **changes: Any) -> Declaration:
        args: Any = {**example_args[component.__name__], **changes}

        def program() -> None:
            component("demo", args)

        return declare(program)

    return run
