"""Whose login this is, for people; the user's number where that has no name, as in many containers."""

import getpass
import os


def own_name() -> str:
    """Of whoever asks: of a login that several share by sudo, the one who came by it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the second since Python 3.13
        name = str(os.getuid())
    came_from = os.environ.get("SUDO_USER", "")
    return name if came_from in ("", "root") or name == "root" else came_from
