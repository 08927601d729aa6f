"""Turns pydantic's validation errors into InputErrors, worded from the models' JSON schema, since pydantic speaks
Python.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails

from gangway.components.core.findings import InputError, nearest, nearest_hint
from gangway.stacks.config.corrections import (
    Span,
    explain_conversion,
    get_unit,
    match_pattern,
    parse_bool,
    parse_command,
    parse_list,
    parse_moment,
    parse_number,
    parse_range,
    to_store_address,
)
from gangway.stacks.config.section import COMMAND_TAG, PRESET_TAG
from gangway.trainer.core.errors import REFUSED
from gangway.trainer.core.validation import (
    MISSING,
    NO_VALUE,
    UNKNOWN_KEY,
    bounds_text,
    describe_value,
    length_text,
)

_Schema = JsonSchemaValue
Settle = Callable[[Sequence[int | str], Any], Any]
"""From a config path and a value of the right type to the nearest value that the rest of the file accepts."""
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_DAY = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"


class _UnsortedSchema(GenerateJsonSchema):
    """Pydantic's schema with the keys of examples in the order of the source, `{min: 2, max: 4}`."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value


def explain(
    error: ValidationError,
    root: type[BaseModel],
    place: str,
    examples: Mapping[str, Any] = MappingProxyType({}),
    namespace: str = "gangway:",
    settle: Settle = lambda _, meant: meant,
) -> list[InputError]:
    """One InputError for each of pydantic's errors. `root`: the model of the document; `place`: file or stack, may be
    empty; `examples`: shown instead of the model's, by config path; `settle`: adjusts a suggested value to the rest of
    the file.
    """
    schema = root.model_json_schema(schema_generator=_UnsortedSchema)
    _set_examples(schema, examples)
    details = error.errors(include_url=False)
    broken = {detail["loc"] for detail in details}
    prefix = f"{place}: {namespace}" if place else namespace
    misspelt = _misspelt_keys(details, schema)

    def is_redundant(detail: ErrorDetails) -> bool:
        """A missing key that is only misspelt; a list that is too short because its items are all wrong."""
        inside = any(loc[: len(detail["loc"])] == detail["loc"] != loc for loc in broken)
        return detail["loc"] in misspelt if detail["type"] == "missing" else detail["type"] == "too_short" and inside

    return [_explain(detail, schema, prefix, namespace, settle) for detail in details if not is_redundant(detail)]


def _misspelt_keys(details: Sequence[ErrorDetails], schema: _Schema) -> set[tuple[int | str, ...]]:
    found = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *at, key = detail["loc"]
            found.add((*at, nearest(str(key), _variant_at(schema, at).keys()) or key))
    return found


def describe_setting(root: type[BaseModel], loc: Sequence[int | str], text: str) -> tuple[str, str]:
    """What is allowed at `loc`, and the fix for `text`, which YAML reads as another type; empty for no setting."""
    schema = root.model_json_schema(schema_generator=_UnsortedSchema)
    setting = _setting_at(schema, loc)
    is_text = setting.schema.get("type") == "string"
    if is_text and setting.schema.get("format") != "date-time" and _corrected(loc, text, setting, schema) == text:
        return setting.words(), f"put it in quotes: {_to_yaml_pair(loc, text)}"
    return (setting.words(), _fix(loc, text, setting, schema)) if setting.schemas else ("", "")


def _set_examples(schema: _Schema, examples: Mapping[str, Any]) -> None:
    for path, example in examples.items():
        section, _, key = path.partition(".")
        at = schema["properties"][section]
        if key:
            at = next(_branches(at, schema))["properties"][key]
        at["examples"] = [example]


