"""An event-driven cluster simulation: jobs come and end, nodes go and return, a policy assigns the GPUs.

Assumptions: nodes are alike and fit any job; outages are independent of each other and of use; a moved job pays for its
save at its next start; jobs never move back to a cheaper rung.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any

from gangway.components.core.findings import GangwayError
from gangway.sim.schedule.cluster import Cluster, Meter, outages
from gangway.sim.schedule.jobs import Ask, Job
from gangway.sim.schedule.policies import Grants, JobView, Policy, View


@dataclass(frozen=True)
class Span:
    """A job's GPUs over a period; GPUs are numbered through the nodes."""

    job: str
    slots: tuple[int, ...]
    from_sec: float
    to_sec: float


@dataclass(frozen=True)
class Outcome:
    """One policy's simulation, summed until the last job ends. `there`: available GPUs from each second on."""

    policy: str
    num_gpus: int
    jobs: "Sequence[JobState]"
    spans: Sequence[Span]
    there: Sequence[tuple[float, int]]
    meter: Meter


@dataclass(frozen=True)
class Figures:
    """Times in hours, from submission; shares are of the paid GPU-hours; None without a price or power."""

    makespan_hours: float
    job_hours_mean: float
    job_hours_p95: float
    wait_hours_mean: float
    usd: float | None
    kwh: float | None
    gco2e: float | None
    gpu_hours: float
    used_share: float
    idle_share: float
    lost_share: float
    interruptions: int
    moves: int
    late: int


def get_figures(outcome: Outcome) -> Figures:
    """Compute the figures of at least one job."""
    jobs = outcome.jobs
    hours = sorted((job.end_sec - job.ask.submit_sec) / 3600 for job in jobs)
    waits = [(job.first_sec - job.ask.submit_sec) / 3600 for job in jobs]
    meter, paid = outcome.meter, outcome.meter.paid_gpu_sec
    return Figures(
        makespan_hours=(max(job.end_sec for job in jobs) - min(job.ask.submit_sec for job in jobs)) / 3600,
        job_hours_mean=math.fsum(hours) / len(hours),
        job_hours_p95=percentile(hours, 0.95),
        wait_hours_mean=math.fsum(waits) / len(waits),
        usd=meter.usd,
        kwh=meter.kwh,
        gco2e=meter.gco2e,
        gpu_hours=paid / 3600,
        used_share=math.fsum(job.kept_gpu_sec for job in jobs) / paid,
        idle_share=meter.idle_gpu_sec / paid,
        lost_share=math.fsum(job.lost_gpu_sec for job in jobs) / paid,
        interruptions=sum(job.interruptions for job in jobs),
        moves=sum(job.moves for job in jobs),
        late=sum(job.ask.deadline_sec is not None and job.end_sec > job.ask.deadline_sec for job in jobs),
    )


def percentile(ascending: Sequence[float], share: float) -> float:
    """Linear interpolation, NumPy's default.

    >>> percentile([1.0, 2.0, 3.0], 0.75)
    2.5
    """
    place = share * (len(ascending) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])


@dataclass(frozen=True)
class Stint:
    """`overhead_sec`: before the first step; `interval_sec`: of training between saves, infinite for none."""

    begun_sec: float
    gpus: int
    images_per_sec: float
    overhead_sec: float
    interval_sec: float
    save_sec: float

    def trained_sec(self, elapsed_sec: float) -> float:
        """Training up to then."""
        rounds, rest = self._rounds(elapsed_sec)
        return self._saved(rounds) + min(rest, self.interval_sec)

    def kept_sec(self, elapsed_sec: float) -> float:
        """Training in a checkpoint by then."""
        rounds, _ = self._rounds(elapsed_sec)
        return self._saved(rounds)

    def length_sec(self, images: float) -> float:
        """Time for so many images; a save due at the last one is skipped."""
        trains_sec = images / self.images_per_sec
        saves = max(0, math.ceil(trains_sec / self.interval_sec) - 1)
        return self.overhead_sec + trains_sec + saves * self.save_sec

    def _saved(self, rounds: int) -> float:
        return 0.0 if rounds == 0 else rounds * self.interval_sec

    def _rounds(self, elapsed_sec: float) -> tuple[int, float]:
        working_sec = max(0.0, elapsed_sec - self.overhead_sec)
        if math.isinf(self.interval_sec):
            return 0, working_sec
        rounds, rest = divmod(working_sec, self.interval_sec + self.save_sec)
        return int(rounds), rest


