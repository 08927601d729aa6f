"""What the knobs of a run can be on the machines that it is on."""

from trainer.config.train_config import TrainConfig
from trainer.control.actuators import Actuators
from trainer.control.guardrails import Machine
from trainer.control.interval import Value
from trainer.core.cores import usable_cores
from trainer.distributed.world import World


def machine_of(
    world: World,
    config: TrainConfig,
    actuators: Actuators,
    fixed: tuple[str, ...],
    fatal: tuple[tuple[str, Value, Value], ...] = (),
) -> Machine:
    """Of this session; all workers call it together. `fixed` cannot be turned now; `fatal` are changes that earlier
    sessions did not outlive.
    """
    cores = min(world.gather(usable_cores()))
    limit_watts, floor = actuators.power_limits
    return Machine(
        cores=cores,
        local_workers=world.world_size // world.num_nodes,
        workers=world.world_size,
        group=config.group,
        on_cpu=world.device.type == "cpu",
        limit_watts=limit_watts,
        power_floor=floor,
        fixed=fixed,
        fatal=fatal,
    )
