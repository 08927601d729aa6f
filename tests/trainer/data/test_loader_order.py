"""The digest of an order: it adds up however the order is cut, and sees two images exchanged."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.data.loader import MASK, order_digest

orders = st.lists(st.integers(0, 10**6), min_size=2, max_size=40)


@given(orders, st.integers(0, 10**9), st.data())
def test_it_adds_up(numbers: list[int], first: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(numbers)))
    array = np.array(numbers)
    parts = order_digest(first, array[:cut]) + order_digest(first + cut, array[cut:])
    assert parts & MASK == order_digest(first, array)


@given(orders, st.data())
def test_it_sees_an_exchange(numbers: list[int], data: st.DataObject) -> None:
    one, other = (data.draw(st.integers(0, len(numbers) - 1)) for _ in range(2))
    array = np.array(numbers)
    exchanged = array.copy()
    exchanged[[one, other]] = array[[other, one]]
    assert (order_digest(0, array) == order_digest(0, exchanged)) == (numbers[one] == numbers[other])


def test_it_is_the_same_for_ever() -> None:
    """Records of different versions compare by it."""
    assert f"{order_digest(16, np.array([3, 1, 2])):016x}" == "6a37a0b3e64a8500"
