"""Checks a controller's settings against the run before data is touched."""

import json

from gangway.trainer.config.refusals import bounds_misfits
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import ControlSettings, Objective
from gangway.trainer.control.flags import MORE_FLAG, OBJECTIVE_FLAG
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext


def check_control(settings: ControlSettings, config: TrainConfig, context: RunContext, workers: int) -> None:
    """Raises TrainerError for an objective without its figures, or bounds that exclude the run's initial values."""
    _check_objective(settings.objective, context)
    # A run may continue with fewer workers, whose shares are larger: values unusable in this session are idle bounds.
    for found in bounds_misfits(settings.bounds, config, workers, least_workers=1):
        raise TrainerError(
            place=f"{MORE_FLAG}: bounds.{found.field}",
            problem=found.problem,
            value=json.dumps(found.value),
            allowed=found.allowed,
            fix=f'"{found.field}": {json.dumps(found.fix)}, or another --{found.field.replace("_", "-")}',
        )


def _check_objective(objective: Objective, context: RunContext) -> None:
    prices = [context.usd_per_hour, *context.usd_per_hour_by_kind.values()]
    wanted = {"cost": ("usd_per_hour", prices), "carbon": ("intensity_g_per_kwh", [context.intensity_g_per_kwh])}
    if objective not in wanted:
        return
    name, found = wanted[objective]
    if not any(_is_known(each) for each in found):
        raise TrainerError(
            place=OBJECTIVE_FLAG,
            problem=f"the launcher has told no {name} above 0, which {objective} is counted by",
            value=objective,
            allowed="time or energy without it",
            fix=f"--context FILE with {name}, as a stack's machines have it; or another objective",
        )


def _is_known(quantity: Quantity | None) -> bool:
    return quantity is not None and bool(quantity.value)
