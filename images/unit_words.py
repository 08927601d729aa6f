"""Values as words of command lines in systemd's unit files: none is read as a specifier, a variable, a second word or a
second line.
"""

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_./:@=,+-]+")


def unit_text(value: object) -> object:
    """What a template's expression puts into a unit: a number as it is, a text as one word, several as words with a
    space between; nothing for an empty list. systemd.syntax(7), "Quoting"; systemd.unit(5), "Specifiers".

    >>> unit_text(["a", "100 %", "$HOME"])
    'a "100 %%" "$$HOME"'
    """
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else f'"{"".join(_escaped(byte) for byte in value.encode())}"'
    if isinstance(value, Sequence):
        return " ".join(str(unit_text(each)) for each in value)
    return value


def _escaped(byte: int) -> str:
    character = chr(byte)
    if character in "%$":
        return character * 2
    if character in '"\\':
        return "\\" + character
    return character if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
