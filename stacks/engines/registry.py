"""The engine that a word of the command line names: `local`, `local:FOLDER`."""

import os
from pathlib import Path

from components.core.findings import InputError
from stacks.engines.base import Engine

VARIABLE = "GANGWAY_ENGINE"
_KINDS = ("local",)
_DEFAULT_FOLDER = Path("~/.gangway/jobs")


def engine_of(asked: str | None) -> Engine:
    """`asked` None: what GANGWAY_ENGINE says, else this machine. InputError: no such engine."""
    text = asked or os.environ.get(VARIABLE) or "local"
    kind, _, place = text.partition(":")
    if kind not in _KINDS:
        raise InputError.not_among("--on" if asked else VARIABLE, "no engine", text, _KINDS)
    from stacks.engines.local_queue import LocalQueue

    return LocalQueue((Path(place) if place else _DEFAULT_FOLDER).expanduser().resolve())
