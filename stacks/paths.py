"""Where the program runs: in `stacks/` of a checkout, or in a project of somebody's that uses an installed Gangway."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""What holds components, images, stacks and trainer: a checkout's top, or the installed package's folder."""


def in_checkout() -> bool:
    """Whether this is a checkout, and no installed package."""
    return (ROOT / "pyproject.toml").is_file()


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
