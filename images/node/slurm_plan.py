"""What a Slurm's machines have to become: the decision, whichever cloud they are in. Pure. With Python 3.10 alone.

A node of Slurm's is a name; its machine is whichever one of its rung's group carries that name. Slurm says by its
power saving which names are wanted, so nothing has to be remembered of what it asked for. A rung whose group brings no
machine in time is closed for a while: its waiting jobs go back into the queue, and take the next rung. One whose
machines end before they become nodes, so many within so long, is held until somebody opens one of its nodes (`scontrol
update nodename=NODE state=undrain`): an image that gives itself up would be launched without end.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OURS = "gangway:"
"""How the reason of each node begins that we have taken out of use, or a job of ours as unfit."""
NO_CAPACITY = "gangway: no capacity, tried again later"
HELD = "gangway: held, its machines ended before they became nodes: undrain a node to try again"
NO_ROOM = "gangway: as many nodes are up as may be"
GONE = "gangway: its machine is gone"
UNFIT = "gangway: given back"
_SAID = re.compile(r"\s\[[^\s\]]*@[^\s\]]*\].*")
_BUSY = frozenset({"ALLOCATED", "MIXED"})


class Node(NamedTuple):
    """As Slurm has it: `states` are the words of scontrol's State, without marks."""

    name: str
    states: frozenset[str]
    reason: str = ""

    @property
    def waits(self) -> bool:
        """Wanted, and not up yet."""
        return "POWERING_UP" in self.states

    @property
    def is_off(self) -> bool:
        """Not wanted: it has no machine, or its machine has to go."""
        return not self.waits and bool(self.states & {"POWERED_DOWN", "POWERING_DOWN"})

    @property
    def is_busy(self) -> bool:
        """A job holds it."""
        return bool(self.states & _BUSY) or "COMPLETING" in self.states

    @property
    def is_out(self) -> bool:
        """No job is given to it, whoever said so."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL"})

    @property
    def is_late(self) -> bool:
        """Its machine did not become it in time."""
        return not self.waits and self.reason.startswith("ResumeTimeout")

    @property
    def is_ours(self) -> bool:
        """Out of use by our own word."""
        return self.is_out and self.reason.startswith(OURS)


class Machine(NamedTuple):
    """Of a group. `node`: the name it carries, empty where it has none yet."""

    id: str
    node: str = ""
    address: str = ""
    is_leaving: bool = False


class Group(NamedTuple):
    """Of a rung, as the cloud has it."""

    desired: int
    most: int
    machines: tuple[Machine, ...] = ()


class Rung(NamedTuple):
    """`nodes_up`: so many of its first nodes are never given back."""

    name: str
    nodes: tuple[str, ...]
    nodes_up: int = 0


class Ladder(NamedTuple):
    """`most`: nodes up at once, over all rungs. A rung that brings none for `patience_sec` is closed for `rest_sec`; a
    rung of which `given_up` machines never became nodes within `given_up_sec` is held; 0 holds none.
    """

    rungs: tuple[Rung, ...]
    most: int
    patience_sec: float = 300
    rest_sec: float = 900
    given_up: int = 0
    given_up_sec: float = 3600


class Memory(NamedTuple):
    """From one look to the next: since when nodes wait without a machine, until when rungs are closed, which nodes had
    lost their machine; which machines have not become nodes yet, with their rung, when such machines of a rung ended,
    and which nodes of the rungs that are held have been closed.
    """

    asked: Mapping[str, float] = {}
    closed: Mapping[str, float] = {}
    missing: frozenset[str] = frozenset()
    fresh: Mapping[str, str] = {}
    failed: Mapping[str, Sequence[float]] = {}
    held: Mapping[str, Sequence[str]] = {}


class Close(NamedTuple):
    """No job is given to a node that is off."""

    node: str
    reason: str


class Open(NamedTuple):
    """The contrary."""

    node: str


class Reset(NamedTuple):
    """A node is off from now on, and its job goes back into the queue."""

    node: str
    reason: str


class Wake(NamedTuple):
    """A node is wanted without a job."""

    node: str


class Name(NamedTuple):
    """A machine becomes a node."""

    node: str
    machine: Machine


class End(NamedTuple):
    """A machine goes, and its group becomes smaller."""

    rung: str
    machine: str


class Resize(NamedTuple):
    """How many machines a group is to have."""

    rung: str
    size: int


Action = Close | Open | Reset | Wake | Name | End | Resize


class Decision(NamedTuple):
    """`actions` in the order in which they are to be done."""

    actions: tuple[Action, ...]
    memory: Memory


class _View:
    """One rung: who has a machine, who waits for one, which machines nobody has."""

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
        """Those that were up, and have no machine any more."""
        return [
            node
            for node in self.nodes
            if not node.is_off and not node.waits and node.name not in self.owners and node.name not in self.leaving
        ]

    @property
    def fresh(self) -> dict[str, str]:
        """Machines that are not nodes yet, with the rung's name."""
        waiting = {node.name for node in self.nodes if node.waits}
        found = [*self.free, *(machine for name, machine in self.owners.items() if name in waiting)]
        return {machine.id: self.rung.name for machine in found}

    def failed(self, memory: Memory) -> int:
        """How many of those ended since the last look, or were given up by Slurm."""
        late = {node.name for node in self.nodes if node.is_late}
        there = {machine.id: machine for machine in self.group.machines if not machine.is_leaving}
        before = [name for name, rung in memory.fresh.items() if rung == self.rung.name]
        return sum(name not in there or there[name].node in late for name in before)


