"""The flags of `train` that change its configuration, one for each field of TrainConfig: sentences come from its
docstring, kinds of values from its types. Values stay text, which pydantic parses, with one kind of message for every
source.
"""

import argparse
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from trainer.config import TrainConfig

__all__ = ["add_config_flags"]

_KINDS: Mapping[object, str] = MappingProxyType({int: "N", float: "X", bool: "true|false", str: "NAMES"})


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each field but the preset's name."""
    fields = parser.add_argument_group(
        "configuration",
        "Each in place of the value that the preset or the file has, and without it that value stays; `python -m "
        "trainer presets NAME` shows a preset's. N is a whole number, X a number, NAMES are names by commas.",
    )
    sentences = dict(re.findall(r"^ +(\w+): (.+?)\.?$", TrainConfig.__doc__ or "", re.MULTILINE))
    for name, field in TrainConfig.model_fields.items():
        if name != "preset":
            flag, text = f"--{name.replace('_', '-')}", sentences[name].replace("%", "%%")
            fields.add_argument(flag, dest=f"field_{name}", metavar=_metavar(field), help=text)


def _metavar(field: FieldInfo) -> str:
    """The words of which it takes one, or the kind of value."""
    kind = field.annotation
    return "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else _KINDS[kind]
