"""JSON messages between workers: torch's pickles would run code on every worker that reads them."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

MAX_BYTES = 1 << 28
"""Limit for one worker's message; distances of a large data set take some millions."""


def encode(value: object, kind: Any = None) -> bytes:
    """Encode a value of type `kind`, None for plain JSON (TypeError or pydantic's error: another type)."""
    plain = value if kind is None else _adapter(kind).dump_python(value, warnings="error")
    return json.dumps(plain).encode()


def decode(content: bytes, kind: Any = None) -> Any:
    """Decode what `encode` wrote; floats are bit-identical. ValueError: not of that type."""
    try:
        return json.loads(content) if kind is None else _adapter(kind).validate_json(content, strict=True)
    except RecursionError:
        raise ValueError("JSON that goes too deep") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"not what was agreed upon: {first['msg']}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Cached: creating one takes milliseconds."""
    return TypeAdapter(kind)
