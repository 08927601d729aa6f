"""A value stays one text of the language that it is put into, whatever it holds."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.query_text import (
    alarm_rule_text,
    google_filter_text,
    insights_text,
    kql_text,
    promql_any,
    promql_text,
)
from tests.hostile import HOSTILE

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
