"""Plans the machines of a Slurm cluster, for any cloud. Pure. Needs only Python 3.10.

A Slurm node is a name; its machine is the one in its rung's group with that name. Slurm's power saving states give the
requested nodes, so no requests are stored. A rung whose group starts no machine in time is closed for a while: its
waiting jobs are requeued and take the next rung. A rung with too many machines that end before they become nodes is
held, so that a broken image is not launched endlessly, until a user opens one of its nodes (`scontrol update
nodename=NODE state=undrain`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OURS = "gangway:"
"""Prefix of our reasons for drained nodes."""
NO_CAPACITY = "gangway: no capacity, will retry"
HELD = "gangway: held, its machines failed to join; undrain a node to retry"
NO_ROOM = "gangway: node limit reached"
GONE = "gangway: its machine is gone"
UNFIT = "gangway: released"
_AUTHOR = re.compile(r"\s\[[^\s\]]*@[^\s\]]*\].*")
_BUSY = frozenset({"ALLOCATED", "MIXED"})


class Node(NamedTuple):
    """A node in Slurm. `states`: scontrol's State, without marks."""

    name: str
    states: frozenset[str]
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Requested, but not up yet."""
        return "POWERING_UP" in self.states

    @property
    def is_off(self) -> bool:
        """Not requested: without a machine, or with one to terminate."""
        return not self.waits and bool(self.states & {"POWERED_DOWN", "POWERING_DOWN"})

    @property
    def is_busy(self) -> bool:
        """It runs a job."""
        return bool(self.states & _BUSY) or "COMPLETING" in self.states

    @property
    def is_out(self) -> bool:
        """It accepts no jobs."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL"})

    @property
    def is_late(self) -> bool:
        """Its machine did not join in time."""
        return not self.waits and self.reason.startswith("ResumeTimeout")

    @property
    def is_ours(self) -> bool:
        """We drained it."""
        return self.is_out and self.reason.startswith(OURS)


class Machine(NamedTuple):
    """A group's machine. `node`: its node's name; empty before one is assigned."""

    id: str
    node: str = ""
    address: str = ""
    is_leaving: bool = False


class Group(NamedTuple):
    """A rung's group in the cloud."""

    desired: int
    most: int
    machines: tuple[Machine, ...] = ()


class Rung(NamedTuple):
    """A rung of the ladder. `nodes_up`: its first nodes that are never released."""

    name: str
    nodes: tuple[str, ...]
    nodes_up: int = 0


class Ladder(NamedTuple):
    """`most`: limit of nodes over all rungs. A rung that starts no machine for `patience_sec` is closed for `rest_sec`;
    a rung with `given_up` machines that failed to join within `given_up_sec` is held; 0 holds none.
    """

    rungs: tuple[Rung, ...]
    most: int
    patience_sec: float = 300
    rest_sec: float = 900
    given_up: int = 0
    given_up_sec: float = 3600


class Memory(NamedTuple):
    """Kept between runs.

    Attributes:
        asked: since when nodes wait for a machine.
        closed: until when rungs are closed.
        missing: nodes without their machine.
        fresh: the rungs of machines that have not joined yet.
        failed: when such machines ended, by rung.
        held: drained nodes of held rungs.
    """

    asked: Mapping[str, float] = {}
    closed: Mapping[str, float] = {}
    missing: frozenset[str] = frozenset()
    fresh: Mapping[str, str] = {}
    failed: Mapping[str, Sequence[float]] = {}
    held: Mapping[str, Sequence[str]] = {}


class Close(NamedTuple):
    """Drains a node that is off."""

    node: str
    reason: str


class Open(NamedTuple):
    """Undrains a node."""

    node: str


class Reset(NamedTuple):
    """Turns a node off; its job is requeued."""

    node: str
    reason: str


class Wake(NamedTuple):
    """Powers up a node without a job."""

    node: str


class Name(NamedTuple):
    """Assigns a machine to a node."""

    node: str
    machine: Machine


class End(NamedTuple):
    """Terminates a machine; its group shrinks."""

    rung: str
    machine: str


class Resize(NamedTuple):
    """Sets a group's size."""

    rung: str
    size: int


Action = Close | Open | Reset | Wake | Name | End | Resize


