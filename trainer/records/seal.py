"""The digest of a record's content, so that a file that was changed afterwards is noticed. Does not import torch.

    digest = sha256(json.dumps(the rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False) as UTF-8)

Over the file's own content, so that an older version's record, read with today's defaults, keeps its digest; layout and
order of keys do not count. Not a signature: whoever changes a record on purpose can compute a new digest.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from trainer.errors import TrainerError
from trainer.figure import Frozen
from trainer.files import write_atomically

__all__ = ["BROKEN_SEAL", "DIGEST", "Sealed", "broken_seal", "digest_of", "seal"]

DIGEST = "digest"
"""The key that is not part of the content."""
BROKEN_SEAL = "broken_seal"
"""Type of pydantic's error for a content that does not fit its digest."""


def digest_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of a record's content, plain JSON data, `digest` left out; hexadecimal."""
    content = {key: value for key, value in values.items() if key != DIGEST}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same plain JSON data with its digest, which comes last."""
    return {**{key: value for key, value in values.items() if key != DIGEST}, DIGEST: digest_of(values)}


class Sealed(Frozen):
    """Data whose file carries a digest of its content.

    Attributes:
        digest: SHA-256 over the rest of the file; empty in memory until it is written, and in files from before there
            was one, which are not sealed.
    """

    digest: str = ""

    @model_validator(mode="before")
    @classmethod
    def _is_what_was_sealed(cls, values: Any, info: ValidationInfo) -> Any:
        """Looks at files alone: what this program makes of a record in memory is its own business."""
        if info.mode == "json" and isinstance(values, dict):
            _check(values)
        return values

    def write(self, path: Path) -> None:
        """Writes the data with its digest in one step: readers see the old or new file (TrainerError: not writable)."""
        values = seal(json.loads(self.model_dump_json()))
        write_atomically(path, (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode())


def _check(values: Mapping[str, Any]) -> None:
    expected = values.get(DIGEST, "")
    if expected and (found := digest_of(values)) != expected:
        raise PydanticCustomError(
            BROKEN_SEAL,
            "was changed after it was written: it was sealed with digest {expected}, its content has {found}",
            {"expected": str(expected), "found": found},
        )


def broken_seal(error: ValidationError, path: Path) -> TrainerError | None:
    """What to tell of a file that does not fit its digest; None where the error is another one."""
    first = error.errors()[0]
    if first["type"] != BROKEN_SEAL:
        return None
    return TrainerError(
        place=str(path),
        problem="was changed after it was written",
        value=f"content with digest {first['ctx']['found']}",
        allowed=f"digest {first['ctx']['expected']}",
        fix="restore it from a copy, or write it anew: python -m trainer record --run-dir DIR",
    )
