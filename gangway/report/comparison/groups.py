"""Groups runs into rows of a table, describes them, and refuses runs that do not belong in one table."""

import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gangway.components.core.findings import InputError, nearest_hint
from gangway.runs.run_folders import RECORD, STATS, Run, not_covered, read_json, read_stats, unreadable_reason
from gangway.runs.signatures import UNSIGNED
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.host import program
from gangway.trainer.core.validation import first_mistake
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

_RESULTS = "results.json"
LOCAL = "local"
"""The stack of runs without one: this machine."""

_NO_SUITE = Quantity.absent("USD", "no suite tells what its stack cost")
_PLACES = ("stack", "arm", "provider", "region", "machine_type", "capacity", "device", "workers", "run")
_SETTINGS = tuple(name for name in TrainConfig.model_fields if name not in ("seed", "preset", "dataset"))
KEYS = (*_PLACES, *_SETTINGS)
"""Keys to group rows by."""
_BY_THEMSELVES = ("stack", "arm", "machine_type", "device", "workers")
"""Default keys: the place and the treatment."""
_MOST_NAMED = 3


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True)

    item: str
    stack: str
    arm: str
    run_id: str
    status: str
    reason: str = ""
    usd: Quantity = Quantity.absent("USD", "not told by that version of the suite")


class _Results(BaseModel):
    model_config = ConfigDict(frozen=True)

    suite: str
    title: str = ""
    paper: str | None = None
    items: tuple[_Item, ...]


class Missing(NamedTuple):
    """A suite's run without a record."""

    suite: str
    item: str
    status: str
    reason: str


@dataclass(frozen=True)
class Member:
    """A run of the report. `stack`: the suite's name for it, else the record's, else `local`; `paper`: whose table the
    suite reproduces; `control`: the first arm in its suite for its stack.
    """

    record: RunRecord
    path: Path
    stats: tuple[dict[str, Any], ...]
    stack: str
    arm: str = ""
    suite: str = ""
    paper: str = ""
    title: str = ""
    control: str = ""
    stack_usd: Quantity = _NO_SUITE
    signed: str = UNSIGNED.state

    @property
    def name(self) -> str:
        """The run's id."""
        return self.record.id

    @property
    def ticks(self) -> list[dict[str, Any]]:
        """Lines of statistics, without events."""
        return [line for line in self.stats if "event" not in line]


class Source(NamedTuple):
    """A report's runs, and those missing from their suites."""

    members: tuple[Member, ...]
    missing: tuple[Missing, ...]


def get_members(runs: Sequence[Run], half: Sequence[Path] = ()) -> Source:
    """Read the files around the runs. `half`: runs without a readable record. InputError: unreadable."""
    suites = {folder: _results(folder / _RESULTS) for folder in dict.fromkeys(run.path.parent for run in runs)}
    members = tuple(_member(run, suites[run.path.parent]) for run in _suite_order(runs, suites))
    present = {run.record.id for run in runs}
    missing = tuple(
        Missing(results.suite, item.item, item.status, item.reason)
        for results in suites.values()
        if results is not None
        for item in results.items
        if item.run_id not in present and item.status != "recorded"
    )
    run_ids = {item.run_id for results in suites.values() if results is not None for item in results.items}
    others = (_missing_run(path) for path in half if path.name not in run_ids)
    return Source(members, (*missing, *others))


def _missing_run(folder: Path) -> Missing:
    if (folder / RECORD).is_file() and (mistake := unreadable_reason(folder)) is not None:
        return Missing("", folder.name, "broken record", f"{mistake.place} {mistake.problem}; {mistake.fix}")
    command = f"{program()} record --run-dir {shlex.quote(str(folder))}"
    reason = f"it has no {RECORD}: it goes on, or was cut off; `{command}` writes what there is"
    return Missing("", folder.name, "no record", reason)


