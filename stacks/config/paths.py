"""Where the program runs: in `stacks/` of a checkout, or in a project of somebody's that uses an installed Gangway."""

import json
import os
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""What holds components, images, stacks and trainer: a checkout's top, or the installed package's folder."""


_PYTHONPATH = "PYTHONPATH"


def module_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `python -m` finds Gangway's modules, and nobody else's of the same name: neither in the
    folder that it begins in, nor further back on the path.
    """
    others = [each for each in variables.get(_PYTHONPATH, "").split(os.pathsep) if each not in ("", str(ROOT))]
    return {**variables, _PYTHONPATH: os.pathsep.join([str(ROOT), *others]), "PYTHONSAFEPATH": "1"}


def user_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment that whoever began an installed Gangway had: without the folder of its own packages, which may
    have the names of theirs. In a checkout it is theirs to have.
    """
    path = variables.get(_PYTHONPATH)
    if path is None or in_checkout():
        return dict(variables)
    others = os.pathsep.join(each for each in path.split(os.pathsep) if each != str(ROOT))
    rest = {name: value for name, value in variables.items() if name != _PYTHONPATH}
    return {**rest, _PYTHONPATH: others} if others else rest


def in_checkout() -> bool:
    """Whether this is a checkout, and no installed package."""
    return (ROOT / "pyproject.toml").is_file()


def installed_from() -> str | None:
    """The URL that Gangway was installed from, for a requirement such as `gangway-iac[aws] @ URL`; None for an index.
    We have no release there, so anyone could register the name.
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
    """Whether the working directory is a Pulumi project beside no checkout: one that `gangway init` has written."""
    here = Path.cwd()
    return here != ROOT and (here / "Pulumi.yaml").is_file() and (here / "__main__.py").is_file()


def program_folder() -> Path:
    """Where the program runs under the engine, and so what a relative path among its inputs starts from."""
    return Path.cwd() if in_project() else ROOT / "stacks"


def project_folder() -> Path:
    """Whose stacks the CLI of Pulumi is asked about: the working directory's project, else the one that is here."""
    here = Path.cwd()
    return here if (here / "Pulumi.yaml").is_file() else ROOT


def trainer_context() -> str:
    """The folder that the trainer's image is built from, relative to the program's: the same on everybody's machine."""
    return os.path.relpath(ROOT, program_folder().resolve())
