"""What a failure means for its node and for the others: a job of several nodes in small, in any order of events."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from gangway.trainer.core.errors import EXIT_CODES
from gangway.trainer.launch.failures import (
    LAUNCH_FOLDER,
    MAX_FAILURES,
    WINDOW_SEC,
    Nodes,
    add_failure,
    end_state,
    ended_for_all,
    is_failure,
    is_lost,
    lines_of_nodes,
    lost_exit_code,
    mark_leaving,
    mark_lost,
    mark_seen,
    own_failures,
    start_state,
    worker_exit_code,
)
from gangway.trainer.launch.node_state import Failure, NodeState, Standing, used_sec
from gangway.trainer.rendezvous.lifecycle import Event, Life, State

NOW = 1e6
_MINUTES = 300.0


def state(*codes: int, standing: Standing = Standing.GOING_ON, at: float = NOW, lost: int = 0) -> NodeState:
    failures = tuple(Failure(at=at, code=code) for code in codes)
    return NodeState(seen_at=NOW, standing=standing, failures=failures, lost_at=(NOW,) * lost)


GONE = start_state(None, NOW - 700, "boot").state
"""Seen last some minutes ago, and nobody has heard why."""


@pytest.mark.parametrize(
    ("mine", "others", "own"),
    [
        (state(1, 137, 1), state(), 3),
        (state(1, 1), state(at=NOW - WINDOW_SEC), 2),
        (state(1, 1, at=NOW - WINDOW_SEC), state(), 0),
        # Who lost its peers is not to blame, where one of them is.
        (state(76, 134), state(1), 0),
        (state(76, 134), state(137, at=NOW - 719), 0),  # a collective waits for ten minutes
        (state(76, 134), state(1, at=NOW - 721), 2),
        (state(76, 134, at=NOW - 300), state(1, at=NOW - 179), 2),
        # Nor who lost one that was gone without a word, be it back by now or not.
        (state(76, 134), GONE, 0),
        (state(76, 134), start_state(GONE, NOW, "another boot").state, 0),
        (state(76, 134), mark_seen(GONE, NOW, 800), 2),
        (state(76, 134), end_state(GONE, 75), 2),
        (state(1), GONE, 1),
        (state(76, 134), state(76, 134), 2),
        (state(1), state(1), 1),
    ],
)
def test_which_failures_are_a_nodes_own(mine: NodeState, others: NodeState, own: int) -> None:
    assert own_failures("a", {"a": mine, "b": others}, NOW) == own


LOST, LEFT, UP = Standing.LOST, Standing.LEFT, Standing.GOING_ON


@pytest.mark.parametrize(
    ("standings", "job", "over"),
    [
        ((LOST,), (1, 1), True),
        ((LOST,), (2, 4), True),
        ((LOST, UP), (1, 2), False),
        ((LOST, UP), (2, 2), False),  # the other waits: a third may come in the place of the first
        ((LOST, LEFT), (1, 4), False),
        ((LOST, LOST), (1, 4), True),
        ((LOST, LOST, UP), (2, 2), True),  # as many as it takes have failed for good: it is not the machines
        ((LOST, LOST, UP), (1, 2), False),
        ((LOST, LOST, UP, UP), (2, 2), False),
    ],
)
def test_when_a_job_has_ended_for_all(standings: tuple[Standing, ...], job: tuple[int, int], *, over: bool) -> None:
    nodes = {str(i): state(standing=each, lost=each is LOST) for i, each in enumerate(standings)}
    assert ended_for_all("0", nodes, Nodes(*job), NOW) == over
    assert lost_exit_code("0", nodes, Nodes(*job), 1, NOW) == (5 if over else 4)
    assert lost_exit_code("0", nodes, Nodes(*job), 2, NOW) == (2 if over else 4)


@given(st.integers(-64, 255))
def test_a_worker_cannot_say_what_only_a_launcher_may(code: int) -> None:
    assert worker_exit_code(code) not in (4, 5, 6)
    assert 0 <= worker_exit_code(code) <= 255


def test_a_killed_launcher_is_a_failure_and_a_machine_that_lost_its_power_has_none() -> None:
    before = start_state(None, NOW, "boot").state
    assert start_state(before, NOW + 60, "boot").state.failures == (Failure(at=NOW, code=137),)
    for other in (
        start_state(before, NOW + 60, "another boot"),
        start_state(mark_leaving(before), NOW + 60, "boot"),
        start_state(end_state(before, 75), NOW + 60, "boot"),
    ):
        assert (other.killed, other.state.failures) == (False, ())


def test_a_machine_in_the_place_of_a_lost_one_has_a_clean_sheet_and_the_job_keeps_count() -> None:
    old = start_state(None, NOW, "boot").state
    for _ in range(MAX_FAILURES):
        old = add_failure(old, NOW, 1)
    new = start_state(end_state(mark_lost(old, NOW), 4), NOW + 60, "new").state
    assert (new.failures, new.lost_at, new.standing) == ((), (NOW,), UP)


def test_a_job_that_somebody_begins_again_is_not_ended_by_what_was_before() -> None:
    """All have failed for good, of a full disk, say; then one after the other is started again."""
    job, nodes = Nodes(2, 2), {name: start_state(None, NOW, name).state for name in ("a", "b")}
    for name, before in nodes.items():
        nodes[name] = end_state(mark_lost(before, NOW), 2)
    assert ended_for_all("a", nodes, job, NOW + 60)
    nodes["a"] = start_state(nodes["a"], NOW + 60, "a", over=2).state
    assert not ended_for_all("a", nodes, job, NOW + 61)
    nodes["b"] = start_state(nodes["b"], NOW + 62, "b").state
    assert not ended_for_all("a", nodes, job, NOW + 63)
    assert not ended_for_all("b", nodes, job, NOW + 63)
    for name in nodes:
        nodes[name] = mark_lost(nodes[name], NOW + 90)
    assert ended_for_all("a", nodes, job, NOW + 91), "the next failures count"


@dataclass
class Node:
    """Ground truth: whether this machine is sick; it comes back as another when it is replaced."""

    sick: bool
    life: Life = field(default_factory=Life)
    codes: list[int] = field(default_factory=list)


class Cluster:
    """A job's nodes, their states as in the job's folder, and a clock."""

    def __init__(self, job: Nodes, max_sec: float, *, bug: bool) -> None:
        self.job, self.max_sec, self.bug, self.now = job, max_sec, bug, NOW
        self.nodes: dict[str, Node] = {}
        self.states: dict[str, NodeState] = {}
        self.up_since: dict[str, float] = {}
        self.incidents = 0

    def up(self) -> dict[str, Node]:
        return {name: node for name, node in self.nodes.items() if node.life.exit_code is None}

    def on(self, name: str, happened: Event, code: int = 75) -> None:
        node = self.nodes[name]
        before = node.life
        node.life = before.after(happened, code)
        assert (node.life.exit_code is None) == (node.life.state is not State.ENDED)
        if before.exit_code is None and node.life.exit_code is not None:
            node.codes.append(node.life.exit_code)
            self.states[name] = end_state(self.states[name], node.life.exit_code)

    def come(self, name: str, *, sick: bool) -> None:
        if name in self.up() or len(self.up()) == self.job.max or self.over():
            return
        node = self.nodes.setdefault(name, Node(sick))
        if not node.codes or node.codes[-1] == 4:
            node.sick = sick  # another machine
        node.life = Life()
        self.states[name] = start_state(self.states.get(name), self.now, f"{name}-{len(node.codes)}").state
        self.up_since[name] = self.now
        if self.left() <= 0:
            self.on(name, Event.HOURS_OVER)

    def left(self) -> float:
        return self.max_sec - used_sec(self.states)

    def over(self) -> bool:
        return any(code in (0, 2, 5) for node in self.nodes.values() for code in node.codes)

    def meet(self) -> None:
        if len(self.up()) >= self.job.min:
            for name, node in self.up().items():
                if node.life.state is State.WAITING:
                    self.on(name, Event.JOINED)

    def wait(self, sec: float) -> None:
        """Time passes, for the nodes that are up; not beyond the job's hours."""
        sec = min(sec, max(self.left(), 0.0)) if self.up() else sec
        self.now += sec
        for name in self.up():
            self.states[name] = mark_seen(self.states[name], self.now, self.now - self.up_since[name])
        if self.left() <= 1e-6:
            for name in self.up():
                self.on(name, Event.HOURS_OVER)
                self.on(name, Event.ENDED, 75)
        for name, node in self.up().items():
            if node.life.state is State.WAITING and ended_for_all(name, self.states, self.job, self.now):
                self.on(name, Event.OVER, 5)

    def fail(self, code: int, of_others: int) -> None:
        """Those that are sick (all, where it is the code's fault) fail by themselves, the others for want of them."""
        training = [name for name, node in self.up().items() if node.life.state is State.TRAINING]
        sick = [name for name in training if self.bug or self.nodes[name].sick]
        if not sick:
            return
        self.incidents += 1
        self.workers_ended({name: code if name in sick else of_others for name in training})

    def workers_ended(self, codes: dict[str, int]) -> None:
        """What their launchers make of it, all at the same time."""
        for name, ended in codes.items():
            if is_failure(ended):
                self.states[name] = add_failure(self.states[name], self.now, ended)
        lost = [name for name, ended in codes.items() if is_lost(name, self.states, ended, self.now)]
        for name in lost:
            self.states[name] = mark_lost(self.states[name], self.now)
        final = {
            name: lost_exit_code(name, self.states, self.job, ended, self.now) if name in lost else ended
            for name, ended in codes.items()
        }
        for name, ended in final.items():
            self.on(name, Event.PEERS_LOST) if ended == 76 else self.on(name, Event.ENDED, ended)

    def vanish(self, name: str, of_others: int) -> None:
        """A machine's power goes; its peers notice after a while. Another of its name may come, on another machine."""
        training = {other for other, node in self.up().items() if node.life.state is State.TRAINING}
        self.nodes[name].life = Life(State.ENDED, 75)
        self.nodes[name].codes.append(75)
        if name not in training:
            return
        self.wait(_MINUTES)
        self.workers_ended(dict.fromkeys(sorted(training & self.up().keys()), of_others))

    def restart(self) -> None:
        """What root does with a code: the same command again, or another machine in its place."""
        for name, node in self.nodes.items():
            if node.codes and node.life.exit_code not in (None, 75) and not self.over():
                self.come(name, sick=False)


