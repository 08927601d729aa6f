"""`make reference`: writes docs/reference; with --check, exits 1 and names the pages that differ."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from gangway.stacks.config.paths import ROOT
from tools.reference import pages

FOLDER = ROOT / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "stack-file.md": pages.stack_file,
        "job-file.md": pages.job_file,
        "training.md": pages.training,
        "commands.md": pages.commands,
        "components.md": pages.components,
        "outputs.md": pages.outputs,
        "findings.md": pages.findings,
        "metrics.md": pages.metrics,
    }
)


def outdated(folder: Path = FOLDER) -> dict[Path, str]:
    """The pages that are missing or differ from the code, with their new text."""
    made = {folder / name: make() for name, make in PAGES.items()}
    return {path: text for path, text in made.items() if not path.is_file() or path.read_text("utf-8") != text}


def main() -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is outdated")
    is_check = parser.parse_args().check
    for path, text in (found := outdated()).items():
        if not is_check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        print(f"{path.relative_to(ROOT)}: {'outdated; run `make reference`' if is_check else 'written'}")
    return int(is_check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
