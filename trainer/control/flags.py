"""The controller's flags of `train`: parsed, and checked against the run before data is touched."""

import argparse
import json
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gangway.trainer.config.arguments import count
from gangway.trainer.config.refusals import bounds_misfits
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import ControlSettings, Objective
from gangway.trainer.core.console import warn
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.validation import from_validation
from gangway.trainer.power.limits import POWER_FLAG, PowerAsked
from gangway.trainer.records.run_record import RunContext

if TYPE_CHECKING:
    from gangway.trainer.data.loader import Reading


MODE_FLAG, POLICY_FLAG, OBJECTIVE_FLAG, MORE_FLAG = "--controller", "--policy", "--objective", "--control"
LOADER_FLAG, PREFETCH_FLAG = "--loader-threads", "--prefetch"
_OFF = "off"


def add_control(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument(LOADER_FLAG, type=count, metavar="N", help="loader threads per worker [1; 2]")
    parser.add_argument(PREFETCH_FLAG, type=count, metavar="N", help="batches read ahead [2]")
    parser.add_argument(
        MODE_FLAG,
        choices=(_OFF, "observe", "act"),
        default=_OFF,
        metavar="off|observe|act",
        help="act: change settings while training; observe: only report decisions [off]",
    )
    parser.add_argument(POLICY_FLAG, metavar="NAME", help="policy: fixed, rules, model, learned [rules]")
    parser.add_argument(OBJECTIVE_FLAG, metavar="NAME", help="maximise images per time, cost, energy or carbon [time]")
    parser.add_argument(MORE_FLAG, metavar="JSON", help="other controller settings: bounds, interval_sec, ...")


def parse_control(arguments: argparse.Namespace) -> ControlSettings | None:
    """Parses the flags; None for no controller. Warns of ignored flags (TrainerError: a bad value)."""
    given = {POLICY_FLAG: arguments.policy, OBJECTIVE_FLAG: arguments.objective, MORE_FLAG: arguments.control}
    if arguments.controller == _OFF:
        for flag, value in given.items():
            if value is not None:
                warn(f"gangway: warning: {flag} is ignored without {MODE_FLAG} act or observe")
        return None
    return get_settings(arguments.policy, arguments.objective, arguments.control, arguments.controller)


def get_settings(
    policy: str | None, objective: str | None, more: str | None, mode: str, base: ControlSettings | None = None
) -> ControlSettings:
    """Parses the flags' values, None where not given (TrainerError: a bad value); `base` replaces the defaults."""
    named = {"policy": (POLICY_FLAG, policy), "objective": (OBJECTIVE_FLAG, objective), "mode": (MODE_FLAG, mode)}
    given = {name: value for name, (_, value) in named.items() if value is not None}
    plain = {} if base is None else base.model_dump(mode="json")
    try:
        return ControlSettings.model_validate_json(json.dumps({**plain, **_more(more), **given}))
    except ValidationError as error:
        field = str(next(iter(error.errors()[0]["loc"]), ""))
        found = from_validation(error, MORE_FLAG, known=ControlSettings.model_fields)
        raise (found.at(named[field][0]) if field in given else found) from None


def with_shares(power: PowerAsked, control: ControlSettings | None) -> PowerAsked:
    """Lets a controller lower the GPUs' limits, if it has bounds for that (TrainerError: a flag sets them)."""
    if control is None or control.bounds.watts is None:
        return power
    if power.auto or power.watts is not None:
        raise TrainerError(
            place=f"{MORE_FLAG}: bounds.watts",
            problem=f"{POWER_FLAG} sets the same limits",
            value=list(control.bounds.watts),
            allowed="one of both",
            fix=f"leave {POWER_FLAG} or bounds.watts out",
        )
    return power._replace(shares=True)


def parse_reading(arguments: argparse.Namespace) -> "Reading":
    """Returns how images are read by default. Loads torch."""
    from gangway.trainer.data.loader import Reading

    given = {"threads": arguments.loader_threads, "prefetch": arguments.prefetch}
    return Reading()._replace(**{name: value for name, value in given.items() if value is not None})


def _more(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TrainerError(
            place=MORE_FLAG,
            problem="no JSON object",
            value=str(text),
            allowed='such as {"bounds": {"batch_size": [64, 512]}, "interval_sec": 10}',
            fix="write it in quotes for the shell",
        )
    return found


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
    if not any(each is not None and each.value for each in found):
        raise TrainerError(
            place=OBJECTIVE_FLAG,
            problem=f"the launcher has told no {name} above 0, which {objective} is counted by",
            value=objective,
            allowed="time or energy without it",
            fix=f"--context FILE with {name}, as a stack's machines have it; or another objective",
        )
