"""What a job trains: its preset, what the job changes of it, and the one TrainConfig that comes of both.

Plan, findings, bench and launch read `effective_config` or `trainer_flags`, which agree; the record has what the
trainer makes of the flags. Length, seed and distance of checkpoints have keys of their own in the job.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import StrictBool, ValidationError

from components.core.findings import InputError, listed, nearest_hint
from stacks.config.explain_errors import explain
from trainer.config.presets import PRESETS
from trainer.config.train_config import TrainConfig
from trainer.config.values.control import ControlSettings
from trainer.config.values.flag_names import as_keys

Settings = dict[str, StrictBool | int | float | str]
Overrides = Mapping[str, float | str | None]
"""Fields that the job has keys of its own for, and the backend that its machines need; None leaves the preset's."""

_OF_THE_JOB = ("preset", "kimg", "checkpoint_kimg", "seed")


def check_settings(preset: str, settings: Mapping[str, bool | float | str]) -> None:
    """Refuses what is no field of TrainConfig, and values that do not go together with the preset's. InputError: its
    place is `settings`, or a key in there.
    """
    for name, value in settings.items():
        if name in _OF_THE_JOB:
            raise InputError(
                f"settings.{name}",
                "has a key of its own",
                value=value,
                allowed=f"settings without {name}",
                fix=f"write {name} beside settings",
            )
        if name not in TrainConfig.model_fields:
            fields = sorted(TrainConfig.model_fields.keys() - set(_OF_THE_JOB))
            raise InputError(
                f"settings.{name}",
                "no field of the trainer's TrainConfig",
                value=name,
                allowed=listed(fields, name),
                fix=nearest_hint(name.replace("-", "_"), fields),
            )
    try:
        effective_config(preset, settings)
    except ValidationError as error:
        raise _explained(error, preset, settings) from None


def _explained(error: ValidationError, preset: str, settings: Mapping[str, bool | float | str]) -> InputError:
    """The first mistake: a rule of the trainer in a file's words, or a value of the wrong kind."""
    first = error.errors()[0]
    if first["type"] != "rule":
        return explain(error, TrainConfig, "", namespace="settings.")[0]
    # A rule about several fields names one of them, and the way out, in its context.
    context = first.get("ctx", {})
    field = context.get("field") or ".".join(str(part) for part in first["loc"])
    allowed = as_keys(first["msg"].removeprefix("Value error, "))
    return InputError(
        f"settings.{field}" if field in settings else "settings",
        f"{'does' if field in settings else f'{field} does'} not go together with the rest of preset {preset}",
        value=settings.get(field, context.get("value")),
        allowed=allowed if field in settings else f"{field}: {allowed}",
        fix=as_keys(context["fix"]) if context.get("fix") else f"change {field}, or leave it out",
    )


def effective_config(
    preset: str, settings: Mapping[str, bool | float | str], overrides: Overrides = MappingProxyType({})
) -> TrainConfig:
    """The configuration that the trainer makes of `trainer_flags` of the same arguments. ValidationError: values that
    do not go together.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    return TrainConfig.model_validate({**PRESETS[preset].model_dump(), **given, **settings})


def trainer_flags(
    preset: str, settings: Mapping[str, bool | float | str], overrides: Overrides = MappingProxyType({})
) -> tuple[str, ...]:
    """The trainer's flags. Of a field that is given twice the trainer takes the last: the settings count."""
    before = {name: value for name, value in overrides.items() if name == "backend"}
    after = {name: value for name, value in overrides.items() if name != "backend"}
    said = setting_flags({**_size(preset, settings), **settings})
    return (*_override_flags(before), "--preset", preset, *_override_flags(after), *said)


def _size(preset: str, settings: Mapping[str, bool | float | str]) -> Mapping[str, int]:
    """Said where the trainer would take the size of the pictures that it finds: the nodes train what was planned."""
    base = PRESETS[preset]
    if settings.get("dataset", base.dataset) != "folder":
        return {}
    return {"resolution": base.resolution, "channels": base.channels}


def _override_flags(overrides: Overrides) -> tuple[str, ...]:
    return tuple(
        word
        for name, value in overrides.items()
        if value is not None
        for word in (_flag(name), f"{value:.10g}" if isinstance(value, float) else str(value))
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def setting_flags(settings: Mapping[str, bool | float | str]) -> tuple[str, ...]:
    """The trainer's flags for these fields, `--batch-size 256`, in the order of their names."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return tuple(word for name in sorted(values) for word in (_flag(name), values[name]))


def control_flags(asked: ControlSettings | None) -> tuple[str, ...]:
    """The trainer's flags for a controller, what is not its default as one JSON; none where nobody asks for one."""
    if asked is None:
        return ()
    rest = asked.model_dump(mode="json", exclude_defaults=True, exclude={"mode", "policy", "objective"})
    return (
        *("--controller", asked.mode, "--policy", asked.policy, "--objective", asked.objective),
        *(("--control", json.dumps(rest, separators=(",", ":"))) if rest else ()),
    )


def controller_asked(argv: Sequence[str]) -> ControlSettings | None:
    """Policy, objective and mode of a job's arguments that `control_flags` are among; None where they are not."""
    if "--controller" not in argv:
        return None
    mode, policy, objective = (argv[argv.index(flag) + 1] for flag in ("--controller", "--policy", "--objective"))
    return ControlSettings.model_validate({"mode": mode, "policy": policy, "objective": objective})
