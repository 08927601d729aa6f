"""What workers tell each other, as JSON: a pickle, torch's way, runs code on every worker that reads it."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

MAX_BYTES = 1 << 28
"""Of one worker at once; blocks of a large set's distances take some millions."""


def encode(value: object, kind: Any = None) -> bytes:
    """`kind` is the type by which the others read it (a NamedTuple, a model, a tuple of such), None for what JSON has
    by itself: numbers, text, lists. TypeError or pydantic's error: it is nothing of the kind.
    """
    plain = value if kind is None else _adapter(kind).dump_python(value, warnings="error")
    return json.dumps(plain).encode()


def decode(content: bytes, kind: Any = None) -> Any:
    """What `encode` was given; floats are the same bits. ValueError: it is nothing of the kind."""
    try:
        return json.loads(content) if kind is None else _adapter(kind).validate_json(content, strict=True)
    except RecursionError:
        raise ValueError("JSON that goes too deep") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"not what was agreed upon: {first['msg']}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made once for each kind: that takes milliseconds."""
    return TypeAdapter(kind)
