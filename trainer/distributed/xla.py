"""PyTorch/XLA: a TPU, or the CPU in tests, as a worker's device. Only imported with torch_xla (images/locks/xla.lock).

Operations are recorded; `flush` compiles them into one program and starts it. All workers must record the same, or they
wait for each other forever. torchrun starts the processes: torch_xla.launch allows no signal handlers.
"""

import os
import signal
from typing import cast

import torch
import torch_xla  # type: ignore[import-not-found]  # has its own environment, with another torch
from torch_xla import runtime
from torch_xla.core import xla_model  # type: ignore[import-not-found]  # as above

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.torch_private import xla_internals
from gangway.trainer.distributed.ranks import Ranks
from gangway.trainer.rendezvous.elastic_rendezvous import KEY_VARIABLE, meeting_argv

pjrt, tpu = xla_internals()


def launcher_argv() -> list[str]:
    """Returns the launcher's arguments for a process per TPU chip, without opening any; empty for a single one."""
    if runtime.device_type() != "TPU":
        return []
    return meeting_argv(
        int(tpu.num_local_processes()),
        list(tpu.get_worker_ips()),
        int(_multislice_setting("NUM_SLICES") or 1),
        _multislice_setting("COORDINATOR_ADDRESS"),
        os.environ.get(KEY_VARIABLE),
    )


def _multislice_setting(name: str) -> str:
    """A MEGASCALE_ setting as libtpu reads it: environment first, then the TPU's metadata; or empty."""
    key = f"MEGASCALE_{name}"
    return os.environ.get(key) or str(tpu.get_tpu_env().get(key) or "")


def join() -> tuple[Ranks, torch.device]:
    """Open this process's device; ranks as PJRT counts (TrainerError: several devices, or unknown processes)."""
    started = Ranks.from_environment()
    local_world_size = started.world_size // started.num_nodes
    if local_world_size > 1:
        pjrt.initialize_multiprocess(started.local_rank, local_world_size)
    else:
        pjrt.initialize_singleprocess()
    device = cast(torch.device, torch_xla.device())
    for number in (signal.SIGTERM, signal.SIGINT):
        # libtpu replaced Python's handlers by its own, which end the process.
        signal.signal(number, signal.getsignal(number))
    _check(started)
    ranks = started._replace(rank=runtime.global_ordinal(), node_rank=runtime.host_index())
    return ranks, device


def _check(started: Ranks) -> None:
    kind, devices = runtime.device_type(), runtime.addressable_device_count()
    if devices != 1:
        raise TrainerError(
            place="TrainConfig.backend",
            problem="xla needs one process for each device",
            value=f"{devices} {kind} devices in one process",
            allowed="TPU v4 or newer, where a chip is one device; on a CPU one device",
            fix=f"unset {kind}_NUM_DEVICES, or choose another TPU",
        )
    if runtime.world_size() != started.world_size:
        raise TrainerError(
            place="TrainConfig.backend",
            problem=f"torchrun has started {started.world_size} processes that PJRT does not join to one world",
            value=f"{runtime.world_size()} of {kind} as PJRT counts",
            allowed="one process for each TPU chip of the slice; on a CPU a single process",
            fix="python -m gangway.trainer train --backend xla on every host starts the right number",
        )


def step(optimizer: torch.optim.Optimizer) -> None:
    """Average the gradients over all workers, step, and start the recorded program."""
    xla_model.optimizer_step(optimizer, barrier=True)


def flush() -> None:
    """Start the recorded program."""
    torch_xla.sync()


def device_name() -> str:
    """The kind of TPU as its host names it, or PJRT's device type."""
    kind = runtime.device_type()
    model = os.environ.get("TPU_ACCELERATOR_TYPE", "") or kind
    return f"{model}, PyTorch/XLA {torch_xla.__version__}"


def memory_bytes(device: torch.device) -> int | None:
    """Memory that PJRT may allocate on this device; None if it is no TPU and uses the host's."""
    if runtime.device_type() != "TPU":
        return None
    return int(xla_model.get_memory_info(device)["bytes_limit"])
