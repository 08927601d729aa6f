"""The user name for display, or the user's number if it has no name, as in many containers."""

import getpass
import os


def own_name() -> str:
    """With a login shared by sudo, the name of the user who ran sudo."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the second since Python 3.13
        name = str(os.getuid())
    came_from = os.environ.get("SUDO_USER", "")
    return name if came_from in ("", "root") or name == "root" else came_from
