"""What a terminal may be shown."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import (
    alarm_rule_text,
    all_visible,
    google_filter_text,
    insights_text,
    kql_text,
    leaves,
    promql_any,
    promql_text,
    visible,
)
from gangway.trainer.core.errors import TrainerError
from tests.hostile import HOSTILE, SEEN, UNSEEN

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.text())
def test_every_character_is_seen_and_a_seen_text_stays(text: str) -> None:
    shown = visible(text)
    assert shown.replace("\n", "").replace("\t", "").isprintable() or not shown.strip("\n\t")
    assert visible(shown) == shown
    assert (shown == text) is all(each.isprintable() or each in "\n\t" for each in text)


@given(PLAIN)
def test_plain_data_keep_their_shape(value: Any) -> None:
    shown = all_visible(value)
    assert all(leaf == visible(leaf) for _, leaf in leaves(shown) if isinstance(leaf, str))


def test_no_message_acts_on_a_terminal() -> None:
    for text in UNSEEN.values():
        for mistake in (
            InputError(text, text, value=text, allowed=text, fix=text),
            TrainerError(place=text, problem=text, value=text, allowed=text, fix=text),
        ):
            assert str(mistake).replace("\n", "").isprintable()
    for text in SEEN.values():
        assert text in str(InputError(text, "problem"))


TEXTS = st.sampled_from(sorted(HOSTILE.values())) | st.text(max_size=40)
ONE_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
ONE_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'")


@pytest.mark.parametrize("quote", [promql_text, google_filter_text, kql_text, alarm_rule_text])
@given(text=TEXTS)
def test_a_text_between_double_quotes_is_one_and_the_same(quote: Callable[[str], str], text: str) -> None:
    quoted = quote(text)
    assert ONE_STRING.fullmatch(quoted)
    assert quoted.isascii()
    assert json.loads(quoted) == text


@given(TEXTS)
def test_a_text_between_single_quotes_is_one_and_the_same(text: str) -> None:
    quoted = insights_text(text)
    assert ONE_QUOTED.fullmatch(quoted)
    assert json.loads('"' + quoted[1:-1].replace("\\'", "'").replace('"', '\\"') + '"') == text


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_a_pattern_matches_its_words_and_no_other(words: list[str], other: str) -> None:
    pattern = re.compile(json.loads(promql_any(words)))
    assert all(pattern.fullmatch(word) for word in words)
    assert bool(pattern.fullmatch(other)) == (other in words)


def test_names_of_ours_stand_as_they_are() -> None:
    assert promql_any(["demo-0-spot", "demo-1-on-demand"]) == '"demo-0-spot|demo-1-on-demand"'
    assert insights_text("/gangway/demo") == "'/gangway/demo'"
    assert kql_text("demo") == google_filter_text("demo") == '"demo"'
