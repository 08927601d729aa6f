"""What the machines of a stack on OpenStack run: the job, where its state is, where its workers meet. Pure.

How a machine comes to run it is `boot`; what machines there are is `plan`.
"""

from components.job import JobSpec, Rendezvous, Volume
from stacks.planning.run_context import cloud_context
from stacks.providers import shared
from stacks.providers.openstack.plan import OpenstackPlan, section_of
from stacks.providers.shared import METRICS_PORT, RENDEZVOUS_PORT
from stacks.providers.site import price_of
from stacks.settings.config import StackConfig

__all__ = ["METRICS_PORT", "MOUNT", "RENDEZVOUS_PORT", "data_dir", "fabric_min_gbps", "job_spec", "run_dir"]

MOUNT = "/shared"


def job_spec(config: StackConfig, planned: OpenstackPlan, image: str) -> JobSpec:
    """The job the nodes run. State lives on the share, so that any node can take it up again.

    Workers meet at the head's address: it is fixed, and not every cloud gives instances names.
    """
    nodes, state = config.cluster.nodes, shared.state_root(config, MOUNT)
    price = price_of(config, planned.machine)
    context = cloud_context(config, planned.machine, planned.region, price, image.rpartition("@")[2])
    head = planned.network.head
    data = data_dir(config)
    return JobSpec(
        name=config.stack,
        image=image,
        backend="nccl",
        num_nodes_min=nodes.min,
        num_nodes_max=nodes.max,
        processes_per_node=planned.machine.num_accelerators.value,
        rendezvous=Rendezvous(host=head, port=RENDEZVOUS_PORT) if planned.head else Rendezvous(standalone=True),
        volumes=(Volume(source=state, target=state),),
        env={"GANGWAY_CONTEXT": context.model_dump_json(), **planned.fabric.nccl_env},
        run_id=context.run_id,
        argv=(
            *shared.train_argv(
                config, run_dir=run_dir(config), data_dir="", fabric_min_gbps=fabric_min_gbps(config, planned)
            ),
            *(("--data", data) if data else ()),
        ),
    )


def data_dir(config: StackConfig) -> str | None:
    """Where what the job trains on is on a node; None where the trainer brings it."""
    folder = section_of(config).data_dir
    return None if folder is None else f"{MOUNT}/{folder}"


def fabric_min_gbps(config: StackConfig, planned: OpenstackPlan) -> float | None:
    """The bus bandwidth below which the job does not start; None where there is nothing to test."""
    check = config.cluster.fabric_check
    if not check.enabled or config.cluster.nodes.max < 2 or not planned.fabric.num_devices:
        return None
    return planned.fabric.gbps * check.min_fraction


def run_dir(config: StackConfig) -> str:
    """The run's directory, the same on every node."""
    return shared.run_dir(config, MOUNT)
