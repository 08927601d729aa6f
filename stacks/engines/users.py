"""Whose login this is, and whose a file is, for people; the user's number where that has no name, as in many
containers.
"""

import getpass
import os
from pathlib import Path


def own_name() -> str:
    """Of whoever asks."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the second since Python 3.13
        return str(os.getuid())


def owner_of(path: Path) -> str:
    """OSError: nobody may know."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)
