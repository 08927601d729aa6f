"""Loads a StackConfig from a stack file, or from the Pulumi engine's configuration, with the same checks."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import pulumi
import yaml
from pulumi.runtime.config import get_config_env
from pydantic import BeforeValidator, Field, ValidationError, create_model

from gangway.components.core.findings import InputError, nearest, nearest_hint
from gangway.components.estimate.storage_sizes import nearest_size
from gangway.stacks.base.registry import all_providers, get_provider, provider_names
from gangway.stacks.config.explain_errors import explain
from gangway.stacks.config.identity import is_valid_identity, project_name, stack_identity
from gangway.stacks.config.own_command import MULTILINE
from gangway.stacks.config.provider_settings import Account
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.config.yaml_file import odd_texts, read_yaml
from gangway.stacks.loading.unsupported_settings import provider_mistakes, unavailable_queue
from gangway.trainer.core.regular_files import check_reachable

_PULUMI_KEYS = ("config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider")
# 2035-07-02 11:30:00 +0000 UTC
_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([-+]\d\d)(\d\d) \S+")


def find_stack_file(stack_or_file: str, stacks_dir: Path) -> Path:
    """The stack file of a stack name or identity, or the file itself. InputError, with the existing stacks: no file."""
    path, candidate = Path(stack_or_file), stacks_dir / f"Pulumi.{stack_or_file}.yaml"
    names = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in stacks_dir.glob("Pulumi.*.yaml"))
    allowed = f"the path of a stack file, or one of the stacks in {stacks_dir}: {', '.join(names)}"
    hint = nearest_hint(path.name, names)
    if not stack_or_file.strip():
        raise InputError("stack", "the name is empty", value=stack_or_file, allowed=allowed, fix=hint)
    is_path = path.name != stack_or_file or path.suffix in {".yaml", ".yml"}
    check_reachable(path if is_path else candidate)
    if not is_path and _is_true(candidate, Path.is_file):
        return candidate
    if _is_true(path, Path.is_file):
        return path
    if _is_true(path, Path.is_dir):
        inside = sorted(path.glob("Pulumi.*.yaml"))
        raise InputError(
            stack_or_file, "a folder, not a stack file", allowed=allowed, fix=f"name {inside[0]}" if inside else hint
        )
    if _is_true(path, Path.exists):
        raise InputError(stack_or_file, "not a regular file", allowed=allowed, fix="copy it to a file and name that")
    if is_path:
        raise InputError(stack_or_file, "no such stack file", allowed=allowed, fix="check the path")
    for file in sorted(stacks_dir.glob("Pulumi.*.yaml")):
        if _identity_in(file) == stack_or_file:
            return file
    if _is_true(Path(candidate.name), Path.is_file):
        missing = [name for name in ("Pulumi.yaml", "__main__.py") if not Path(name).is_file()]
        raise InputError(
            f"stack {stack_or_file!r}",
            f"{candidate.name} is in this folder, which is not a project: it has no {' and no '.join(missing)}",
            allowed=allowed,
            fix=f"name the file, {candidate.name}; for a project, run `gangway init DIR` and move the file there",
        )
    raise InputError(f"stack {stack_or_file!r}", f"no file {candidate.name} in {stacks_dir}", allowed=allowed, fix=hint)


def _identity_in(path: Path) -> str:
    """The identity of a file's stack, the name in its nodes and records. Empty for an invalid file."""
    try:
        own = read_settings(path).get("gangway:identity")
        return str(own or stack_identity(project_name(path), _stack_of_file(path)))
    except* InputError:
        pass
    return ""


def _stack_of_file(path: Path) -> str:
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")


def _is_true(path: Path, test: Callable[[Path], bool]) -> bool:
    """The result of `test`; False for an impossible file name, such as one that is too long."""
    try:
        return test(path)
    except OSError:
        return False


def read_settings(path: Path) -> dict[str, Any]:
    """The `config:` mapping of a stack file, with namespaces in its keys. ExceptionGroup: of InputError, for each value
    that YAML misreads; InputError: the file cannot be read.
    """
    data = read_yaml(path, settings=stack_model())
    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(config, dict):
        got = (
            "an empty file"
            if data is None
            else f"the keys {', '.join(map(str, data))}"
            if isinstance(data, dict)
            else data
        )
        raise InputError(
            str(path),
            "has no `config:` mapping",
            value=got,
            allowed="`config:` with indented settings such as gangway:region below it",
            fix="start the file with `config:`",
        )
    if unknown := [str(key) for key in data if key not in _PULUMI_KEYS]:
        raise InputError(
            f"{path}: {unknown[0]}",
            "unknown key outside `config:`, which would be ignored",
            allowed=", ".join(_PULUMI_KEYS),
            fix="indent it below `config:`",
        )
    return {str(key): value for key, value in config.items()}


def stack_model() -> type[StackConfig]:
    """StackConfig with the sections of all registered providers."""
    return _stack_model(provider_names())


@cache
def _stack_model(names: tuple[str, ...]) -> type[StackConfig]:
    fields: dict[str, Any] = {"provider": (Literal.__getitem__(names), "aws")}
    empty_is_none = BeforeValidator(lambda value: value or None)
    for own in (provider.settings.own for provider in all_providers()):
        if own is not None:
            field = Field(default=None, examples=[yaml.safe_load(own.example)])
            fields[own.name] = (Annotated[own.model | None, empty_is_none], field)
    return create_model("StackConfig", __base__=StackConfig, **fields)


