"""Files that ship inside Python packages, found without importing the packages.

Real photographs and films that need no download. Not a dependency of the trainer's image: where a package is missing,
its name and the command that installs it are said.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from trainer.errors import TrainerError

__all__ = ["in_wheel"]


def in_wheel(package: str, path: str) -> Path:
    """Where a file of an installed package lies.

    Args:
        package: its name on PyPI.
        path: of the file in it.

    Raises:
        TrainerError: the package is not installed here, or has no such file.
    """
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        problem = f"the package {package} is not installed here, and the data ship in it"
    else:
        if found.exists():
            return found
        problem = f"the installed {package} has no {path}: its version is another"
    raise TrainerError(place="DATASET", problem=problem, value=path, fix=f"pip install {package}")
