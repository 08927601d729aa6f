"""Names by commas, as flags and configuration files give them: each known, and only once. Does not import torch."""

from collections.abc import Collection

from trainer.errors import broken_rule, nearest

__all__ = ["NONE", "listed"]

NONE = "none"


def listed(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a text; nothing for "none". PydanticCustomError, a `broken_rule`: an unknown name, with the nearest
    one, or one that comes twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    if NONE in names:
        if len(names) > 1:
            raise broken_rule(f"names, or {NONE} alone", value=text, fix=f"leave {NONE} out")
        return ()
    for number, name in enumerate(names):
        if name not in known:
            near = nearest(name, known)
            allowed = f"{', '.join(known)}, by commas; or {NONE}"
            raise broken_rule(allowed, value=name, fix=f"did you mean {near!r}?" if near else "")
        if name in names[:number]:
            raise broken_rule("each name at most once", fix=f"leave the second {name} out")
    return names
