"""What shellcheck, a dependency of development, finds in scripts."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def shell_mistakes(scripts: Sequence[Path]) -> str:
    """Its report; empty if there is nothing to report."""
    command = [str(Path(sys.executable).with_name("shellcheck")), "-x", "-P", "SCRIPTDIR", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
