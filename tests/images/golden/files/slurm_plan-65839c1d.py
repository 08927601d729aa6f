import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
OURS = 'gangway:'
NO_CAPACITY = 'gangway: no capacity, will retry'
HELD = 'gangway: held, its machines failed to join; undrain a node to retry'
NO_ROOM = 'gangway: node limit reached'
GONE = 'gangway: its machine is gone'
UNFIT = 'gangway: released'
_AUTHOR = re.compile('\\s\\[[^\\s\\]]*@[^\\s\\]]*\\].*')
_BUSY = frozenset({'ALLOCATED', 'MIXED'})

class Node(NamedTuple):
    name: str
    states: frozenset[str]
    reason: str = ''

    @property
    def waits(self):
        return 'POWERING_UP' in self.states

    @property
    def is_off(self):
        return not self.waits and bool(self.states & {'POWERED_DOWN', 'POWERING_DOWN'})

    @property
    def is_busy(self):
        return bool(self.states & _BUSY) or 'COMPLETING' in self.states

    @property
    def is_out(self):
        return bool(self.states & {'DRAIN', 'DOWN', 'FAIL'})

    @property
    def is_late(self):
        return not self.waits and self.reason.startswith('ResumeTimeout')

    @property
    def is_ours(self):
        return self.is_out and self.reason.startswith(OURS)

class Machine(NamedTuple):
    id: str
    node: str = ''
    address: str = ''
    is_leaving: bool = False

class Group(NamedTuple):
    desired: int
    most: int
    machines: tuple[Machine, ...] = ()

class Rung(NamedTuple):
    name: str
    nodes: tuple[str, ...]
    nodes_up: int = 0

class Ladder(NamedTuple):
    rungs: tuple[Rung, ...]
    most: int
    patience_sec: float = 300
    rest_sec: float = 900
    given_up: int = 0
    given_up_sec: float = 3600

class Memory(NamedTuple):
    asked: Mapping[str, float] = {}
    closed: Mapping[str, float] = {}
    missing: frozenset[str] = frozenset()
    fresh: Mapping[str, str] = {}
    failed: Mapping[str, Sequence[float]] = {}
    held: Mapping[str, Sequence[str]] = {}

class Close(NamedTuple):
    node: str
    reason: str

class Open(NamedTuple):
    node: str

class Reset(NamedTuple):
    node: str
    reason: str

class Wake(NamedTuple):
    node: str

class Name(NamedTuple):
    node: str
    machine: Machine

class End(NamedTuple):
    rung: str
    machine: str

class Resize(NamedTuple):
    rung: str
    size: int
Action = Close | Open | Reset | Wake | Name | End | Resize

class Decision(NamedTuple):
    actions: tuple[Action, ...]
    memory: Memory

class _View:

    def __init__(self, rung, nodes, group):
        self.rung, self.group = (rung, group)
        self.nodes = [nodes[name] for name in rung.nodes if name in nodes]
        wanted = {node.name for node in self.nodes if not node.is_off}
        staying = sorted((machine for machine in group.machines if not machine.is_leaving))
        self.owners = {}
        self.free, self.ends = ([], [])
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
    def lost(self):
        return [node for node in self.nodes if not node.is_off and (not node.waits) and (node.name not in self.owners) and (node.name not in self.leaving)]

    @property
    def fresh(self):
        waiting = {node.name for node in self.nodes if node.waits}
        found = [*self.free, *(machine for name, machine in self.owners.items() if name in waiting)]
        return {machine.id: self.rung.name for machine in found}

    def failed(self, memory):
        late = {node.name for node in self.nodes if node.is_late}
        there = {machine.id: machine for machine in self.group.machines if not machine.is_leaving}
        before = [name for name, rung in memory.fresh.items() if rung == self.rung.name]
        return sum((name not in there or there[name].node in late for name in before))