def from_file(path: Path) -> StackConfig:
    """Reads a stack file. ExceptionGroup: of InputError, one for each mistake; InputError: the file cannot be read."""
    return _validate(
        project_name(path), _stack_of_file(path), _gangway_settings(read_settings(path), str(path)), str(path)
    )


def from_pulumi() -> StackConfig:
    """Reads the engine's configuration of the selected stack. Raises as `from_file` does."""
    config, fields, place = pulumi.Config("gangway"), stack_model().model_fields, f"stack {pulumi.get_stack()}"
    given = _gangway_settings(get_config_env(), place)
    values: dict[str, Any] = {}
    # Other keys than our fields are misspelled, and must not be ignored.
    for name in sorted(fields.keys() | given.keys()):
        annotation = fields[name].annotation if name in fields else str
        is_text = annotation is str or get_origin(annotation) is Literal
        try:
            value = config.get(name) if is_text else config.get_object(name)
        except pulumi.ConfigTypeError:  # not JSON: the model reports what it accepts
            value = config.get(name)
        if value is not None:
            values[name] = _restore_times(value)
    return _validate(pulumi.get_project(), pulumi.get_stack(), values, place)


def _restore_times(value: Any) -> Any:
    """`value` with times in ISO 8601: the engine parses a bare time, and passes it on in Go's format."""
    if isinstance(value, dict):
        return {key: _restore_times(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore_times(item) for item in value]
    time = _GO_TIME.fullmatch(value) if isinstance(value, str) else None
    return "{}T{}{}:{}".format(*time.groups()) if time else value


def _gangway_settings(settings: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The settings of the gangway namespace, without their prefix. InputError: a setting of another namespace."""
    accounts = {account.namespace: account for p in all_providers() if (account := p.settings.account) is not None}
    for key, value in settings.items():
        namespace, colon, name = key.partition(":")
        if namespace in accounts:
            _check_provider_setting(accounts[namespace], key, value, settings.get("gangway:region"), place)
        elif not colon or namespace not in ("gangway", "pulumi"):
            misspelled = not colon or nearest(namespace, ["gangway"])
            raise InputError(
                f"{place}: {key}",
                "a setting outside the gangway namespace would be ignored",
                allowed="keys that begin with gangway:, or with pulumi: for the engine's settings",
                fix=f"write gangway:{name or key}" if misspelled else "leave it out",
            )
    return {key.removeprefix("gangway:"): value for key, value in settings.items() if key.startswith("gangway:")}


def _check_provider_setting(account: Account, key: str, value: object, region: object, place: str) -> None:
    """The program configures its provider from our settings only. Ignoring `aws:profile` or `gcp:project` would put the
    resources into another account: hence an error. The value may be a secret and is not repeated.
    """
    only = f"{account.namespace}:{account.region_key}"
    if key != only:
        raise InputError(
            f"{place}: {key}",
            f"this setting of the {account.title} provider would be ignored",
            allowed=f"{only}, with the value of gangway:region",
            fix=f"leave it out; {account.instead}",
        )
    if value != region:
        allowed = "gangway:region, which is missing" if region is None else f"{region}, the value of gangway:region"
        raise InputError(
            f"{place}: {key}",
            "not the region of this stack",
            value=value,
            allowed=allowed,
            fix=f"leave it out, or set gangway:region: {value}",
        )


def _settle(values: Mapping[str, Any], loc: Sequence[int | str], meant: Any) -> Any:
    """Rounds a suggested capacity to a size that the provider sells."""
    storage = values.get("storage")
    if tuple(loc) == ("storage", "capacity_gib") and isinstance(storage, dict) and isinstance(meant, int):
        plain = {key: value for key, value in storage.items() if isinstance(value, bool | int | float | str)}
        return nearest_size(str(values.get("provider", "aws")), plain, meant)
    return meant


def _replace_job_mistake(values: Mapping[str, Any], place: str, mistakes: list[InputError]) -> list[InputError]:
    """If the provider does not have the queue of `engine`, reports that instead of a job next to the queue, since the
    job is correct without the queue.
    """
    engine, provider = values.get("engine"), values.get("provider", "aws")
    kind = engine.get("kind") if isinstance(engine, dict) else None
    unavailable = unavailable_queue(str(provider), str(kind))
    if unavailable is None:
        return mistakes
    own = f"{place}: gangway:job"
    return [unavailable.within(place), *(mistake for mistake in mistakes if mistake.place != own)]


def _validate(project: str, stack: str, values: dict[str, Any], place: str) -> StackConfig:
    for name in values.keys() & {"stack", "stack_name"}:
        raise InputError(
            f"{place}: gangway:{name}",
            "unknown key: the file's name is the stack's name",
            value=values[name],
            fix="leave it out, or rename the file",
        )
    if odd := list(odd_texts(values, f"{place}: gangway:", [("job", *lined) for lined in MULTILINE])):
        raise ExceptionGroup(f"{place} is not valid", odd)
    model, provider, own = stack_model(), values.get("provider", "aws"), values.get("identity")
    # An invalid identity must not be reported as an invalid stack name too.
    identity = own if isinstance(own, str) and is_valid_identity(own) else stack_identity(project, stack)
    try:
        config = model.model_validate({**values, "stack": identity, "stack_name": stack})
    except ValidationError as error:
        examples = get_provider(provider).settings.examples if provider in provider_names() else {}
        mistakes = explain(error, model, place, examples, settle=lambda loc, meant: _settle(values, loc, meant))
        raise ExceptionGroup(f"{place} is not valid", _replace_job_mistake(values, place, mistakes)) from None
    if mistakes := provider_mistakes(config, place):
        raise ExceptionGroup(f"{place} is not valid", mistakes)
    return config
