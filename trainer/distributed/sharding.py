"""Networks that do not fit on one worker beside their optimisers: each worker keeps a part (FSDP2, or HSDP).

Weights, gradients and Adam's moments are split over all workers (fsdp2), or over each node's and repeated on every node
(hsdp), so that only averages cross the network. A network's weights are gathered once a step and stay whole until its
optimiser has stepped: a gradient penalty runs a backward inside the forward, after which FSDP would take them away
(seen with torch 2.15: "its data is not allocated yet"). The averaged generator and checkpoints are whole: a run may go
on sharded or not, on any number of workers. Weights alone must fit once. Not for progressive networks, parts of which
rest.
"""

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.config.train_config import TrainConfig
from trainer.distributed.sharded_modules import split_parts
from trainer.distributed.world import World
from trainer.run.state import TrainState

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule


def shard(state: TrainState, config: TrainConfig, world: World) -> str:
    """Splits networks and optimisers as `config.shard` says, on all workers together; what was done, and why."""
    if config.shard == "ddp":
        return "ddp: whole networks on every worker"
    if world.control is None:
        return f"ddp: {config.shard} was asked for, but one process has nothing to share"
    from torch.distributed.fsdp import fully_shard

    # The networks' outputs are only read, never changed in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    mesh = _mesh(config, world)
    saved = [role.learner.state_dict()["state"] for role in state.learners]
    for role in state.roles.values():
        for parameter in role.network.parameters():
            parameter.data = parameter.data.contiguous()  # FSDP2 splits no other layout; activations keep theirs
        fully_shard(role.network, mesh=mesh, reshard_after_forward=False).set_reshard_after_backward(False)
    state.renew_optimisers()
    for role, moments in zip(state.learners, saved, strict=True):
        _load(role.learner, moments)
        (part,) = split_parts(role.network)
        role.learner.register_step_post_hook(lambda *_, part=part: _renew(part))
    return f"{config.shard}: over {' x '.join(map(str, mesh.shape))} workers, asked for"


def _mesh(config: TrainConfig, world: World) -> "DeviceMesh":
    from torch.distributed.device_mesh import init_device_mesh

    if config.shard == "fsdp2":
        return init_device_mesh(world.device.type, (world.world_size,))
    shape = world.num_nodes, world.world_size // world.num_nodes
    return init_device_mesh(world.device.type, shape, mesh_dim_names=("nodes", "workers"))


def _renew(part: "FSDPModule") -> None:
    """Drops the whole weights, which are older than the parts now, and gathers them anew. The loop switches
    requires_grad off and on between the two networks' steps: it must find the whole weights.
    """
    part.reshard()
    part.unshard()


def _load(optimizer: torch.optim.Optimizer, moments: dict[int, Any]) -> None:
    """Gives an optimiser of split parameters its part of whole moments."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {name: _part_of(value, parameters[number]) for name, value in entry.items()}
        for number, entry in moments.items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _part_of(value: Tensor, parameter: Any) -> Tensor:
    from torch.distributed.tensor import distribute_tensor

    if value.shape != parameter.shape:
        return value  # the count of steps
    return distribute_tensor(value.contiguous(), parameter.device_mesh, parameter.placements)
