"""Bounds that a session cannot use, or only in part, reported at its start. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from gangway.trainer.config.parts.rules import largest_share
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.control.guardrails import Machine, ladders
from gangway.trainer.control.interval import Knobs, Value

_CLUSTER_BOUNDS: Mapping[str, str] = MappingProxyType(
    {
        name: f"ignored: a run starts and stops no nodes, and asks for none; job.autoscale of a stack does{more}"
        for name, more in (("nodes", ""), ("usd_per_hour", ", and keeps to it"))
    }
)
_KNOBS: Mapping[str, str] = MappingProxyType({"watts": "power_share"})
"""Knobs whose bounds have another name."""


def idle_bounds(bounds: Bounds, start: Knobs, machine: Machine) -> Iterator[tuple[str, str]]:
    """Yields each field of the bounds that a session with these knobs cannot fully use, and why."""
    found = ladders(bounds, start, machine)
    for name in sorted(bounds.model_fields_set):
        if not getattr(bounds, name):
            continue
        knob = _KNOBS.get(name, name)
        if name in _CLUSTER_BOUNDS:
            yield name, _CLUSTER_BOUNDS[name]
        elif knob in machine.fixed:
            yield name, "ignored: it cannot be changed in this session"
        elif knob not in found:
            nobody = "nobody limits the power of its devices here"
            yield name, f"ignored: {nobody if name == 'watts' else 'operators run on the device, and not on a CPU'}"
        elif name == "watts":
            yield from _watts(bounds, machine, found[knob])
        elif name == "precision":
            yield from _precisions(bounds, start, machine, found[knob])
        elif name != "compile":
            yield from _numbers(name, bounds, start, machine, found[knob])


def _precisions(bounds: Bounds, start: Knobs, machine: Machine, values: Sequence[Value]) -> Iterator[tuple[str, str]]:
    left_out = [f"{each} is left out: {why}" for each, why in machine.refused if each in bounds.precision]
    if left_out:
        yield "precision", "; ".join(left_out)
    elif set(values) <= {start.precision}:
        yield "precision", f"ignored: there is no format in it but {start.precision} itself"


def _watts(bounds: Bounds, machine: Machine, shares: Sequence[Value]) -> Iterator[tuple[str, str]]:
    assert bounds.watts is not None and machine.limit_watts is not None, "else there were no shares"  # noqa: PT018
    (least, most), limit = bounds.watts, machine.limit_watts
    can = f"from {machine.power_floor * limit:.0f} to {limit:.0f} W, in tenths of {limit:.0f}"
    if not shares:
        yield "watts", f"ignored: no limit from {least:g} to {most:g} W is one that every GPU can have, {can}"
    elif most > limit or least < machine.power_floor * limit:
        yield "watts", f"what the GPUs cannot have of it is ignored: they can have {can}"


def _numbers(
    name: str, bounds: Bounds, start: Knobs, machine: Machine, values: Sequence[Value]
) -> Iterator[tuple[str, str]]:
    least, most = getattr(bounds, name)
    now = getattr(start, name)
    if name == "batch_gpu":
        share = largest_share(start.batch_size, machine.workers, machine.group)
        now = now or share
        if bounds.batch_size is None and most > share:
            yield name, f"what is above a worker's share of the batch, {share} images, is ignored"
    # A single value is useful for a knob that would vary without bounds: it fixes it.
    if all(value == now for value in values) and (least < most or "batch" in name):
        groups = f", and whole groups of {machine.group} images" if machine.group > 1 and "batch" in name else ""
        steps = f"powers of two times or parts of {now}{groups}" if "batch" in name else "its steps"
        yield name, f"ignored: there is no value from {least} to {most} but {now} itself: {steps} are tried"
    elif not least <= now <= most:
        yield name, f"the run begins with {now}, outside of {least} to {most}: there is no way back to that"