def _suite_order(runs: Sequence[Run], suites: Mapping[Path, _Results | None]) -> list[Run]:
    """Suite by suite, in its order of stacks, arms and seeds: a control comes first, whenever it ran."""
    folders = list(suites)

    def place(run: Run) -> tuple[int, int]:
        results = suites[run.path.parent]
        ids = [item.run_id for item in results.items] if results else []
        return folders.index(run.path.parent), ids.index(run.record.id) if run.record.id in ids else len(ids)

    return sorted(runs, key=place)


def _member(run: Run, results: _Results | None) -> Member:
    record = run.record
    item = next((item for item in results.items if item.run_id == record.id), None) if results else None
    stats = read_stats(run.path / STATS)
    signed = f"{run.signature.state}{', run.json alone' if not_covered([run]) else ''}"
    if results is None or item is None:
        return Member(record, run.path, stats, record.stack or LOCAL, signed=signed)
    return Member(
        record,
        run.path,
        stats,
        item.stack,
        item.arm,
        results.suite,
        results.paper or "",
        results.title,
        control=next(other.arm for other in results.items if other.stack == item.stack),
        stack_usd=item.usd,
        signed=signed,
    )


def _results(path: Path) -> _Results | None:
    if not path.is_file():
        return None
    try:
        return _Results.model_validate(read_json(path))
    except ValidationError as error:
        wrong = first_mistake(error)
        raise InputError(
            wrong.within(str(path)),
            f"is not what `gangway bench` of this version writes: {wrong.summary}",
            fix=f"write it anew: `gangway bench resume {shlex.quote(str(path.parent))}`, or take it away",
        ) from None


_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Group:
    """A row: runs that differ only in their seed. `remarks`: other differences within the row."""

    label: str
    members: tuple[Member, ...]
    stack: str
    arm: str
    remarks: tuple[str, ...] = field(default=())

    @property
    def seeds(self) -> tuple[int, ...]:
        """One per run."""
        return tuple(member.record.seed for member in self.members)


def workers(member: Member) -> int:
    """Requested processes, from the first session: interruptions may remove some later."""
    return member.record.sessions[0].world_size


def parse_keys(text: str | None) -> tuple[str, ...] | None:
    """Parse `--group-by`. InputError: an unknown or repeated name."""
    if text is None:
        return None
    keys = tuple(part.strip() for part in text.split(","))
    for key in keys:
        if key not in KEYS:
            fix = nearest_hint(key, KEYS)
            if key in ("preset", "dataset", "seed"):
                fix = "runs over seeds make one row; for each preset make a report of its own"
            allowed = f"{', '.join(_PLACES)}, or a field of the trainer's configuration such as precision"
            raise InputError("--group-by", "rows cannot be made by it", value=key, allowed=allowed, fix=fix)
    if len(set(keys)) != len(keys):
        raise InputError("--group-by", "names one twice", value=text, allowed="each once", fix="leave one out")
    return keys


def check_one_table(members: Sequence[Member], keys: tuple[str, ...] | None) -> None:
    """Refuse runs of different trainings. `keys`: of `--group-by`. InputError: with the differences and their runs."""
    for noun, values in (
        ("presets", _group_by(members, lambda member: member.record.config.preset)),
        ("data sets", _group_by(members, _get_data)),
        ("tables of papers", _group_by([one for one in members if one.paper], lambda member: member.paper)),
    ):
        if len(values) > 1:
            raise InputError(
                "RUNS",
                f"{noun} differ inside one table",
                value=_name_values(values),
                allowed=f"runs of one of the {noun}",
                fix="make a report of each: name its runs alone, or its suite's folder",
            )
    grouped = set(keys or ())
    by_arm = keys is None or "arm" in grouped
    parts = _group_by(members, lambda member: (member.suite, member.arm) if by_arm and member.arm else ()).values()
    for part in parts:
        for name, values in differences(part).items():
            if name not in grouped:
                raise InputError(
                    f"RUNS: {name}", "differs inside one table", value=_name_values(values),
                    allowed="the same training in every run: all of its configuration but the seed",
                    fix=f"make rows of it: --group-by {','.join([*(keys or ('stack',)), name])}",
                )  # fmt: skip


