"""What a Slurm's machines become: the decision alone, in a small world where Slurm and a cloud do as told."""

import copy
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gangway.images.node.slurm_plan import (
    GONE,
    HELD,
    NO_CAPACITY,
    NO_ROOM,
    Action,
    Close,
    Decision,
    End,
    Group,
    Ladder,
    Machine,
    Memory,
    Name,
    Node,
    Open,
    Reset,
    Resize,
    Rung,
    Wake,
    decide,
    read_nodes,
)

LOOK_SEC = 60.0
SPOT = Rung("spot", tuple(f"spot-n{number}" for number in range(1, 5)))
SURE = Rung("on-demand", tuple(f"on-demand-n{number}" for number in range(1, 5)))
OFF, UP, WAITS = "IDLE+CLOUD+POWERED_DOWN", "ALLOCATED+CLOUD", "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"
STATES = [
    *(OFF, UP, WAITS, "IDLE+CLOUD", "IDLE+CLOUD+POWERING_DOWN", "DOWN+CLOUD", "IDLE+CLOUD+DRAIN+POWERED_DOWN"),
    *("IDLE+CLOUD+DRAIN", "MIXED+CLOUD+DRAIN", "DOWN+CLOUD+POWERED_DOWN", "IDLE+CLOUD+POWERING_UP", "DOWN+CLOUD+DRAIN"),
]


def node(name: str, states: str = OFF, reason: str = "") -> Node:
    return Node(name, frozenset(states.split("+")), reason)


def by_name(*nodes: Node) -> dict[str, Node]:
    return {one.name: one for one in nodes}


@dataclass
class World:
    """Slurm, and groups that bring machines as far as they have some."""

    ladder: Ladder
    nodes: dict[str, Node]
    groups: dict[str, Group]
    stock: dict[str, int]
    memory: Memory = field(default_factory=Memory)
    now: float = 1e9
    made: int = 0

    def look(self) -> Decision:
        found = decide(self.ladder, self.nodes, self.groups, self.memory, self.now)
        self.memory = found.memory
        for action in found.actions:
            self._do(action)
        return found

    def _do(self, action: Action) -> None:
        if isinstance(action, Name):
            self._change(action.node, frozenset({"ALLOCATED", "CLOUD"}))
            rung = next(rung.name for rung in self.ladder.rungs if action.node in rung.nodes)
            machines = [
                one._replace(node=action.node) if one.id == action.machine.id else one
                for one in self.groups[rung].machines
            ]
            self.groups[rung] = self.groups[rung]._replace(machines=tuple(machines))
        elif isinstance(action, Reset):
            self._change(action.node, frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))
        elif isinstance(action, Wake):
            self._change(action.node, frozenset({"IDLE", "CLOUD", "POWERING_UP"}))
        elif isinstance(action, Close):
            self._change(action.node, self.nodes[action.node].states | {"DRAIN"}, action.reason)
        elif isinstance(action, Open):
            self._change(action.node, frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))
        elif isinstance(action, Resize):
            group = self.groups[action.rung]
            assert action.size <= group.most
            self.groups[action.rung] = group._replace(desired=action.size)
        else:
            group = self.groups[action.rung]
            left = tuple(one for one in group.machines if one.id != action.machine)
            self.groups[action.rung] = group._replace(machines=left, desired=max(0, group.desired - 1))

    def _change(self, name: str, states: frozenset[str], reason: str = "") -> None:
        self.nodes[name] = Node(name, states, reason)

    def pass_time(self) -> None:
        """A minute, in which groups bring what they are asked for, and have."""
        self.now += LOOK_SEC
        for rung, group in self.groups.items():
            there = [one for one in group.machines if not one.is_leaving]
            for _ in range(min(group.desired, self.stock[rung]) - len(there)):
                self.made += 1
                there.append(Machine(f"i-new-{self.made}"))
            self.groups[rung] = group._replace(machines=tuple(there))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    rungs = (SPOT._replace(nodes_up=draw(st.integers(0, 2))), SURE)[: draw(st.integers(1, 2))]
    ladder = Ladder(rungs, draw(st.integers(1, 6)))
    reasons = st.sampled_from(["", NO_CAPACITY, NO_ROOM, "admin looks at it"])
    names = [name for rung in rungs for name in rung.nodes]
    nodes = by_name(*(node(name, draw(st.sampled_from(STATES)), draw(reasons)) for name in names))
    groups, stock = {}, {}
    for rung in rungs:
        tags = st.sampled_from(["", "no-such-node", *names])
        machines = tuple(
            Machine(f"i-{rung.name}-{number}", draw(tags), is_leaving=draw(st.booleans()))
            for number in range(draw(st.integers(0, 5)))
        )
        groups[rung.name] = Group(draw(st.integers(0, 4)), draw(st.integers(0, 4)), machines)
        stock[rung.name] = draw(st.integers(0, 4))
    return World(ladder, nodes, groups, stock)


