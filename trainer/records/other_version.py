"""Which version of the trainer wrote a run.json that this one cannot read: so it is not taken for a damaged file."""

import json

from trainer.core.host import code_sha256

SCHEMA_VERSION = 1
"""Of the records that this version writes, and reads. Fields that came later have defaults, so that it reads all."""


def get_writer(content: bytes) -> str:
    """Schema, code and torch of the version that wrote it; empty where that was this one, or where it does not say."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(values, dict):
        return ""
    schema, code, versions = (values.get(name) for name in ("schema_version", "code_sha256", "versions"))
    if not isinstance(schema, int) or not isinstance(code, str):
        return ""
    if schema == SCHEMA_VERSION and code == code_sha256():
        return ""
    torch = versions.get("torch") if isinstance(versions, dict) else None
    return f"schema {schema}, code {code[:12]}{f', torch {torch:.20}' if isinstance(torch, str) else ''}"
