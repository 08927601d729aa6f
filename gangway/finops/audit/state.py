"""A stack's Pulumi state, as `pulumi stack export` writes it: what is there, and what each resource may be called by.
From a file, from the CLI or, where that is not installed, from the backend. Secrets stay encrypted: no flag asks for
them.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from components.core.findings import InputError
from components.core.visible import all_visible
from gangway.finops.audit.backend import get_outputs, state_text
from trainer.core.regular_files import read_text_file

EXPORT_TIMEOUT_SEC = 300
_MOST_BYTES = 1_000_000_000
_FIX = (
    "where the state is: pulumi stack export --stack STACK --file state.json, and then --state state.json here; "
    "for a stack that was removed, or whose state is lost: --no-state, which takes all of it for left over"
)


@dataclass(frozen=True)
class StateResource:
    """A resource that a provider holds for the stack. `type`: type token, such as aws:ec2/instance:Instance; `id`: the
    provider's; `outputs`: as in the state; secrets are still encrypted.
    """

    type: str
    id: str
    outputs: Mapping[str, Any]


@dataclass(frozen=True)
class State:
    """What the state holds, and where it was read."""

    resources: tuple[StateResource, ...]
    source: str


def read_state(path: Path) -> State:
    """Reads a file of `pulumi stack export`. InputError: there is none, or it holds no state."""
    try:
        text = read_text_file(path, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise InputError(f"--state {path}", f"cannot be read: {why}", fix=_FIX) from None
    return parse_state(text, f"--state {path}")


def export_state(stack: str, project: Path) -> State:
    """Asks the CLI, in the backend that it is logged in to; without one the backend. InputError: no such stack, nobody
    logged in, or a backend that only the CLI reads.
    """
    if which("pulumi") is None:
        return parse_state(*state_text(stack, project, _FIX.replace("STACK", stack)))
    return parse_state(_asked("export", stack, project, _FIX), f"pulumi stack export --stack {stack}")


def stack_outputs(stack: str, project: Path) -> Mapping[str, Any]:
    """What a stack's program exported; secrets by the CLI alone. InputError: as `export_state`."""
    fix = "run it where the stack's state is, logged in to its backend"
    if which("pulumi") is None:
        return get_outputs(*state_text(stack, project, fix), fix)
    text = _asked("output --json --show-secrets", stack, project, fix)
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise InputError(f"pulumi stack output --stack {stack}", "is no JSON", value=text[:80], fix=fix) from None
    return found


def _asked(words: str, stack: str, project: Path, fix: str) -> str:
    """What `pulumi stack WORDS` prints. InputError: no such stack, nobody logged in."""
    argv = ["pulumi", "stack", *words.split(), "--stack", stack, "--cwd", str(project), "--non-interactive"]
    fix = fix.replace("STACK", stack)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=EXPORT_TIMEOUT_SEC
        )
    except subprocess.TimeoutExpired:
        raise InputError("pulumi", f"no answer in {EXPORT_TIMEOUT_SEC} s", fix=fix) from None
    if done.returncode:
        raise InputError(
            f"pulumi stack {words} --stack {stack}",
            f"failed: {' '.join(done.stderr.split()) or 'no reason given'}",
            fix=f"pulumi login, and a stack that is there; {fix}",
        )
    return done.stdout


def parse_state(text: str, source: str) -> State:
    """Reads the text of an export. InputError: it is none."""
    try:
        deployment = all_visible(json.loads(text))["deployment"]
        rows = (deployment or {}).get("resources") or []
        resources = tuple(
            StateResource(str(row["type"]), str(row["id"]), row.get("outputs") or {})
            for row in rows
            # A component has no id; a resource that is read and not managed is somebody else's.
            if row.get("id") and not row.get("external")
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            source, "holds no state of Pulumi", allowed='JSON with deployment.resources, "version" 3', fix=_FIX
        ) from None
    return State(resources, source)