def check(before: World, found: Decision) -> None:
    """Whatever was there before."""
    names = [action for action in found.actions if isinstance(action, Name)]
    assert len({action.machine.id for action in names}) == len(names), "two names on one machine"
    assert len({action.node for action in names}) == len(names), "two machines for one name"
    machines = {one.id: one for group in before.groups.values() for one in group.machines}
    for action in names:
        assert not machines[action.machine.id].node, "one that has a name"
        assert not machines[action.machine.id].is_leaving
        assert "POWERING_UP" in before.nodes[action.node].states
    wanted = {action.rung: action.size for action in found.actions if isinstance(action, Resize)}
    assert all(0 <= size <= before.groups[rung].most for rung, size in wanted.items())
    for other in found.actions:
        if isinstance(other, End):
            owner = before.nodes.get(machines[other.machine].node)
            others = [one for one in machines.values() if owner and one.node == owner.name and not one.is_leaving]
            assert owner is None or owner.is_off or len(others) > 1 or owner.name not in named_in(before, other.rung)
        if isinstance(other, Close | Open | Wake):
            assert before.nodes[other.node].is_off


def named_in(world: World, rung: str) -> tuple[str, ...]:
    return next(one.nodes for one in world.ladder.rungs if one.name == rung)


@given(worlds())
def test_no_machine_has_two_names_and_no_group_too_many(world: World) -> None:
    for _ in range(4):
        before = copy.deepcopy(world)
        check(before, world.look())
        world.pass_time()


@given(worlds())
def test_no_more_are_asked_for_than_may_be_up(world: World) -> None:
    world.groups = {name: group._replace(machines=()) for name, group in world.groups.items()}
    for _ in range(4):
        world.look()
        assert sum(group.desired for group in world.groups.values()) <= world.ladder.most
        world.pass_time()


@given(worlds())
def test_it_settles(world: World) -> None:
    """Where nobody wants anything more. A rung without machines is tried as long as nodes of it are to be up."""
    rungs = tuple(rung._replace(nodes_up=0) for rung in world.ladder.rungs)
    world.ladder = world.ladder._replace(rungs=rungs)
    for _ in range(40):
        world.look()
        world.pass_time()
    before = copy.deepcopy(world)
    assert world.look().actions == ()
    for rung in rungs:
        carried = [one.node for one in before.groups[rung.name].machines]
        assert len(carried) == len(set(carried))
        assert all(not before.nodes[name].is_off for name in carried)


def test_from_nothing_and_back() -> None:
    world = World(Ladder((SPOT,), 4), by_name(*map(node, SPOT.nodes)), {"spot": Group(0, 4)}, {"spot": 4})
    assert world.look().actions == ()
    world.nodes["spot-n2"] = node("spot-n2", WAITS)
    assert world.look().actions == (Resize("spot", 1),)
    assert world.look().actions == (), "asked once"
    world.pass_time()
    named = world.look().actions
    assert [(type(action), action[0]) for action in named] == [(Name, "spot-n2")]
    assert world.look().actions == ()
    world.nodes["spot-n2"] = node("spot-n2", "IDLE+CLOUD+POWERING_DOWN")
    assert world.look().actions == (End("spot", "i-new-1"),)
    assert world.groups["spot"] == Group(0, 4)
    assert world.look().actions == ()


