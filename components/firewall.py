"""What every provider's firewall is told of a stack. Rules and flows are the providers' own, whose ends differ."""

from typing import NotRequired, TypedDict

__all__ = ["HeadPortsArgs"]


class HeadPortsArgs(TypedDict):
    """Where the head node and the workers listen: the rendezvous store, and the workers' metrics.

    `lustre` (false) lets the head mount a file system.
    """

    rendezvous_port: int
    metrics_port: int
    lustre: NotRequired[bool]