NAMES = st.sampled_from("abcdef")
DOES = st.one_of(
    st.tuples(st.just("come"), NAMES, st.booleans()),
    st.tuples(st.just("notice"), NAMES, st.just(0)),
    st.tuples(st.just("vanish"), NAMES, st.sampled_from([76, 134])),
    st.tuples(st.just("wait"), st.floats(1, 5000), st.just(0)),
    st.tuples(st.just("fail"), st.sampled_from([1, 2, 137]), st.sampled_from([76, 134])),
    st.tuples(st.sampled_from(["meet", "restart"]), st.just(0), st.just(0)),
    st.tuples(st.sampled_from([Event.STORE_LOST, Event.STORE_BACK, Event.NO_STORE, Event.TOO_FEW]), NAMES, st.just(0)),
)
JOBS = st.tuples(st.integers(1, 3), st.integers(0, 2)).map(lambda pair: Nodes(pair[0], sum(pair)))


def happens(cluster: Cluster, what: str, first: object, second: object) -> None:
    if what == "come":
        cluster.come(str(first), sick=bool(second))
    elif what == "notice" and first in cluster.up():
        cluster.on(str(first), Event.SIGNAL)
        cluster.on(str(first), Event.ENDED, 75)
    elif what == "vanish" and first in cluster.up() and isinstance(second, int):
        cluster.vanish(str(first), second)
    elif what == "wait" and isinstance(first, float):
        cluster.wait(first)
    elif what == "fail" and isinstance(first, int) and isinstance(second, int):
        cluster.fail(first, second)
    elif what == "meet":
        cluster.meet()
    elif what == "restart":
        cluster.restart()
    elif isinstance(what, Event) and first in cluster.up():
        cluster.on(str(first), what)


