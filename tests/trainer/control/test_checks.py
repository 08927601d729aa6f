"""What a run cannot be given is told with its place and what mends it."""

import pytest

from gangway.trainer.config.presets import preset
from gangway.trainer.config.values.control import Bounds, ControlSettings, Objective
from gangway.trainer.control.checks import check_control
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext

CONFIG = preset("dcgan-digits").replace({"batch_size": 64, "precision": "fp32"})
PRICED = RunContext(usd_per_hour=Quantity(value=2.0, unit="USD/h", provenance="list-price", source="a list"))
FREE = RunContext(usd_per_hour=Quantity(value=0.0, unit="USD/h", provenance="list-price", source="a list"))
UNKNOWN = RunContext(usd_per_hour=Quantity.absent("USD/h", "no list has it"))


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_time_and_energy_need_nothing_of_the_launcher(objective: Objective) -> None:
    check_control(ControlSettings(objective=objective), CONFIG, RunContext(), 2)


@pytest.mark.parametrize(
    ("objective", "context"), [("cost", RunContext()), ("cost", UNKNOWN), ("cost", FREE), ("carbon", PRICED)]
)
def test_an_objective_without_its_figures_is_refused(objective: Objective, context: RunContext) -> None:
    with pytest.raises(TrainerError) as caught:
        check_control(ControlSettings(objective=objective), CONFIG, context, 1)
    assert (caught.value.place, caught.value.value) == ("--objective", objective)


def test_a_price_is_enough_for_cost() -> None:
    check_control(ControlSettings(objective="cost"), CONFIG, PRICED, 1)


@pytest.mark.parametrize(
    ("bounds", "workers", "fix"),
    [
        (Bounds(batch_size=(128, 256)), 1, "[64, 256]"),
        (Bounds(batch_size=(8, 32)), 1, "[8, 64]"),
        (Bounds(batch_size=(1, 64)), 4, "[4, 64]"),
        (Bounds(batch_gpu=(96, 128)), 2, "[64, 64]"),
        (Bounds(precision=("bf16",)), 1, '["fp32", "bf16"]'),
    ],
)
def test_bounds_hold_what_the_run_begins_with(bounds: Bounds, workers: int, fix: str) -> None:
    with pytest.raises(TrainerError) as caught:
        check_control(ControlSettings(bounds=bounds), CONFIG, RunContext(), workers)
    assert caught.value.place.startswith("--control: bounds.")
    assert fix in caught.value.fix


def test_a_share_that_fewer_workers_would_have_is_no_mistake() -> None:
    check_control(ControlSettings(bounds=Bounds(batch_gpu=(48, 64))), CONFIG, RunContext(), 2)
