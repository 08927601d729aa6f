"""A StackConfig from a stack file, found by name and read as plain data, or from what the Pulumi engine holds: one
check of the settings, two ways in.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import pulumi
import yaml
from pulumi.runtime.config import get_config_env
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, create_model

from components.core.findings import InputError, nearest, nearest_hint
from components.core.visible import Loc
from components.estimate.storage_sizes import nearest_size
from stacks.config.explain_errors import explain, spell, wanted_at
from stacks.config.identity import is_valid_identity, project_name, stack_identity
from stacks.config.own_command import LINED
from stacks.config.plain_text import odd_texts
from stacks.config.provider_settings import Account
from stacks.config.stack_config import StackConfig
from stacks.providers.registry import all_providers, provider_names, provider_of
from stacks.providers.unsupported_settings import provider_mistakes
from trainer.core.file_errors import check_reachable

Model = TypeVar("Model", bound=BaseModel)

_MAX_BYTES = 1_000_000
_MAX_VALUES = 5000
_MAX_DEPTH = 100
_OTHER = "name another file"
_TAG = "tag:yaml.org,2002:"
_READ_AS = {
    _TAG + "bool": "true or false",
    _TAG + "timestamp": "a date",
    _TAG + "int": "a number",
    _TAG + "float": "a number",
    _TAG + "null": "no value",
}
_INSTEAD = {
    _TAG + "bool": "true or false, or ",
    _TAG + "int": "a plain number, or ",
    _TAG + "float": "a plain number, or ",
}
_Loc = tuple[int | str, ...]
# The rest is spelled in ways that readers of YAML disagree about: yes, a bare date, a time without its zone.
_PLAIN_BOOLS = ("true", "false")
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[-+]\d\d:\d\d)")
# Not 010 (octal), 0x10, 1:30 (base 60) or 1_000.
_PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})?(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?")
_PULUMIS_KEYS = ("config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider")
# 2035-07-02 11:30:00 +0000 UTC
_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([-+]\d\d)(\d\d) \S+")


def find_stack_file(stack_or_file: str, stacks_dir: Path) -> Path:
    """The stack file for a stack name or identity, or the file itself. InputError: naming the stacks there are."""
    path, candidate = Path(stack_or_file), stacks_dir / f"Pulumi.{stack_or_file}.yaml"
    names = sorted(p.name.removeprefix("Pulumi.").removesuffix(".yaml") for p in stacks_dir.glob("Pulumi.*.yaml"))
    allowed = f"the path of a stack file, or one of the stacks in {stacks_dir}: {', '.join(names)}"
    hint = nearest_hint(path.name, names)
    if not stack_or_file.strip():
        raise InputError("stack", "no stack is named", value=stack_or_file, allowed=allowed, fix=hint)
    is_path = path.name != stack_or_file or path.suffix in {".yaml", ".yml"}
    check_reachable(path if is_path else candidate)
    if not is_path and _holds(candidate, Path.is_file):
        return candidate
    if _holds(path, Path.is_file):
        return path
    if _holds(path, Path.is_dir):
        inside = sorted(path.glob("Pulumi.*.yaml"))
        raise InputError(
            stack_or_file, "a folder, no stack file", allowed=allowed, fix=f"name {inside[0]}" if inside else hint
        )
    if _holds(path, Path.exists):
        raise InputError(stack_or_file, "no regular file", allowed=allowed, fix="copy it to a file and name that")
    if is_path:
        raise InputError(stack_or_file, "no such stack file", allowed=allowed, fix="check the path")
    for file in sorted(stacks_dir.glob("Pulumi.*.yaml")):
        if _identity_in(file) == stack_or_file:
            return file
    if _holds(Path(candidate.name), Path.is_file):
        lacking = [name for name in ("Pulumi.yaml", "__main__.py") if not Path(name).is_file()]
        raise InputError(
            f"stack {stack_or_file!r}",
            f"{candidate.name} is here, but this folder is no project: it has no {' and no '.join(lacking)}",
            allowed=allowed,
            fix=f"name the file, {candidate.name}; for a project, gangway init DIR, and the file into it",
        )
    raise InputError(f"stack {stack_or_file!r}", f"no file {candidate.name} in {stacks_dir}", allowed=allowed, fix=hint)


def _identity_in(path: Path) -> str:
    """The identity of a file's stack, the only name that nodes and records know. Empty for an invalid file."""
    try:
        own = read_settings(path).get("gangway:identity")
        return str(own or stack_identity(project_name(path), _stack_in(path)))
    except* InputError:
        pass
    return ""


