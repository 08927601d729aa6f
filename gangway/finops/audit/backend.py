"""A stack's state out of its backend, where Pulumi's CLI is not installed: a folder or a bucket that it keeps JSON in.

BACKEND/.pulumi/stacks/PROJECT/STACK.json   or .json.gz; without PROJECT where the backend is of before 2023
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import yaml

from components.core.findings import InputError
from components.core.visible import all_visible
from gangway.runs.errors import RunFailedError
from gangway.runs.run_store import RunStore
from stacks.config.identity import project_name
from trainer.core.regular_files import read_text_file

_SCHEMES = {"file": "file", "s3": "s3", "gs": "gs", "azblob": "az"}
"""Pulumi's name of each kind of backend, and RunStore's."""
_MAX_BYTES = 1 << 28


def state_text(stack: str, project: Path, fix: str) -> tuple[str, str]:
    """What `pulumi stack export` would print, and where it was read. `project`: the folder of Pulumi.yaml; `fix`: what
    helps where there is none. InputError: no backend is known, it is Pulumi's service, or it has no such stack.
    """
    url = _current(project)
    if url is None or urlsplit(url).scheme not in _SCHEMES:
        where = "nobody has logged in to a backend here" if url is None else f"the backend is {url}"
        raise InputError(
            "pulumi", f"the CLI is not installed here, which knows the state of {stack}: {where}", allowed=
            f"the CLI, or a backend of its own: {', '.join(f'{scheme}://' for scheme in _SCHEMES)}", fix=fix
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
    return _exported(found, f"{url}: {file}", fix), f"{url}, {file}"


def _exported(content: bytes, source: str, fix: str) -> str:
    """A file of the backend in the shape of an export."""
    try:
        kept = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        return json.dumps({"version": kept["version"], "deployment": kept["checkpoint"]["latest"]})
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        raise InputError(source, "holds no state of Pulumi", fix=fix) from None


def get_outputs(text: str, source: str, fix: str) -> dict[str, Any]:
    """What a stack's program exported, but for secrets, which stay encrypted. InputError: the text is no export."""
    try:
        rows = all_visible(json.loads(text))["deployment"]["resources"] or []
        stacks = [row.get("outputs") or {} for row in rows if row["type"] == "pulumi:pulumi:Stack"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(source, "holds no outputs: the stack is not up", fix=fix) from None
    found = stacks[0] if stacks else {}
    return {name: value for name, value in found.items() if not (isinstance(value, dict) and "ciphertext" in value)}


def _current(project: Path) -> str | None:
    """The backend that the CLI would use: of the environment, the project, or the login, in its order."""
    if url := os.environ.get("PULUMI_BACKEND_URL"):
        return url
    try:
        said = yaml.load(read_text_file(project / "Pulumi.yaml"), Loader=yaml.CSafeLoader)
        if url := (said.get("backend") or {}).get("url"):
            return str(url)
        home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
        return json.loads(read_text_file(home / "credentials.json")).get("current") or None
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return None


def _store(url: str) -> RunStore:
    """A backend as RunStore has it: the account of an azblob:// is asked for beside it, a bucket's region in it."""
    parts = urlsplit(url)
    asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.scheme == "file":
        path = Path(f"{parts.netloc}{parts.path}").expanduser()
        return RunStore(path.absolute().as_uri())
    if parts.scheme == "azblob":
        account = asked.get("storage_account") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
        return RunStore(f"az://{account}/{parts.netloc}{parts.path}")
    plain = urlunsplit((_SCHEMES[parts.scheme], parts.netloc, parts.path, "", ""))
    return RunStore(plain, asked.get("region") or os.environ.get("AWS_REGION", ""))
