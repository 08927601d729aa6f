"""A StackConfig from a stack file, or from what the Pulumi engine holds: one check of the settings, two ways in.

A mistake says where it is: file, config path, value, what is allowed, nearest fix. Not a loader of secrets.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

import pulumi
from pulumi.runtime.config import get_config_env
from pydantic import ValidationError

from components.findings import InputError, nearest
from stacks.providers.settings import provider_mistakes
from stacks.settings.config import StackConfig
from stacks.settings.config_errors import explain
from stacks.settings.stack_file import read_settings

__all__ = ["from_file", "from_pulumi"]

# By namespace: the provider's name, its word for a region, and where people say instead whose account it is.
_ACCOUNT_BY = {
    "aws": ("AWS", "region", "choose the account by the environment, such as AWS_PROFILE"),
    "gcp": (
        "Google Cloud",
        "region",
        "name the project in gangway:gcp, and the account by GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "azure-native": (
        "Azure",
        "location",
        "name the subscription in gangway:azure, and the account by `az login` or ARM_CLIENT_ID and its like",
    ),
}
# 2035-07-02 11:30:00 +0000 UTC
_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([-+]\d\d)(\d\d) \S+")


def from_file(path: Path) -> StackConfig:
    """Reads a stack file.

    Raises:
        ExceptionGroup: of InputError, one for each mistake.
        InputError: when the file cannot be read at all.
    """
    stack = path.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")
    return _validate(stack, _own(read_settings(path), str(path)), str(path))


def from_pulumi() -> StackConfig:
    """Reads the configuration the Pulumi engine holds for the selected stack. Raises as `from_file` does."""
    config, fields, place = pulumi.Config("gangway"), StackConfig.model_fields, f"stack {pulumi.get_stack()}"
    given = _own(get_config_env(), place)
    values: dict[str, Any] = {}
    # What the engine was given beyond our fields is a misspelled key, not one to ignore.
    for name in sorted(fields.keys() | given.keys()):
        words = name in fields and (fields[name].annotation is str or get_origin(fields[name].annotation) is Literal)
        plain = words or name not in fields
        try:
            value = config.get(name) if plain else config.get_object(name)
        except pulumi.ConfigTypeError:  # no JSON: the model says what it wants instead
            value = config.get(name)
        if value is not None:
            values[name] = _times_as_written(value)
    return _validate(pulumi.get_stack(), values, place)


def _times_as_written(value: Any) -> Any:
    """`value` with its times in ISO 8601: the engine has read a bare time itself, and passes it on as Go prints it."""
    if isinstance(value, dict):
        return {key: _times_as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_times_as_written(item) for item in value]
    time = _GO_TIME.fullmatch(value) if isinstance(value, str) else None
    return "{}T{}{}:{}".format(*time.groups()) if time else value


def _own(settings: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The settings of the gangway namespace, without it.

    Raises:
        InputError: a setting of another namespace, which would be ignored.
    """
    for key, value in settings.items():
        namespace, colon, name = key.partition(":")
        if namespace in _ACCOUNT_BY:
            _check_provider_setting(key, value, settings.get("gangway:region"), place)
        elif not colon or namespace not in ("gangway", "pulumi"):
            misspelled = not colon or nearest(namespace, ["gangway"])
            raise InputError(
                f"{place}: {key}",
                "a setting outside the gangway namespace would be ignored",
                allowed="keys that begin with gangway:, or with pulumi: for the engine's own",
                fix=f"write gangway:{name or key}" if misspelled else "leave it out",
            )
    return {key.removeprefix("gangway:"): value for key, value in settings.items() if key.startswith("gangway:")}


def _check_provider_setting(key: str, value: object, region: object, place: str) -> None:
    """The program makes its own provider from our settings: Pulumi hands it no others, such as `aws:profile`.

    Ignored, `aws:profile` or `gcp:project` would leave the resources in another account than the file says: hence an
    error and no warning. The value may be a secret and is not repeated.
    """
    namespace = key.partition(":")[0]
    name, of_region, instead = _ACCOUNT_BY[namespace]
    if key != f"{namespace}:{of_region}":
        raise InputError(
            f"{place}: {key}",
            f"settings of the {name} provider would be ignored",
            allowed=f"{namespace}:{of_region}, with the value of gangway:region",
            fix=f"leave it out; {instead}",
        )
    if value != region:
        raise InputError(
            f"{place}: {key}",
            "not the region of this stack",
            value=value,
            allowed=f"{region}, the value of gangway:region",
            fix=f"leave it out, or set gangway:region: {value}",
        )


def _validate(stack: str, values: dict[str, Any], place: str) -> StackConfig:
    if "stack" in values:
        raise InputError(
            f"{place}: gangway:stack",
            "unknown key: a stack is named by its file",
            value=values["stack"],
            fix="leave it out, or rename the file",
        )
    try:
        config = StackConfig.model_validate({**values, "stack": stack})
    except ValidationError as error:
        mistakes = explain(error, StackConfig, place, str(values.get("provider", "aws")))
        raise ExceptionGroup(f"{place} is not valid", mistakes) from None
    if mistakes := provider_mistakes(config, place):
        raise ExceptionGroup(f"{place} is not valid", mistakes)
    return config
