"""Each field of TrainConfig has a flag, which tells what it takes in words of the command line."""

import argparse
import re
from pathlib import Path

import pytest

from gangway.trainer.config.arguments import add_config_flags
from gangway.trainer.config.parts.fields import AUGMENTATIONS
from gangway.trainer.config.train_config import TrainConfig


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return parser


@pytest.fixture
def actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """By flag."""
    return {action.option_strings[-1]: action for action in parser._actions}


@pytest.mark.parametrize(
    ("flag", "metavar"),
    [
        ("--kimg", "X"),
        ("--batch-size", "N"),
        ("--tf32", "true|false"),
        ("--precision", "fp32|bf16|fp16"),
        ("--resolution", "16|32|64|128|256|512"),
        ("--metrics", "NAMES"),
    ],
)
def test_a_flag_shows_what_it_takes(actions: dict[str, argparse.Action], flag: str, metavar: str) -> None:
    assert actions[flag].metavar == metavar


def test_every_field_has_its_flag_and_a_sentence_of_its_own(actions: dict[str, argparse.Action]) -> None:
    told = {flag: action.help for flag, action in actions.items() if flag != "--help"}
    assert told.keys() == {f"--{name.replace('_', '-')}" for name in TrainConfig.model_fields} - {"--preset"}
    assert all(told.values())
    assert len(set(told.values())) == len(told)


def test_sentences_name_nothing_that_only_python_knows(actions: dict[str, argparse.Action]) -> None:
    for action in actions.values():
        assert not re.search(r"`[A-Z]|\btrainer\.\w", action.help or ""), action.help


def test_names_by_commas_are_told(actions: dict[str, argparse.Action]) -> None:
    """The sentence stands in a docstring: a part that is added must be added there too."""
    listed = (actions["--augment"].help or "").partition(": ")[2]
    assert listed == f"{', '.join(AUGMENTATIONS)}, by commas; or none"
    assert "`python -m gangway.trainer evaluate --help`" in (actions["--metrics"].help or ""), "where each has its line"


@pytest.mark.parametrize("flag", ["--schedules", "--segments", "--layer-rates", "--freeze"])
def test_what_changes_a_run_names_its_page(actions: dict[str, argparse.Action], flag: str, repo: Path) -> None:
    page = (actions[flag].help or "").rpartition("; see ")[2]
    assert f"`{flag.removeprefix('--').replace('-', '_')}`" in (repo / page).read_text("utf-8")


def test_values_stay_text(parser: argparse.ArgumentParser) -> None:
    arguments = vars(parser.parse_args(["--kimg", "many", "--batch-size", "4"]))
    given = {name: value for name, value in arguments.items() if value is not None}
    assert given == {"field_kimg": "many", "field_batch_size": "4"}
