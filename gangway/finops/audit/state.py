"""A stack's Pulumi state from an export, the CLI or the backend. Secrets stay encrypted."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.visible import all_visible
from gangway.finops.audit.backend import state_text
from gangway.trainer.core.regular_files import read_text_file

EXPORT_TIMEOUT_SEC = 300
_MOST_BYTES = 1_000_000_000
_FIX = (
    "export the state where you are logged in: pulumi stack export --stack STACK --file state.json, then add "
    "--state state.json here; if the stack was removed or its state is lost: --no-state reports all its resources"
)
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class StateResource:
    """A resource that a provider manages. `type`: such as aws:ec2/instance:Instance; `outputs`: secrets encrypted."""

    type: str
    id: str
    outputs: Mapping[str, Any]


@dataclass(frozen=True)
class State:
    """The resources and where they were read."""

    resources: tuple[StateResource, ...]
    source: str


def read_state(path: Path) -> State:
    """Read a file of `pulumi stack export`. InputError: unreadable, or not a state."""
    try:
        text = read_text_file(path, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"--state {path}", f"cannot be read: {reason}", fix=_FIX) from None
    return parse_state(text, f"--state {path}")


def export_state(stack: str, project: Path) -> State:
    """Export the state by the CLI or, without it, from the backend. InputError: no such stack, or not logged in."""
    if which("pulumi") is None:
        return parse_state(*state_text(stack, project, _FIX.replace("STACK", stack)))
    return parse_state(_run_pulumi("export", stack, project, _FIX), f"pulumi stack export --stack {stack}")


def stack_outputs(stack: str, project: Path) -> Mapping[str, Any]:
    """Return a stack's outputs; secrets by the CLI only. InputError: see `export_state`."""
    fix = "log in to the backend with the stack's state"
    if which("pulumi") is None:
        return _parse_outputs(*state_text(stack, project, fix), fix)
    text = _run_pulumi("output --json --show-secrets", stack, project, fix)
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise InputError(f"pulumi stack output --stack {stack}", "is not JSON", value=text[:80], fix=fix) from None
    return found


def _run_pulumi(words: str, stack: str, project: Path, fix: str) -> str:
    argv = ["pulumi", "stack", *words.split(), "--stack", stack, "--cwd", str(project), "--non-interactive"]
    fix = fix.replace("STACK", stack)
    try:
        process = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=EXPORT_TIMEOUT_SEC
        )
    except subprocess.TimeoutExpired:
        raise InputError("pulumi", f"no answer in {EXPORT_TIMEOUT_SEC} s", fix=fix) from None
    if process.returncode:
        raise InputError(
            f"pulumi stack {words} --stack {stack}",
            f"failed: {' '.join(process.stderr.split()) or 'no reason given'}",
            fix=f"pulumi login, and an existing stack; {fix}",
        )
    return process.stdout


def parse_state(text: str, source: str) -> State:
    """Parse the text of an export. InputError: it is not one."""
    try:
        rows = _parse_deployment(text).get("resources") or []
        resources = tuple(
            StateResource(str(row["type"]), str(row["id"]), row.get("outputs") or {})
            for row in rows
            # Components have no id; an external resource is read but not managed.
            if row.get("id") and not row.get("external")
        )
    except _MALFORMED:
        raise InputError(
            source, "contains no Pulumi state", allowed='JSON with deployment.resources, "version" 3', fix=_FIX
        ) from None
    return State(resources, source)


def _parse_outputs(text: str, source: str, fix: str) -> dict[str, Any]:
    """Without secrets, which stay encrypted."""
    try:
        rows = _parse_deployment(text)["resources"] or []
        stacks = [row.get("outputs") or {} for row in rows if row["type"] == "pulumi:pulumi:Stack"]
    except _MALFORMED:
        raise InputError(source, "holds no outputs: the stack is not up", fix=fix) from None
    found = stacks[0] if stacks else {}
    return {name: value for name, value in found.items() if not (isinstance(value, dict) and "ciphertext" in value)}


def _parse_deployment(text: str) -> dict[str, Any]:
    deployment: dict[str, Any] | None = all_visible(json.loads(text))["deployment"]
    return deployment or {}
