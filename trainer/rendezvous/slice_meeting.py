"""Launcher arguments for hosts of TPU slices on which `train` is started by hand."""

from collections.abc import Sequence

from gangway.trainer.rendezvous.elastic_rendezvous import BACKEND
from gangway.trainer.rendezvous.member_key import FLAG

KEY_VARIABLE = "GANGWAY_MEMBER_KEY"
"""Path of the job's key for a run that is started by hand, without the launcher's flags."""
_PORT = 29400
"""Port of the rendezvous: the default of torchrun and gangway.trainer.launch.rendezvous."""


def meeting_argv(
    chips: int, hosts: Sequence[str], num_slices: int = 1, coordinator: str = "", key: str | None = None
) -> list[str]:
    """Launcher arguments for one process per chip of this host; empty for a single device.

    `hosts` are this slice's addresses in order; `coordinator` is the first host of the first slice, if there are
    several. With a `key` file that host must already serve the store: `python -m gangway.trainer.launch.rendezvous
    --member-key FILE`. Without one torchrun serves it there, to anyone.
    """
    if len(hosts) * num_slices == 1:
        return ["--standalone", f"--nproc-per-node={chips}"] if chips > 1 else []
    # The coordinator's address may carry the port of Megascale's own.
    first = coordinator.partition(":")[0] or hosts[0]
    return [
        *([FLAG, key] if key else []),
        f"--nnodes={len(hosts) * num_slices}",
        f"--rdzv-backend={BACKEND if key else 'c10d'}",
        f"--rdzv-endpoint={first}:{_PORT}",
        "--rdzv-id=gangway",
        f"--nproc-per-node={chips}",
    ]
