"""The trainer's version that wrote an unreadable run.json, to tell it from a damaged file."""

import json

from gangway.trainer.core.host import code_sha256

SCHEMA_VERSION = 1
"""Version of records. Later fields have defaults, so that all records of this version are readable."""


def get_writer(content: bytes) -> str:
    """Schema, code and torch of another writing version; empty for this one or an unknown one."""
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
