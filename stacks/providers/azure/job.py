"""What the machines of a stack on Azure run: the job, where its state is, where its workers meet. Pure.

How a machine comes to run it is `boot`; what machines there are is `plan`.
"""

from components.catalog import load_provider
from components.job import JobSpec, Volume
from stacks.planning.run_context import cloud_context
from stacks.providers import shared
from stacks.providers.azure.plan import AzurePlan
from stacks.providers.shared import METRICS_PORT, RENDEZVOUS_PORT, head_host
from stacks.settings.config import StackConfig

__all__ = [
    "METRICS_PORT",
    "MOUNT",
    "RENDEZVOUS_PORT",
    "data_dir",
    "fabric_min_gbps",
    "head_host",
    "job_spec",
    "run_dir",
]

MOUNT = "/shared"


def job_spec(config: StackConfig, planned: AzurePlan, image: str) -> JobSpec:
    """The job the nodes run. State lives on the shared file system, so that any node can take it up again.

    NCCL is told to take InfiniBand or nothing where the machines have it; what else it reads, the topology and
    /etc/nccl.conf, is the node image's own, mounted into the container.
    """
    nodes, state = config.cluster.nodes, shared.state_root(config, MOUNT)
    price = load_provider("azure").price(planned.machine.name, config.region)
    context = cloud_context(config, planned.machine, planned.region, price, image.rpartition("@")[2])
    return JobSpec(
        name=config.stack,
        image=image,
        backend="nccl",
        num_nodes_min=nodes.min,
        num_nodes_max=nodes.max,
        processes_per_node=planned.machine.num_accelerators.value,
        rendezvous=shared.rendezvous(config, at_head=nodes.max > 1),
        volumes=(Volume(source=state, target=state), *planned.fabric.volumes),
        env={"GANGWAY_CONTEXT": context.model_dump_json(), **planned.fabric.nccl_env},
        run_id=context.run_id,
        argv=shared.train_argv(
            config,
            run_dir=run_dir(config),
            data_dir=data_dir(planned) or "",
            fabric_min_gbps=fabric_min_gbps(config, planned),
        ),
    )


def data_dir(planned: AzurePlan) -> str | None:
    """Where the source's blobs appear on a node: under their own path. None without a source."""
    return None if planned.source is None else f"{MOUNT}/{planned.source.prefix}"


def fabric_min_gbps(config: StackConfig, planned: AzurePlan) -> float | None:
    """The bus bandwidth below which the job does not start; None where there is nothing to test."""
    check = config.cluster.fabric_check
    if not check.enabled or config.cluster.nodes.max < 2 or not planned.fabric.num_hcas:
        return None
    return planned.fabric.gbps * check.min_fraction


def run_dir(config: StackConfig) -> str:
    """The run's directory, the same on every node."""
    return shared.run_dir(config, MOUNT)
