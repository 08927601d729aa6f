"""Files that ship inside Python packages, found without importing the packages: photographs and films without download.

Not in the trainer's image: where a package is missing, its name and the installing command are said.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from trainer.errors import TrainerError

__all__ = ["in_wheel"]


def in_wheel(package: str, path: str) -> Path:
    """Where a file of an installed package lies (TrainerError: no such package here, or no such file in it)."""
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        problem = f"the package {package} is not installed here, and the data ship in it"
    else:
        if found.exists():
            return found
        problem = f"the installed {package} has no {path}: its version is another"
    raise TrainerError(place="DATASET", problem=problem, value=path, fix=f"pip install {package}")
