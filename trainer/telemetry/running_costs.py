"""A session's price per hour and the grid's carbon intensity, from the launcher, without network access."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.power.carbon_start import start_decision
from gangway.trainer.power.forecast import Forecast, read_forecast
from gangway.trainer.records.cost_carbon import price
from gangway.trainer.records.run_record import RunContext

_MOMENT = timedelta(seconds=1)


def usd_per_hour(context: RunContext, capacity: Sequence[str]) -> float | None:
    """Returns the price of all nodes by their kind; None where one has none."""
    prices = [price(kind, context)[1].value for kind in capacity]
    known = [each for each in prices if each is not None]
    return sum(known) if known and len(known) == len(prices) else None


class GridIntensity:
    """Grams of CO2e per kWh: from the launcher's forecast file while it reaches, else the launcher's figure."""

    def __init__(self, context: RunContext) -> None:
        self._forecast = _forecast_at_hand()
        self._given = None if context.intensity_g_per_kwh is None else context.intensity_g_per_kwh.value

    def now(self, moment: datetime | None = None) -> float | None:
        """Returns it for a moment or now; None where unknown."""
        moment = moment or datetime.now(UTC)
        forecast = None if self._forecast is None else self._forecast.mean(moment, moment + _MOMENT)
        return self._given if forecast is None else forecast


def _forecast_at_hand() -> Forecast | None:
    where = str(start_decision().get("forecast", ""))
    if where.startswith(("http://", "https://")) or not where or not Path(where).is_file():
        return None
    with contextlib.suppress(TrainerError):  # no longer what the launcher has read
        return read_forecast(where)
    return None
