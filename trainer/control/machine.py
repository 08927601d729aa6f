"""The limits of a run's knobs on its machines."""

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.actuators import Actuators
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Value
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import usable_cores
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.precision import choose, slower_here


def get_machine(
    world: World,
    config: TrainConfig,
    actuators: Actuators,
    bounds: Bounds,
    fixed: tuple[str, ...],
    fatal: tuple[tuple[str, Value, Value], ...] = (),
) -> Machine:
    """Returns this session's limits; all workers call it together. `fixed` knobs cannot be turned now."""
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
        refused=_refused(world, config, bounds),
        fatal=fatal,
    )


def _refused(world: World, config: TrainConfig, bounds: Bounds) -> tuple[tuple[str, str], ...]:
    """Returns unsupported precisions of any worker's device, except for the current one."""
    asked = [each for each in bounds.precision if each != config.precision]
    mine = {each: _trouble(each, world, config) for each in asked}
    found = {name: why for each in world.gather(mine) for name, why in each.items() if why}
    return tuple(found.items())


def _trouble(precision: str, world: World, config: TrainConfig) -> str:
    try:
        choose(precision, world.device)
        config.replace({"precision": precision})
    except TrainerError as error:
        return error.problem or str(error).split("\n", maxsplit=1)[0]
    return slower_here(precision, world.device)
