"""Tables of the keys that pydantic models take: path, type, default and description."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from gangway.stacks.config.corrections import get_unit
from gangway.trainer.core.docstrings import attribute_sentences, summary

_CODE = re.compile(r"(`[^`]*`)")
_HTML = str.maketrans({"<": "&lt;", "*": r"\*"})


def text(words: str) -> str:
    """Plain text, of which only what is between backticks is code.

    >>> text("a <host> or `<host>`, layers.*")
    'a &lt;host> or `<host>`, layers.\\\\*'
    """
    return "".join(part if part.startswith("`") else part.translate(_HTML) for part in _CODE.split(words))


def code(words: object) -> str:
    """A value or a key."""
    return f"`{words}`"


def choice(words: Iterable[object]) -> str:
    """Several values of which one is chosen."""
    return " \\| ".join(map(code, words))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells keep their markup; line breaks become spaces."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", " ".join(cell.split())) for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(heading: str, *parts: str, level: int = 2) -> str:
    """A heading and the non-empty parts below it."""
    return "\n\n".join([f"{'#' * level} {heading}", *(part.strip("\n") for part in parts if part)]) + "\n"


def page(title: str, introduction: str, *sections: str) -> str:
    """A whole page."""
    note = "<!-- Written by `make reference` from the code; do not edit. -->"
    return "\n".join([f"# {title}\n", f"{note}\n", introduction.strip() + "\n", *sections])


_COLUMNS = ("key", "type", "default", "description")
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_FORMATS = {"date": "date", "date-time": "date and time with zone"}

Schema = dict[str, Any]
Models = list[type[BaseModel]]


class Keys:
    """The keys of a file. `remarks`: by path, put behind a description; `hidden`: keys that users do not write."""

    def __init__(self, remarks: Mapping[str, str] | None = None, hidden: frozenset[str] = frozenset()) -> None:
        self._remarks, self._hidden = remarks or {}, hidden

    def top_level(self, model: type[BaseModel], prefix: str) -> Iterator[str]:
        """A section for each key with keys below it, after one with the other keys."""
        nested = {name: nested_models(field.annotation) for name, field in model.model_fields.items()}
        single = Keys(self._remarks, self._hidden | {name for name, models in nested.items() if models})
        yield section("Single keys", table(_COLUMNS, single._rows(model, "", None)))
        descriptions = get_descriptions(model)
        for name, models in nested.items():
            words = summary(models[0]) if len(models) == 1 else f"{descriptions.get(name, '')}."
            remark = f" {self._remarks[name]}." if name in self._remarks else ""
            about = text(words[0].upper() + words[1:] + remark)
            if len(models) == 1:
                yield from self.sections(models[0], code(prefix + name), name, about)
            elif models:
                yield section(code(prefix + name), about)
                yield from self._kinds([(name, models)])

    def sections(self, model: type[BaseModel], heading: str, path: str = "", about: str = "") -> Iterator[str]:
        """All keys of a model in a table; below it a section for each kind of a key that has several."""
        kinds: list[tuple[str, Models]] = []
        rows = list(self._rows(model, path, kinds))
        yield section(heading, about or text(summary(model)), table(_COLUMNS, rows))
        yield from self._kinds(kinds)

    def _kinds(self, keys: Sequence[tuple[str, Models]]) -> Iterator[str]:
        for path, model in ((path, model) for path, models in keys for model in models):
            kinds: list[tuple[str, Models]] = []
            rows = list(self._rows(model, path, kinds))
            field = model.model_fields.get("kind")
            about = text(summary(model))
            if field is None:
                heading, about = f"{code(path)}: {text(_phrase(model))}", ""
            else:
                heading = f"{code(path)} with kind {code(get_args(field.annotation)[0])}"
            yield section(heading, about, table(_COLUMNS, rows), level=3)
            yield from self._kinds(kinds)

    def _rows(
        self, model: type[BaseModel], path: str, kinds: list[tuple[str, Models]] | None
    ) -> Iterator[Sequence[str]]:
        """A row for each key; with `kinds`, also for keys of mappings below, except those of several kinds."""
        schema, descriptions = model.model_json_schema(), get_descriptions(model)
        for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] != "kind"):
            key = field.alias or name
            here = f"{path}.{key}".removeprefix(".")
            if here in self._hidden:
                continue
            models = nested_models(field.annotation)
            about = descriptions.get(name) or (_phrase(models[0]) if len(models) == 1 else "")
            yield (
                code(here),
                _type(schema["properties"][key], schema, key) + ("" if models else _example(field)),
                _default(field, models),
                text(". ".join(filter(None, (about, self._remarks.get(here))))),
            )
            if kinds is None or not models:
                continue
            inside = here + _suffix(schema["properties"][key], schema)
            if len(models) == 1:
                yield from self._rows(models[0], inside, kinds)
            else:
                kinds.append((inside, models))


def flat(model: type[BaseModel], path: str = "") -> str:
    """The model's own keys, without those below them."""
    return table(_COLUMNS, Keys()._rows(model, path, None))


