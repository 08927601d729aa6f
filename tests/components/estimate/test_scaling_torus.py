"""An all-reduce on a TPU slice: by hand on lines and rings, against the least that any needs, and its data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_tpus
from gangway.components.catalog.tables import ici, latency, link_gbps, load_links
from gangway.components.estimate.scaling import BUS_SHARE, Slice, Torus, get_torus

SIDES = st.lists(st.integers(2, 8), min_size=1, max_size=3).map(tuple)


def one(sides: tuple[int, ...], wraps: bool, gbps: float = 100, hop_sec: float = 0) -> tuple[Torus, int]:
    made = Slice(sides, wraps)
    return Torus((made,), gbps, hop_sec), made.chips


def test_a_line_and_a_ring_by_hand() -> None:
    """100 MB are 0.8 Gbit; three quarters of them pass an end of the line twice, and half of that each way round."""
    line, chips = one((4,), wraps=False)
    assert line.all_reduce_sec(chips, 1e8) == pytest.approx(2 * 0.8 * 3 / 4 / 100)
    ring, chips = one((4,), wraps=True)
    assert ring.all_reduce_sec(chips, 1e8) == pytest.approx(2 * 0.8 * 3 / 4 / 200)
    assert ring.all_reduce_sec(1, 1e8) == 0


def test_unequal_sides_wait_for_the_slower_part() -> None:
    """2 x 4 of lines: phase 1 the part on 4 (0.4 x 3/4), phase 2 the one that comes from 2 (0.2 x 3/4)."""
    mesh, chips = one((2, 4), wraps=False)
    assert mesh.all_reduce_sec(chips, 1e8) == pytest.approx(2 * (0.4 * 3 / 4 + 0.2 * 3 / 4) / 100)


def test_hops_are_of_both_ways_along_each_axis() -> None:
    cube, chips = one((4, 4, 4), wraps=True, hop_sec=1e-6)
    assert cube.all_reduce_sec(chips, 0) == pytest.approx(2 * 3 * 3e-6)


@given(st.integers(2, 16), st.integers(1, 3), st.floats(1, 1e10))
def test_a_torus_of_equal_sides_needs_the_least_there_is(side: int, axes: int, num_bytes: float) -> None:
    """Each chip sends 2 (n - 1) / n of the message at least, over all its links: 2 on each axis."""
    torus, chips = one((side,) * axes, wraps=True)
    least = 2 * (chips - 1) / chips * num_bytes * 8e-9 / (100 * 2 * axes)
    assert torus.all_reduce_sec(chips, num_bytes) == pytest.approx(least)


@given(SIDES, st.floats(1, 1e10), st.booleans())
def test_nothing_beats_the_least_there_is(sides: tuple[int, ...], num_bytes: float, wraps: bool) -> None:
    torus, chips = one(sides, wraps)
    least = 2 * (chips - 1) / chips * num_bytes * 8e-9 / (100 * 2 * len(sides))
    assert torus.all_reduce_sec(chips, num_bytes) >= least * (1 - 1e-9)


@given(SIDES, st.floats(1, 1e10))
def test_links_between_the_ends_never_harm(sides: tuple[int, ...], num_bytes: float) -> None:
    (mesh, chips), (torus, _) = one(sides, wraps=False), one(sides, wraps=True)
    assert torus.all_reduce_sec(chips, num_bytes) == pytest.approx(mesh.all_reduce_sec(chips, num_bytes) / 2)


def test_a_pod_of_v5e_from_the_catalogue() -> None:
    """1600 Gbit/s of a chip on 4 links; 16x16 wraps round, 8x16 does not."""
    torus = get_torus("v5e", ["2x2", "8x16", "16x16"])
    assert torus.link_gbps == pytest.approx(1600 / 4 * BUS_SHARE)
    assert torus.hop_sec == pytest.approx(1e-6)
    assert torus.slices[0] == Slice((2, 2), wraps=False)
    assert torus.slices[1:] == (Slice((8, 16), wraps=False), Slice((16, 16), wraps=True))
    # All-reduces of Google's own figure for the pod, 51.2 TB/s over 256 chips: 2 bytes moved for each of the message.
    whole = get_torus("v5e", ["16x16"], bus_share=1)
    assert whole.sources[-1] == "1 of nominal bandwidth"
    big = whole.all_reduce_sec(256, 1e12)
    assert big == pytest.approx(2 * 255 / 256 * 1e12 / (51.2e12 / 256), rel=1e-3)


def test_whole_cubes_wrap_round() -> None:
    assert get_torus("v5p", ["2x2x1", "2x4x4", "4x4x4", "4x4x12"]).slices == (
        Slice((2, 2), wraps=False),
        Slice((2, 4, 4), wraps=False),
        Slice((4, 4, 4), wraps=True),
        Slice((4, 4, 12), wraps=True),
    )


def test_sources_name_every_figure() -> None:
    ici_line, links, wraps, hop, share = get_torus("v5p", ["4x4x4"]).sources
    assert ici_line.startswith("ICI: 4800 Gbit/s of a chip in one direction, Cloud TPU documentation")
    assert links.startswith("its links: 6, ")
    assert wraps.startswith("wraps round: every side a multiple of 4, ")
    assert hop.startswith("latency: 1 us a hop, ")
    assert share.startswith("assumed: all-reduces reach 0.7")


def test_every_generation_has_its_links() -> None:
    generations = set(load_tpus().generations)
    assert set(load_links().ici) == generations
    assert all((link_gbps(f"{name}x1").value or 0) > 0 for name in generations)
    assert {name: ici(name).ports.value for name in generations} == {
        name: 2 * load_tpus().generations[name].topologies.value[0].count("x") + 2 for name in generations
    }
    assert latency().ici_usec.value > 0
