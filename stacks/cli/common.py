"""The `gangway` command: `gangway plan aws-demo`, `gangway demo`, `gangway catalog list`.

Reads arguments, calls the modules that do the work, turns a user's mistake into one message and exit code 2. Heavy
imports stand inside the commands: `gangway --help` has to answer at once.
"""

from pathlib import Path

from stacks.paths import ROOT, in_project

EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2


def stacks_dir() -> Path:
    """Where the stack files are: the working directory of a project, else its `stacks/`, else what Gangway ships."""
    if in_project():
        return Path()
    here = Path("stacks")
    return here if any(here.glob("Pulumi.*.yaml")) else ROOT / "stacks"