class Decision(NamedTuple):
    """`actions`: in order."""

    actions: tuple[Action, ...]
    memory: Memory


class _View:
    """A rung's nodes with a machine, nodes that wait for one, and unassigned machines."""

    def __init__(self, rung: Rung, nodes: Mapping[str, Node], group: Group) -> None:
        self.rung, self.group = rung, group
        self.nodes = [nodes[name] for name in rung.nodes if name in nodes]
        wanted = {node.name for node in self.nodes if not node.is_off}
        staying = sorted(machine for machine in group.machines if not machine.is_leaving)
        self.owners: dict[str, Machine] = {}
        self.free, self.ends = [], []
        for machine in staying:
            if not machine.node:
                self.free.append(machine)
            elif machine.node in wanted and machine.node not in self.owners:
                self.owners[machine.node] = machine
            else:
                self.ends.append(machine)
        self.leaving = {machine.node for machine in group.machines if machine.is_leaving}
        self.waiting = [node for node in self.nodes if node.waits and node.name not in self.owners]
        self.off = [node for node in self.nodes if node.is_off]

    @property
    def lost(self) -> list[Node]:
        """Nodes that were up and lost their machine."""
        return [
            node
            for node in self.nodes
            if not node.is_off and not node.waits and node.name not in self.owners and node.name not in self.leaving
        ]

    @property
    def fresh(self) -> dict[str, str]:
        """The rung's name by machines that have not joined yet."""
        waiting = {node.name for node in self.nodes if node.waits}
        found = [*self.free, *(machine for name, machine in self.owners.items() if name in waiting)]
        return {machine.id: self.rung.name for machine in found}

    def failed(self, memory: Memory) -> int:
        """The number of those that ended since the last run, or that Slurm gave up."""
        late = {node.name for node in self.nodes if node.is_late}
        there = {machine.id: machine for machine in self.group.machines if not machine.is_leaving}
        before = [name for name, rung in memory.fresh.items() if rung == self.rung.name]
        return sum(name not in there or there[name].node in late for name in before)


def decide(
    ladder: Ladder, nodes: Mapping[str, Node], groups: Mapping[str, Group], memory: Memory, now: float
) -> Decision:
    """The actions for the current state.

    >>> spot = Rung("spot", ("spot-n1", "spot-n2"))
    >>> seen = {"spot-n1": Node("spot-n1", frozenset({"ALLOCATED", "POWERING_UP"}))}
    >>> decide(Ladder((spot,), 2), seen, {"spot": Group(0, 2)}, Memory(), 0).actions
    (Resize(rung='spot', size=1),)
    """
    views = [_View(rung, nodes, groups[rung.name]) for rung in ladder.rungs]
    asked = {node.name: memory.asked.get(node.name, now) for view in views for node in view.waiting}
    failed = {view.rung.name: _failures(view, ladder, memory, now) for view in views}
    held = {view.rung.name: seen for view in views if (seen := _held(view, ladder, memory, failed)) is not None}
    released = memory.held.keys() - held
    # A rung that a user released is tried at once, whatever its capacity was.
    closed = {name: until for name, until in memory.closed.items() if until > now and name not in released}
    for view in views:
        if any(now - asked[node.name] >= ladder.patience_sec for node in view.waiting):
            closed.setdefault(view.rung.name, now + ladder.rest_sec)
    lost = {node.name for view in views for node in view.lost}
    again = lost & memory.missing
    resets = {node.name: UNFIT for view in views for node in view.nodes if _is_spent(node)}
    resets |= dict.fromkeys(sorted(again), GONE)
    room = ladder.most - sum(len(view.owners) for view in views)
    parts: list[Action] = []
    kept_by: dict[str, int] = {}
    for view in views:
        why = _close_reason(view.rung, closed, held)
        most = 0 if why else max(0, min(room, view.group.most - len(view.owners)))
        kept = sorted(view.waiting, key=lambda node: (asked[node.name], view.rung.nodes.index(node.name)))
        kept, dropped = kept[:most], kept[most:]
        kept_by[view.rung.name] = len(kept)
        room -= len(kept)
        resets |= dict.fromkeys((node.name for node in dropped), why or NO_ROOM)
        parts += _machines(view, kept)
    access = [
        action
        for view in views
        for action in _node_access(view, room, kept_by[view.rung.name], _close_reason(view.rung, closed, held))
    ]
    named = {action.node for action in parts if isinstance(action, Name)}
    left = {name: since for name, since in asked.items() if name not in resets and name not in named}
    # Drain first, so that a requeued job does not get the same rung.
    actions = (*access, *(Reset(*each) for each in resets.items()), *parts)
    # Machines ended here have not failed.
    ended = {action.machine for action in parts if isinstance(action, End)}
    fresh = {name: rung for view in views for name, rung in view.fresh.items() if name not in ended}
    failed = {name: () if name in released else times for name, times in failed.items()}
    return Decision(actions, Memory(left, closed, frozenset(lost - again), fresh, failed, held))


