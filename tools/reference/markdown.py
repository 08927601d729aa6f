"""Markdown as GitHub shows it: tables, headings, code."""

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]*`)")
_HTML = str.maketrans({"<": "&lt;", "*": r"\*"})


def text(words: str) -> str:
    """Plain text, of which only what is between backticks is code.

    >>> text("a <host> or `<host>`, layers.*")
    'a &lt;host> or `<host>`, layers.\\\\*'
    """
    return "".join(part if part.startswith("`") else part.translate(_HTML) for part in _CODE.split(words))


def code(words: object) -> str:
    """A value or a key."""
    return f"`{words}`"


def choice(words: Iterable[object]) -> str:
    """Several values of which one is chosen."""
    return " \\| ".join(map(code, words))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells keep their markup; line breaks become spaces."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", " ".join(cell.split())) for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(heading: str, *parts: str, level: int = 2) -> str:
    """A heading and the non-empty parts below it."""
    return "\n\n".join([f"{'#' * level} {heading}", *(part.strip("\n") for part in parts if part)]) + "\n"


def page(title: str, introduction: str, *sections: str) -> str:
    """A whole page."""
    note = "<!-- Written by `make reference` from the code; do not edit. -->"
    return "\n".join([f"# {title}\n", f"{note}\n", introduction.strip() + "\n", *sections])
