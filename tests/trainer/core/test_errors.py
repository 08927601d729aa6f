"""TrainerError reads the same everywhere and survives the way from one rank to another."""

import pytest

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.core.errors import TrainerError, broken_rule, diverged, from_rule


def test_an_error_shows_place_problem_value_allowed_and_fix() -> None:
    error = TrainerError(place="a.json: kimg", problem="too small", value=-1, allowed="> 0", fix="set it to 1")
    assert str(error) == "a.json: kimg: too small\n  got:     -1\n  allowed: > 0\n  fix:     set it to 1"


def test_lines_without_content_are_left_out() -> None:
    assert str(TrainerError(place="here", problem="gone")) == "here: gone"


@pytest.mark.parametrize("name", ["wgan-gp-cifar10", "dcgan-digits", "r3gan-cifar10"])
def test_a_diverged_run_is_offered_a_penalty_that_its_loss_has(name: str) -> None:
    fix = diverged("loss_g", "nan").fix
    assert "--gp-weight with the wgan-gp loss, --r1-gamma with any other" in fix
    config = PRESETS[name]
    field = "gp_weight" if config.loss == "wgan-gp" else "r1_gamma"
    schedules = config.schedules.model_dump(exclude={field}, exclude_none=True)
    config.replace({field: 2 * getattr(config, field), "schedules": schedules})  # no rule forbids it


def test_the_fields_rebuild_the_error() -> None:
    error = TrainerError(place="p", problem="q", value=["a list"], allowed="x", fix="y")
    again = TrainerError(**error.fields())
    assert again.value == "['a list']"
    assert (again.place, again.problem, again.allowed, again.fix) == ("p", "q", "x", "y")


def test_a_rule_tells_the_same_with_a_model_and_without() -> None:
    error = from_rule(broken_rule("two"), "--much", value="x", fix="take two")
    assert str(error) == "--much: not an accepted value\n  got:     'x'\n  allowed: two\n  fix:     take two"
    error = from_rule(broken_rule("two", value=0, fix="--much 2"), "--much", value="x", fix="take two")
    assert str(error) == "--much: not an accepted value\n  got:     0\n  allowed: two\n  fix:     --much 2"


def test_an_error_moves_to_the_place_the_user_knows() -> None:
    error = TrainerError(place="TrainConfig.kimg", problem="p", value=1, allowed="a", fix="f")
    assert str(error.at("--kimg")) == str(error).replace("TrainConfig.kimg", "--kimg")
    assert error.headline == "TrainConfig.kimg: p"
