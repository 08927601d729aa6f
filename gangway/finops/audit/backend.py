"""Reads a stack's state from its backend (a folder or bucket) if Pulumi's CLI is not installed.

BACKEND/.pulumi/stacks/PROJECT/STACK.json   or .json.gz; no PROJECT in backends from before 2023
"""

import gzip
import json
import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import yaml

from gangway.components.core.findings import InputError
from gangway.runs.run_store import RunFailedError, RunStore
from gangway.stacks.config.identity import project_name
from gangway.trainer.core.regular_files import read_text_file

_SCHEMES = {"file": "file", "s3": "s3", "gs": "gs", "azblob": "az"}
"""URL schemes: Pulumi's and RunStore's."""
_MAX_BYTES = 1 << 28


def state_text(stack: str, project: Path, fix: str) -> tuple[str, str]:
    """Return the text `pulumi stack export` would print, and its source. `project`: the folder of Pulumi.yaml; `fix`:
    advice for errors. InputError: no known backend, Pulumi's service, or no such stack.
    """
    url = _current(project)
    if url is None or urlsplit(url).scheme not in _SCHEMES:
        problem = "not logged in to a backend" if url is None else f"the backend is {url}"
        raise InputError(
            "pulumi", f"the CLI, which reads the state of {stack}, is not installed, and {problem}", allowed=
            f"the CLI, or a self-managed backend: {', '.join(f'{scheme}://' for scheme in _SCHEMES)}", fix=fix
        )  # fmt: skip
    short = stack.rpartition("/")[2]
    name = project_name(project / f"Pulumi.{short}.yaml")
    store, found = _store(url), None
    try:
        for file in (f"{name}/{short}.json", f"{name}/{short}.json.gz", f"{short}.json", f"{short}.json.gz"):
            if (found := store.read(f".pulumi/stacks/{file}", _MAX_BYTES)) is not None:
                break
    except RunFailedError as error:
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
