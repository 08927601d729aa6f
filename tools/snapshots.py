"""Reads files of a git directory without a work tree, such as a snapshot of a provider's sources."""

import subprocess
from pathlib import Path


def run_git(folder: Path, *words: str) -> str:
    """The output of a git command. CalledProcessError: it failed."""
    command = ["git", f"--git-dir={folder}", *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def show(folder: Path, path: str) -> str:
    """The text of a file in the newest commit. CalledProcessError: there is no such file."""
    return run_git(folder, "show", f"HEAD:{path}")


def revision(folder: Path) -> str:
    """The newest commit with its date."""
    return run_git(folder, "log", "-1", "--format=%H of %cs").strip()