def _explain(detail: ErrorDetails, schema: _Schema, place: str, namespace: str, settle: Settle) -> InputError:
    loc = _without_tags(detail["loc"], schema)
    where = f"{place}{spell(loc)}"
    setting = _setting_at(schema, loc)
    value, context = detail["input"], detail.get("ctx", {})
    if isinstance(value, datetime):
        value = value.isoformat()
    match detail["type"]:
        case "extra_forbidden":
            *at, key = detail["loc"]
            around = _variant_at(schema, at)
            names = sorted(around.keys())
            if owners := _find_kinds(str(key), at, schema):
                fix = f"leave it out: only {owners} has it"
            elif inner := _find_mapping(str(loc[-1]), around):
                fix = f"write {inner}: {_to_yaml({loc[-1]: value})}"
            elif sections := _find_sections(str(loc[-1]), schema, namespace):
                fix = f"write it in {' or '.join(sections)}"
            else:
                fix = nearest_hint(str(loc[-1]), names)
            return InputError(where, UNKNOWN_KEY, value=loc[-1], allowed=", ".join(names), fix=fix)
        case "missing":
            shown = f"add {_to_yaml_pair(loc, setting.example)}" if setting.examples else f"add {loc[-1]}"
            fix = f"add {loc[-1]}: the output of {setting.value_source}" if setting.value_source else shown
            return InputError(where, MISSING, allowed=f"it is required: {setting.words()}", fix=fix)
        case "union_tag_not_found":
            fix = f"add kind: {setting.kind_with(value)}"
            return InputError(f"{where}.kind", MISSING, allowed=f"one of {', '.join(setting.kinds())}", fix=fix)
        case "value_error" if isinstance(own := context.get("error"), InputError):
            # Raised by a validator, with a place relative to its value.
            return own.within(where, joint="." if loc and own.place else "")
        case "literal_error" | "enum" | "union_tag_invalid" | "rule" | "value_error":
            found = describe_value(detail, where)
            given = found.value if loc else None  # without a path the value is the whole file
            place = found.path.removesuffix(": ")
            return InputError(place, found.problem, value=given, allowed=found.allowed, fix=found.fix)
        case _:
            problem = NO_VALUE if value is None else REFUSED
            fix = _fix(loc, value, setting, schema, settle)
            return InputError(where, problem, value=value, allowed=setting.words(), fix=fix)


def _find_kinds(key: str, at: Sequence[int | str], schema: _Schema) -> str:
    """Other kinds that have `key`, such as `engine.kind: slurm`. `at`: pydantic's path, with the tags of unions."""
    for position in reversed(range(len(at))):
        before = _variant_at(schema, at[:position])
        if not _is_tag(at, position, before):
            continue
        rest = _without_tags(at, schema)[len(_without_tags(at[:position], schema)) :]
        keys = {kind: _descend(before.of_kind([kind]), rest, schema).keys() for kind in before.kinds()}
        owners = [kind for kind, known in keys.items() if key in known]
        if owners:
            union = f"{spell(_without_tags(at[:position], schema))}." if rest else ""
            return f"{union}kind: {' or '.join(owners)}"
    return ""


def _find_mapping(key: str, around: "_Setting") -> str:
    """The sibling mapping that accepts `key`, as `settings` accepts the trainer's fields; empty for none."""
    beside = ((name, child) for schema in around.schemas for name, child in schema.get("properties", {}).items())
    return next((name for name, child in beside if key in child.get("takes", ())), "")


def _find_sections(key: str, schema: _Schema, namespace: str) -> list[str]:
    keys = {name: _setting_at(schema, (name,)).keys() for name in schema["properties"]}
    return [f"{namespace}{name}" for name, of_section in keys.items() if key in of_section]


