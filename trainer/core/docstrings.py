"""Docstrings of models as help texts of flags and schemas."""

import inspect
import re
from typing import Any

from pydantic import BaseModel

_ENTRY = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)
_SECTION = "\n\nAttributes:\n"


def summary(model: type) -> str:
    """The text before the attribute list, on one line."""
    return " ".join(_docstring(model).partition(_SECTION)[0].split())


def attribute_sentences(model: type) -> dict[str, str]:
    """The text of each attribute by name, without the full stop."""
    attributes = _docstring(model).partition(_SECTION)[2]
    return {name: " ".join(text.split()).removesuffix(".") for name, text in _ENTRY.findall(attributes)}


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add a model's docstring to its JSON schema: the summary and the text of each property."""
    schema["description"] = summary(model)
    for name, sentence in attribute_sentences(model).items():
        schema["properties"][model.model_fields[name].alias or name]["description"] = sentence


def _docstring(model: type) -> str:
    return inspect.cleandoc(model.__doc__ or "")
