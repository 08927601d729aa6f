"""What a line says of machines: neighbours, memory, reads, power; and None of meters that are absent or stand still."""

from typing import Any

import pytest

from gangway.trainer.power.energy import EnergyReading
from gangway.trainer.telemetry.devices import Load
from gangway.trainer.telemetry.resources import ResourceMeter

FIRST = Load(1.0, None, None, 10.0, 2, 4.0, host_sec=(100.0, 400.0), host_memory_share=0.5, read_bytes=1000)
SECOND = FIRST._replace(cores=0, host_memory_gib=0.0, host_sec=None, host_memory_share=None)
ELSEWHERE = FIRST._replace(node=1, host_memory_share=0.7)


def since(before: list[Load], after: list[Load], energy: dict[str, Any] | None = None) -> dict[str, Any]:
    return ResourceMeter(before, 50.0).since(after, energy or {}, 52.0)


def later(load: Load, own_sec: float, busy_sec: float = 0.0, all_sec: float = 4.0, read: int = 0) -> Load:
    host = None if load.host_sec is None else (load.host_sec[0] + busy_sec, load.host_sec[1] + all_sec)
    bytes_read = None if load.read_bytes is None else load.read_bytes + read
    return load._replace(cpu_sec=load.cpu_sec + own_sec, host_sec=host, read_bytes=bytes_read)


def test_neighbours_have_what_is_busy_beside_a_nodes_own_workers() -> None:
    before = [FIRST, SECOND, ELSEWHERE]
    after = [later(FIRST, 1.0, 3.5), later(SECOND, 1.5), later(ELSEWHERE, 1.0, 0.9)]
    assert since(before, after)["neighbour_cores"] == pytest.approx((3.5 - 2.5) / 2), "the other node has none"


def test_neighbours_take_nothing_of_a_quota_as_long_as_there_are_other_cores() -> None:
    """Two cores of eight: others are in the way from the seventh on."""
    quiet, full = (later(FIRST, 1.0, 1.0 + busy_sec, all_sec=16.0) for busy_sec in (11.0, 14.0))
    assert since([FIRST], [quiet])["neighbour_cores"] == 0
    assert since([FIRST], [full])["neighbour_cores"] == pytest.approx(1.0)


@pytest.mark.parametrize(("busy_sec", "all_sec"), [(0.0, 0.0), (-1.0, 4.0)])
def test_counters_that_stand_or_go_back_tell_of_no_neighbours(busy_sec: float, all_sec: float) -> None:
    assert since([FIRST, SECOND], [later(FIRST, 0.0, busy_sec, all_sec), SECOND])["neighbour_cores"] is None


def test_absent_counters_tell_nothing() -> None:
    bare = FIRST._replace(host_sec=None, host_memory_share=None, read_bytes=None)
    found = since([bare], [bare])
    names = ("neighbour_cores", "host_memory_share", "gpu_memory_share", "read_bytes_per_sec", "watts")
    assert {name: found[name] for name in names} == dict.fromkeys(names)


def test_the_fullest_node_and_gpu_count() -> None:
    full = FIRST._replace(gpu_memory_share=0.4)
    found = since([full, ELSEWHERE], [full, ELSEWHERE._replace(gpu_memory_share=0.6)])
    assert (found["host_memory_share"], found["gpu_memory_share"]) == (0.7, 0.6)


def test_reads_add_up_where_all_workers_count_them() -> None:
    after = [later(FIRST, 0, read=300), later(SECOND, 0, read=100)]
    assert since([FIRST, SECOND], after)["read_bytes_per_sec"] == 200
    assert since([FIRST, SECOND], [after[0], SECOND._replace(read_bytes=None)])["read_bytes_per_sec"] is None


def test_power_is_a_mean_since_the_last_line() -> None:
    meter = ResourceMeter([FIRST], 0.0)
    readings = [
        {"cpu": EnergyReading(cpu, "measured", ""), "gpu": EnergyReading(gpu, "measured", "")}
        for cpu, gpu in ((40.0, 100.0), (60.0, 300.0), (60.0, 400.0))
    ]
    found = [meter.since([FIRST], energy, 2.0 * number)["watts"] for number, energy in enumerate(readings, 1)]
    assert found == [70.0, 110.0, None], "the last has a meter that stands still"


@pytest.mark.parametrize("cpu", ["measured", "estimated"])
def test_power_of_some_devices_is_not_power(cpu: Any) -> None:
    processor, absent = EnergyReading(200.0, cpu, ""), EnergyReading(None, "absent", "")
    assert since([FIRST], [FIRST], {"cpu": processor, "gpu0": absent})["watts"] is None
    assert since([FIRST], [FIRST], {"cpu": processor})["watts"] == 100
