"""TpuVm: one TPU slice without the queue; `up` fails at once without capacity. Of Google's provider: any language."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
from pulumi_gcp import tpu

from gangway.components.core.outputs import register_outputs
from gangway.components.gcp.tpu.api import SCOPE
from gangway.components.gcp.tpu.request import AcceleratorConfigArgs, validate


class TpuVmArgs(TypedDict):
    """Inputs of TpuVm: a part of QueuedTpu's. Either `accelerator_type` (v5litepod-4) or `accelerator_config`. `tier`
    is spot, guaranteed (from a reservation of the project) or on-demand. `pulumi up --refresh` recreates a preempted
    spot slice.
    """

    project: str
    zone: str
    accelerator_type: NotRequired[str]
    accelerator_config: NotRequired[AcceleratorConfigArgs]
    runtime_version: str
    tier: str
    service_account: pulumi.Input[str]
    network: NotRequired[pulumi.Input[str]]
    subnetwork: NotRequired[pulumi.Input[str]]
    network_tags: NotRequired[list[str]]
    startup_script: NotRequired[pulumi.Input[str]]
    secure_boot: NotRequired[bool]
    labels: dict[str, str]


class TpuVm(pulumi.ComponentResource):
    """One slice. `name`: `projects/P/locations/ZONE/nodes/ID`; `addresses`: its hosts' internal ones, in order."""

    name: pulumi.Output[str]
    addresses: pulumi.Output[list[str]]

    def __init__(self, name: str, args: TpuVmArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:TpuVm", name, None, opts)
        validate(args)
        script = args.get("startup_script")
        vm = tpu.V2Vm(
            f"{name}-tpu",
            project=args["project"],
            zone=args["zone"],
            accelerator_type=args.get("accelerator_type"),
            accelerator_config=_shape(args),
            runtime_version=args["runtime_version"],
            scheduling_config=tpu.V2VmSchedulingConfigArgs(
                spot=args["tier"] == "spot", reserved=args["tier"] == "guaranteed"
            ),
            network_config=tpu.V2VmNetworkConfigArgs(
                network=args.get("network"), subnetwork=args.get("subnetwork"), enable_external_ips=False
            ),
            service_account=tpu.V2VmServiceAccountArgs(email=args["service_account"], scopes=[SCOPE]),
            shielded_instance_config=tpu.V2VmShieldedInstanceConfigArgs(
                enable_secure_boot=args.get("secure_boot", False)
            ),
            tags=args.get("network_tags"),
            metadata=None if script is None else {"startup-script": script},
            labels=args["labels"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = vm.id
        self.addresses = vm.network_endpoints.apply(_addresses)
        register_outputs(self)


def _shape(args: TpuVmArgs) -> tpu.V2VmAcceleratorConfigArgs | None:
    config = args.get("accelerator_config")
    return None if config is None else tpu.V2VmAcceleratorConfigArgs(type=config["type"], topology=config["topology"])


def _addresses(endpoints: Sequence[tpu.outputs.V2VmNetworkEndpoint] | None) -> list[str]:
    """In the order of the hosts; empty in a preview."""
    return [endpoint.ip_address for endpoint in endpoints or [] if endpoint.ip_address]
