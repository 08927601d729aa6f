"""The model of a data-parallel step: examples by hand, the catalogue's links, and what must hold for any numbers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, load, load_provider, load_tpus
from gangway.components.catalog.tables import FABRIC_FIELDS, link_gbps, load_links
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import (
    Links,
    Slice,
    StepModel,
    Torus,
    efficiency,
    fit_amdahl,
    get_links,
    get_torus,
    measured_efficiency,
    step_sec,
)

EIGHT = Links(
    gpus_per_node=8, inside_gbps=800, between_gbps=400, inside_latency_sec=1e-6, between_latency_sec=10e-6
)  # fmt: skip
MODES = st.sampled_from(["weak", "strong"])
WORKERS = st.integers(1, 4096)
LINKS = st.builds(
    Links,
    gpus_per_node=st.integers(1, 16),
    inside_gbps=st.floats(1, 1e5),
    between_gbps=st.floats(0.1, 1e5),
    inside_latency_sec=st.floats(0, 1e-3),
    between_latency_sec=st.floats(0, 1e-2),
)
SHARES = st.floats(0, 1)
MODELS = st.builds(
    StepModel,
    compute_sec=st.floats(1e-4, 100),
    gradient_bytes=st.floats(0, 1e11),
    serial_share=SHARES,
    overlap=SHARES,
)


def test_an_all_reduce_by_hand() -> None:
    """100 MB are 0.8 Gbit."""
    assert EIGHT.all_reduce_sec(1, 1e8) == 0
    # 4 of a node: 2 x 3/4 x 0.8 / 800 = 1.5 ms, and 6 messages of 1 us.
    assert EIGHT.all_reduce_sec(4, 1e8) == pytest.approx(1.506e-3)
    # 4 nodes of 8: every link carries 2 x 31/32 x 0.8; between, at 400, 3.875 ms; messages 14 us and 6 x 10 us.
    assert EIGHT.all_reduce_sec(32, 1e8) == pytest.approx(3.875e-3 + 14e-6 + 60e-6)
    # 2 nodes of 8: once each way at 400, 2 ms; inside, 2 x 15/16 x 0.8 at 800, 1.875 ms, keeps up.
    assert EIGHT.all_reduce_sec(16, 1e8) == pytest.approx(2e-3 + 14e-6 + 20e-6)
    assert EIGHT.all_reduce_sec(64, 0) == pytest.approx(14e-6 + 14 * 10e-6)


@pytest.mark.parametrize(("nodes", "bus_gb"), [(1, 230.81), (2, 57.20), (3, 31.75), (4, 29.63)])
def test_it_agrees_with_what_was_measured_on_p4d(nodes: int, bus_gb: float) -> None:
    """NVIDIA/nccl#527, comment of 2022-07-25: nccl-tests, 1 GiB, bus bandwidth of 1 to 4 p4d.24xlarge over EFA."""
    workers, num_bytes = 8 * nodes, 2**30
    seconds = get_links(load().machines["p4d.24xlarge"]).all_reduce_sec(workers, num_bytes)
    bus = 2 * (workers - 1) / workers * num_bytes / seconds / 1e9
    assert bus == pytest.approx(bus_gb, rel=0.1)


def test_a_step_by_hand() -> None:
    model = StepModel(compute_sec=0.1, gradient_bytes=1e8, serial_share=0.2)
    travel = 3.949e-3
    assert step_sec(model, EIGHT, 32, "weak") == pytest.approx(0.1 + travel)
    assert efficiency(model, EIGHT, 32, "weak") == pytest.approx(0.1 / (0.1 + travel))
    strong = 0.1 * (0.2 + 0.8 / 32) + travel
    assert step_sec(model, EIGHT, 32, "strong") == pytest.approx(strong)
    assert efficiency(model, EIGHT, 32, "strong") == pytest.approx(0.1 / (32 * strong))


def test_what_travels_while_it_computes_is_not_waited_for() -> None:
    half = StepModel(compute_sec=0.1, gradient_bytes=1e8, overlap=0.5)
    assert step_sec(half, EIGHT, 32, "weak") == 0.1, "50 ms hide 3.9 ms"
    little = StepModel(compute_sec=0.1, gradient_bytes=1e8, overlap=0.02)
    assert step_sec(little, EIGHT, 32, "weak") == pytest.approx(0.1 + 1.949e-3)


@given(MODELS, LINKS, WORKERS, MODES)
def test_an_efficiency_is_above_0_and_at_most_1(model: StepModel, links: Links, workers: int, mode: str) -> None:
    assert 0 < efficiency(model, links, workers, mode) <= 1  # type: ignore[arg-type]  # drawn from the two


@given(MODELS, LINKS, MODES)
def test_one_worker_is_as_measured(model: StepModel, links: Links, mode: str) -> None:
    assert step_sec(model, links, 1, mode) == pytest.approx(model.compute_sec)  # type: ignore[arg-type]  # as above
    assert efficiency(model, links, 1, mode) == pytest.approx(1)  # type: ignore[arg-type]  # as above


@given(MODELS, LINKS, WORKERS, MODES, st.floats(1, 100), st.floats(1, 100))
def test_more_bandwidth_never_harms(
    model: StepModel, links: Links, workers: int, mode: str, inside: float, between: float
) -> None:
    faster = Links(
        links.gpus_per_node,
        links.inside_gbps * inside,
        links.between_gbps * between,
        links.inside_latency_sec,
        links.between_latency_sec,
    )
    slow, fast = (efficiency(model, kind, workers, mode) for kind in (links, faster))  # type: ignore[arg-type]  # as above
    assert fast >= slow * (1 - 1e-12)