def decide(ladder, nodes, groups, memory, now):
    views = [_View(rung, nodes, groups[rung.name]) for rung in ladder.rungs]
    asked = {node.name: memory.asked.get(node.name, now) for view in views for node in view.waiting}
    failed = {view.rung.name: _failures(view, ladder, memory, now) for view in views}
    held = {view.rung.name: seen for view in views if (seen := _held(view, ladder, memory, failed)) is not None}
    released = memory.held.keys() - held
    closed = {name: until for name, until in memory.closed.items() if until > now and name not in released}
    for view in views:
        if any((now - asked[node.name] >= ladder.patience_sec for node in view.waiting)):
            closed.setdefault(view.rung.name, now + ladder.rest_sec)
    lost = {node.name for view in views for node in view.lost}
    again = lost & memory.missing
    resets = {node.name: UNFIT for view in views for node in view.nodes if _is_spent(node)}
    resets |= dict.fromkeys(sorted(again), GONE)
    room = ladder.most - sum((len(view.owners) for view in views))
    parts = []
    kept_by = {}
    for view in views:
        why = _close_reason(view.rung, closed, held)
        most = 0 if why else max(0, min(room, view.group.most - len(view.owners)))
        kept = sorted(view.waiting, key=lambda node: (asked[node.name], view.rung.nodes.index(node.name)))
        kept, dropped = (kept[:most], kept[most:])
        kept_by[view.rung.name] = len(kept)
        room -= len(kept)
        resets |= dict.fromkeys((node.name for node in dropped), why or NO_ROOM)
        parts += _machines(view, kept)
    access = [action for view in views for action in _node_access(view, room, kept_by[view.rung.name], _close_reason(view.rung, closed, held))]
    named = {action.node for action in parts if isinstance(action, Name)}
    left = {name: since for name, since in asked.items() if name not in resets and name not in named}
    actions = (*access, *(Reset(*each) for each in resets.items()), *parts)
    ended = {action.machine for action in parts if isinstance(action, End)}
    fresh = {name: rung for view in views for name, rung in view.fresh.items() if name not in ended}
    failed = {name: () if name in released else times for name, times in failed.items()}
    return Decision(actions, Memory(left, closed, frozenset(lost - again), fresh, failed, held))

def _failures(view, ladder, memory, now):
    before = [time for time in memory.failed.get(view.rung.name, ()) if time > now - ladder.given_up_sec]
    return (*before, *[now] * view.failed(memory))

def _held(view, ladder, memory, failed):
    name = view.rung.name
    if name not in memory.held:
        return () if 0 < ladder.given_up <= len(failed[name]) else None
    closed = memory.held[name]
    if any((node.name in closed and (not node.is_out) for node in view.nodes)):
        return None
    return (*closed, *(node.name for node in view.off if node.reason == HELD and node.name not in closed))

def _close_reason(rung, closed, held):
    return HELD if rung.name in held else NO_CAPACITY if rung.name in closed else ''

def _is_spent(node):
    return node.is_ours and (not node.is_off) and (not node.is_busy)

def _machines(view, kept):
    actions = [Name(node.name, machine) for node, machine in zip(kept, view.free, strict=False)]
    ends = [*view.ends, *view.free[len(kept):]]
    actions += [End(view.rung.name, machine.id) for machine in ends]
    wanted = min(len(view.owners) + len(kept), view.group.most)
    if max(0, view.group.desired - len(ends)) != wanted:
        actions.append(Resize(view.rung.name, wanted))
    return actions

def _node_access(view, room, kept, why):
    most = 0 if why else max(0, min(room, view.group.most - len(view.owners) - kept))
    is_open = [node for node in view.off if not node.is_out]
    ours = [node for node in view.off if node.is_ours]
    actions = [Close(node.name, why or NO_ROOM) for node in is_open[most:]]
    actions += [Close(node.name, HELD) for node in ours if why == HELD != node.reason]
    opened = ours[:max(0, most - len(is_open))]
    actions += [Open(node.name) for node in opened]
    up = set(view.rung.nodes[:view.rung.nodes_up])
    return actions + [Wake(node.name) for node in is_open[:most] if node.name in up]

def read_nodes(text):
    found = {}
    for line in text.splitlines():
        head, _, reason = line.partition(' Reason=')
        words = dict((word.split('=', 1) for word in head.split() if '=' in word))
        if 'NodeName' in words:
            states = frozenset((word.strip('*~#!%$@^-') for word in words.get('State', '').split('+')))
            found[words['NodeName']] = Node(words['NodeName'], states, _AUTHOR.sub('', reason).strip())
    return found
