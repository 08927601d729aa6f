"""Variables of the network between the nodes of a queued job, the same on every engine."""

from collections.abc import Mapping

__all__ = ["AWS_NCCL_NET", "FABRIC_MIN_GBPS", "fabric_variables"]

FABRIC_MIN_GBPS = "GANGWAY_FABRIC_MIN_GBPS"
"""The trainer's --fabric-min-gbps if its command line has none (`gangway.trainer.__main__`)."""

AWS_NCCL_NET = "AWS Libfabric"
"""The name of aws-ofi-nccl; later than 1.11 it calls itself Libfabric and accepts this one too (aws-ofi-nccl#530)."""


def fabric_variables(nccl: Mapping[str, str], min_gbps: float | None) -> dict[str, str]:
    """Variables of the job; the job's own win.

    Args:
        nccl: with NCCL_NET, NCCL fails if the network does not work instead of falling back to TCP; empty without one.
        min_gbps: all-reduce bus bandwidth below which a preset's job does not start, Gbit/s; None for no check.
    """
    if "NCCL_NET" not in nccl:
        return {}
    return {**nccl, **({} if min_gbps is None else {FABRIC_MIN_GBPS: f"{min_gbps:g}"})}