@given(JOBS, st.lists(DOES, max_size=60), st.floats(1000, 1e6))
def test_no_failure_of_one_node_ends_the_others(job: Nodes, does: list[tuple[str, object, object]], sec: float) -> None:
    cluster = Cluster(job, sec, bug=False)
    for each in does:
        happens(cluster, *each)
        lost = sum(len(state.lost_at) for state in cluster.states.values())
        healthy = [node for node in cluster.nodes.values() if not node.sick]
        for node in healthy:
            if node.life.exit_code is not None:
                event(f"a healthy node ended with {node.life.exit_code}")
            allowed = {None, 75, 134} | ({6} if cluster.left() <= 1e-6 else set())
            # As many as the job takes have failed for good, and too few are left: then who waits is told.
            allowed |= {5} if lost >= job.max else set()
            assert node.life.exit_code in allowed
        assert used_sec(cluster.states) <= cluster.max_sec + 1e-3
        if any(code == 5 for node in cluster.nodes.values() for code in node.codes):
            others = [state for state in cluster.states.values() if state.standing in (UP, LEFT)]
            assert not others or lost >= job.max, "it ended for all, though others could still go on"


@given(JOBS, st.sampled_from([1, 137, 2, 134]))
def test_a_mistake_that_all_nodes_have_ends_the_job_at_once_or_after_five(job: Nodes, code: int) -> None:
    cluster = Cluster(job, 1e9, bug=True)
    for name in "abcdef"[: job.max]:
        cluster.come(name, sick=False)
    while not cluster.over():
        cluster.meet()
        cluster.fail(code, 76)
        cluster.wait(60.0)
        cluster.restart()
        assert cluster.incidents <= MAX_FAILURES
    assert cluster.incidents == (1 if code == 2 else MAX_FAILURES)
    assert {node.codes[-1] for node in cluster.nodes.values()} == {2 if code == 2 else 5}


