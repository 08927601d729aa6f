"""What argparse does not accept is said in the one layout, with the nearest flag or command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.trainer.config.arguments import Parser, count, path, positive, whole
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
        (whole, "-1", "a whole number from 0 on"),
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
