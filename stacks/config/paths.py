"""Where the program runs: in `stacks/` of a checkout, or in a user's project with an installed Gangway."""

import json
import os
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of components, images, stacks and trainer: the checkout, or the installed package `gangway`."""


def module_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `python -m` finds this Gangway, also in a checkout that is not installed."""
    safe = {**variables, "PYTHONSAFEPATH": "1"}
    if not in_checkout():
        return safe
    others = [each for each in variables.get("PYTHONPATH", "").split(os.pathsep) if each not in ("", str(ROOT))]
    return {**safe, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])}


def in_checkout() -> bool:
    """Whether this is a checkout, not an installed package."""
    return (ROOT / "pyproject.toml").is_file()


def installed_from() -> str | None:
    """The URL that Gangway was installed from, for a requirement such as `gangway-iac[aws] @ URL`; None for an index,
    where we have no release, so anyone could register the name.
    """
    if in_checkout():
        return ROOT.as_uri()
    text = distribution("gangway-iac").read_text("direct_url.json")  # PEP 610
    if text is None:
        return None
    known = json.loads(text)
    if "vcs_info" not in known:
        return str(known["url"])
    return f"{known['vcs_info']['vcs']}+{known['url']}@{known['vcs_info']['commit_id']}"


def in_project() -> bool:
    """Whether the working directory is a project that `gangway init` wrote, outside the checkout."""
    here = Path.cwd()
    return here != ROOT and (here / "Pulumi.yaml").is_file() and (here / "__main__.py").is_file()


def program_folder() -> Path:
    """Working directory of the program under the engine; relative paths among its inputs start here."""
    return Path.cwd() if in_project() else ROOT / "stacks"


def project_folder() -> Path:
    """The project whose stacks Pulumi's CLI lists: the working directory, if it is a project, else the checkout."""
    here = Path.cwd()
    return here if (here / "Pulumi.yaml").is_file() else ROOT


def trainer_context() -> str:
    """Build context of the trainer's image, relative to the program's folder: the same on all machines."""
    return os.path.relpath(ROOT, program_folder().resolve())
