"""Decides how many nodes a job needs: more if it will miss its targets, fewer if fewer suffice. Pure.

>>> curve = {1: Band(90, 100, 110), 2: Band(170, 190, 210), 4: Band(300, 340, 380)}
>>> decide(curve, State(images_left=360_000, nodes=1, left_sec=2400)).nodes
2
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from gangway.components.estimate.statistics import Band

HEADROOM: Final = 0.9
"""Scale out until the job needs at most this share of the expected rate."""
SURE: Final = 0.8
"""Scale in only if the job needs at most this share of the low end for fewer nodes; the gap to HEADROOM avoids
oscillation.
"""


@dataclass(frozen=True)
class State:
    """The job at one time, and its targets.

    Attributes:
        left_sec: until the deadline; infinite without one.
        left_usd: of the budget, which overrides the other targets; infinite without one.
        node_usd_per_hour: of one node; None if unknown, which disables decisions by money.
        around_usd_per_hour: of everything else, for any number of nodes.
        paid_nodes: paid whether used or not, such as reserved ones: never given up.
        least_images_per_usd: what the last nodes must bring, unless other targets need them.
    """

    images_left: float
    nodes: int | None = None
    left_sec: float = math.inf
    left_usd: float = math.inf
    node_usd_per_hour: float | None = None
    around_usd_per_hour: float = 0.0
    paid_nodes: int = 0
    since_change_sec: float = math.inf
    restart_sec: float = 0.0
    images_per_sec: float | None = None
    least_images_per_usd: float | None = None
    hold_sec: float = 0.0

    @property
    def has_budget(self) -> bool:
        """Whether money limits the nodes."""
        return math.isfinite(self.left_usd) and self.node_usd_per_hour is not None

    def needed_rate(self, lost_sec: float = 0.0) -> float | None:
        """Images a second to reach; None if only money matters."""
        needs = [] if self.images_per_sec is None else [self.images_per_sec]
        if math.isfinite(self.left_sec):
            left_sec = self.left_sec - lost_sec
            needs.append(self.images_left / left_sec if left_sec > 0 else math.inf)
        return max(needs, default=None)

    def usd_per_hour(self, nodes: int) -> float:
        """US dollars an hour of everything with this number of nodes."""
        return (self.node_usd_per_hour or 0.0) * max(nodes, self.paid_nodes) + self.around_usd_per_hour

    def usd(self, nodes: int, images_per_sec: float) -> float:
        """US dollars until all images are done."""
        return self.images_left / images_per_sec / 3600 * self.usd_per_hour(nodes)


@dataclass(frozen=True)
class Decision:
    """`possible`: targets are met at the fast end; `left_out_by`: the caller's setting that excludes node counts."""

    nodes: int
    reason: str
    reached: bool
    possible: bool
    left_out_by: str = ""


class _Case(NamedTuple):
    """`useful`: numbers of nodes that are faster than all smaller ones; `current`: the fewest as fast as those now."""

    curve: Mapping[int, Band]
    state: State
    useful: Sequence[int]
    current: int | None


def decide(curve: Mapping[int, Band], state: State) -> Decision:
    """Decide the number of nodes. `curve`: images a second, interruptions included, of all allowed numbers. A nearer
    deadline never needs fewer nodes.
    """
    useful = _faster_sizes(curve)
    current = None if state.nodes is None else _fewest_as_fast(useful, curve, state.nodes)
    case, need = _Case(curve, state, useful, current), state.needed_rate()
    if state.nodes is not None and state.nodes in curve and state.since_change_sec < state.hold_sec:
        why = f"{state.since_change_sec / 60:.0f} min after the last change nothing is changed"
        return _decided(curve[state.nodes], state, state.nodes, why)
    wanted = useful[-1] if need is None else _scale_to_need(case)
    trimmed = _drop_unprofitable(case, wanted)
    affordable = _apply_budget(case, trimmed)
    free = max((nodes for nodes in useful if nodes <= state.paid_nodes), default=useful[0])
    nodes = max(affordable, free)
    if nodes == free and nodes > affordable:
        why = "nodes that are paid for anyway are used"
    elif affordable < trimmed:
        why = "more would not be paid by the budget"
    elif affordable > trimmed:
        why = "fewer would take longer, and what runs beside them would not be paid by the budget"
    elif trimmed < wanted:
        why = "more would bring too few images for their dollars"
    elif (need is not None and curve[nodes].mid < need) or nodes == useful[-1]:
        why = "more are no faster" if nodes < max(curve) else "all that there may be"
    elif state.nodes is None or nodes == state.nodes:
        why = "enough, and fewer may not be"
    else:
        why = "fewer are not expected to be enough" if nodes > state.nodes else "fewer are surely enough"
    return _decided(curve[nodes], state, nodes, why)