def test_a_rung_without_machines_is_left_for_a_while() -> None:
    world = World(
        Ladder((SPOT, SURE), 8, patience_sec=300, rest_sec=900),
        by_name(*map(node, (*SPOT.nodes, *SURE.nodes))),
        {"spot": Group(0, 4), "on-demand": Group(0, 4)},
        {"spot": 0, "on-demand": 4},
    )
    world.nodes["spot-n1"] = node("spot-n1", WAITS)
    for _ in range(5):
        assert not any(isinstance(action, Reset) for action in world.look().actions)
        world.pass_time()
    actions = world.look().actions
    assert [action for action in actions if isinstance(action, Reset)] == [Reset("spot-n1", NO_CAPACITY)]
    assert {action.node for action in actions if isinstance(action, Close)} == set(SPOT.nodes[1:])
    assert actions.index(Close("spot-n2", NO_CAPACITY)) < actions.index(Reset("spot-n1", NO_CAPACITY))
    assert world.groups["spot"].desired == 0
    assert not any(world.nodes[name].is_out for name in SURE.nodes)
    world.pass_time()
    assert world.look().actions == (Close("spot-n1", NO_CAPACITY),)
    for _ in range(14):
        world.pass_time()
    assert {action.node for action in world.look().actions if isinstance(action, Open)} == set(SPOT.nodes)


def broken_image() -> World:
    """Of a rung that has capacity: no machine becomes a node, and each is gone by the next look."""
    return World(
        Ladder((SPOT, SURE), 8, given_up=3, given_up_sec=3600),
        by_name(*map(node, (*SPOT.nodes, *SURE.nodes))),
        {"spot": Group(0, 4), "on-demand": Group(0, 4)},
        {"spot": 4, "on-demand": 4},
    )


def lose_a_machine(world: World, name: str) -> None:
    """Whoever has jobs asks for it, one machine comes, and gives itself up before it becomes the node."""
    if "DRAIN" not in world.nodes[name].states:
        world.nodes[name] = node(name, WAITS)
    world.look()
    world.pass_time()
    world.look()
    if world.nodes[name].is_busy:  # its machine has its name
        world.nodes[name] = node(name, WAITS)
        world.look()
    world.groups["spot"] = world.groups["spot"]._replace(machines=())


def test_a_rung_whose_machines_never_become_nodes_is_held_until_somebody_opens_it() -> None:
    world = broken_image()
    for _ in range(100):
        lose_a_machine(world, "spot-n1")
    assert world.made <= 4, "one more may be on its way when the third is seen to be gone"
    assert {world.nodes[name].reason for name in SPOT.nodes} == {HELD}
    assert not any(world.nodes[name].is_out for name in SURE.nodes), "the next rung goes on"
    made, world.nodes["spot-n2"] = world.made, node("spot-n2")
    assert {action.node for action in world.look().actions if isinstance(action, Open)} >= {"spot-n1"}
    lose_a_machine(world, "spot-n1")
    lose_a_machine(world, "spot-n1")
    assert world.made == made + 2, "counted anew"
    assert not world.nodes["spot-n3"].is_out


def test_who_releases_a_rung_has_it_tried_whatever_its_capacity_was() -> None:
    memory = Memory(closed={"spot": 10 * LOOK_SEC}, failed={"spot": (0.0,)}, held={"spot": ("spot-n1",)})
    shut = {"spot-n1": node("spot-n1", f"{OFF}+DRAIN")._replace(reason=HELD)}
    groups = {"spot": Group(0, 4)}
    ladder = Ladder((SPOT,), 4, given_up=1)
    assert decide(ladder, shut, groups, memory, LOOK_SEC).memory.closed == memory.closed
    released = decide(ladder, {"spot-n1": node("spot-n1", WAITS)}, groups, memory, LOOK_SEC)
    assert released.memory.closed == {} == released.memory.held
    assert released.actions == (Resize("spot", 1),)


