"""Hints: a run that has collapsed is told so once for each cause, with settings that are accepted; one that learns is
told nothing.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS, preset
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run.loop import train
from gangway.trainer.telemetry.collapse import CONSTANT_OUTPUT, D_WINS, CollapseWatch, Hint, spread
from tests.trainer.command_lines import train_config

DIGITS = PRESETS["dcgan-digits"]
REALS = torch.randint(0, 256, (96, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def hints_of(
    losses: list[tuple[float, float]], config: TrainConfig = DIGITS, every: int = 16, augment_p: float = 1.0
) -> list[Hint]:
    """What a watch says of lines with these losses of D and G, so many steps apart."""
    watch = CollapseWatch(config, REALS)
    lines: list[dict[str, Any]] = [
        {"step": number * every, "loss_d": loss_d, "loss_g": loss_g, "augment_p": augment_p}
        for number, (loss_d, loss_g) in enumerate(losses, 1)
    ]
    return [hint for line in lines if (hint := watch.line(line)) is not None]


def test_a_discriminator_that_wins_is_told_once() -> None:
    (hint,) = hints_of([(0.5, 3.0)] * 10 + [(0.02, 6 + number / 20) for number in range(100)])
    assert (hint.cause, hint.figure) == (D_WINS, 0.02)
    assert "below 0.1 for 512 steps (0.02 now)" in hint.sentence
    assert "--lr-d 0.0005" in hint.sentence


@pytest.mark.parametrize(
    "losses",
    [
        [(0.02, 9.0)] * 32,  # 496 steps
        ([(0.02, 9.0)] * 30 + [(0.4, 3.0)]) * 10,  # never for long
        [(0.05, 9 * 0.98**number) for number in range(200)],  # the generator catches up
        [(0.3, 9.0)] * 200,
    ],
    ids=["short", "in between", "catching up", "unsure"],
)
def test_one_that_does_not_is_told_nothing(losses: list[tuple[float, float]]) -> None:
    assert hints_of(losses) == []


def test_of_translations_the_loss_says_nothing_and_the_translated_images_are_looked_at() -> None:
    config = PRESETS["cyclegan-photos"]
    assert hints_of([(0.02, 9.0)] * 100, config) == []
    watch, alike = CollapseWatch(config, REALS), REALS.clone()
    alike[1::3] = 7  # each image in turn, its translation, and that translated back
    assert watch.grid(alike, 1000) is None
    hint = watch.grid(alike, 2000)
    assert hint is not None
    assert hint.cause == CONSTANT_OUTPUT
    assert "--lr-g 0.0001 --lr-d 0.0001;" in hint.sentence
    other = CollapseWatch(config, REALS)
    assert [other.grid(REALS, images) for images in (1000, 2000, 3000)] == [None] * 3


def test_a_critic_without_bounds_is_not_judged_by_its_loss() -> None:
    assert hints_of([(-80.0, 90.0)] * 200, PRESETS["wgan-gp-cifar10"]) == []


@given(losses=st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 99)), max_size=60))
def test_no_losses_of_an_unsure_discriminator_are_a_sign(losses: list[tuple[float, float]]) -> None:
    assert hints_of(losses, every=500) == []


def test_samples_that_are_alike_are_told_after_two_grids_in_a_row() -> None:
    watch, alike, apart = CollapseWatch(DIGITS, REALS), REALS[:1].expand(96, -1, -1, -1), REALS
    assert watch.grid(alike, 0) is None, "untrained"
    assert watch.grid(alike, 20_000) is None
    assert watch.grid(alike, 20_000) is None, "the same state"
    assert watch.grid(apart, 40_000) is None
    assert watch.grid(alike, 60_000) is None
    hint = watch.grid(alike, 80_000)
    assert hint is not None
    assert (hint.cause, hint.figure) == (CONSTANT_OUTPUT, 0.0)
    assert watch.grid(alike, 100_000) is None, "once"


def test_what_an_earlier_session_has_told_is_not_told_again() -> None:
    watch = CollapseWatch(DIGITS, REALS, {D_WINS, CONSTANT_OUTPUT})
    assert watch.line({"step": 9000, "loss_d": 0.0, "loss_g": 9.0, "augment_p": 1.0}) is None
    assert [watch.grid(REALS[:1].expand(9, -1, -1, -1), images) for images in (1, 2, 3)] == [None] * 3


def test_real_images_that_are_all_the_same_are_no_measure() -> None:
    same = REALS[:1].expand(9, -1, -1, -1)
    watch = CollapseWatch(DIGITS, same)
    assert spread(same) == 0
    assert [watch.grid(same, images) for images in (1, 2, 3)] == [None] * 3


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("augment_p", [0.3, 1.0])
def test_every_proposed_setting_is_accepted_and_changes_something(name: str, augment_p: float) -> None:
    config = preset(name)
    watch = CollapseWatch(config, REALS)
    found = [watch.grid(REALS[:1].expand(9, -1, -1, -1), images) for images in (1, 2)]
    said = [hint for hint in (*hints_of([(0.01, 9.0)] * 200, config, augment_p=augment_p), *found) if hint is not None]
    assert {hint.cause for hint in said} == {CONSTANT_OUTPUT} | (
        set() if config.loss in ("wgan-gp", "lsgan") else {D_WINS}
    )
    for hint in said:
        flags = re.findall(r"(--(?!run-dir)[a-z0-9-]+) (\S+?)[ ;]", hint.sentence)
        assert flags
        changed = train_config(["train", "--preset", name, *(word for flag in flags for word in flag)])
        for flag, _ in flags:
            field = flag.removeprefix("--").replace("-", "_")
            assert getattr(changed, field) != getattr(config, field)


COLLAPSING: dict[str, dict[str, object]] = {
    # The generator stands still, and nothing holds the discriminator back.
    D_WINS: {"lr_g": 1e-9, "r1_gamma": 0.0, "augment": "none", "kimg": 8.8},
    # The critic stands still: the one image that it likes best is all that there is to learn.
    CONSTANT_OUTPUT: {
        **{"loss": "wgan-gp", "gp_weight": 10.0, "r1_gamma": 0.0, "r1_interval": 1, "augment": "none"},
        **{"lr_d": 1e-9, "lr_g": 0.1, "kimg": 6.4, "sample_kimg": 0.8},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("cause", COLLAPSING)
def test_a_run_that_collapses_says_so_on_the_console_and_in_its_log(
    cause: str, tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config.replace(COLLAPSING[cause])
    assert train(config, tmp_path, digits_dir, RunContext(), Interruption()) == 0
    lines = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line.get("event") == "hint"]
    assert told["cause"] == cause
    assert capsys.readouterr().out.count(f"hint: {told['text']}") == 1


@pytest.mark.slow
def test_a_run_that_learns_says_nothing(tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path) -> None:
    config = tiny_config.replace({"kimg": 9.6, "sample_kimg": 1})
    assert train(config, tmp_path, digits_dir, RunContext(), Interruption()) == 0
    assert '"hint"' not in (tmp_path / "stats.jsonl").read_text()