def _faster_sizes(curve: Mapping[int, Band]) -> Sequence[int]:
    found: list[int] = []
    for nodes in sorted(curve):
        if not found or curve[nodes].mid > curve[found[-1]].mid:
            found.append(nodes)
    return found


def _fewest_as_fast(useful: Sequence[int], curve: Mapping[int, Band], nodes: int) -> int:
    """The fewest nodes that are as fast as these; if these are not in the curve, as the nearest."""
    nearest = min(curve, key=lambda each: (abs(each - nodes), each))
    return next(each for each in useful if curve[each].mid >= curve[nearest].mid)


def _scale_to_need(case: _Case) -> int:
    """Scale out if the expected rate is too low, in if the low end for fewer nodes suffices."""
    curve, state, useful, current = case
    rate_now, rate_later = state.needed_rate() or 0.0, state.needed_rate(state.restart_sec) or 0.0
    if current is not None and curve[current].mid >= rate_now:
        return next((nodes for nodes in useful if nodes < current and curve[nodes].low * SURE >= rate_later), current)
    return next((nodes for nodes in useful if curve[nodes].mid * HEADROOM >= rate_later), useful[-1])


def _drop_unprofitable(case: _Case, wanted: int) -> int:
    curve, state, useful, _ = case
    least = state.least_images_per_usd
    if least is None or not state.node_usd_per_hour:
        return wanted
    need = state.needed_rate(state.restart_sec) or 0.0
    enough = next((nodes for nodes in useful if curve[nodes].mid * HEADROOM >= need), useful[-1])
    worth = useful[0]
    for before, nodes in pairwise(useful):
        usd_per_sec = (state.usd_per_hour(nodes) - state.usd_per_hour(before)) / 3600
        if nodes <= wanted and curve[nodes].mid - curve[before].mid >= least * usd_per_sec:
            worth = nodes
    return min(wanted, max(enough, worth))


def _apply_budget(case: _Case, wanted: int) -> int:
    """Apply the budget: the wanted number if it is affordable, else the next larger one (what runs beside the nodes
    runs shorter), else the next smaller one, else the cheapest. Grow only if the low end is affordable, so that a
    number that holds the budget is preferred: changing twice costs more than it saves.
    """
    curve, state, useful, current = case
    if not state.has_budget:
        return wanted

    def is_expected(nodes: int) -> bool:
        return state.usd(nodes, curve[nodes].mid) <= state.left_usd

    def is_affordable(nodes: int) -> bool:
        if current is not None and (nodes == current or (nodes < current and not is_expected(current))):
            return is_expected(nodes)
        rate = curve[nodes].mid if current is None else curve[nodes].low
        return state.usd(nodes, rate) <= HEADROOM * state.left_usd

    fitting = [nodes for nodes in useful if is_affordable(nodes)]
    cheapest = min(useful, key=lambda nodes: state.usd(nodes, curve[nodes].mid))
    return next((nodes for nodes in fitting if nodes >= wanted), max(fitting, default=cheapest))


def _decided(rate: Band, state: State, nodes: int, why: str) -> Decision:
    need = state.needed_rate()

    def reaches(images_per_sec: float) -> bool:
        return state.usd(nodes, images_per_sec) <= state.left_usd and (need is None or images_per_sec >= need)

    hours = [_format_number(state.images_left / each / 3600) for each in (rate.mid, rate.high, rate.low)]
    details = [
        f"{_format_number(rate.mid)} images/s ({_format_number(rate.low)} to {_format_number(rate.high)}) "
        f"take {hours[0]} h ({hours[1]} to {hours[2]})"
    ]
    if math.isfinite(state.left_sec):
        details.append(f"{_format_number(state.left_sec / 3600)} h are left")
    if state.images_per_sec is not None:
        details.append(f"{_format_number(state.images_per_sec)} images/s are asked for")
    if state.has_budget:
        details.append(f"${state.usd(nodes, rate.mid):,.2f} of ${state.left_usd:,.2f}")
    was = "" if state.nodes in (None, nodes) else f"{state.nodes} -> "
    reason = f"{was}{nodes} node{'s' if nodes > 1 else ''}: {why}; {', '.join(details)}"
    return Decision(nodes, reason, reaches(rate.mid), reaches(rate.high))


def _format_number(number: float) -> str:
    return f"{float(f'{number:.3g}'):,.10g}"
