"""What no text of a file that people write may hold: characters that nobody sees, which do something else on a terminal
or in a script than they show, and more than any setting is long.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from components.core.findings import InputError
from components.core.visible import Loc, leaves, visible
from stacks.config.explain_errors import spell

_MOST, _MOST_KEY = 4096, 16384
_LONG_PATH = 200
"""Of a config path: a key may be of any length."""
_PEM = "-----BEGIN "


def odd_texts(values: Mapping[str, Any], place: str, lined: Collection[Loc] = ()) -> Iterator[InputError]:
    """A mistake for each text that is too long, or has a character that cannot be seen. Keys (PEM) have lines, and are
    never repeated; texts at or below the places `lined` may have lines and tabs.
    """
    for loc, text in leaves(values):
        if not isinstance(text, str):
            continue
        where = f"{place}{spell(loc)[:_LONG_PATH]}"
        is_key = _PEM in text
        most = _MOST_KEY if is_key else _MOST
        if len(text) > most:
            allowed = f"up to {most:,} characters"
            yield InputError(
                where, "longer than any setting", value=f"{len(text):,} characters", allowed=allowed, fix="shorten it"
            )
            continue
        has_lines = any(loc[: len(each)] == each for each in lined)
        may = "\n" if is_key else "\n\t" if has_lines else ""
        if odd := _find_unprintable(text.translate({ord(each): None for each in may})):
            yield InputError(
                where,
                f"holds a character that nobody sees, {visible(odd) if odd.strip() else ascii(odd)}",
                value=None if is_key else text,
                allowed="letters, digits, signs and plain spaces, in one line",
                fix="type it anew: such characters come along where text is pasted",
            )


def _find_unprintable(text: str) -> str:
    """The first such character; empty for none."""
    return next((character for character in text if not character.isprintable()), "")