@given(JOBS, st.integers(0, 5))
def test_a_sick_machine_is_replaced_and_the_others_train(job: Nodes, which: int) -> None:
    assume(job.max > 1)
    cluster = Cluster(job, 1e9, bug=False)
    names = "abcdef"[: job.max]
    for index, name in enumerate(names):
        cluster.come(name, sick=index == which % job.max)
    for _ in range(MAX_FAILURES):
        cluster.meet()
        cluster.fail(1, 76)
        cluster.wait(60.0)
        cluster.restart()
    cluster.meet()
    sick = cluster.nodes[names[which % job.max]]
    assert sick.codes == [1] * (MAX_FAILURES - 1) + [4]
    assert {node.life.state for node in cluster.nodes.values()} == {State.TRAINING}


@given(JOBS, st.integers(1, 20), st.sampled_from([76, 134]))
def test_machines_that_go_without_a_word_end_nothing_for_the_others(job: Nodes, times: int, of_others: int) -> None:
    """As spot machines do whose notice came too late: every ten minutes another one."""
    assume(job.max > 1)
    cluster = Cluster(job, 1e9, bug=False)
    names = "abcdef"[: job.max]
    for index in range(times):
        for name in names:
            cluster.come(name, sick=False)
        cluster.meet()
        cluster.vanish(names[index % job.max], of_others)
        cluster.wait(_MINUTES)
    assert {code for node in cluster.nodes.values() for code in node.codes} <= {75, 134}


@given(JOBS, st.lists(DOES, max_size=30))
def test_every_job_with_hours_ends(job: Nodes, does: list[tuple[str, object, object]]) -> None:
    cluster = Cluster(job, 20_000.0, bug=False)
    for each in does:
        happens(cluster, *each)
    for _ in range(30):
        for name in "abcdef":
            cluster.come(name, sick=False)
        cluster.wait(1000.0)
    assert not cluster.up()
    ends = {node.life.exit_code for node in cluster.nodes.values()}
    assert ends <= {*EXIT_CODES, 134, 137}
    assert cluster.over() or cluster.left() <= 1e-6


