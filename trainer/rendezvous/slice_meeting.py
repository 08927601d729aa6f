"""How the hosts of TPU slices meet where `train` is started by hand on each of them, as arguments of trainer.launch."""

from collections.abc import Sequence

from trainer.rendezvous.elastic_rendezvous import BACKEND
from trainer.rendezvous.member_key import FLAG

KEY_VARIABLE = "GANGWAY_MEMBER_KEY"
"""The job's key for a run by hand, where no line of a unit has the launcher's own flags: its file."""
_PORT = 29400
"""Of the rendezvous on the first host: torchrun's own default, and that of trainer.launch.rendezvous."""


def meeting_argv(
    chips: int, hosts: Sequence[str], num_slices: int = 1, coordinator: str = "", key: str | None = None
) -> list[str]:
    """For one process on each of this host's `chips`; empty for a single device. `hosts`: of this slice, by address, in
    their order; `coordinator`: the first host of the first slice, where there are several. With a `key`'s file that
    host has to serve the store already: `python -m trainer.launch.rendezvous --member-key FILE`. Without one torchrun
    serves it there, to whoever comes.
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
