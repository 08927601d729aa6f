"""What the flags ask for, and where a mistake in them is."""

import argparse

import pytest

from gangway.trainer.config.arguments import Parser
from gangway.trainer.config.presets import preset
from gangway.trainer.config.values.control import Bounds, ControlSettings, Objective
from gangway.trainer.control.flags import add_control, check_control, parse_control, parse_reading
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="x")
    add_control(parser)
    return parser.parse_args(words)


def test_nothing_asked_is_no_controller() -> None:
    assert parse_control(parsed()) is None
    assert parse_reading(parsed()).prefetch == 2


def test_flags_and_json_are_one_setting() -> None:
    more = '{"bounds": {"batch_size": [32, 128], "precision": ["fp32", "bf16"]}, "interval_sec": 3}'
    words = ("--controller", "observe", "--policy", "model", "--objective", "energy", "--control", more)
    assert parse_control(parsed(*words)) == ControlSettings(
        mode="observe",
        policy="model",
        objective="energy",
        interval_sec=3,
        bounds=Bounds(batch_size=(32, 128), precision=("fp32", "bf16")),
    )
    assert parse_reading(parsed("--loader-threads", "3")).threads == 3


def test_what_is_ignored_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_control(parsed("--policy", "model", "--control", "{}")) is None
    said = capsys.readouterr().err
    assert "--policy is ignored" in said
    assert "--control is ignored" in said


@pytest.mark.parametrize(
    ("words", "place", "fix"),
    [
        (("--policy", "modle"), "--policy", ""),
        (("--objective", "money"), "--objective", ""),
        (("--control", "{"), "--control", ""),
        (("--control", "[]"), "--control", ""),
        (("--control", '{"bound": {}}'), "--control: bound", "bounds"),
        (("--control", '{"bounds": {"batch_sise": [1, 2]}}'), "--control: bounds.batch_sise", "batch_size"),
        (("--control", '{"bounds": {"batch_size": [64, 32]}}'), "--control: bounds.batch_size", "[32, 64]"),
        (("--control", '{"bounds": {"threads": [0, 2]}}'), "--control: bounds.threads.0", ""),
        (("--control", '{"bounds": {"loader_threads": [1, 1000000000]}}'), "--control: bounds.loader_threads.1", ""),
        (("--control", '{"bounds": {"watts": [300.0, 200.0]}}'), "--control: bounds.watts", "[200"),
        (("--control", '{"interval_sec": 0}'), "--control: interval_sec", ""),
    ],
)
def test_a_mistake_names_its_place(words: tuple[str, ...], place: str, fix: str) -> None:
    with pytest.raises(TrainerError) as caught:
        parse_control(parsed("--controller", "act", *words))
    assert caught.value.place == place
    assert fix in caught.value.fix
    assert caught.value.exit_code == 2


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