MOST_HOURS = 2 * 8766.0
"""A job still running two years after the last submission never ends,"""
MOST_INTERRUPTIONS = 10_000
"""nor one interrupted this often."""


class EndlessError(GangwayError):
    """Jobs never end: they lose more than they do, or the policy never starts them. `names`: the remaining jobs."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        limits = f"{MOST_HOURS:g} hours after the last one came, or {MOST_INTERRUPTIONS} interruptions"
        super().__init__(f"{len(names)} jobs have not ended after {limits}: {', '.join(names[:3])}")


class _Kind(IntEnum):
    """Event kinds, in the order of simultaneous events."""

    DONE = 0
    NODE = 1
    COME = 2
    REVIEW = 3


def _stint(ask: Ask, cluster: Cluster, now_sec: float, gpus: int, *, owes_save: bool, moves_batch: bool) -> Stint:
    overhead_sec = cluster.start_sec + (cluster.save_sec if owes_save else 0.0)
    rate = ask.rate(gpus, moves_batch=moves_batch)
    return Stint(now_sec, gpus, rate, overhead_sec, cluster.interval_for(gpus), cluster.save_sec)


@dataclass
class JobState:
    """A job's progress. `moves`: stops or changes by the policy; `kept_gpu_sec`: of training that counted;
    `lost_gpu_sec`: starts, saves, and repeated training.
    """

    job: Job
    images: float = 0.0
    stint: Stint | None = None
    slots: tuple[int, ...] = ()
    starts: int = 0
    owes_save: bool = False
    first_sec: float = math.inf
    end_sec: float = math.inf
    waits_since_sec: float = 0.0
    waited_sec: float = 0.0
    interruptions: int = 0
    moves: int = 0
    kept_gpu_sec: float = 0.0
    lost_gpu_sec: float = 0.0

    @property
    def ask(self) -> Ask:
        """What the scheduler knows of it."""
        return self.job.ask

    def view(self, now_sec: float, cluster: Cluster, *, moves_batch: bool) -> JobView:
        """The job as a policy sees it."""
        stint, service_sec, ask = self.stint, self.kept_gpu_sec + self.lost_gpu_sec, self.ask

        def length_sec(gpus: int) -> float:
            if stint is not None and gpus == stint.gpus:
                return stint.begun_sec + stint.length_sec(ask.images - self.images) - now_sec
            owes_save = self.owes_save or stint is not None
            next_stint = _stint(ask, cluster, now_sec, gpus, owes_save=owes_save, moves_batch=moves_batch)
            return next_stint.length_sec(ask.images - images)

        if stint is None:
            images, waited = self.images, self.waited_sec + now_sec - self.waits_since_sec
            return JobView(ask, 0, images, service_sec, waited, length_sec)
        elapsed = now_sec - stint.begun_sec
        images = self.images + stint.trained_sec(elapsed) * stint.images_per_sec
        return JobView(ask, stint.gpus, images, service_sec + elapsed * stint.gpus, self.waited_sec, length_sec)

    def stop(self, now_sec: float, *, saved: bool, done: bool = False) -> None:
        """End the stint: all training counts if `saved` or done, else only what is in a checkpoint."""
        stint = self.stint
        assert stint is not None, "only a job that runs is stopped"
        elapsed = now_sec - stint.begun_sec
        trained, counted = stint.trained_sec(elapsed), stint.kept_sec(elapsed)
        if done:
            counted = (self.job.images - self.images) / stint.images_per_sec
        elif saved:
            self.owes_save, counted = trained > counted, trained
        self.images = self.job.images if done else self.images + counted * stint.images_per_sec
        self.kept_gpu_sec += counted * stint.gpus
        self.lost_gpu_sec += (elapsed - counted) * stint.gpus
        self.stint, self.slots, self.waits_since_sec = None, (), now_sec


@dataclass
class _Simulation:
    cluster: Cluster
    policy: Policy
    seed: int
    events: list[tuple[float, int, int, Any]] = field(default_factory=list)
    order: "count[int]" = field(default_factory=count)
    states: dict[str, JobState] = field(default_factory=dict)
    ended: list[JobState] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes, size = range(self.cluster.num_nodes), self.cluster.gpus_per_node
        self.meter = Meter(self.cluster)
        self.rung = [self.cluster.get_rung(node) for node in nodes]
        self.there = [False for _ in nodes]
        self.free = [set(range(node * size, (node + 1) * size)) for node in nodes]
        self.outages = [outages(self.cluster.rungs[self.rung[node]], node, self.seed) for node in nodes]
        for node in nodes:
            self.push_node(node)

    def push(self, sec: float, kind: _Kind, what: Any) -> None:
        heapq.heappush(self.events, (sec, kind, next(self.order), what))

    def push_node(self, node: int) -> None:
        """Schedule the node's next change."""
        change = next(self.outages[node], None)
        if change is not None:
            self.push(change[0], _Kind.NODE, (node, change[1]))

    def advance(self, to_sec: float) -> None:
        size, rungs = self.cluster.gpus_per_node, self.cluster.rungs
        paid, busy = [rung.nodes if rung.always_paid else 0 for rung in rungs], [0 for _ in rungs]
        for node, free in enumerate(self.free):
            if used := size - len(free):
                busy[self.rung[node]] += used
                paid[self.rung[node]] += not rungs[self.rung[node]].always_paid
        self.meter.advance(to_sec, paid, busy)

    def handle(self, now_sec: float, kind: _Kind, what: Any) -> None:
        if kind is _Kind.COME:
            state = JobState(what, waits_since_sec=now_sec)
            self.states[what.ask.name] = state
        elif kind is _Kind.NODE:
            self._node(now_sec, *what)
        elif kind is _Kind.DONE:
            self._done(now_sec, *what)

    def _node(self, now_sec: float, node: int, there: bool) -> None:
        self.there[node] = there
        self.changes.append((now_sec, sum(self.there) * self.cluster.gpus_per_node))
        self.push_node(node)
        if there:
            return
        saved = self.cluster.rungs[self.rung[node]].notice_sec >= self.cluster.save_sec
        for state in self.states.values():
            if any(slot // self.cluster.gpus_per_node == node for slot in state.slots):
                state.interruptions += 1
                if state.interruptions > MOST_INTERRUPTIONS:
                    raise EndlessError([state.ask.name])
                self._stop(state, now_sec, saved=saved)

    def _done(self, now_sec: float, name: str, starts: int) -> None:
        state = self.states.get(name)
        # A stint that was cut short leaves its end event behind.
        if state is None or state.stint is None or state.starts != starts:
            return
        self._stop(state, now_sec, saved=True, done=True)
        del self.states[name]
        state.end_sec = now_sec
        self.ended.append(state)
        self.policy.ended(state.ask, state.images)

    def _stop(self, state: JobState, now_sec: float, *, saved: bool, done: bool = False) -> None:
        assert state.stint is not None, "only a job that runs is stopped"
        for slot in state.slots:
            self.free[slot // self.cluster.gpus_per_node].add(slot)
        self.spans.append(Span(state.ask.name, state.slots, state.stint.begun_sec, now_sec))
        state.stop(now_sec, saved=saved, done=done)

    def decide(self, now_sec: float) -> None:
        """Apply the policy's decision."""
        pause_sec = self.cluster.start_sec + self.cluster.save_sec
        gpus = sum(self.there) * self.cluster.gpus_per_node
        jobs = sorted(self.states.values(), key=lambda state: state.ask.submit_sec)
        moves_batch = self.policy.moves_batch
        views = tuple(state.view(now_sec, self.cluster, moves_batch=moves_batch) for state in jobs)
        view = View(now_sec, gpus, views, pause_sec)
        grants = self.policy.decide(view)
        self._check(grants, view)
        for state in jobs:
            name = state.ask.name
            if state.stint is not None and grants.get(name, 0) != state.stint.gpus:
                state.moves += 1
                self._stop(state, now_sec, saved=True)
        for name, number in grants.items():
            if self.states[name].stint is None and number:
                self._start(self.states[name], now_sec, number)

    def _check(self, grants: Grants, view: View) -> None:
        """Policies may be third-party: verify their grants."""
        for name, number in grants.items():
            ask = self.states[name].job.ask
            if number and not ask.gpus_min <= number <= ask.gpus_max:
                raise ValueError(
                    f"{self.policy.name}: {name} given {number} GPUs, not {ask.gpus_min} to {ask.gpus_max}"
                )
        if sum(grants.values()) > view.gpus:
            raise ValueError(f"{self.policy.name}: {sum(grants.values())} GPUs given of {view.gpus}")

    def _start(self, state: JobState, now_sec: float, gpus: int) -> None:
        cluster = self.cluster
        state.slots = self._take(gpus)
        state.starts += 1
        state.waited_sec += now_sec - state.waits_since_sec
        state.first_sec = min(state.first_sec, now_sec)
        moves_batch = self.policy.moves_batch
        state.stint = _stint(state.ask, cluster, now_sec, gpus, owes_save=state.owes_save, moves_batch=moves_batch)
        state.owes_save = False
        ends_sec = now_sec + state.stint.length_sec(state.job.images - state.images)
        self.push(ends_sec, _Kind.DONE, (state.ask.name, state.starts))

    def _take(self, gpus: int) -> tuple[int, ...]:
        """Free GPUs: lower rungs first, then nodes in use, the fullest first."""

        def rank(node: int) -> tuple[int, bool, int, int]:
            free = len(self.free[node])
            return self.rung[node], free == self.cluster.gpus_per_node, free, node

        chosen: list[int] = []
        for node in sorted(
            (node for node, is_present in enumerate(self.there) if is_present and self.free[node]), key=rank
        ):
            slots = sorted(self.free[node])[: gpus - len(chosen)]
            self.free[node].difference_update(slots)
            chosen += slots
            if len(chosen) == gpus:
                break
        assert len(chosen) == gpus, "what the policy may give was held against what is there"
        return tuple(chosen)


def simulate(jobs: Sequence[Job], cluster: Cluster, policy: Policy, seed: int = 0) -> Outcome:
    """Simulate to the last job's end. `policy`: a fresh instance; `seed`: of outages. Raises EndlessError."""
    run = _Simulation(cluster, policy, seed)
    for job in sorted(jobs, key=lambda job: job.ask.submit_sec):
        run.push(job.ask.submit_sec, _Kind.COME, job)
    if policy.review_sec is not None:
        run.push(min(job.ask.submit_sec for job in jobs), _Kind.REVIEW, None)
    until_sec = max(job.ask.submit_sec for job in jobs) + MOST_HOURS * 3600
    while len(run.ended) < len(jobs):
        now_sec = run.events[0][0] if run.events else math.inf
        if now_sec > until_sec:
            over = {ended.ask.name for ended in run.ended}
            raise EndlessError([job.ask.name for job in jobs if job.ask.name not in over])
        run.advance(now_sec)
        while run.events and run.events[0][0] == now_sec:
            _, kind, _, payload = heapq.heappop(run.events)
            run.handle(now_sec, _Kind(kind), payload)
            if kind == _Kind.REVIEW and policy.review_sec is not None:
                run.push(now_sec + policy.review_sec, _Kind.REVIEW, None)
        if run.states:
            run.decide(now_sec)
    return Outcome(policy.name, cluster.num_gpus, run.ended, run.spans, run.changes, run.meter)
