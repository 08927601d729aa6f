"""How the nodes of a command of one's own come together, with any provider: whether at all, and what the plan says."""

from collections.abc import Iterable

from components.core.findings import Finding
from stacks.config.stack_config import StackConfig

_PLACE = "gangway:job.command"


def nodes_meet(config: StackConfig) -> bool:
    """Whether the job's nodes meet anywhere: a command without torchrun runs on each of them by itself."""
    own = config.own_command
    return config.cluster.nodes.max > 1 and (own is None or own.processes_per_node is not None)


def command_meets(config: StackConfig) -> bool:
    """Whether they are the nodes of a command of one's own, and meet."""
    return config.own_command is not None and nodes_meet(config)


def meeting(config: StackConfig, keep_out: str = "put nothing else into the stack's network") -> Iterable[Finding]:
    """How the nodes of a command meet: no torchrun knows of the key by which the trainer's do. `keep_out`: what has
    the stack's own machines alone reach them.
    """
    own = config.own_command
    if own is None or config.cluster.nodes.max < 2:
        return
    if nodes_meet(config):
        yield Finding.info(
            "job.rendezvous-without-key",
            _PLACE,
            "its torchruns meet at a store of the head's without a key, and unpickle what it says: who reaches its "
            "port, as the stack's own machines alone do, runs code in their containers",
            keep_out,
        )
    else:
        yield Finding.info(
            "job.nodes-do-not-meet",
            "gangway:job.processes_per_node",
            "the command runs on each node by itself: nothing brings the nodes together, and no head holds a store",
            "write processes_per_node, and torchrun makes one job of them",
        )


def open_rendezvous_findings(config: StackConfig, where: str, fix: str) -> Iterable[Finding]:
    """The same where nobody is kept from the machines' ports: `where` they are."""
    if command_meets(config):
        yield Finding.warning(
            "job.rendezvous-without-key",
            _PLACE,
            f"its torchruns meet at a store without a key, and unpickle what it says: whoever reaches {where} runs "
            "code in their containers",
            fix,
        )
    else:
        yield from meeting(config)
