"""TrainConfig: round trip, validation messages, and the arithmetic on batches."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS, preset
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import METRICS
from gangway.trainer.core.errors import TrainerError

DIGITS = PRESETS["dcgan-digits"]


@given(
    batch_size=st.integers(1, 4096),
    kimg=st.floats(0.001, 1e6),
    seed=st.integers(0, 2**63 - 1),
    augment=st.sampled_from(["none", "translation", "translation,cutout", "cutout"]),
)
def test_json_round_trip_is_exact(batch_size: int, kimg: float, seed: int, augment: str) -> None:
    config = DIGITS.replace({"batch_size": batch_size, "kimg": kimg, "seed": seed, "augment": augment})
    assert TrainConfig.from_json(config.to_json()) == config


@given(batch_size=st.integers(1, 4096), kimg=st.floats(0.001, 1e4))
def test_total_images_are_the_fewest_whole_batches_that_cover_kimg(batch_size: int, kimg: float) -> None:
    total = DIGITS.replace({"batch_size": batch_size, "kimg": kimg}).total_images
    assert total % batch_size == 0
    assert total - batch_size < round(kimg * 1000) <= total


@given(batch_size=st.integers(1, 64), world_size=st.integers(1, 128))
def test_a_batch_is_refused_only_by_more_workers_than_it_has_images(batch_size: int, world_size: int) -> None:
    config = DIGITS.replace({"batch_size": batch_size})
    if world_size <= batch_size:
        config.check_workers(world_size)
        return
    with pytest.raises(
        TrainerError, match=f"fewer images in a step than workers, of which there are {world_size}"
    ) as e:
        config.check_workers(world_size)
    assert e.value.place == "TrainConfig.batch_size"
    assert f"start at most {batch_size} processes" in e.value.fix
    config.check_workers(batch_size)
    DIGITS.replace({"batch_size": int(e.value.fix.split()[-1])}).check_workers(world_size)


def test_equal_shares_are_demanded_where_all_workers_run_one_program() -> None:
    DIGITS.check_workers(3)
    DIGITS.check_workers(4, equal_shares=True)
    with pytest.raises(TrainerError, match="does not divide by the 3 workers") as e:
        DIGITS.check_workers(3, equal_shares=True)
    assert e.value.fix.endswith("--batch-size 66")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"kimg": 0},
            "TrainConfig.kimg: not an accepted value\n  got:     0\n  allowed: a number above 0 and at most 1000000000",
        ),
        ({"beta1": 1}, "TrainConfig.beta1"),
        ({"resolution": 48}, "allowed: 16, 32, 64, 128, 256 or 512\n"),
        ({"resolution": 10**20}, "allowed: 16, 32, 64, 128, 256 or 512\n"),
        ({"mirror": "maybe"}, "fix:     give an allowed value, or leave it out for false"),
        ({"nfg": 3}, "TrainConfig.nfg: unknown key\n  got:     3\n  fix:     did you mean 'ngf'?"),
        ({"augment": "flip"}, "allowed: color, translation, cutout, by commas; or none\n"),
        ({"augment": "cutout,cutot"}, "got:     'cutot'\n"),
        ({"augment": "cutout,cutot"}, "fix:     did you mean 'cutout'?"),
        ({"augment": "cutout,cutout"}, "allowed: each name at most once\n  fix:     leave the second cutout out"),
        (
            {"augment": "color"},
            "TrainConfig.augment: not an accepted value\n  got:     'color'\n  allowed: color needs channels 3\n",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TrainerError) as caught:
        DIGITS.replace(changes)
    assert message in str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("kimg", "a number above 0 and at most 1000000000"),
        ("beta1", "a number, at least 0 and below 1"),
        ("r1_gamma", "a number, at least 0"),
        ("d_steps", "a whole number, at least 1"),
        ("batch_size", "a whole number from 1 to 1048576"),
        ("keep_checkpoints", "a whole number, at least 2"),
        ("tf32", "true or false"),
        ("channels", "1 or 3"),
        ("precision", "fp32, bf16 or fp16"),
        ("metrics", f"{', '.join(METRICS)}, by commas; or none"),
    ],
)
def test_nonsense_is_answered_with_all_that_a_field_takes(field: str, allowed: str) -> None:
    """In words of ours, not in those of pydantic's parser; the same from the command line and from a file."""
    with pytest.raises(TrainerError) as from_flag:
        DIGITS.replace({field: "nonsense"})
    with pytest.raises(TrainerError) as from_file:
        TrainConfig.from_json(json.dumps({**DIGITS.model_dump(), field: "nonsense"}), "c.json")
    assert (from_flag.value.value, from_flag.value.allowed) == ("nonsense", allowed)
    assert (from_file.value.place, from_file.value.allowed) == (f"c.json: {field}", allowed)