@dataclass(frozen=True)
class _Setting:
    """What is accepted at one config path: schemas (several for a union) and examples. `value_source`: the command that
    prints the value, if no example fits; from the field's schema. `pattern`: the field's own, beside those of its
    branches.
    """

    schemas: tuple[_Schema, ...]
    examples: tuple[Any, ...]
    about: str
    unit: str = ""
    value_source: str = ""
    pattern: str = ""

    @property
    def schema(self) -> _Schema:
        """The first schema; branches of a union differ in their keys only."""
        return self.schemas[0] if self.schemas else {}

    @property
    def example(self) -> Any:
        return self.examples[0] if self.examples else None

    def _unit_note(self) -> str:
        return f" ({self.unit})" if self.unit else ""

    def keys(self) -> set[str]:
        return {name for schema in self.schemas for name in schema.get("properties", {})}

    def of_kind(self, tag: Sequence[int | str]) -> "_Setting":
        """The branch of a tagged union named by `tag`, a part of pydantic's path; else all branches."""
        schemas = tuple(schema for schema in self.schemas if _kind(schema) in tag)
        return replace(self, schemas=schemas) if schemas else self

    def kinds(self) -> list[str]:
        """The tags of a tagged union, in the models' order."""
        return [kind for schema in self.schemas if (kind := _kind(schema)) is not None]

    def kind_with(self, given: Any) -> str:
        """The tag whose model has most of the `given` keys; the last of several."""
        keys = set(given) if isinstance(given, dict) else set()
        fitting = [(len(keys & set(schema.get("properties", {}))), kind) for schema in self.schemas
                   if (kind := _kind(schema)) is not None]  # fmt: skip
        most = max(number for number, _ in fitting)
        return [kind for number, kind in fitting if number == most][-1]

    def words(self) -> str:
        """What is allowed here."""
        about = f"{self.about}: " if self.about else ""
        such_as = f", such as {_to_yaml(self.example)}" if self.examples else ""
        match self.schema.get("type"):
            case "integer":
                return f"{about}a whole number{bounds_text(**_bounds(self.schema))}{self._unit_note()}"
            case "number":
                return f"{about}a number{bounds_text(**_bounds(self.schema))}{self._unit_note()}"
            case "boolean":
                return f"{about}true or false"
            case "array":
                length = length_text(self.schema.get("minItems"), self.schema.get("maxItems"))
                return f"{about}a list{length}{such_as}"
            case "object" if self.kinds():
                return f"{about}a mapping with kind: {', '.join(self.kinds())}{such_as}"
            case "object":
                required = " and ".join(self.schema.get("required", []))
                return f"{about}a mapping{' with ' if required else ''}{required}{such_as}"
            case _ if "pattern" in self.schema and self.examples:
                return f"{about}like {_to_yaml(self.example)}"
            case _:
                return f"{about}text{such_as}"


def _kind(schema: _Schema) -> str | None:
    kind: str | None = schema.get("properties", {}).get("kind", {}).get("const")
    return kind


def _setting_at(root: _Schema, loc: Sequence[int | str]) -> _Setting:
    """Walks the schema along a config path. A section's example provides examples for its keys."""
    return _descend(_Setting(tuple(_branches(root, root)), (), ""), loc, root)


def _variant_at(root: _Schema, loc: Sequence[int | str]) -> _Setting:
    """The same along pydantic's path: a tag in it picks one branch of the union for all that is below."""
    here = _setting_at(root, ())
    for position, part in enumerate(loc):
        if part in (PRESET_TAG, COMMAND_TAG):
            continue
        here = here.of_kind([part]) if _is_tag(loc, position, here) else _descend(here, [part], root)
    return here


def _is_tag(loc: Sequence[int | str], position: int, before: _Setting) -> bool:
    """Whether a part of pydantic's path is the tag of the union `before` it; a single kind has no tag."""
    kinds = before.kinds() if position else []
    return loc[position] in kinds and (isinstance(loc[position - 1], int) or len(kinds) > 1)