def decide(
    ladder: Ladder, nodes: Mapping[str, Node], groups: Mapping[str, Group], memory: Memory, now: float
) -> Decision:
    """What to do after one look.

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
    # A rung that is released by hand is tried at once, whatever was known of its capacity.
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
        why = _why_shut(view.rung, closed, held)
        most = 0 if why else max(0, min(room, view.group.most - len(view.owners)))
        kept = sorted(view.waiting, key=lambda node: (asked[node.name], view.rung.nodes.index(node.name)))
        kept, dropped = kept[:most], kept[most:]
        kept_by[view.rung.name] = len(kept)
        room -= len(kept)
        resets |= dict.fromkeys((node.name for node in dropped), why or NO_ROOM)
        parts += _machines(view, kept)
    doors = [
        action
        for view in views
        for action in _doors(view, room, kept_by[view.rung.name], _why_shut(view.rung, closed, held))
    ]
    named = {action.node for action in parts if isinstance(action, Name)}
    left = {name: since for name, since in asked.items() if name not in resets and name not in named}
    # Doors first, so that a job that goes back into the queue is not given to the same rung.
    actions = (*doors, *(Reset(*each) for each in resets.items()), *parts)
    # What is ended here has not failed.
    ended = {action.machine for action in parts if isinstance(action, End)}
    fresh = {name: rung for view in views for name, rung in view.fresh.items() if name not in ended}
    failed = {name: () if name in released else times for name, times in failed.items()}
    return Decision(actions, Memory(left, closed, frozenset(lost - again), fresh, failed, held))


def _failures(view: _View, ladder: Ladder, memory: Memory, now: float) -> tuple[float, ...]:
    """When machines of a rung ended before they became nodes, lately."""
    before = [time for time in memory.failed.get(view.rung.name, ()) if time > now - ladder.given_up_sec]
    return (*before, *[now] * view.failed(memory))


def _held(view: _View, ladder: Ladder, memory: Memory, failed: Mapping[str, Sequence[float]]) -> tuple[str, ...] | None:
    """The nodes of a rung that is held which have been seen closed; None where it is not, or not any more: somebody has
    opened one of them.
    """
    name = view.rung.name
    if name not in memory.held:
        return () if 0 < ladder.given_up <= len(failed[name]) else None
    closed = memory.held[name]
    if any(node.name in closed and not node.is_out for node in view.nodes):
        return None
    return (*closed, *(node.name for node in view.off if node.reason == HELD and node.name not in closed))


def _why_shut(rung: Rung, closed: Mapping[str, float], held: Mapping[str, object]) -> str:
    """Why no machine of a rung is asked for; empty where one may be."""
    return HELD if rung.name in held else NO_CAPACITY if rung.name in closed else ""


def _is_spent(node: Node) -> bool:
    """Out of use by our word, or a job's, with nobody on it: another machine may do better."""
    return node.is_ours and not node.is_off and not node.is_busy


def _machines(view: _View, kept: Sequence[Node]) -> list[Action]:
    """Of one rung: who gets which, which go, and how many are to be there."""
    actions: list[Action] = [Name(node.name, machine) for node, machine in zip(kept, view.free, strict=False)]
    ends = [*view.ends, *view.free[len(kept) :]]
    actions += [End(view.rung.name, machine.id) for machine in ends]
    wanted = min(len(view.owners) + len(kept), view.group.most)
    # Each that goes takes its place along.
    if max(0, view.group.desired - len(ends)) != wanted:
        actions.append(Resize(view.rung.name, wanted))
    return actions


def _doors(view: _View, room: int, kept: int, why: str) -> list[Action]:
    """Which nodes that are off a job may be given: no more than machines may still come. `why`: the rung is shut."""
    most = 0 if why else max(0, min(room, view.group.most - len(view.owners) - kept))
    is_open = [node for node in view.off if not node.is_out]
    ours = [node for node in view.off if node.is_ours]
    actions: list[Action] = [Close(node.name, why or NO_ROOM) for node in is_open[most:]]
    actions += [Close(node.name, HELD) for node in ours if why == HELD != node.reason]
    opened = ours[: max(0, most - len(is_open))]
    actions += [Open(node.name) for node in opened]
    up = set(view.rung.nodes[: view.rung.nodes_up])
    # One that has just been opened is woken at the next look.
    return actions + [Wake(node.name) for node in is_open[:most] if node.name in up]


def read_nodes(text: str) -> dict[str, Node]:
    """Out of `scontrol show nodes --oneliner`.

    >>> read_nodes("NodeName=n1 Arch=x State=IDLE Reason=gangway: no capacity [root@2026-11-27T08:00:00]")
    {'n1': Node(name='n1', states=frozenset({'IDLE'}), reason='gangway: no capacity')}
    """
    found = {}
    for line in text.splitlines():
        # Of free text; who said it, and when, stands behind.
        head, _, said = line.partition(" Reason=")
        words = dict(word.split("=", 1) for word in head.split() if "=" in word)
        if "NodeName" in words:
            # Marks tell a node that does not answer, and one that is planned for a job.
            states = frozenset(word.strip("*~#!%$@^-") for word in words.get("State", "").split("+"))
            found[words["NodeName"]] = Node(words["NodeName"], states, _SAID.sub("", said).strip())
    return found