def test_no_value_is_refused_in_pydantics_words() -> None:
    """Every field, by every kind of wrong value: what is allowed never is a sentence of the parser's."""
    wrong = ("nonsense", "", "nan", "1e999", "-1", "1.5", "1" * 30, -1, 1.5, 10**30, None, [1], {"a": 1})
    told = set()
    for field in TrainConfig.model_fields:
        for value in wrong:
            try:
                TrainConfig.from_json(json.dumps({**DIGITS.model_dump(), field: value}))
            except TrainerError as error:
                told.add(error.allowed)
    assert len(told) > 15
    assert [
        allowed
        for allowed in told
        if re.search(r"\b(valid|parse?|input|greater|less|integer|string)\b", allowed, re.IGNORECASE)
    ] == []


def test_a_config_file_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(DIGITS.to_json())
    assert TrainConfig.from_file(path) == DIGITS
    path.write_text('{\n  "kimg": 1\n  "seed": 2\n}')
    with pytest.raises(TrainerError, match=r"c\.json: is not JSON: line 3, column 3: expected `,` or `}`") as caught:
        TrainConfig.from_file(path)
    assert (caught.value.value, caught.value.allowed) == ('  "seed": 2', "a JSON object")
    path.write_text("\n")
    with pytest.raises(TrainerError, match=r"c\.json: is empty"):
        TrainConfig.from_file(path)
    with pytest.raises(TrainerError, match="no such file"):
        TrainConfig.from_file(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"d_steps": True}, "a whole number, at least 1"),
        ({"kimg": False}, "a number above 0 and at most 1000000000"),
        ({"channels": True}, "1 or 3"),
    ],
)
def test_true_is_not_one(changes: dict[str, object], allowed: str) -> None:
    with pytest.raises(TrainerError) as caught:
        TrainConfig.from_json(json.dumps({**DIGITS.model_dump(), **changes}), "c.json")
    assert caught.value.allowed == allowed


@pytest.mark.parametrize("name", ["", "../elsewhere", "/tmp", "a b", ".", ".hidden", "x" * 101])
def test_a_name_that_makes_no_folder_is_refused(name: str) -> None:
    with pytest.raises(TrainerError, match=r"^c\.json: preset: ") as caught:
        TrainConfig.from_json(json.dumps({**DIGITS.model_dump(), "preset": name}), "c.json")
    assert (caught.value.value, caught.value.allowed[:17]) == (name, "a name of letters")


@given(kimg=st.floats(5e-324, 0.001))
def test_the_shortest_run_makes_a_step(kimg: float) -> None:
    assert DIGITS.replace({"kimg": kimg}).total_images == DIGITS.step_images


def test_all_missing_fields_are_told_at_once() -> None:
    with pytest.raises(TrainerError) as caught:
        TrainConfig.from_json('{"preset": "mine", "dataset": "digits"}', "c.json")
    assert (caught.value.place, caught.value.problem) == ("c.json: resolution", "missing")
    assert caught.value.fix == "add it, and what else is missing: channels, kimg"


