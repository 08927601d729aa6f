"""How the nodes of a custom command connect, for all providers."""

from collections.abc import Iterable

from gangway.components.core.findings import Finding
from gangway.stacks.config.stack_config import StackConfig

_PLACE = "gangway:job.command"


def nodes_meet(config: StackConfig) -> bool:
    """Whether the job's nodes connect: a command without torchrun runs on each of them by itself."""
    own = config.own_command
    return config.cluster.nodes.max > 1 and (own is None or own.processes_per_node is not None)


def command_meets(config: StackConfig) -> bool:
    """Whether the job is a custom command whose nodes connect."""
    return config.own_command is not None and nodes_meet(config)


def rendezvous_findings(
    config: StackConfig, keep_out: str = "put nothing else into the stack's network"
) -> Iterable[Finding]:
    """How a command's nodes connect: plain torchrun does not know the trainer's member key. `keep_out`: the fix that
    keeps other machines away.
    """
    own = config.own_command
    if own is None or config.cluster.nodes.max < 2:
        return
    if nodes_meet(config):
        yield Finding.info(
            "job.rendezvous-without-key",
            _PLACE,
            "torchrun's store on the head has no key, and workers unpickle its values: anyone who reaches its port, "
            "which only the stack's machines do, can run code in the containers",
            keep_out,
        )
    else:
        yield Finding.info(
            "job.nodes-do-not-meet",
            "gangway:job.processes_per_node",
            "the command runs on each node by itself: nothing connects the nodes, and no head runs a store",
            "write processes_per_node to start it with torchrun as one job",
        )


def open_rendezvous_findings(config: StackConfig, where: str, fix: str) -> Iterable[Finding]:
    """The same for ports that others can reach. `where`: in which network."""
    if command_meets(config):
        yield Finding.warning(
            "job.rendezvous-without-key",
            _PLACE,
            f"torchrun's store has no key, and workers unpickle its values: anyone who reaches {where} can run code in "
            "the containers",
            fix,
        )
    else:
        yield from rendezvous_findings(config)
