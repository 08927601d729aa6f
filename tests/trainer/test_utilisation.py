"""How well a run used its machines: shares over all sessions, reasons where a figure is absent."""

from typing import Any

import pytest

from trainer.figure import Figure
from trainer.utilisation import utilisation

WORK = Figure(value=1e9, unit="FLOP", provenance="estimated", source="counted")
PEAK = Figure(value=1e15, unit="FLOP/s", provenance="assumed", source="data sheet")


def _beginning(**flops: Figure) -> dict[str, Any]:
    return {"session": 0, "flops": {name: figure.model_dump(mode="json") for name, figure in flops.items()}}


def _tick(session: int, wall_sec: float, stall: float, **more: Any) -> dict[str, Any]:
    stalls = {"loader_stall_sec": stall, "checkpoint_stall_sec": stall / 2, "telemetry_sec": stall / 10}
    load = {"cpu_utilisation": 0.5, "gpu_utilisation": None, "host_memory_gib": 4.0, "mfu": None}
    return {"session": session, "wall_sec": wall_sec, **stalls, **load, **more}


def test_shares_are_of_all_sessions_wall_time() -> None:
    ticks = [_tick(0, 50, 1), _tick(0, 100, 2), _tick(1, 100, 4)]
    found = utilisation(ticks, [_beginning(per_image=WORK, peak=PEAK)])
    assert found.loader_stall_share.value == pytest.approx(6 / 200)
    assert found.checkpoint_stall_share.value == pytest.approx(3 / 200)
    assert found.telemetry_share.value == pytest.approx(0.6 / 200)
    assert found.telemetry_share.provenance == "measured"


def test_means_and_peaks_are_over_the_lines_that_have_them() -> None:
    ticks = [
        _tick(0, 1, 0, cpu_utilisation=0.2, host_memory_gib=6.0, mfu=0.3, gpu_utilisation=0.9),
        _tick(0, 2, 0, cpu_utilisation=0.4, mfu=0.5),
    ]
    found = utilisation(ticks, [_beginning(per_image=WORK, peak=PEAK)])
    assert found.cpu_utilisation.value == pytest.approx(0.3)
    assert found.host_memory_gib.value == 6.0
    assert (found.gpu_utilisation.value, found.gpu_utilisation.note) == (0.9, "mean of 1 lines")
    assert found.mfu.value == pytest.approx(0.4)
    assert (found.mfu.provenance, found.peak_flops, found.flop_per_image) == ("estimated", PEAK, WORK)
    assert "peak assumed: data sheet" in found.mfu.source


@pytest.mark.parametrize("missing", ["per_image", "peak"])
def test_without_work_or_peak_there_is_no_mfu_and_the_reason_is_told(missing: str) -> None:
    flops = {"per_image": WORK, "peak": PEAK, missing: Figure.absent("1", "why not")}
    found = utilisation([_tick(0, 1, 0)], [_beginning(**flops)])
    assert (found.mfu.value, found.mfu.source) == (None, "why not")


def test_lines_of_an_earlier_version_are_no_zeros() -> None:
    old = {"session": 0, "wall_sec": 10.0}
    found = utilisation([old], [{"session": 0}])
    assert all(figure.value is None for _, figure in found)
    assert "did not count it" in found.loader_stall_share.source
    assert "did not count it" in found.mfu.source
    nothing = utilisation([], [_beginning(per_image=WORK, peak=PEAK)])
    assert nothing.loader_stall_share.source == "the run ended before its first line"
    assert nothing.mfu.value is None