def test_machines_that_became_nodes_or_were_ended_here_hold_nothing() -> None:
    world = broken_image()
    for _ in range(10):
        world.nodes["spot-n1"] = node("spot-n1", WAITS)
        world.look()
        world.pass_time()
        world.look()
        assert world.nodes["spot-n1"].is_busy
        world.look()
        world.groups["spot"] = world.groups["spot"]._replace(machines=())  # a node's machine, taken back
        world.look()
        world.look()
        world.nodes["spot-n1"] = node("spot-n1", WAITS)
        world.look()
        world.pass_time()
        world.nodes["spot-n1"] = node("spot-n1")  # its job was cancelled before the machine had a name
        world.look()
        world.pass_time()
    assert world.memory.held == {}
    assert not any(world.memory.failed.values())


def test_a_machine_that_is_not_there_in_time_counts() -> None:
    world = broken_image()
    machine = Machine("i-1", "spot-n1")
    world.groups["spot"] = Group(1, 4, (machine,))
    world.nodes["spot-n1"] = node("spot-n1", WAITS)
    world.look()
    world.nodes["spot-n1"] = node("spot-n1", "DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached")
    for _ in range(3):
        world.look()
    assert len(world.memory.failed["spot"]) == 1


def test_one_whose_machine_is_gone_is_reset_at_the_second_look() -> None:
    """An answer of a cloud may be older than the one before it."""
    world = World(
        Ladder((SPOT,), 4),
        by_name(node("spot-n1", UP), *map(node, SPOT.nodes[1:])),
        {"spot": Group(1, 4)},
        {"spot": 0},
    )
    assert not any(isinstance(action, Reset) for action in world.look().actions)
    assert Reset("spot-n1", GONE) in world.look().actions
    assert world.nodes["spot-n1"].is_off


def test_a_machine_that_leaves_keeps_its_node_until_it_is_gone_and_is_not_replaced() -> None:
    leaving = Machine("i-1", "spot-n1", is_leaving=True)
    groups = {"spot": Group(1, 4, (leaving,))}
    ladder = Ladder((SPOT._replace(nodes=SPOT.nodes[:1]),), 1)
    found = decide(ladder, by_name(node("spot-n1", UP)), groups, Memory(), 0)
    assert found.actions == (Resize("spot", 0),)


def test_an_unfit_node_is_given_back_once_nobody_is_on_it_and_an_administrators_is_left() -> None:
    one = Ladder((SPOT._replace(nodes=SPOT.nodes[:1]),), 1)
    groups = {"spot": Group(1, 1, (Machine("i-1", "spot-n1"),))}
    for states, reason, wanted in [
        ("IDLE+CLOUD+DRAIN", "gangway: not fit for digits", True),
        ("MIXED+CLOUD+DRAIN", "gangway: not fit for digits", False),
        ("IDLE+CLOUD+DRAIN", "cable", False),
    ]:
        found = decide(one, by_name(node("spot-n1", states, reason)), groups, Memory(), 0)
        assert any(isinstance(action, Reset) for action in found.actions) is wanted


def test_nodes_that_are_always_up_are_woken() -> None:
    world = World(
        Ladder((SPOT._replace(nodes_up=2),), 4), by_name(*map(node, SPOT.nodes)), {"spot": Group(0, 4)}, {"spot": 4}
    )
    assert world.look().actions == (Wake("spot-n1"), Wake("spot-n2"))
    assert world.look().actions == (Resize("spot", 2),)


def test_nodes_as_scontrol_shows_them() -> None:
    text = (
        "NodeName=spot-n1 Arch=x86_64 CoresPerSocket=1 State=MIXED*+CLOUD+DRAIN+NOT_RESPONDING+POWERING_UP "
        "Partitions=spot Comment=a=b Reason=gangway: not fit State=UP [root@2026-11-27T08:00:00]\n"
        "NodeName=spot-n2 CoresPerSocket=1 State=IDLE~+CLOUD+POWERED_DOWN Partitions=spot\n\nNo nodes in the system\n"
    )
    found = read_nodes(text)
    assert found["spot-n2"] == node("spot-n2", OFF)
    assert (found["spot-n1"].waits, found["spot-n1"].is_busy, found["spot-n1"].is_ours) == (True, True, True)
