"""What a run's numbers were computed with: a hash of the trainer's own code, and versions of what they depend on.

Not the container's digest, which only the launcher knows.
"""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["code_sha256", "versions"]


def code_sha256() -> str:
    """SHA-256 over the trainer's own Python files, names and contents, in order of their names."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    packages = ("torch", "numpy", "scikit-learn", "pydantic")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