def _stack_in(path: Path) -> str:
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml").removesuffix(".yml")


def _holds(path: Path, test: Callable[[Path], bool]) -> bool:
    """Whether `test` holds for `path`; for a name that no file can have, such as one too long, nothing does."""
    try:
        return test(path)
    except OSError:
        return False


def read_settings(path: Path) -> dict[str, Any]:
    """The `config:` mapping of a stack file, keys with their namespace. ExceptionGroup: of InputError, for each value
    that YAML reads as something else than it looks like; InputError: when the file cannot be read at all.
    """
    data = read_yaml(path)
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
            "holds no `config:` mapping",
            value=got,
            allowed="`config:` with settings such as gangway:region below it, indented",
            fix="begin the file with `config:`",
        )
    if strangers := [str(key) for key in data if key not in _PULUMIS_KEYS]:
        raise InputError(
            f"{path}: {strangers[0]}",
            "unknown key beside `config:`, which would be ignored",
            allowed=", ".join(_PULUMIS_KEYS),
            fix="indent it, so that it stands below `config:`",
        )
    return {str(key): value for key, value in config.items()}


def read_yaml(path: Path, root: type[BaseModel] | None = None) -> Any:
    """The one document of a YAML file that people write; None for an empty one. Raises as `read_settings` does. `root`:
    what the document is read as; a stack file, whose settings stand below `config`, when left out.
    """
    text = _read(path)
    loader = yaml.CSafeLoader(text)
    try:
        _check_depth(text, path)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise _not_yaml(error, path, text) from None
    if mistakes := list(_misread(node, path, root)):
        raise ExceptionGroup(f"{path} is not valid", mistakes)
    try:
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise _not_yaml(error, path, text) from None
    except ValueError as error:  # such as the date 2026-13-01 outside our settings, which PyYAML passes on to Python
        raise InputError(str(path), f"cannot be read: {error}", fix="mend that value, or put it in quotes") from None


def read_model(
    path: Path, model: type[Model], *, named: str, keys: str, folder: str, lined: Collection[Loc] = ()
) -> Model:
    """What is written in a YAML file, as a model: `named` such as "suite", with `keys` such as "name and kimg"; some to
    copy are in `folder`. `lined`: places below which texts may have lines. ExceptionGroup: of InputError, one for each
    mistake; InputError: it cannot be read at all.
    """
    data = read_yaml(path, model)
    if not isinstance(data, dict):
        raise InputError(
            str(path), f"no {named}", value=data, allowed=f"keys such as {keys}", fix=f"copy one of {folder}"
        )
    if odd := list(odd_texts(data, f"{path}: ", lined)):
        raise ExceptionGroup(f"{path} is not valid", odd)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ExceptionGroup(f"{path} is not valid", explain(error, model, str(path), namespace="")) from None


def _read(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            raise InputError(
                str(path), "too large for a stack file", value=size, allowed=f"{_MAX_BYTES} bytes", fix=_OTHER
            )
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            str(path), "no UTF-8 text", allowed="a YAML file in UTF-8", fix=f"save it as UTF-8, or {_OTHER}"
        ) from None
    except OSError as error:
        fix = f"allow reading it: chmod u+r {path}" if isinstance(error, PermissionError) else "check the path"
        allowed = "a YAML file that this user may read"
        raise InputError(str(path), f"cannot be read: {error.strerror}", allowed=allowed, fix=fix) from None