def _descend(here: _Setting, loc: Sequence[int | str], root: _Schema) -> _Setting:
    for part in loc:
        found = [child for schema in here.schemas for child in _children(schema, part)]
        branches = tuple(branch for child in found for branch in _branches(child, root))
        # Of an optional setting, the type may have them instead of the setting.
        given = [example for child in found for example in child.get("examples", [])]
        given = given or [example for branch in branches for example in branch.get("examples", [])]
        here = _Setting(
            schemas=branches,
            examples=(*given, *(inner for example in here.examples for inner in _nested_examples(example, part))),
            about=next((child["description"] for child in found if "description" in child), ""),
            value_source=next((child["value_source"] for child in found if "value_source" in child), ""),
            pattern=next((one["pattern"] for one in (*found, *branches) if "pattern" in one), ""),
            unit=get_unit(part) if isinstance(part, str) else here.unit,
        )
    return here


def _children(schema: _Schema, part: int | str) -> Iterator[_Schema]:
    if isinstance(part, int):
        each = schema.get("prefixItems", [])  # of a list with entries of different types, or a fixed length
        child = each[part] if part < len(each) else schema.get("items")
    else:
        child = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
    # `additionalProperties: true` says nothing about the values.
    if isinstance(child, dict):
        yield child


def _nested_examples(example: Any, part: int | str) -> list[Any]:
    if isinstance(part, int):
        return example if isinstance(example, list) else []
    return [example[part]] if isinstance(example, dict) and part in example else []


