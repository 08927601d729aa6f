"""The TrainConfig of a job, from its preset and the job's changes. Plan, findings, bench and nodes all use it."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import StrictBool, ValidationError

from gangway.components.core.findings import InputError, listed, nearest_hint
from gangway.stacks.config.explain_errors import explain
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import as_keys
from gangway.trainer.core.validation import describe_value

Settings = dict[str, StrictBool | int | float | str]
Overrides = Mapping[str, float | str | None]
"""Fields with their own key in the job, and the backend of its machines; None keeps the preset's value."""

_JOB_KEYS = ("preset", "kimg", "checkpoint_kimg", "seed")


def check_settings(preset: str, settings: Mapping[str, bool | float | str]) -> None:
    """InputError, at `settings` or one of its keys: no field of TrainConfig, or a conflict with the preset."""
    for name, value in settings.items():
        if name in _JOB_KEYS:
            raise InputError(
                f"settings.{name}",
                "is a key of the job, not of settings",
                value=value,
                allowed=f"settings without {name}",
                fix=f"write {name} next to settings",
            )
        if name not in TrainConfig.model_fields:
            fields = sorted(TrainConfig.model_fields.keys() - set(_JOB_KEYS))
            raise InputError(
                f"settings.{name}",
                "not a field of the trainer's TrainConfig",
                value=name,
                allowed=listed(fields, name),
                fix=nearest_hint(name.replace("-", "_"), fields),
            )
    effective_config(preset, settings)


def _explain(error: ValidationError, preset: str, settings: Mapping[str, bool | float | str]) -> InputError:
    first = error.errors()[0]
    if first["type"] != "rule":
        return explain(error, TrainConfig, "", namespace="settings.")[0]
    found = describe_value(first, ".".join(map(str, first["loc"])))
    field, allowed = found.path, as_keys(found.allowed)
    return InputError(
        f"settings.{field}" if field in settings else "settings",
        f"{'' if field in settings else f'{field} '}conflicts with the rest of preset {preset}",
        value=settings.get(field, found.value),
        allowed=allowed if field in settings else f"{field}: {allowed}",
        fix=as_keys(found.fix),
    )


def effective_config(
    preset: str, settings: Mapping[str, bool | float | str], overrides: Overrides = MappingProxyType({})
) -> TrainConfig:
    """The configuration; `settings` take precedence over `overrides`. InputError, in `settings`: conflicting values."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return TrainConfig.model_validate({**PRESETS[preset].model_dump(), **given, **settings})
    except ValidationError as error:
        raise _explain(error, preset, settings) from None
