"""Replays a recorded history to policies: what each would have decided, and what was done."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from gangway.trainer.config.values.control import JUDGE, ControlSettings
from gangway.trainer.control.decide import get_policy, next_decision, shorten
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Decision, Interval, bottleneck
from gangway.trainer.control.watch import Fatal, fatal_changes
from gangway.trainer.core.validation import from_validation
from gangway.trainer.records.decisions import CONTROLLER
from gangway.trainer.records.stats_log import Line

# What a replay cannot tell.
UNKNOWN = (
    "Nobody knows what a change that was not made would have brought, nor what its policy would have seen and decided "
    "after it: a policy is asked about what the run really did, after each interval, and never followed. What it wants "
    "several times in a row is counted once. Undoing is the judge's, whichever policy decides, and no policy's change."
)


class Recorded(NamedTuple):
    """A log's own controller; `fatal` are changes that ended every session that had them."""

    settings: ControlSettings
    machine: Machine
    seed: int
    fatal: tuple[Fatal, ...] = ()

    def at(self, images: int) -> Machine:
        """Returns its machine for a decision after `images`, with the fatal changes known by then."""
        known = tuple(each.limit for each in self.fatal if images > each.known_from)
        return self.machine._replace(fatal=known)


class Row(NamedTuple):
    """One interval and its decisions."""

    images: int
    bottleneck: str
    evidence: str
    would: Decision | None
    why: str
    did: Decision | None

    @property
    def is_same(self) -> bool:
        """Whether both decided the same, or nothing."""
        return _change(self.would) == _change(self.did)


class Replay(NamedTuple):
    """What one policy would have decided."""

    policy: str
    rows: Sequence[Row]

    @property
    def wanted(self) -> list[Row]:
        """Rows at which it begins to want a change."""
        found, last = list[Row](), None
        for row in self.rows:
            now = _change(row.would)
            if row.would is not None and row.would.policy != JUDGE and now != last:
                found.append(row)
            last = now
        return found

    @property
    def same(self) -> int:
        """Number of intervals with the same decision as the run."""
        return sum(row.is_same for row in self.rows)

    @property
    def agreed(self) -> tuple[int, int]:
        """How many of the run's own changes it would have made, and how many there are."""
        changes = [row.is_same for row in self.rows if row.did is not None and row.did.policy != JUDGE]
        return sum(changes), len(changes)

    def sentences(self) -> Iterator[str]:
        """Describes where it begins to want something, and where the run did something else."""
        wanted = {id(row) for row in self.wanted}
        for row in self.rows:
            if row.would is not None and id(row) in wanted:
                would = row.would
                yield f"{row.images:>10,} images: {would.knob} {would.was} to {would.value}: {would.reason}"
            if row.did is not None and not row.is_same:
                did = f"{row.did.knob} {row.did.was} to {row.did.value}, by {row.did.policy}"
                yield f"{row.images:>10,} images: (the run itself: {did})"


def recorded(lines: Sequence[Line], place: str) -> Recorded | None:
    """Returns the newest session with a controller and lines, or None. TrainerError: another version's settings."""
    begun: Line | None = None
    found: Line | None = None
    for line in lines:
        if line.get("event") == CONTROLLER:
            begun = line
        elif begun is not None and "knobs" in line:
            found = begun
    if found is None:
        return None
    try:
        settings = ControlSettings.model_validate_json(json.dumps(found["settings"]))
    except ValidationError as error:
        raise from_validation(error, f"{place}: {CONTROLLER}", known=ControlSettings.model_fields) from None
    told = {name: found["machine"][name] for name in Machine._fields if name in found["machine"]}
    refused = tuple((name, why) for name, why in told.get("refused", ()))
    fatal = tuple((knob, was, value) for knob, was, value in told.get("fatal", ()))
    machine = Machine(**{**told, "fixed": tuple(told["fixed"]), "refused": refused, "fatal": fatal})
    return Recorded(settings, machine, found["seed"], tuple(fatal_changes(lines, settings.interval_sec)))


def shown(history: Sequence[Interval], settings: ControlSettings, own: Recorded | None = None) -> Replay:
    """Replays the settings' policy after each interval; without `own`, machines are each interval's, the seed 0."""
    policy, rows, seen = get_policy(settings), list[Row](), list[Interval]()
    start, seed = history[0].knobs, 0 if own is None else own.seed
    ended = [] if own is None else [each.decision for each in own.fatal]
    for last in history:
        seen = shorten([*seen, last._replace(decision=None, failed=None)], settings)
        nodes = max(1, last.knobs.nodes)
        cores, workers = max(1, last.cores // nodes), max(1, last.workers // nodes)
        machine = Machine(cores, workers, last.workers, on_cpu=last.on_cpu)
        if own is not None and own.machine.workers == last.workers:
            machine = own.at(last.images)
        outcome = next_decision(seen, policy, settings, start, machine, seed=seed)
        seen[-1] = seen[-1]._replace(decision=last.decision, failed=last.failed)
        # What no session has outlived was decided there, whatever the next one then did about it.
        did = last.failed if last.failed in ended else last.decision
        rows.append(Row(last.images, *bottleneck(last), outcome.decision, outcome.why, did))
    return Replay(settings.policy, rows)


def _change(decision: Decision | None) -> tuple[object, object] | None:
    return None if decision is None else (decision.knob, decision.value)
