"""How well a run used its machines: shares over all sessions, reasons where a figure is absent."""

from typing import Any

import pytest

from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.utilisation import utilisation

WORK = Quantity(value=1e9, unit="FLOP", provenance="estimated", source="counted")
PEAK = Quantity(value=1e15, unit="FLOP/s", provenance="assumed", source="data sheet")


def _beginning(
    session: int = 0, images: int = 0, workers: int = 1, nodes: int = 1, **flops: Quantity
) -> dict[str, Any]:
    told = {name: figure.model_dump(mode="json") for name, figure in flops.items()}
    return {"session": session, "images": images, "world_size": workers, "num_nodes": nodes, "flops": told}


def _tick(session: int, wall_sec: float, stall: float, **more: Any) -> dict[str, Any]:
    stalls = {"loader_stall_sec": stall, "checkpoint_stall_sec": stall / 2, "telemetry_sec": stall / 10}
    load = {"cpu_utilisation": 0.5, "gpu_utilisation": None, "host_memory_gib": 4.0, "mfu": None}
    return {"session": session, "wall_sec": wall_sec, "images": 0, **stalls, **load, **more}


def test_shares_are_of_all_sessions_wall_time() -> None:
    ticks = [_tick(0, 50, 1), _tick(0, 100, 2), _tick(1, 100, 4)]
    found = utilisation(ticks, [_beginning(session, per_image=WORK, peak=PEAK) for session in range(2)])
    assert found.loader_stall_share.value == pytest.approx(6 / 200)
    assert found.checkpoint_stall_share.value == pytest.approx(3 / 200)
    assert found.telemetry_share.value == pytest.approx(0.6 / 200)
    assert found.telemetry_share.provenance == "measured"


def test_a_controllers_share_is_of_the_sessions_that_had_one() -> None:
    beginnings = [_beginning(session, per_image=WORK, peak=PEAK) for session in range(2)]
    without, with_one = _tick(0, 100, 2, controller_sec=None), _tick(1, 50, 2, controller_sec=0.5)
    assert utilisation([without, with_one], beginnings).controller_share.value == pytest.approx(0.01)
    absent = [utilisation(ticks, beginnings[:1]).controller_share for ticks in ([without], [_tick(0, 100, 2)])]
    assert [each.value for each in absent] == [None, None]
    assert absent[0].source != absent[1].source, "there was none, or the lines are too old to say"


def test_a_line_counts_for_its_time_so_that_a_stall_is_not_one_line_among_many() -> None:
    # A thousand images in 1 s, a thousand in 9 s of which most was a stall.
    ticks = [
        _tick(0, 1, 0, images=1000, cpu_utilisation=0.8, host_memory_gib=6.0, mfu=1e-3, gpu_utilisation=0.9),
        _tick(0, 10, 0, images=2000, cpu_utilisation=0.1, mfu=1e-3 / 9),
    ]
    found = utilisation(ticks, [_beginning(per_image=WORK, peak=PEAK)])
    assert found.cpu_utilisation.value == pytest.approx((0.8 * 1 + 0.1 * 9) / 10)
    assert found.host_memory_gib.value == 6.0
    assert (found.gpu_utilisation.value, found.gpu_utilisation.note) == (0.9, "over the 1 node seconds of 1 lines")
    assert found.mfu.value == pytest.approx(2000 * 1e9 / (10 * 1e15))
    assert (found.mfu.provenance, found.peak_flops, found.flop_per_image) == ("estimated", PEAK, WORK)
    assert "peak assumed: data sheet" in found.mfu.source


def test_sessions_of_other_sizes_and_devices_add_up() -> None:
    """The second has twice the workers and nodes, a device of half the peak, and did again what the first had lost."""
    slow = Quantity(value=5e14, unit="FLOP/s", provenance="assumed", source="data sheet")
    beginnings = [
        _beginning(0, 0, 1, 1, per_image=WORK, peak=PEAK),
        _beginning(1, 800, 2, 2, per_image=WORK, peak=slow),
        _beginning(2, 2800, 2, 2, per_image=WORK, peak=slow),
    ]
    ticks = [_tick(0, 10, 0, images=1000, cpu_utilisation=0.9), _tick(1, 10, 0, images=2800, cpu_utilisation=0.3)]
    found = utilisation(ticks, beginnings)
    assert found.mfu.value == pytest.approx((1000 + 2000) * 1e9 / (10 * 1e15 + 10 * 2 * 5e14))
    assert found.cpu_utilisation.value == pytest.approx((0.9 * 10 + 0.3 * 20) / 30)
    assert "2 session(s)" in found.mfu.note


@pytest.mark.parametrize("missing", ["per_image", "peak"])
def test_without_work_or_peak_there_is_no_mfu_and_the_reason_is_told(missing: str) -> None:
    flops = {"per_image": WORK, "peak": PEAK, missing: Quantity.absent("1", "why not")}
    beginning = _beginning(per_image=flops["per_image"], peak=flops["peak"])
    found = utilisation([_tick(0, 1, 0)], [beginning])
    assert (found.mfu.value, found.mfu.source) == (None, "why not")


def test_lines_of_an_earlier_version_are_no_zeros() -> None:
    old = {"session": 0, "wall_sec": 10.0}
    found = utilisation([old], [{"session": 0, "num_nodes": 1}])
    assert all(figure.value is None for _, figure in found)
    assert "did not count it" in found.loader_stall_share.source
    assert "did not count it" in found.mfu.source
    nothing = utilisation([], [_beginning(per_image=WORK, peak=PEAK)])
    assert nothing.loader_stall_share.source == "the run ended before its first line"
    assert nothing.mfu.value is None
