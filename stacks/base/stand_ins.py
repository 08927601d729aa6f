"""Stand-ins for names that a cloud assigns later, to check sizes beforehand."""

import random
import string

NAME_LETTERS = string.ascii_lowercase + string.digits


def stand_in(purpose: str, length: int, letters: str = NAME_LETTERS) -> str:
    """Letters that do not compress, the same for each `purpose` in every process. `length`: of the longest real name.

    >>> stand_in("bucket", 12) == stand_in("bucket", 12) != stand_in("group", 12)
    True
    """
    return "".join(random.Random(purpose).choices(letters, k=length))


def stand_in_digest() -> str:
    """For the digest of an image that `up` builds."""
    return f"sha256:{stand_in('digest', 64, '0123456789abcdef')}"
