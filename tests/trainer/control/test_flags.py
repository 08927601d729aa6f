"""What the flags ask for, and where a mistake in them is."""

import argparse

import pytest

from gangway.trainer.config.arguments import Parser
from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.control.flags import add_control, parse_control, parse_reading
from gangway.trainer.core.errors import TrainerError


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
