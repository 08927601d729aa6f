"""Files of reports: folders made, and each file written whole or not at all. Knows nothing of what is in them."""

from pathlib import Path

from components.findings import InputError

__all__ = ["make_folder", "write_whole"]


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are not there.

    Raises:
        InputError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be made: {error.strerror or error}", fix="name a folder that can be written"
        ) from None


def write_whole(path: Path, content: bytes) -> Path:
    """Writes a file in one step: a reader sees the old one or the new one.

    Returns:
        The path.

    Raises:
        InputError: it cannot be written.
    """
    partial = path.with_name(f".partial-{path.name}")
    try:
        partial.write_bytes(content)
        return partial.replace(path)
    except OSError as error:
        raise InputError(
            str(path),
            f"cannot be written: {error.strerror or error}",
            fix="name a file in a folder that can be written",
        ) from None
