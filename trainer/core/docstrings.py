"""What the docstrings of models say, for whoever is shown a model: flags, schemas."""

import inspect
import re
from typing import Any

from pydantic import BaseModel

_ENTRY = re.compile(r"^    (\w+): (.+(?:\n {6,}.+)*)", re.MULTILINE)
_SECTION = "\n\nAttributes:\n"


def summary(model: type) -> str:
    """What the docstring says before its list of attributes, on one line."""
    return " ".join(_docstring(model).partition(_SECTION)[0].split())


def attribute_sentences(model: type) -> dict[str, str]:
    """What it says of each attribute, by name, without the full stop."""
    listed = _docstring(model).partition(_SECTION)[2]
    return {name: " ".join(text.split()).removesuffix(".") for name, text in _ENTRY.findall(listed)}


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Puts into a model's JSON schema what its docstring says: of the whole, and of each property by itself."""
    schema["description"] = summary(model)
    for name, sentence in attribute_sentences(model).items():
        schema["properties"][model.model_fields[name].alias or name]["description"] = sentence


def _docstring(model: type) -> str:
    return inspect.cleandoc(model.__doc__ or "")
