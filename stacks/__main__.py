"""The Pulumi program: `pulumi up --stack aws-demo` runs this file. Load, build, export; no more."""

import sys
from pathlib import Path

# The engine makes this folder sys.path[0]; the packages live one above.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi

from components.findings import InputError
from stacks.config import from_pulumi
from stacks.program import build


def main() -> None:
    """Builds the selected stack. A user's mistake becomes one message of the engine, without a traceback."""
    try:
        for name, value in build(from_pulumi()).items():
            pulumi.export(name, value)
    except* InputError as mistakes:
        raise pulumi.RunError("\n".join(str(mistake) for mistake in mistakes.exceptions)) from None


main()
