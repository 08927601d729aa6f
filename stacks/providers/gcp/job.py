"""What the machines of a stack on Google Cloud run: the job, where its state is, where its workers meet. Pure.

How a machine comes to run it is `boot`; what machines there are is `plan`.
"""

from dataclasses import replace

from components.catalog import MachinePrice, MachineType, load_provider
from components.gcp.nccl import nccl_env, nccl_plugin
from components.gcp.tpu_machine import slice_machine, slice_price, worker_tflops
from components.job import JobSpec, Volume
from stacks.planning.run_context import cloud_context
from stacks.providers import shared
from stacks.providers.gcp.plan import GcpPlan
from stacks.providers.shared import METRICS_PORT, RENDEZVOUS_PORT, head_host
from stacks.settings.config import StackConfig

__all__ = [
    "METRICS_PORT",
    "MOUNT",
    "RENDEZVOUS_PORT",
    "fabric_min_gbps",
    "head_host",
    "job_spec",
    "run_dir",
]

MOUNT = "/shared"


def job_spec(config: StackConfig, planned: GcpPlan, image: str) -> JobSpec:
    """The job the machines run. State lives on the shared file system, so that any node can take it up again.

    All machines run torchrun, as the launcher in the image, with a process for each GPU or chip. Where the hosts of
    slices meet is in their metadata, and so not in here. Nodes of this spec are machines, also those of TPUs.
    """
    nodes, tpu = config.cluster.nodes, planned.tpu
    machine, price = _as_the_trainer_counts(config, planned)
    context = cloud_context(
        config,
        machine,
        planned.region,
        price,
        image.rpartition("@")[2],
        num_nodes=planned.num_machines,
        peak_tflops={"bf16": worker_tflops(tpu)} if tpu else None,
    )
    state, own_image = shared.state_root(config, MOUNT), config.cluster.image_id is not None
    plugin = None if tpu else nccl_plugin(planned.gpu_machine, own_image=own_image)
    fabric = {} if tpu else nccl_env(planned.gpu_machine, own_image=own_image)
    return JobSpec(
        name=config.stack,
        image=image,
        backend="nccl" if tpu is None else "xla",
        num_nodes_min=nodes.min * (1 if tpu is None else tpu.hosts),
        num_nodes_max=planned.num_machines,
        processes_per_node=machine.num_accelerators.value,
        rendezvous=shared.rendezvous(config, at_head=tpu is None and nodes.max > 1),
        volumes=(Volume(source=state, target=state), *(plugin.volumes if plugin else ())),
        env={"GANGWAY_CONTEXT": context.model_dump_json(), **fabric},
        run_id=context.run_id,
        argv=shared.train_argv(
            config,
            run_dir=run_dir(config),
            data_dir=f"{MOUNT}/data",
            fabric_min_gbps=fabric_min_gbps(config, planned),
            backend="xla" if tpu else None,
        ),
    )


def _as_the_trainer_counts(config: StackConfig, planned: GcpPlan) -> tuple[MachineType, MachinePrice | None]:
    """One machine and its price: the record adds up machines, also those of one slice."""
    tpu = planned.tpu
    if tpu is None:
        return planned.machine, load_provider("gcp").price(planned.machine.name, config.region)
    host = replace(tpu, chips=tpu.chips_per_host, processes=tpu.processes // tpu.hosts, hosts=1)
    return slice_machine(host), slice_price(host, config.region)


def fabric_min_gbps(config: StackConfig, planned: GcpPlan) -> float | None:
    """The bus bandwidth below which the job does not start; None where there is nothing to test."""
    check, gbps = config.cluster.fabric_check, planned.machine.network_gbps.value
    if planned.tpu is not None or not check.enabled or config.cluster.nodes.max < 2 or gbps is None:
        return None
    plugin = nccl_plugin(planned.gpu_machine, own_image=config.cluster.image_id is not None)
    return None if plugin is None else gbps * check.min_fraction


def run_dir(config: StackConfig) -> str:
    """The run's directory, the same on every node."""
    return shared.run_dir(config, MOUNT)
