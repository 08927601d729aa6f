"""The order of images: exact epochs, independent of how it is cut into batches and workers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.data.loader import Sampler

samplers = st.builds(Sampler, num_images=st.integers(1, 300), seed=st.integers(0, 2**63 - 1))


@given(sampler=samplers, epoch=st.integers(0, 5))
def test_every_epoch_shows_every_image_once(sampler: Sampler, epoch: int) -> None:
    order = sampler.indices(epoch * sampler.num_images, sampler.num_images)
    assert sorted(order) == list(range(sampler.num_images))


@given(sampler=samplers, start=st.integers(0, 1000), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_the_sequence_does_not_depend_on_where_it_is_cut(sampler: Sampler, start: int, sizes: list[int]) -> None:
    whole = sampler.indices(start, sum(sizes))
    starts = np.cumsum([start, *sizes[:-1]])
    parts = [sampler.indices(int(begin), size) for begin, size in zip(starts, sizes, strict=True)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_order_of_images_is_the_one_of_every_run_so_far() -> None:
    """Taken from a run: another order is another training, and one that resumes would show images twice."""
    assert Sampler(10, 3).indices(0, 20).tolist() == [9, 6, 0, 2, 1, 4, 7, 5, 3, 8, 4, 1, 2, 8, 5, 0, 7, 9, 6, 3]
    assert Sampler(10, 4).indices(0, 10).tolist() == [1, 0, 7, 2, 9, 8, 6, 4, 3, 5]
    assert Sampler(5, 2**62).indices(7, 6).tolist() == [0, 2, 4, 1, 3, 0]


@given(num_images=st.integers(50, 300), seed=st.integers(0, 1000))
def test_seeds_and_epochs_differ_in_order(num_images: int, seed: int) -> None:
    first = Sampler(num_images, seed)
    assert not np.array_equal(first.indices(0, num_images), Sampler(num_images, seed + 1).indices(0, num_images))
    assert not np.array_equal(first.indices(0, num_images), first.indices(num_images, num_images))