@given(st.floats(1e-3, 10), SHARES, st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_a_fit_finds_the_serial_share_that_was_there(one: float, serial: float, waits: list[float]) -> None:
    all_reduce = dict(zip((2, 3, 4), waits, strict=True))
    step = {1: one, **{n: one * (serial + (1 - serial) / n) + wait for n, wait in all_reduce.items()}}
    fit = fit_amdahl(step, all_reduce)
    assert fit.serial_share == pytest.approx(serial, abs=1e-9)
    assert fit.worst_residual == pytest.approx(0, abs=1e-9)
    assert fit.step_sec(1, 0) == one


def test_a_fit_stays_a_share() -> None:
    """Faster than ideal is no serial part below nothing; slower than one worker is no share above all."""
    above = fit_amdahl({1: 1.0, 2: 0.4}, {2: 0.0})
    assert [above.serial_share, above.worst_residual] == pytest.approx([0, 0.25])
    below = fit_amdahl({1: 1.0, 2: 2.0}, {2: 0.0})
    assert (below.serial_share, below.worst_residual) == (1, 0.5)


def test_measured_efficiency_is_of_rounds() -> None:
    strong = measured_efficiency([1.0, 1.2, 1.0], [0.5, 0.8, 1.0], 2, "strong")
    assert [strong.median, strong.low, strong.high] == pytest.approx([0.75, 0.5, 1.0])
    weak = measured_efficiency([1.0], [1.25], 2, "weak")
    assert (weak.median, weak.low, weak.high) == (0.8, 0.8, 0.8)


def test_links_come_from_the_catalogue() -> None:
    machines = load().machines
    links = get_links(machines["p5.48xlarge"])
    assert [links.gpus_per_node, links.inside_gbps] == pytest.approx([8, 3600 * 0.7])
    assert links.between_gbps == pytest.approx(3200 * 0.6)
    assert links.between_latency_sec == pytest.approx(15e-6)
    assert links.sources[0].startswith("between machines: 3200 Gbit/s, ")
    assert links.sources[-2].startswith("assumed: all-reduces reach 0.7")
    assert "NVIDIA/nccl#527" in links.sources[-1]
    infiniband = get_links(load_provider("azure").machines["Standard_ND96isr_H100_v5"])
    assert infiniband.sources[-1].startswith("assumed: all-reduces reach 0.7"), "measured over EFA alone"


def test_one_accelerator_needs_no_link_inside() -> None:
    links = get_links(load().machines["p3.2xlarge"])
    assert len(links.sources) == 3, "nothing of a link inside"
    assert links.between_latency_sec == pytest.approx(30e-6), "no EFA: plain Ethernet"
    assert links.all_reduce_sec(2, 1e8) == pytest.approx(0.8 / (10 * 0.7) + 2 * 30e-6)


def test_unknown_links_project_nothing() -> None:
    with pytest.raises(
        InputError, match=r"dl1\.24xlarge: the catalogue knows no bandwidth of its link between its Gau"
    ):
        get_links(load().machines["dl1.24xlarge"])
    machine = load().machines["p3.2xlarge"]
    unsaid = machine.model_copy(update={"network_gbps": machine.network_gbps.model_copy(update={"value": None})})
    with pytest.raises(InputError, match="network_gbps"):
        get_links(unsaid)


@pytest.mark.parametrize(
    ("provider", "name", "usec"),
    [("gcp", "a3-megagpu-8g", 25), ("gcp", "a3-ultragpu-8g", 8), ("azure", "Standard_ND96isr_H100_v5", 5)],
)
def test_every_providers_own_fabric_counts(provider: Any, name: str, usec: float) -> None:
    """GPUDirect, RoCE and InfiniBand stand in fields of their own, and none of them is plain Ethernet."""
    assert get_links(load_provider(provider).machines[name]).between_latency_sec == pytest.approx(usec * 1e-6)


def test_every_fabric_and_link_has_its_figures() -> None:
    everywhere = [machine for provider in PROVIDERS for machine in load_provider(provider).machines.values()]
    fabrics = [getattr(machine, field, None) for machine in everywhere for field in FABRIC_FIELDS]
    kinds = {fabric.kind for fabric in fabrics if fabric is not None}
    assert kinds == {"efa", "gpudirect", "roce", "infiniband"}
    assert all(load_links().latency.between(kind).value > 0 for kind in kinds)
    known = {machine.accelerator.rpartition("x")[0] for machine in load().machines.values()}
    gpus = [model for model, link in load_links().links.items() if model not in load_links().ici]
    assert len(gpus) > 10
    assert set(gpus) <= known, "each is of a machine there is"
    assert link_gbps("H100x8").value == 3600


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
    assert torus.link_gbps == pytest.approx(1600 / 4 * 0.7)
    assert torus.hop_sec == pytest.approx(1e-6)
    assert torus.slices[0] == Slice((2, 2), wraps=False)
    assert torus.slices[1:] == (Slice((8, 16), wraps=False), Slice((16, 16), wraps=True))
    # All-reduces of Google's own figure for the pod, 51.2 TB/s over 256 chips: 2 bytes moved for each of the message.
    big = get_torus("v5e", ["16x16"]).all_reduce_sec(256, 1e12)
    assert big == pytest.approx(2 * 255 / 256 * 1e12 / (0.7 * 51.2e12 / 256), rel=1e-3)


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
    assert {name: load_links().ici[name].ports.value for name in generations} == {
        name: 2 * load_tpus().generations[name].topologies.value[0].count("x") + 2 for name in generations
    }
    assert load_links().latency.ici_usec.value > 0
