"""Tags as words and as HTTP headers."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.openstack.tags import header_tags, tag_words

PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=255)
KEYS = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_:. -]{0,80}", fullmatch=True)


@given(st.dictionaries(KEYS, PLAIN, max_size=5))
def test_every_word_is_one_that_neutron_takes(tags: dict[str, str]) -> None:
    words = tag_words(tags)
    assert words == sorted(words)
    assert len(words) == len(tags)
    assert all(len(word) <= 60 and "," not in word for word in words)


def test_two_long_tags_stay_two() -> None:
    one, other = tag_words({"a": "x" * 100, "b": "x" * 100})
    assert one != other
    assert tag_words({"a": "x" * 100}) != tag_words({"a": "x" * 101})


@given(KEYS)
def test_every_key_is_a_name_of_a_header(key: str) -> None:
    (name,) = header_tags({key: ""})
    assert re.fullmatch(r"[a-z0-9-]+", name)
