"""Refuses texts with invisible characters, which can do harm in terminals and scripts, and texts that are too long."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.visible import Loc, leaves, visible
from gangway.stacks.config.explain_errors import spell

_MOST, _MOST_KEY = 4096, 16384
_LONG_PATH = 200
_PEM = "-----BEGIN "


def odd_texts(values: Mapping[str, Any], place: str, lined: Collection[Loc] = ()) -> Iterator[InputError]:
    """A mistake for each text that is too long or has an invisible character. PEM keys may have line breaks and are not
    repeated in the message; texts at or below the places `lined` may have line breaks and tabs.
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
        if odd := next((each for each in text if not each.isprintable() and each not in may), ""):
            yield InputError(
                where,
                f"has an invisible character, {visible(odd) if odd.strip() else ascii(odd)}",
                value=None if is_key else text,
                allowed="letters, digits, signs and plain spaces, in one line",
                fix="retype it: pasted text may contain such characters",
            )
