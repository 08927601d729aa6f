"""What a job may change of its preset: fields of the trainer's TrainConfig, as people write them and as flags.

A stack file's `gangway:job.settings`, and the arms of a suite, are checked here before anything is built. What the
fields mean is `trainer.config`; a length, a seed and the distance of checkpoints have keys of their own in the job.
"""

from collections.abc import Mapping

from pydantic import StrictBool, ValidationError

from components.findings import nearest_hint
from trainer.config import TrainConfig
from trainer.presets import PRESETS

__all__ = ["Settings", "check_settings", "setting_flags"]

Settings = dict[str, StrictBool | int | float | str]

_OF_THE_JOB = ("preset", "kimg", "checkpoint_kimg", "seed")


def check_settings(preset: str, settings: Mapping[str, bool | float | str]) -> None:
    """Refuses what is no field of TrainConfig, and values that do not go together with the preset's.

    Raises:
        ValueError: what is allowed, and the fix after a semicolon.
    """
    if said := [name for name in settings if name in _OF_THE_JOB]:
        raise ValueError(f"settings without {said[0]}, which has a key of its own; write {said[0]} beside settings")
    if unknown := [name for name in settings if name not in TrainConfig.model_fields]:
        hint = nearest_hint(unknown[0], TrainConfig.model_fields)
        raise ValueError(f"fields of the trainer's TrainConfig, not {unknown[0]!r}; {hint}")
    try:
        TrainConfig.model_validate({**PRESETS[preset].model_dump(), **settings})
    except ValidationError as error:
        first = error.errors()[0]
        # A rule about several fields names one of them, and the way out, in its context.
        context = first.get("ctx", {}) if first["type"] == "rule" else {}
        field = context.get("field") or ".".join(str(part) for part in first["loc"])
        allowed = first["msg"].removeprefix("Value error, ").replace(";", ",")
        fix = context.get("fix") or f"change {field}, or leave it out"
        raise ValueError(f"settings that go with preset {preset}: {field}: {allowed}; {fix}") from None


def setting_flags(settings: Mapping[str, bool | float | str]) -> tuple[str, ...]:
    """The trainer's flags for these fields, `--batch-size 256`, in the order of their names."""
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return tuple(word for name in sorted(words) for word in (f"--{name.replace('_', '-')}", words[name]))
