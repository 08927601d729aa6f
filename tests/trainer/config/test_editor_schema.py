"""The schemas for editors say what TrainConfig says: by family and loss, for whole configurations and for settings."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from gangway.trainer.__main__ import main
from gangway.trainer.config.editor_schema import config_schema, get_union, settings_schema
from gangway.trainer.config.parts.choices import ARCHITECTURES, LOSSES, Choice
from gangway.trainer.config.parts.rules import PART_RULES, first_broken
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Ramp, Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.errors import TrainerError

WHOLE, SETTINGS = (Draft202012Validator(json.loads(made())) for made in (config_schema, settings_schema))
UNIONS = {choice.by: TypeAdapter[Any](get_union(choice)) for choice in (ARCHITECTURES, LOSSES)}


def _values(name: str) -> st.SearchStrategy[Any]:
    """What a field may be by itself, the ends of its range and its default among it."""
    field = TrainConfig.model_fields[name]
    kind, default = field.annotation, field.default
    if get_origin(kind) is not None:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    least = next((each.ge for each in field.metadata if hasattr(each, "ge")), 0.5)
    return st.sampled_from([least, default, least + 1 if kind is int else least + 0.25])


PLAIN = [
    name
    for name, field in TrainConfig.model_fields.items()
    if not field.is_required() and (field.annotation in (bool, int, float) or get_origin(field.annotation) is Literal)
]
DECIDED = {name for choice in (ARCHITECTURES, LOSSES) for fields in choice.fields.values() for name in fields}
DRAWN = {
    **{name: _values(name) for name in PLAIN},
    "augment": st.sampled_from(["none", "translation", "translation,cutout"]),
    "metrics": st.sampled_from(["none", "fd-enl0", "fd-enl0,kid"]),
    "schedules": st.sampled_from(
        [
            Schedules(),
            Schedules(beta2=Ramp(start=0.9, to=0.99, over_kimg=10, shape="cosine", then="hold")),
            Schedules(ema_kimg=Steps(steps=((0, 2.0), (5, 0.5)))),
        ]
    ),
    "segments": st.sampled_from(
        [(), (Segment(from_image=0, batch_size=16), Segment(from_image=640, precision="bf16"))]
    ),
}
PRESET = st.sampled_from([*PRESETS.values()])
# Words that decide, and the fields that they decide about, as often as all others together.
NAMES = st.sampled_from(["architecture", "loss"]) | st.sampled_from(sorted(DECIDED)) | st.sampled_from([*DRAWN])
CHANGES = st.sets(NAMES, max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: DRAWN[name] for name in sorted(names)})
)


def _json(config: TrainConfig, **how: Any) -> Any:
    return json.loads(config.model_dump_json(**how))


def test_every_field_and_both_unions_are_drawn_from() -> None:
    """Or the properties below would be about less than they say."""
    assert {"architecture", "loss", *DECIDED} <= DRAWN.keys()


@given(base=PRESET, changes=CHANGES)
def test_the_schema_accepts_what_the_trainer_does_and_no_more_by_family_and_loss(
    base: TrainConfig, changes: dict[str, Any]
) -> None:
    try:
        config = base.replace(changes)
    except TrainerError:
        unlike = base.model_copy(update=changes)
        if (broken := first_broken(unlike)) in PART_RULES:
            assert not WHOLE.is_valid(_json(unlike)), broken
            assert not WHOLE.is_valid(_json(unlike, exclude_defaults=True)), broken
        return
    assert [error.message for error in WHOLE.iter_errors(_json(config))] == []
    # A person leaves out what is the default.
    assert [error.message for error in WHOLE.iter_errors(_json(config, exclude_defaults=True))] == []
    settings = _json(config, include=changes.keys() - {"checkpoint_kimg", "seed"})  # these have keys of their own
    assert [error.message for error in SETTINGS.iter_errors({"preset": base.preset, "settings": settings})] == []


@given(base=PRESET, changes=CHANGES)
def test_the_rules_of_parts_are_the_unions_own(base: TrainConfig, changes: dict[str, Any]) -> None:
    config = base.model_copy(update=changes)
    refused = set()
    for by, union in UNIONS.items():
        try:
            union.validate_python(vars(config))
        except ValidationError as error:
            refused |= {(getattr(config, by), finding["loc"][1]) for finding in error.errors()}
    broken = {rule.field for rule in PART_RULES if rule.is_broken(config)}
    assert broken == {field for _, field in refused}


def test_every_preset_passes() -> None:
    assert {name: [*WHOLE.iter_errors(_json(config))] for name, config in PRESETS.items()} == {
        name: [] for name in PRESETS
    }


def test_every_rule_of_a_part_is_refused_by_both_in_the_same_words(
    repo: Path, load_module: Callable[[Path], ModuleType]
) -> None:
    told = set()
    for base, changes, *_ in load_module(repo / "tests" / "trainer" / "config" / "test_train_config_rules.py").BROKEN:
        config = base.model_copy(update=changes)
        rule = first_broken(config)
        if rule not in PART_RULES:
            continue
        told.add(rule)
        errors = [*WHOLE.iter_errors(_json(config))]
        assert any(rule.allowed.split("--")[0] in error.schema.get("errorMessage", "") for error in errors), changes
        settings = {"preset": base.preset, "settings": _json(config, include=set(changes))}
        assert not SETTINGS.is_valid(settings), changes
    assert told == set(PART_RULES)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"architecture": "progressive"}, "'stable_kimg' is a required property"),
        ({"loss": "wgan-gp", "gp_weight": 10, "r2_gamma": 0, "r1_interval": 1}, "'r1_gamma' is a required property"),
        ({"ngf": 0}, "0 is less than the minimum of 1"),
        ({"beta1": 1}, "1 is greater than or equal to the maximum of 1"),
        ({"resolution": 48}, "48 is not one of [16, 32, 64, 128, 256, 512]"),
        ({"nfg": 3}, "Additional properties are not allowed ('nfg' was unexpected)"),
        ({"augment": "flip"}, "does not match"),
        ({"segments": [{"from_image": 0, "batch_size": 0}]}, "is not valid under any of the given schemas"),
        ({"schedules": {"lr_g": {"from": 1, "to": 0}}}, "is not valid under any of the given schemas"),
    ],
)
def test_what_a_person_writes_is_looked_at(given: dict[str, Any], refused: str) -> None:
    """On the shortest configuration there is."""
    plain = {"preset": "mine", "dataset": "digits", "resolution": 32, "channels": 1, "kimg": 1}
    assert WHOLE.is_valid(plain)
    (error, *_) = WHOLE.iter_errors({**plain, **given})
    assert refused in error.message
    with pytest.raises(TrainerError):
        TrainConfig.from_json(json.dumps({**plain, **given}))


@pytest.mark.parametrize("field", ["schedules", "segments", "layer_rates", "freeze"])
def test_what_is_text_for_a_flag_is_text_in_a_file_too(field: str) -> None:
    text = {"schedules": "{}", "segments": "[]", "layer_rates": "[]", "freeze": "generator.*"}[field]
    given = {**_json(PRESETS["dcgan-digits"]), field: text}
    assert WHOLE.is_valid(given)
    assert TrainConfig.from_json(json.dumps(given)).preset == "dcgan-digits"


def test_arms_and_unknown_presets() -> None:
    assert SETTINGS.is_valid({"name": "t", "preset": "dcgan-digits", "arms": [{"settings": {"precision": "bf16"}}]})
    assert not SETTINGS.is_valid({"preset": "dcgan-digits", "arms": [{"settings": {"precison": "bf16"}}]})
    assert not SETTINGS.is_valid({"preset": "dcgan-digit"})


@pytest.mark.parametrize("of", ["config", "settings"])
def test_every_key_has_its_sentence(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", of]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    objects = [schema if of == "config" else schema["$defs"]["settings"], *schema["$defs"].values()]
    choices = [name for name in schema["$defs"] if name.partition("-")[0] in UNIONS]
    assert len(choices) == len(ARCHITECTURES.parts) + len(LOSSES.parts)
    for each in objects:
        assert each["description"]
        for name, value in each["properties"].items():
            assert value.get("description") or value["errorMessage"], name


@pytest.mark.parametrize("choice", [ARCHITECTURES, LOSSES], ids=lambda choice: choice.by)
def test_each_word_has_a_part_that_says_what_it_is(choice: Choice) -> None:
    assert [*choice.parts] == [*get_args(TrainConfig.model_fields[choice.by].annotation)]
    for word, part in choice.parts.items():
        assert part.__doc__, word
        assert choice.fields[word].keys() <= TrainConfig.model_fields.keys()
