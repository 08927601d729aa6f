"""Files of a source by name, and skipped entries by kind and reason."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

MOST_NAMES = 1000
"""Names kept per kind and reason; the count includes all."""
BROKEN_LINK = "leads nowhere"
BROKEN_NAME = "name is not UTF-8"
_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{0,6}")


class Skipped(BaseModel):
    """Entries of one kind skipped for the same reason; `kind` such as `.txt file`, `names` the first `MOST_NAMES`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    reason: str
    count: int
    names: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether they need --skip-broken: each may be an image or a folder of images."""
        return self.reason in (BROKEN_LINK, BROKEN_NAME)


class Tally:
    """Builds a listing; `files` are bytes by name."""

    def __init__(self, skipped: Iterable[Skipped] = ()) -> None:
        self.files: dict[str, int] = {}
        self._names: dict[tuple[str, str], list[str]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._hidden_folders: set[str] = set()
        for each in skipped:
            self._names[each.kind, each.reason] = list(each.names)
            self._counts[each.kind, each.reason] = each.count

    def skip(self, kind: str, reason: str, name: str) -> None:
        """Count a skipped entry."""
        key = kind, reason
        self._counts[key] = self._counts.get(key, 0) + 1
        names = self._names.setdefault(key, [])
        if len(names) < MOST_NAMES:
            names.append(name.encode("utf-8", "backslashreplace").decode())

    def add(self, name: str, size: int) -> None:
        """Add a file. Of duplicate names the last counts, as when unpacked."""
        if self.hides(name):
            return
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            self.skip(get_kind(name), BROKEN_NAME, name)
            return
        if name in self.files:
            self.skip(get_kind(name), "name is there again; the last is read", name)
        self.files[name] = size

    def hides(self, name: str, *, is_folder: bool = False) -> bool:
        """Whether the name or a parent folder is hidden; counts hidden entries, a folder once."""
        parts = name.split("/")
        first = next((number for number, part in enumerate(parts) if part.startswith(".") or part == "__MACOSX"), None)
        if first is None:
            return False
        hidden = "/".join(parts[: first + 1])
        if not is_folder and first == len(parts) - 1:
            self.skip("file", "hidden", hidden)
        elif hidden not in self._hidden_folders:
            self._hidden_folders.add(hidden)
            self.skip("folder", "hidden", hidden)
        return True

    def skip_empty(self, folders: Iterable[str], entries: Iterable[str]) -> None:
        """Count folders without entries in a flat listing."""
        full = ancestors(entries)
        for folder in folders:
            if folder not in full and not self.hides(folder, is_folder=True):
                self.skip("folder", "empty", folder)

    def listing(self) -> "Listing":
        """The listing: files sorted by name, skipped entries by count."""
        keys = sorted(self._counts, key=lambda key: (-self._counts[key], key))
        skipped = (
            Skipped(kind=kind, reason=reason, count=self._counts[kind, reason], names=tuple(self._names[kind, reason]))
            for kind, reason in keys
        )
        return Listing(dict(sorted(self.files.items())), tuple(skipped))


@dataclass(frozen=True)
class Listing:
    """Bytes of every file by name relative to the source, sorted, and skipped entries."""

    files: Mapping[str, int]
    skipped: tuple[Skipped, ...] = ()

    def with_suffix(self, suffixes: tuple[str, ...], reason: str, own: Collection[str] = ()) -> "Listing":
        """The files with these suffixes; others are skipped, except for `own` files."""
        tally = Tally(self.skipped)
        for name, size in self.files.items():
            if name.lower().endswith(suffixes):
                tally.files[name] = size
            elif name not in own:
                tally.skip(get_kind(name), reason, name)
        return tally.listing()


def get_kind(name: str) -> str:
    """A file's kind in a table: `.txt file`; `file` without a suffix of letters."""
    base, dot, suffix = name.rpartition("/")[2].rpartition(".")
    found = f"{dot}{suffix}".lower()
    return f"{found} file" if base and _SUFFIX.fullmatch(found) else "file"


def ancestors(names: Iterable[str]) -> set[str]:
    """All parent folders of these entries."""
    found = set[str]()
    for name in names:
        while (name := name.rpartition("/")[0]) and name not in found:
            found.add(name)
    return found


def table(skipped: Collection[Skipped], most_rows: int = 20) -> list[str]:
    """Table rows for a terminal: count, kind, reason and an example."""
    rows = [(f"{each.count:,}", each.kind, each.reason, each.names[0]) for each in list(skipped)[:most_rows]]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:3]]
    lines = [
        f"  {count:>{widths[0]}}  {kind:<{widths[1]}}  {reason:<{widths[2]}}  {name}"
        for count, kind, reason, name in rows
    ]
    more = len(skipped) - most_rows
    return [*lines, f"  and {more} more kinds and reasons"] if more > 0 else lines