def differences(members: Sequence[Member]) -> dict[str, dict[str, list[Member]]]:
    """Differing fields of the trainer's configuration except the seed, with the runs by value."""
    found = {name: _group_by(members, partial(_setting, name=name)) for name in _SETTINGS}
    return {name: values for name, values in found.items() if len(values) > 1}


def group_runs(members: Sequence[Member], keys: tuple[str, ...] | None) -> tuple[Group, ...]:
    """Group the runs of one table into rows by first appearance. `keys`: of `--group-by`."""
    chosen = keys or _BY_THEMSELVES
    rows = _group_by(members, lambda member: tuple(_value(member, key) for key in chosen))
    telling = [place for place, _ in enumerate(chosen) if len({row[place] for row in rows}) > 1]
    shown_keys = (telling if keys else _distinguishing_keys(list(rows), telling)) or [0]
    return tuple(
        Group(
            _label([(chosen[place], row[place]) for place in shown_keys]),
            tuple(sorted(inside, key=lambda member: (member.record.seed, member.name))),
            inside[0].stack,
            inside[0].arm,
            tuple(_remarks(inside, chosen)),
        )
        for row, inside in rows.items()
    )


def _distinguishing_keys(rows: Sequence[tuple[str, ...]], telling: Sequence[int]) -> list[int]:
    """The first keys that suffice to tell the rows apart."""
    found: list[int] = []
    for place in telling:
        distinct = {tuple(row[one] for one in found) for row in rows}
        if len({tuple(row[one] for one in [*found, place]) for row in rows}) > len(distinct):
            found.append(place)
    return found


def _label(parts: Sequence[tuple[str, str]]) -> str:
    texts = [f"{key} {value}" if key in _SETTINGS else value for key, value in parts]
    return ", ".join(part for part in texts if part) or "all runs"


def _remarks(members: Sequence[Member], keys: Sequence[str]) -> Iterable[str]:
    for key in _BY_THEMSELVES:
        places = list(_group_by(members, partial(_value, key=key)))
        if key not in keys and len(places) > 1:
            yield f"{key.replace('_', ' ')} differs inside this row: {', '.join(value or 'none' for value in places)}"
    seeds = [member.record.seed for member in members]
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        yield f"seed {', '.join(str(seed) for seed in twice)} stands in it more than once"
    for noun, values in (
        ("trainer's code", _group_by(members, lambda member: member.record.code_sha256[:12])),
        ("torch", _group_by(members, lambda member: member.record.versions.get("torch", "unknown"))),
    ):
        if len(values) > 1:
            yield f"{noun} differs inside this row: {', '.join(values)}"


def _value(member: Member, key: str) -> str:
    record = member.record
    places = {
        "stack": member.stack,
        "arm": member.arm,
        "provider": record.provider,
        "region": record.region,
        "machine_type": record.machine_type,
        "capacity": " ".join(record.capacity),
        "device": record.sessions[0].device,
        "run": record.id,
    }
    if key == "workers":
        count = workers(member)
        return f"{count} worker{'' if count == 1 else 's'}"
    return places[key] if key in places else _setting(member, key)


def _setting(member: Member, name: str) -> str:
    value = getattr(member.record.config, name)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _get_data(member: Member) -> str:
    data = member.record.dataset
    return f"{data.name} {data.sha256[:12]}"


def _group_by(members: Iterable[Member], key: Callable[[Member], _Key]) -> dict[_Key, list[Member]]:
    found: dict[_Key, list[Member]] = {}
    for member in members:
        found.setdefault(key(member), []).append(member)
    return found


def _name_values(values: Mapping[str, Sequence[Member]]) -> str:
    return "; ".join(
        f"{value}: {', '.join(one.name for one in members[:_MOST_NAMED])}"
        + (f" and {len(members) - _MOST_NAMED} more" if len(members) > _MOST_NAMED else "")
        for value, members in values.items()
    )
