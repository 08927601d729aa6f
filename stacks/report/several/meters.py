"""How the energy of runs was metered, and which figures stand on it. Energy that was metered in different ways is not
averaged and no change is told of it, as with quality of different protocols; rows that differ so are marked.

Pure: records in, words out. What a meter leaves out is in the trainer's own words, in each figure's source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from stacks.report.several.groups import Group
from stacks.report.several.members import Member
from stacks.report.several.spread import Spread

__all__ = ["METERED", "alike", "meters_note", "noted"]

METERED = ("it_kwh", "it_wh", "gco2e")
"""Measures that are made of metered energy."""
_KINDS = (
    ("RAPL package counters", "RAPL counters"),
    ("NVML total energy counter", "NVML counters"),
    ("model: CPU seconds", "CPU seconds x an assumed power"),
    ("model: time x", "time x the launcher's power, whatever the load"),
)
"""How the trainer's meters begin to say what they are: how many sockets or watts is no other way of metering."""
_NAMES: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU"}


def meters_note(groups: Sequence[Group]) -> str:
    """What a reader must know before comparing energy over the rows; empty where all of it was metered alike."""
    differing = _different([(group.label, member) for group in groups for member in group.members])
    return f"metered in different ways, so not to be compared: {differing}" if differing else ""


def alike(key: str, cell: Spread, members: Iterable[Member]) -> Spread:
    """The cell, or what stands in its place where it puts energy together that was metered in different ways.

    Args:
        key: of the measure.
        cell: made of these runs.
        members: the runs.
    """
    differing = _different([(member.name, member) for member in members]) if key in METERED else ""
    if not differing or cell.value is None:
        return cell
    why = f"metered in different ways by these runs, so not to be put together: {differing}"
    return replace(Spread.absent(cell.unit, why), values=cell.values)


def noted(key: str, cell: Spread, note: str) -> Spread:
    """The cell with what `meters_note` says, where it stands on a meter."""
    if not note or key not in METERED or cell.value is None:
        return cell
    return replace(cell, note="; ".join(part for part in (cell.note, note) if part))


def _different(named: Sequence[tuple[str, Member]]) -> str:
    """The ways by kind of device, with whose they are, of devices that were metered in more than one; else empty."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, member in named:
        for device, ways in _ways(member).items():
            for way in ways:
                found.setdefault(device, {}).setdefault(way, []).append(name)
    return "; ".join(
        f"{_NAMES.get(device, device)} by {' and '.join(_whose(way, names) for way, names in ways.items())}"
        for device, ways in found.items()
        if len(ways) > 1
    )


def _whose(way: str, names: Sequence[str]) -> str:
    return f"{way} ({', '.join(dict.fromkeys(names))})"


def _ways(member: Member) -> dict[str, list[str]]:
    """Ways of metering by kind of device, such as cpu; more than one where the run's sessions differ in it."""
    found: dict[str, list[str]] = {}
    for device, figure in member.record.energy.devices.items():
        if figure.value is not None:
            kind = device.rpartition("/")[2].rstrip("0123456789")
            ways = [way for beginning, way in _KINDS if beginning in figure.source] or [figure.source]
            found.setdefault(kind, []).extend(ways)
    return found