def test_a_field_given_twice_is_named_not_overridden() -> None:
    text = DIGITS.to_json().replace('"kimg":', '"kimg": 7,\n  "kimg":')
    with pytest.raises(TrainerError, match=r"^c\.json: kimg: is given twice\n  fix:     remove all but one$"):
        TrainConfig.from_json(text, "c.json")


def test_a_flags_text_is_one_of_a_few_numbers_too() -> None:
    assert DIGITS.replace({"resolution": "64", "channels": "3"}) == DIGITS.replace({"resolution": 64, "channels": 3})
    with pytest.raises(TrainerError, match=r"got: +48\n"):
        DIGITS.replace({"resolution": "48"})


def test_presets_are_found_by_their_own_name() -> None:
    assert all(preset(name).preset == name for name in PRESETS)
    with pytest.raises(TrainerError, match="dcgan-digits"):
        preset("biggan")


def test_config_and_record_do_not_load_torch() -> None:
    names = ("config.train_config", "records.run_record", "records.summary", "__main__")
    modules = ", ".join(f"gangway.trainer.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_workers_need_a_group_each() -> None:
    config = PRESETS["progan-celeba128"].replace({"batch_size": 16})
    config.check_workers(4)
    config.check_workers(3)
    with pytest.raises(TrainerError, match="fewer groups in a step than workers") as caught:
        config.check_workers(5)
    assert caught.value.value == "4 groups of 4 in a batch of 16"
    assert "at most 4 processes, or a new run with --batch-size 20" in caught.value.fix
    with pytest.raises(TrainerError, match="does not divide by the 3 workers") as caught:
        config.check_workers(3, equal_shares=True)
    assert caught.value.fix == "a new run with --batch-size 24"


@pytest.mark.parametrize(
    ("changes", "place", "allowed"),
    [
        ({"segments": [{"from_image": True}]}, "segments.0.from_image", "a whole number, at least 0"),
        ({"segments": '[{"from_image": 9, "batch_size": true}]'}, "segments.0.batch_size", "a whole number"),
        ({"segments": [{"from_image": 9, "lr_factor": True}]}, "segments.0.lr_factor", "a number"),
        ({"layer_rates": [{"layers": "generator.*", "lr_factor": True}]}, "layer_rates.0.lr_factor", "a number"),
        ({"schedules": {"lr_g": {"from": True, "to": 1e-4, "over_kimg": 200}}}, "schedules.lr_g", "a number"),
        ({"schedules": {"lr_g": {"steps": [[False, 1e-4]]}}}, "schedules.lr_g", "a number"),
        ({"segments": True}, "segments", "a list"),
        ({"schedules": True}, "schedules", "a JSON object"),
        ({"batch_size": True}, "batch_size", "a whole number"),
        ({"lr_g": True}, "lr_g", "a number"),
    ],
)
def test_true_is_no_number_wherever_it_is_written(changes: dict[str, object], place: str, allowed: str) -> None:
    with pytest.raises(TrainerError) as caught:
        DIGITS.replace(changes)
    assert caught.value.place.startswith(f"TrainConfig.{place}")
    assert caught.value.allowed.startswith(allowed.split(" from")[0])
    assert caught.value.value is not None
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("changes", "place", "allowed"),
    [
        ({"kimg": 1e308}, "kimg", "a number above 0 and at most 1000000000"),
        ({"kimg": 1e306, "segments": [{"from_image": 9}]}, "kimg", "a number above 0 and at most 1000000000"),
        ({"segments": [{"from_image": 9, "lr_factor": 1e308}]}, "segments.0.lr_factor", " 1000000"),
        ({"layer_rates": [{"layers": "*", "lr_factor": 1e308}]}, "layer_rates.0.lr_factor", " 1000000"),
    ],
)
def test_numbers_that_nothing_can_be_counted_in_are_refused(
    changes: dict[str, object], place: str, allowed: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        DIGITS.replace(changes)
    assert caught.value.place == f"TrainConfig.{place}"
    assert caught.value.allowed.endswith(allowed)
    DIGITS.replace({"kimg": 1e9, "segments": [{"from_image": 9, "lr_factor": 1e6}]})