def _phrase(model: type[BaseModel]) -> str:
    words = summary(model).removesuffix(".")
    return words[0].lower() + words[1:]


def get_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The description of each key, by name, inherited ones included."""
    return {name: words for base in reversed(model.__mro__) for name, words in attribute_sentences(base).items()}


def nested_models(annotation: Any) -> Models:
    """The models in a type, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in nested_models(part)]


def _suffix(schema: Schema, root: Schema) -> str:
    """`[]` behind the path of a list of mappings, `.NAME` behind that of a mapping by names."""
    kinds = _branches(schema, root)
    by_name = any(kind.get("additionalProperties") for kind in kinds)
    return "[]" if any(kind.get("type") == "array" for kind in kinds) else ".NAME" if by_name else ""


def _branches(schema: Schema, root: Schema) -> list[Schema]:
    if "$ref" in schema:
        return _branches(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return [branch for option in options for branch in _branches(option, root)]
    return [] if schema.get("type") == "null" else [schema]


def _type(schema: Schema, root: Schema, name: str) -> str:
    return " or ".join(dict.fromkeys(_words(branch, root, name) for branch in _branches(schema, root)))


def _words(schema: Schema, root: Schema, name: str) -> str:
    """One alternative in words, with allowed values, limits and unit."""
    if "enum" in schema or "const" in schema:
        return choice(schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "integer" | "number" as kind:
            unit = get_unit(name)
            return f"{'whole ' if kind == 'integer' else ''}number{_limits(schema)}{f' ({unit})' if unit else ''}"
        case "boolean":
            return choice(("true", "false"))
        case "array" if items := schema.get("prefixItems"):
            return f"{len(items)} x {' and '.join(dict.fromkeys(_type(item, root, name) for item in items))}"
        case "array":
            most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
            return f"list of {_type(schema['items'], root, name)}{most}"
        case "object" if isinstance(values := schema.get("additionalProperties"), dict):
            return f"mapping of names to {_type(values, root, name)}"
        case "string":
            return _FORMATS.get(schema.get("format", ""), "text")
    return "mapping"


def _limits(schema: Schema) -> str:
    limits = {words: _limit(schema[name]) for name, words in _LIMITS.items() if name in schema}
    if limits.keys() == {"at least", "at most"}:
        return f", {limits['at least']} to {limits['at most']}"
    return "".join(f", {words} {limit}" for words, limit in limits.items())


def _limit(number: float) -> str:
    """A limit as people write it; that of 64-bit whole numbers as a power."""
    return {2**63: "2^63", 2**63 - 1: "2^63 - 1"}.get(int(number), f"{number:,.10g}")


def _example(field: FieldInfo) -> str:
    example = next(iter(field.examples or ()), None)
    if example is None or isinstance(example, bool | int | float) or _is_word(field.annotation):
        return ""
    words = _flow(example)
    return f", such as {code(words)}" if len(words) <= 60 else ""


def _is_word(annotation: Any) -> bool:
    return any(get_origin(kind) is Literal for kind in (annotation, *get_args(annotation)))


def _default(field: FieldInfo, models: Models) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value in (None, (), {}, "") or models:
        return ""
    return code(_flow(value.value if isinstance(value, Enum) else value))


def _flow(value: Any) -> str:
    written = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, sort_keys=False, width=10**6)
    return written.removesuffix("\n").removesuffix("\n...")