@pytest.mark.parametrize("gone", [LEFT, UP])
def test_a_mistake_that_all_share_is_not_private_because_one_went_hours_before(gone: Standing) -> None:
    """A node that was taken back, or died without a word: three that fail together are no three sick machines."""
    earlier = state(standing=gone).model_copy(update={"seen_at": NOW - 5 * 3600})
    nodes = {name: state(standing=LOST, lost=True) for name in "abc"} | {"d": earlier}
    assert ended_for_all("a", nodes, Nodes(2, 4), NOW)
    assert lost_exit_code("a", nodes, Nodes(2, 4), 2, NOW) == 2


def test_who_is_dead_for_hours_keeps_no_job_from_its_end() -> None:
    """The other one of two machines of one's own has lost its power: this one is not started for ever."""
    dead = state(standing=UP).model_copy(update={"seen_at": NOW - 3600})
    once = state(standing=LOST, lost=True)
    twice = once.model_copy(update={"lost_at": (NOW - 600, NOW)})
    assert not ended_for_all("a", {"a": once, "b": dead}, Nodes(1, 2), NOW), "another machine may come"
    assert ended_for_all("a", {"a": twice, "b": dead}, Nodes(1, 2), NOW)
    alive = dead.model_copy(update={"seen_at": NOW - 60})
    assert not ended_for_all("a", {"a": twice, "b": alive}, Nodes(1, 2), NOW)


@pytest.mark.parametrize("code", [1, 137, 134, None])
def test_who_was_told_to_leave_and_was_too_slow_has_left(code: int | None) -> None:
    here = mark_leaving(start_state(None, NOW, "boot").state)
    assert end_state(here, code).standing is LEFT


@pytest.mark.parametrize("standing", ["lost", "over"])
@pytest.mark.parametrize("over", [None, 0, 2, 3, 5])
@pytest.mark.parametrize("boot", ["boot", "another"])
def test_only_who_ended_with_the_job_begins_a_job_again(standing: str, over: int | None, boot: str) -> None:
    """A reboot, a new machine of the name, or the watch of one that was lost: none says that a mistake is mended."""
    here = start_state(None, NOW, "boot").state
    before = end_state(mark_lost(here, NOW), 4) if standing == "lost" else end_state(here, over or 0)
    start = start_state(before, NOW + 60, boot, over)
    assert start.again == (standing == "over" and over in (2, 3, 5) and boot == "boot")
    assert start.state.again_at == (NOW + 60 if start.again else 0)
    assert (start.killed, start.state.failures, start.state.standing) == (False, (), UP)


def job_folder(run_dir: Path, name: str = "job") -> Path:
    folder = run_dir / LAUNCH_FOLDER / name
    folder.mkdir(parents=True)
    (folder / "node-a.json").write_text(NodeState(seen_at=1.0).model_dump_json(), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (0, "1970-01-01 00:00 UTC"),
        (1e15, "1e+15 s after 1970"),
        (1e18, "1e+18 s after 1970"),
        (-1e300, "-1e+300 s after 1970"),
    ],
)
def test_any_moment_can_be_told(tmp_path: Path, at: float, said: str) -> None:
    over = {"version": 1, "code": 1, "node": "a", "at": at}
    (job_folder(tmp_path) / "over.json").write_text(json.dumps(over), "utf-8")
    assert list(lines_of_nodes(tmp_path))[-1] == f"  ended for all with exit code 1, a says, {said}"


@pytest.mark.attack("a job (uid 10001)", "names and words that act on the terminal of whoever looks")
def test_nothing_that_a_job_wrote_acts_on_a_terminal(tmp_path: Path) -> None:
    folder = job_folder(tmp_path, "job\x1b[31m\u202e")
    (folder / "node-a.jsonl").write_text(json.dumps({"event": "x\x1b[31m", "state": "y"}) + "\n", "utf-8")
    (folder / "node-b\x1b[31m.json").write_text(NodeState(seen_at=1.0).model_dump_json(), "utf-8")
    lines = list(lines_of_nodes(tmp_path))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