def _not_yaml(error: yaml.YAMLError, path: Path, text: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    return InputError(
        f"{path}, line {mark.line + 1}" if mark else str(path),
        f"not readable as YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}",
        value=line.strip() or None,
        allowed="YAML, as in the stack files that come with Gangway",
        fix="indent with spaces instead of tabs" if "\t" in line else "mend the YAML there",
    )


def _check_depth(text: str, path: Path) -> None:
    """Refuses nesting that no stack file has: PyYAML builds nodes by recursion in C, whose stack is not checked."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise InputError(str(path), "nested too deeply", allowed=f"{_MAX_DEPTH} levels", fix=_OTHER)


def _misread(document: yaml.Node | None, path: Path, root: type[BaseModel] | None) -> Iterator[InputError]:
    """Every key written twice in the file and, among our settings, every value of a type that no setting has."""
    start: list[tuple[yaml.Node, _Loc]] = [] if document is None else [(document, ())]
    queue, visited = deque(start), 0
    while queue:
        node, loc = queue.popleft()
        # An alias is visited at each of its uses, as everybody who reads the settings will.
        if (visited := visited + 1) > _MAX_VALUES:
            raise InputError(str(path), f"more than {_MAX_VALUES} values, counting aliases", fix="shorten the file")
        ours = root is not None or (len(loc) > 1 and loc[0] == "config" and str(loc[1]).startswith("gangway:"))
        if ours and _is_odd(node):
            place = f"{_at(path, node)}: {spell(loc if root else loc[1:])}"
            yield _misread_value(node, place, "this", *_wanted(node, root, loc))
        if isinstance(node, yaml.MappingNode):
            yield from _twice(node, path)
            if ours:
                yield from _misread_keys(node, path, loc if root else loc[1:])
            queue.extend((value, (*loc, _name(key))) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            queue.extend((item, (*loc, position)) for position, item in enumerate(node.value))


def _misread_keys(node: yaml.MappingNode, path: Path, loc: _Loc) -> Iterator[InputError]:
    before: tuple[yaml.Node, yaml.Node] | None = None
    for key, value in node.value:
        if key.tag not in (_TAG + "str", _TAG + "merge"):
            number = "" if before is None else _cut_number(before[1], key, value)
            if before is not None and number:
                name = _name(before[0])
                yield InputError(
                    f"{_at(path, key)}: {spell((*loc, name))}",
                    "YAML ends a number at its comma here",
                    value=f"{_name(before[1])},{_name(key)}",
                    allowed="a number without commas",
                    fix=f"write {name}: {number}",
                )
            else:
                yield _misread_value(key, _at(path, key), "this key")
        before = (key, value)


def _cut_number(value: yaml.Node, key: yaml.Node, after: yaml.Node) -> str:
    """`60000` where `{usd: 60,000}` has become the number 60 and the key 000 without a value; else empty."""
    groups = f"{_name(value)},{_name(key)}"
    alone = isinstance(after, yaml.ScalarNode) and after.value == ""
    return groups.replace(",", "") if alone and re.fullmatch(r"[1-9]\d{0,2},\d{3}", groups) else ""


def _name(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "?"


def _is_odd(node: yaml.Node) -> bool:
    """Whether YAML makes something of a value that its spelling does not show, or that no setting can be."""
    match node.tag.removeprefix(_TAG):
        case "str" | "null" | "map" | "seq":
            return False
        case "int" | "float":
            return not (_PLAIN_NUMBER.fullmatch(node.value) or node.value.lower().lstrip("+-") in (".inf", ".nan"))
        case "bool":
            return node.value not in _PLAIN_BOOLS
        case "timestamp":
            return not _PLAIN_TIME.fullmatch(node.value)
        case _:
            return True


def _misread_value(node: yaml.Node, place: str, what: str, allowed: str = "", fix: str = "") -> InputError:
    read_as = _READ_AS.get(node.tag, f"something tagged {node.tag.replace(_TAG, '!!')}")
    if not isinstance(node, yaml.ScalarNode):
        return InputError(place, f"YAML reads {what} as {read_as}", allowed="no tags", fix="write it without the tag")
    plain = _INSTEAD.get(node.tag, "") if what == "this" else ""
    return InputError(
        place,
        f"YAML reads {what} as {read_as}",
        value=node.value,
        allowed=allowed or "text, decimal numbers, true and false, and a time with its zone",
        fix=fix or f'write {plain}"{node.value}", in quotes, for text',
    )


def _wanted(node: yaml.Node, root: type[BaseModel] | None, loc: _Loc) -> tuple[str, str]:
    """What is allowed at `loc`, and the fix; empty where nothing is known of it, or for a tag of somebody's own."""
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _READ_AS:
        return "", ""
    if root is not None:
        return wanted_at(root, loc, node.value)
    return wanted_at(stack_model(), (str(loc[1]).removeprefix("gangway:"), *loc[2:]), node.value)


def _twice(node: yaml.MappingNode, path: Path) -> Iterator[InputError]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in first:
            yield InputError(
                f"{_at(path, key)}: {key.value}",
                f"this key stands in line {first[key.value]} already, and the later would hide the earlier",
                allowed="each key once",
                fix="keep one of the two",
            )
        first.setdefault(key.value, line)


def _at(path: Path, node: yaml.Node) -> str:
    return f"{path}, line {node.start_mark.line + 1}"


def stack_model() -> type[StackConfig]:
    """StackConfig, where it has no field for it with the section of each registered provider."""
    return _stack_model(provider_names())


@cache
def _stack_model(names: tuple[str, ...]) -> type[StackConfig]:
    if names == get_args(StackConfig.model_fields["provider"].annotation):
        return StackConfig
    fields: dict[str, Any] = {"provider": (Literal.__getitem__(names), "aws")}
    empty_is_none = BeforeValidator(lambda value: value or None)
    for own in (provider.settings.own for provider in all_providers()):
        if own is not None and own.name not in StackConfig.model_fields:
            field = Field(default=None, examples=[yaml.safe_load(own.example)])
            fields[own.name] = (Annotated[own.model | None, empty_is_none], field)
    return create_model("StackConfig", __base__=StackConfig, **fields)


def from_file(path: Path) -> StackConfig:
    """Reads a stack file. ExceptionGroup: of InputError, one for each mistake; InputError: when the file cannot be
    read at all.
    """
    return _validate(project_name(path), _stack_in(path), _own(read_settings(path), str(path)), str(path))


def from_pulumi() -> StackConfig:
    """Reads the configuration the Pulumi engine holds for the selected stack. Raises as `from_file` does."""
    config, fields, place = pulumi.Config("gangway"), stack_model().model_fields, f"stack {pulumi.get_stack()}"
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
    return _validate(pulumi.get_project(), pulumi.get_stack(), values, place)


def _times_as_written(value: Any) -> Any:
    """`value` with its times in ISO 8601: the engine has read a bare time itself, and passes it on as Go prints it."""
    if isinstance(value, dict):
        return {key: _times_as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_times_as_written(item) for item in value]
    time = _GO_TIME.fullmatch(value) if isinstance(value, str) else None
    return "{}T{}{}:{}".format(*time.groups()) if time else value


def _own(settings: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The settings of the gangway namespace, without it. InputError: a setting of another namespace, which would be
    ignored.
    """
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
                allowed="keys that begin with gangway:, or with pulumi: for the engine's own",
                fix=f"write gangway:{name or key}" if misspelled else "leave it out",
            )
    return {key.removeprefix("gangway:"): value for key, value in settings.items() if key.startswith("gangway:")}


def _check_provider_setting(account: Account, key: str, value: object, region: object, place: str) -> None:
    """The program makes its own provider from our settings: Pulumi hands it no others, such as `aws:profile`.

    Ignored, `aws:profile` or `gcp:project` would leave the resources in another account than the file says: hence an
    error and no warning. The value may be a secret and is not repeated.
    """
    only = f"{account.namespace}:{account.region_key}"
    if key != only:
        raise InputError(
            f"{place}: {key}",
            f"settings of the {account.title} provider would be ignored",
            allowed=f"{only}, with the value of gangway:region",
            fix=f"leave it out; {account.instead}",
        )
    if value != region:
        said = "gangway:region, which is missing" if region is None else f"{region}, the value of gangway:region"
        raise InputError(
            f"{place}: {key}",
            "not the region of this stack",
            value=value,
            allowed=said,
            fix=f"leave it out, or set gangway:region: {value}",
        )


def _settled(values: Mapping[str, Any], loc: Sequence[int | str], meant: Any) -> Any:
    """A corrected value as the provider takes it: its file systems come in certain sizes."""
    storage = values.get("storage")
    if tuple(loc) == ("storage", "capacity_gib") and isinstance(storage, dict) and isinstance(meant, int):
        plain = {key: value for key, value in storage.items() if isinstance(value, bool | int | float | str)}
        return nearest_size(str(values.get("provider", "aws")), plain, meant)
    return meant


def _validate(project: str, stack: str, values: dict[str, Any], place: str) -> StackConfig:
    for name in values.keys() & {"stack", "stack_name"}:
        raise InputError(
            f"{place}: gangway:{name}",
            "unknown key: a stack is named by its file",
            value=values[name],
            fix="leave it out, or rename the file",
        )
    if odd := list(odd_texts(values, f"{place}: gangway:", [("job", *lined) for lined in LINED])):
        raise ExceptionGroup(f"{place} is not valid", odd)
    model, provider, own = stack_model(), values.get("provider", "aws"), values.get("identity")
    # An invalid identity is one mistake, and must not be reported as one of the stack's name too.
    identity = own if isinstance(own, str) and is_valid_identity(own) else stack_identity(project, stack)
    try:
        config = model.model_validate({**values, "stack": identity, "stack_name": stack})
    except ValidationError as error:
        examples = provider_of(provider).settings.examples if provider in provider_names() else {}
        mistakes = explain(error, model, place, examples, settle=lambda loc, meant: _settled(values, loc, meant))
        raise ExceptionGroup(f"{place} is not valid", mistakes) from None
    if mistakes := provider_mistakes(config, place):
        raise ExceptionGroup(f"{place} is not valid", mistakes)
    return config
