"""The key of a stack's Slurm: long enough, another one each time, and a secret of the state."""

import string

from gangway.components.core.munge_key import new_munge_key


def test_it_is_text_that_munge_takes_and_no_two_are_the_same() -> None:
    keys = {new_munge_key() for _ in range(20)}
    assert len(keys) == 20
    assert all(32 <= len(key) <= 1024 and set(key) <= set(string.hexdigits) for key in keys)