def _branches(schema: _Schema, root: _Schema) -> Iterator[_Schema]:
    """The schemas behind references and unions, without `null`: leaving the key out means the same."""
    if "$ref" in schema:
        yield from _branches(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    elif options := schema.get("anyOf") or schema.get("oneOf"):
        for option in options:
            yield from _branches(option, root)
    elif schema.get("type") != "null":
        yield schema


def _bounds(schema: _Schema) -> dict[str, float]:
    """The bounds that the schema has, by pydantic's names."""
    return {name: schema[key] for name, key in _BOUNDS.items() if key in schema}


def _fix(
    loc: Sequence[int | str], value: Any, setting: _Setting, root: _Schema, settle: Settle = lambda _, meant: meant
) -> str:
    schema = setting.schema
    if schema.get("type") == "string" and isinstance(value, int | float):
        text = json.dumps(value)
        if re.search(schema.get("pattern", setting.pattern), text) and "format" not in schema:
            return f"put it in quotes: {_to_yaml_pair(loc, text)}"
    if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        return f"keep at most {schema['maxItems']}"
    meant = _corrected(loc, value, setting, root)
    if "usual" in schema and meant == schema.get("maximum"):
        return f"write a usual length: {schema['usual']}"  # the bound is far above any sensible value
    if meant is not None:
        meant = settle(loc, meant)
        return f"write {_to_yaml_pair(loc, meant)}{_kimg_comment(value, meant, setting)}"
    name, is_number = str(next(reversed(loc), "")), schema.get("type") in ("integer", "number")
    sentence = isinstance(value, str) and explain_conversion(
        name, value, schema.get("pattern", ""), _span(schema) if is_number else Span()
    )
    if sentence or setting.value_source:
        return sentence or f"write the output of {setting.value_source}"
    return f"write {_to_yaml_pair(loc, setting.example)}" if setting.examples else f"write {setting.words()}"


def _kimg_comment(value: Any, meant: Any, setting: _Setting) -> str:
    """A comment for kimg written with a unit: `25k` may mean 25,000 images or 25,000 kimg."""
    shortened = isinstance(value, str) and value.strip().lower().endswith("k") and isinstance(meant, int | float)
    if not shortened or setting.unit != get_unit("kimg"):
        return ""
    return f"  # {setting.unit}; if you meant {value.strip()} kimg: {meant * 1000:.10g}"


def _corrected(loc: Sequence[int | str], value: Any, setting: _Setting, root: _Schema) -> Any:
    """The intended value in the accepted form; None where that would be a guess."""
    schema, name = setting.schema, next((part for part in reversed(loc) if isinstance(part, str)), "")
    match schema.get("type"):
        case "integer" | "number":
            return parse_number(name, value, _span(schema))
        case "boolean":
            return parse_bool(value)
        case "array":
            return _corrected_list(loc, value, setting, root)
        case "object" if setting.keys() == {"min", "max"} and (span := parse_range(value)) is not None:
            return dict(zip(("min", "max"), span, strict=True))
        case "object" if isinstance(value, str) and (kind := nearest(value, setting.kinds())):
            return {"kind": kind}
        case "object":
            return _wrapped_value(value, setting, root, loc)
        case "string" if isinstance(value, str):
            return _corrected_text(value, setting)
    return None


def _corrected_text(value: str, setting: _Setting) -> str | None:
    if setting.schema.get("format") == "date-time":
        return parse_moment(value)
    if pattern := _DAY if setting.schema.get("format") == "date" else setting.schema.get("pattern"):
        rooted = f"/{value.strip('/ ')}" if str(setting.example).startswith("/") else value
        return _corrected_address(value, setting) or match_pattern(value, pattern) or match_pattern(rooted, pattern)
    return value


def _corrected_list(loc: Sequence[int | str], value: Any, setting: _Setting, root: _Schema) -> list[Any] | None:
    words = parse_command(value) if loc and loc[-1] == "command" else parse_list(value)
    fewest, most = setting.schema.get("minItems", 1), setting.schema.get("maxItems", math.inf)
    if fewest == most == 2 and (span := parse_range(value)) is not None:
        words = list(span)
    if words is None or not max(1, fewest) <= len(words) <= most:
        return None
    item_at = (*loc, 0)
    item = _setting_at(root, item_at)
    items = [_corrected(item_at, word, item, root) for word in words]
    return None if any(one is None for one in items) else items


def _wrapped_value(value: Any, setting: _Setting, root: _Schema, loc: Sequence[int | str]) -> dict[str, Any] | None:
    """`{usd: 200}` for 200 where a mapping has one required key."""
    required = setting.schema.get("required", [])
    if len(required) != 1 or isinstance(value, dict | list):
        return None
    inner = (*loc, required[0])
    at = _setting_at(root, inner)
    if "pattern" in at.schema:  # such as an address, which needs other keys that the types do not show
        return None
    meant = _corrected(inner, value, at, root)
    return None if meant is None else {required[0]: meant}


def _span(schema: _Schema) -> Span:
    return Span(
        schema.get("minimum", -math.inf),
        schema.get("maximum", math.inf),
        schema.get("exclusiveMinimum", -math.inf),
        schema.get("exclusiveMaximum", math.inf),
        schema["type"] == "integer",
    )


def _corrected_address(value: str, setting: _Setting) -> str | None:
    """An object store's address with the missing scheme added, or cut after the last valid folder."""
    scheme, is_address, _ = str(setting.example).partition("://")
    if not is_address or "pattern" not in setting.schema:
        return None
    whole = to_store_address(value, scheme) if "://" in value else f"{scheme}://{value}"
    folders = [whole, *(whole[: place + 1] for place in range(len(whole) - 1, -1, -1) if whole[place] == "/")]
    return next((folder for folder in folders if re.search(setting.schema["pattern"], folder)), None)


def _to_yaml_pair(loc: Sequence[int | str], value: Any) -> str:
    """`key: value` in YAML; only the value for an item of a list."""
    return f"{loc[-1]}: {_to_yaml(value)}" if loc and isinstance(loc[-1], str) else _to_yaml(value)


def _to_yaml(value: Any) -> str:
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, default_flow_style=True, sort_keys=False, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def spell(loc: Sequence[int | str]) -> str:
    """A config path as people write it: `cluster.capacity[0].kind`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _without_tags(loc: Sequence[int | str], schema: _Schema) -> list[int | str]:
    """Pydantic puts a union's tag into the path (`capacity.0.spot.max`), which the file does not have."""
    kept: list[int | str] = []
    for part in loc:
        if part in (PRESET_TAG, COMMAND_TAG):
            continue
        if not _is_tag([*kept, part], len(kept), _setting_at(schema, kept)):
            kept.append(part)
    return kept
