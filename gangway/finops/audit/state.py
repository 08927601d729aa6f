"""A stack's Pulumi state from an export, the CLI or, without it, from the backend. Secrets stay encrypted."""

import gzip
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import yaml

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import all_visible
from gangway.runs.run_store import RunStore, StoreFailedError
from gangway.stacks.config.identity import project_name
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
    """A resource that a provider manages. `type`: such as aws:ec2/instance:Instance; `outputs`: secrets encrypted;
    `name`: the logical one; `is_retained`: `destroy` leaves it in the cloud.
    """

    type: str
    id: str
    outputs: Mapping[str, Any]
    name: str = ""
    is_retained: bool = False


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
    return parse_state(*_export(stack, project, _FIX))


def export_resources(stack: str, project: Path) -> list[Mapping[str, Any]]:
    """All resources of the state as `pulumi stack export` prints them. InputError: as of `export_state`."""
    fix = "log in to the backend with the stack's state, or compare with a plan: `gangway plan STACK --json`"
    text, source = _export(stack, project, fix)
    try:
        rows: list[Mapping[str, Any]] = _parse_deployment(text).get("resources") or []
    except _MALFORMED:
        raise InputError(source, "contains no Pulumi state", fix=fix) from None
    if not rows:
        raise InputError(source, "has no resources: the stack is not up", fix="leave out --against")
    return rows


def _export(stack: str, project: Path, fix: str) -> tuple[str, str]:
    if which("pulumi") is None:
        return state_text(stack, project, fix.replace("STACK", stack))
    return _run_pulumi("export", stack, project, fix), f"pulumi stack export --stack {stack}"


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


def list_stacks(project: Path) -> list[str]:
    """The names of the project's stacks in the backend, by the CLI or, without it, there. InputError: not logged in."""
    fix = "pulumi login, with the backend that has the project's stacks"
    if which("pulumi") is not None:
        return sorted(str(row["name"]) for row in json.loads(_run_pulumi("ls --json", "", project, fix)))
    url = _backend("the project's stacks", project, fix)
    name = project_name(project / "Pulumi.yaml")
    prefix = f".pulumi/stacks/{name}/"
    try:
        found = [each.removeprefix(prefix) for each in _store(url).names() if each.startswith(prefix)]
    except StoreFailedError as error:
        raise InputError(url, f"cannot be read: {error}", fix=fix) from None
    return sorted({each.partition(".json")[0] for each in found if each.endswith((".json", ".json.gz"))})


def _run_pulumi(words: str, stack: str, project: Path, fix: str) -> str:
    named = ["--stack", stack] if stack else []
    argv = ["pulumi", "stack", *words.split(), *named, "--cwd", str(project), "--non-interactive"]
    fix = fix.replace("STACK", stack)
    try:
        process = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=EXPORT_TIMEOUT_SEC
        )
    except subprocess.TimeoutExpired:
        raise InputError("pulumi", f"no answer in {EXPORT_TIMEOUT_SEC} s", fix=fix) from None
    if process.returncode:
        raise InputError(
            " ".join(["pulumi", "stack", words, *named]),
            f"failed: {' '.join(process.stderr.split()) or 'no reason given'}",
            fix=f"pulumi login, and an existing stack; {fix}",
        )
    return process.stdout


def parse_state(text: str, source: str) -> State:
    """Parse the text of an export. InputError: it is not one."""
    try:
        rows = _parse_deployment(text).get("resources") or []
        resources = tuple(
            StateResource(
                type=str(row["type"]),
                id=str(row["id"]),
                outputs=row.get("outputs") or {},
                name=str(row.get("urn", "")).rpartition("::")[2],
                is_retained=bool(row.get("retainOnDelete")),
            )
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


_SCHEMES = {"file": "file", "s3": "s3", "gs": "gs", "azblob": "az"}
"""URL schemes: Pulumi's and RunStore's."""
_MAX_BYTES = 1 << 28


def state_text(stack: str, project: Path, fix: str) -> tuple[str, str]:
    """The text of `pulumi stack export`, and its source. InputError: no known backend, or no such stack."""
    url = _backend(f"the state of {stack}", project, fix)
    short = stack.rpartition("/")[2]
    name = project_name(project / f"Pulumi.{short}.yaml")
    store, found = _store(url), None
    try:
        for file in (f"{name}/{short}.json", f"{name}/{short}.json.gz", f"{short}.json", f"{short}.json.gz"):
            if (found := store.read(f".pulumi/stacks/{file}", _MAX_BYTES)) is not None:
                break
    except StoreFailedError as error:
        raise InputError(url, f"cannot be read: {error}", fix=fix) from None
    if found is None:
        raise InputError(url, f"has no stack {short} of project {name}", fix=fix)
    return _to_export(found, f"{url}: {file}", fix), f"{url}, {file}"


def _to_export(content: bytes, source: str, fix: str) -> str:
    try:
        checkpoint = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        return json.dumps({"version": checkpoint["version"], "deployment": checkpoint["checkpoint"]["latest"]})
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        raise InputError(source, "contains no Pulumi state", fix=fix) from None


def _backend(what: str, project: Path, fix: str) -> str:
    url = _current(project)
    if url is None or urlsplit(url).scheme not in _SCHEMES:
        problem = "not logged in to a backend" if url is None else f"the backend is {url}"
        raise InputError(
            "pulumi", f"the CLI, which reads {what}, is not installed, and {problem}", allowed=
            f"the CLI, or a self-managed backend: {', '.join(f'{scheme}://' for scheme in _SCHEMES)}", fix=fix
        )  # fmt: skip
    return url


def _current(project: Path) -> str | None:
    """The backend the CLI would use, from the environment, the project or the login, in that order."""
    if url := os.environ.get("PULUMI_BACKEND_URL"):
        return url
    try:
        config = yaml.load(read_text_file(project / "Pulumi.yaml"), Loader=yaml.CSafeLoader)
        if url := (config.get("backend") or {}).get("url"):
            return str(url)
        home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
        return json.loads(read_text_file(home / "credentials.json")).get("current") or None
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return None


def _store(url: str) -> RunStore:
    """The account of azblob:// is a query parameter or a variable, and so is a bucket's region."""
    parts = urlsplit(url)
    parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.scheme == "file":
        path = Path(f"{parts.netloc}{parts.path}").expanduser()
        return RunStore(path.absolute().as_uri())
    if parts.scheme == "azblob":
        account = parameters.get("storage_account") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
        return RunStore(f"az://{account}/{parts.netloc}{parts.path}")
    plain = urlunsplit((_SCHEMES[parts.scheme], parts.netloc, parts.path, "", ""))
    return RunStore(plain, parameters.get("region") or os.environ.get("AWS_REGION", ""))
