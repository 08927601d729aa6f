"""JSON schemas for editors (draft 2020-12): a whole TrainConfig, and settings on top of a preset."""

import functools
import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, TypeAdapter, create_model

from gangway.trainer.config.parts.choices import ARCHITECTURES, LOSSES, Choice
from gangway.trainer.config.parts.fields import AUGMENTATIONS, FOLDER_NAME, ConfigFields
from gangway.trainer.config.presets import CATALOGUE, PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.config.values.metric_names import METRICS, NONE
from gangway.trainer.config.values.schedules import LayerRate, Ramp, Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.docstrings import describe, summary
from gangway.trainer.core.errors import as_keys

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NESTED: tuple[type[BaseModel], ...] = (LayerRate, Ramp, Schedules, Segment, Steps)
_ALSO_TEXT = ("schedules", "segments", "layer_rates", "freeze")
"""Fields that may also be one text, of JSON or names by commas, as in flags and a stack file's settings."""
_OWN_KEYS = ("preset", "kimg", "checkpoint_kimg", "seed")
"""Fields that have their own keys in suites and in a stack file's job."""
_CHOICES = (ARCHITECTURES, LOSSES)

Schema = dict[str, Any]


def get_union(choice: Choice) -> Any:
    """The discriminated union of models, each with the fields that its word decides about."""
    models = list[type[BaseModel]]()
    for word, part in choice.parts.items():
        fields: dict[str, Any] = {name: (field.type, ...) for name, field in choice.fields[word].items()}
        fields[choice.by] = (Literal[word], ...)
        models.append(create_model(part.__name__, __config__=ConfigDict(extra="ignore"), **fields))
    return Annotated[functools.reduce(operator.or_, models), Discriminator(choice.by)]


def config_schema() -> str:
    """The schema of a whole configuration, such as a run's config.json."""
    flat = _flat()
    defaults = {name: field.default for name, field in TrainConfig.model_fields.items() if not field.is_required()}
    return _to_json({**flat, "title": "A training run", "allOf": [*_conditions(defaults)]})


def settings_schema() -> str:
    """The schema of a suite, or a stack file's job: a `preset` with `settings` on top; arms are checked alone."""
    flat = _flat()
    definitions = flat.pop("$defs")
    del flat["required"]
    for name in _OWN_KEYS:
        del flat["properties"][name]
    settings = {"$ref": "#/$defs/settings"}
    return _to_json(
        {
            "title": "A preset of the trainer, and settings on top of it",
            "type": "object",
            "properties": {
                "preset": {"enum": [*PRESETS], "enumDescriptions": [entry.summary for entry in CATALOGUE.values()]},
                "settings": settings,
                "controller": {"$ref": "#/$defs/ControlSettings"},
                "arms": {"type": "array", "items": {"type": "object", "properties": {"settings": settings}}},
            },
            "allOf": [
                {
                    "if": {"properties": {"preset": {"const": name}}, "required": ["preset"]},
                    "then": {"properties": {"settings": {"allOf": [*_conditions(config.model_dump())]}}},
                }
                for name, config in PRESETS.items()
            ],
            "$defs": {**definitions, **_control_definitions(), "settings": flat},
        }
    )


def _control_definitions() -> Schema:
    schema = ControlSettings.model_json_schema()
    definitions: Schema = {**schema.pop("$defs"), "ControlSettings": schema}
    for model in (Bounds, ControlSettings):
        describe(definitions[model.__name__], model)
    return definitions


def _to_json(schema: Schema) -> str:
    return json.dumps({"$schema": _DRAFT, **schema}, indent=2) + "\n"


def _flat() -> Schema:
    schema = TrainConfig.model_json_schema()
    describe(schema, ConfigFields)
    schema |= {"title": "Settings", "description": summary(TrainConfig)}
    for model in _NESTED:
        describe(schema["$defs"][model.__name__], model)
    for each in (schema, *schema["$defs"].values()):
        for named in each["properties"].values():
            named.pop("title", None)  # pydantic's, which only repeats the name
    properties = schema["properties"]
    for choice in _CHOICES:
        by = properties[choice.by]
        by["enumDescriptions"] = [summary(choice.parts[word]) for word in by["enum"]]
        schema["$defs"] |= dict(_parts(choice))
    properties["preset"]["pattern"] = f"^{FOLDER_NAME}$"
    properties["augment"]["pattern"] = _by_commas(AUGMENTATIONS)
    properties["metrics"]["pattern"] = _by_commas(METRICS)
    properties["schedules"]["default"] = {}
    for name in _ALSO_TEXT:
        whole = {key: properties[name].pop(key) for key in ("type", "items", "$ref") if key in properties[name]}
        properties[name]["anyOf"] = [whole, {"type": "string"}]
    return schema


def _by_commas(names: Iterable[str]) -> str:
    one = f"({'|'.join(names)})"
    return rf"^\s*({NONE}|{one}(\s*,\s*{one})*)\s*$"


def _parts(choice: Choice) -> Iterator[tuple[str, Schema]]:
    models = TypeAdapter(get_union(choice)).json_schema()["$defs"]
    for word, part in choice.parts.items():
        typed, properties = models[part.__name__]["properties"], dict[str, Schema]()
        for name, field in choice.fields[word].items():
            if field.narrower:
                message = {"errorMessage": as_keys("; ".join(field.narrower))}
                properties[name] = {key: each for key, each in typed[name].items() if key != "title"} | message
        about = {"title": f"{choice.by} {word}", "description": summary(part)}
        yield f"{choice.by}-{word}", {**about, "properties": properties}


def _conditions(base: Mapping[str, object]) -> Iterator[Schema]:
    """What follows from each word, for values on top of `base`; fields that the word refuses there are required."""
    for choice in _CHOICES:
        for word, fields in choice.fields.items():
            is_given = [] if base[choice.by] == word else [choice.by]
            needed = [name for name, field in fields.items() if field.narrower and not field.takes(base[name])]
            yield {
                "if": {"properties": {choice.by: {"const": word}}, "required": is_given},
                "then": {"$ref": f"#/$defs/{choice.by}-{word}", "required": needed},
            }
