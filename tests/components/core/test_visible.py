"""What a terminal may be shown."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.visible import all_visible, leaves, visible
from gangway.trainer.core.errors import TrainerError
from tests.hostile import SEEN, UNSEEN

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