def _failures(view: _View, ladder: Ladder, memory: Memory, now: float) -> tuple[float, ...]:
    """Recent times at which a rung's machines failed to join."""
    before = [time for time in memory.failed.get(view.rung.name, ()) if time > now - ladder.given_up_sec]
    return (*before, *[now] * view.failed(memory))


def _held(view: _View, ladder: Ladder, memory: Memory, failed: Mapping[str, Sequence[float]]) -> tuple[str, ...] | None:
    """The drained nodes of a held rung; None if it is not held, or a user has undrained one."""
    name = view.rung.name
    if name not in memory.held:
        return () if 0 < ladder.given_up <= len(failed[name]) else None
    closed = memory.held[name]
    if any(node.name in closed and not node.is_out for node in view.nodes):
        return None
    return (*closed, *(node.name for node in view.off if node.reason == HELD and node.name not in closed))


def _close_reason(rung: Rung, closed: Mapping[str, float], held: Mapping[str, object]) -> str:
    """Why a rung is closed; empty if it is open."""
    return HELD if rung.name in held else NO_CAPACITY if rung.name in closed else ""


def _is_spent(node: Node) -> bool:
    """Drained by us or a job, and idle: replace its machine."""
    return node.is_ours and not node.is_off and not node.is_busy


def _machines(view: _View, kept: Sequence[Node]) -> list[Action]:
    """A rung's machines: assignments, terminations, and the group's size."""
    actions: list[Action] = [Name(node.name, machine) for node, machine in zip(kept, view.free, strict=False)]
    ends = [*view.ends, *view.free[len(kept) :]]
    actions += [End(view.rung.name, machine.id) for machine in ends]
    wanted = min(len(view.owners) + len(kept), view.group.most)
    # Each termination shrinks the group.
    if max(0, view.group.desired - len(ends)) != wanted:
        actions.append(Resize(view.rung.name, wanted))
    return actions


def _node_access(view: _View, room: int, kept: int, why: str) -> list[Action]:
    """Which nodes that are off accept jobs: as many as machines can start. `why`: the reason if the rung is closed."""
    most = 0 if why else max(0, min(room, view.group.most - len(view.owners) - kept))
    is_open = [node for node in view.off if not node.is_out]
    ours = [node for node in view.off if node.is_ours]
    actions: list[Action] = [Close(node.name, why or NO_ROOM) for node in is_open[most:]]
    actions += [Close(node.name, HELD) for node in ours if why == HELD != node.reason]
    opened = ours[: max(0, most - len(is_open))]
    actions += [Open(node.name) for node in opened]
    up = set(view.rung.nodes[: view.rung.nodes_up])
    # A node that was just opened is woken by the next run.
    return actions + [Wake(node.name) for node in is_open[:most] if node.name in up]


def read_nodes(text: str) -> dict[str, Node]:
    """Parses `scontrol show nodes --oneliner`.

    >>> read_nodes("NodeName=n1 Arch=x State=IDLE Reason=gangway: no capacity [root@2026-11-27T08:00:00]")
    {'n1': Node(name='n1', states=frozenset({'IDLE'}), reason='gangway: no capacity')}
    """
    found = {}
    for line in text.splitlines():
        # Free text, then author and time.
        head, _, reason = line.partition(" Reason=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        if "NodeName" in words:
            # Without marks, such as * for a node that does not respond.
            states = frozenset(word.strip("*~#!%$@^-") for word in words.get("State", "").split("+"))
            found[words["NodeName"]] = Node(words["NodeName"], states, _AUTHOR.sub("", reason).strip())
    return found
