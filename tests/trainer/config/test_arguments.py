"""What argparse does not accept is said in the one layout, with the nearest flag or command."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.trainer.config.arguments import Parser, add_config_flags, count, path, positive, whole
from gangway.trainer.config.parts.fields import AUGMENTATIONS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="prog")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser("train")
    train.add_argument("--preset", required=True)
    train.add_argument("--batch-size", type=int)
    train.add_argument("--share", type=float)
    train.add_argument("--resume", choices=("auto", "never"))
    commands.add_parser("presets")
    return parser


@pytest.mark.parametrize(
    ("argv", "place", "problem", "fix"),
    [
        (["tran"], "COMMAND", "not an accepted value", "did you mean 'train'?"),
        ([], "COMMAND", "is required, and was not given", "add it; `prog --help` shows what it takes"),
        (["train"], "--preset", "is required, and was not given", "add it; `prog train --help` shows what it takes"),
        (["train", "--presett", "a"], "command line", "unknown flag --presett", "did you mean --preset?"),
        (
            ["train", "--preset", "a", "--batch_size=3"],
            "command line",
            "unknown flag --batch_size",
            "did you mean --batch-size?",
        ),
        (
            ["train", "--preset", "a", "--xyz"],
            "command line",
            "unknown flag --xyz",
            "`prog train --help` shows what it takes",
        ),
        (["train", "--pre", "a"], "command line", "unknown flag --pre", "did you mean --preset?"),
        (["train", "--preset"], "--preset", "expected one argument", "`prog train --help` shows what it takes"),
        (
            ["train", "--batch-size", "x"],
            "--batch-size",
            "not an accepted value",
            "`prog train --help` shows what it takes",
        ),
        (["train", "--share", "x"], "--share", "not an accepted value", "`prog train --help` shows what it takes"),
        (["train", "--resume", "nevr"], "--resume", "not an accepted value", "did you mean 'never'?"),
        (["presets", "now"], "command line", "an argument too many", "`prog presets --help` shows what it takes"),
    ],
)
def test_a_mistake(parser: Parser, argv: list[str], place: str, problem: str, fix: str) -> None:
    with pytest.raises(TrainerError) as caught:
        parser.parse_args(argv)
    assert (caught.value.place, caught.value.problem, caught.value.fix) == (place, problem, fix)


def test_what_is_allowed_is_said(parser: Parser) -> None:
    for argv, allowed in (
        (["train", "--resume", "x"], "auto, never"),
        (["train", "--batch-size", "x"], "a whole number"),
        (["train", "--share", "x"], "a number"),
    ):
        with pytest.raises(TrainerError) as caught:
            parser.parse_args(argv)
        assert (caught.value.value, caught.value.allowed) == ("x", allowed)


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        (positive, "0", "a number above 0"),
        (positive, "nan", "a number above 0"),
        (positive, "inf", "a number above 0"),
        (positive, "x", "a number above 0"),
        (count, "0", "a whole number above 0"),
        (count, "1.5", "a whole number above 0"),
        (whole, "-1", "a whole number, at least 0"),
    ],
)
def test_a_number_out_of_range_and_what_is_none(kind: Callable[[str], float], text: str, allowed: str) -> None:
    parser = Parser(prog="prog")
    parser.add_argument("--much", type=kind)
    with pytest.raises(TrainerError) as caught:
        parser.parse_args(["--much", text])
    found = caught.value
    assert (found.place, found.problem, found.value) == ("--much", "not an accepted value", text)
    assert found.allowed == allowed
    assert parser.parse_args(["--much", "2"]).much == 2


def test_good_arguments_are_parsed(parser: Parser) -> None:
    arguments = parser.parse_args(["train", "--preset", "a", "--batch-size=3"])
    assert (arguments.preset, arguments.batch_size) == ("a", 3)


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_path_is_not_taken_for_the_present_folder(parser: Parser, text: str) -> None:
    """As `--run-dir "$UNSET"` gives it."""
    parser.add_argument("--run-dir", type=path)
    with pytest.raises(TrainerError) as caught:
        parser.parse_args(["--run-dir", text, "presets"])
    assert (caught.value.place, caught.value.value) == ("--run-dir", text)
    assert caught.value.allowed == "a path; . for this folder"
    assert path("runs/a") == Path("runs/a")


@pytest.fixture
def with_fields() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return parser


@pytest.fixture
def actions(with_fields: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """By flag."""
    return {action.option_strings[-1]: action for action in with_fields._actions}


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


def test_values_stay_text(with_fields: argparse.ArgumentParser) -> None:
    arguments = vars(with_fields.parse_args(["--kimg", "many", "--batch-size", "4"]))
    given = {name: value for name, value in arguments.items() if value is not None}
    assert given == {"field_kimg": "many", "field_batch_size": "4"}
