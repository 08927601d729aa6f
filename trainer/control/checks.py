"""What a run cannot be given of what its controller was asked for: told before data is touched."""

from trainer.config.control import ControlSettings, Objective
from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError
from trainer.records.quantity import Quantity
from trainer.records.run_record import RunContext

_BOUNDS = "--control: bounds"


def check_control(settings: ControlSettings, config: TrainConfig, context: RunContext, workers: int) -> None:
    """TrainerError, naming the flag, for an objective without its figures, or bounds that leave out what the run begins
    with.
    """
    _check_objective(settings.objective, context)
    bounds = settings.bounds
    if bounds.batch_size is not None:
        _check_batch(bounds.batch_size, config, workers)
    if bounds.precision and config.precision not in bounds.precision:
        raise TrainerError(
            place=f"{_BOUNDS}.precision",
            problem="leaves out what the run begins with",
            value=", ".join(bounds.precision),
            allowed=f"names with {config.precision} among them",
            fix=f"add {config.precision}, or --precision {bounds.precision[0]}",
        )


def _check_objective(objective: Objective, context: RunContext) -> None:
    prices = [context.usd_per_hour, *context.usd_per_hour_by_kind.values()]
    wanted = {"cost": ("usd_per_hour", prices), "carbon": ("intensity_g_per_kwh", [context.intensity_g_per_kwh])}
    if objective not in wanted:
        return
    name, found = wanted[objective]
    if not any(_is_known(each) for each in found):
        raise TrainerError(
            place="--objective",
            problem=f"the launcher has not told {name}, which {objective} is counted by",
            value=objective,
            allowed="time or energy without it",
            fix=f"--context FILE with {name}, as a stack's machines have it; or another objective",
        )


def _is_known(quantity: Quantity | None) -> bool:
    return quantity is not None and quantity.value is not None


def _check_batch(bounds: tuple[int, int], config: TrainConfig, workers: int) -> None:
    least, most = bounds
    if not least <= config.batch_size <= most:
        raise TrainerError(
            place=f"{_BOUNDS}.batch_size",
            problem="leaves out what the run begins with",
            value=f"[{least}, {most}]",
            allowed=f"bounds around the batch of {config.batch_size}",
            fix=f"[{min(least, config.batch_size)}, {max(most, config.batch_size)}], or another --batch-size",
        )
    needed = workers * config.group
    if least < needed:
        raise TrainerError(
            place=f"{_BOUNDS}.batch_size",
            problem=f"goes below what {workers} worker(s) can share",
            value=f"[{least}, {most}]",
            allowed=f"{needed} and more",
            fix=f"[{needed}, {most}]",
        )
