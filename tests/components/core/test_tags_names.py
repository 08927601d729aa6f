"""A name that is too long keeps its beginning, and stays apart from others."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.tags import shortened

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.integers(8, 30))
def test_a_shortened_name_fits_and_ends_well(name: str, most: int) -> None:
    short = shortened(name, most)
    assert len(short) <= most
    assert short == name or re.fullmatch(r"[a-z0-9-]*[a-z0-9]", short)
    assert (short == name) is (len(name) <= most)


def test_two_long_names_stay_two() -> None:
    assert shortened("a-stack-that-is-called-so-a", 12) != shortened("a-stack-that-is-called-so-b", 12)
