"""Run directories that a person names, with the records in them: a directory with run.json (and plan.json where the
launcher left one), a folder of such directories, or a run.json fetched from a bucket.
"""

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from components.core.findings import InputError
from components.core.first_error import first_wrong
from components.core.visible import all_visible, leaves, visible
from gangway.runs.signatures import UNSIGNED, ForgedError, Signature, get_signature
from trainer.core.file_errors import check_reachable
from trainer.core.program import program
from trainer.core.regular_files import read_file, read_regular
from trainer.records.digest import WRONG_DIGEST
from trainer.records.file_hashes import changed_since
from trainer.records.other_version import get_writer
from trainer.records.run_record import RunRecord

RECORD = "run.json"
STATS = "stats.jsonl"
_YEARS = range(1970, 2200)
"""Of a session: from a clock that was never set to one that is far off."""
_MOST = 1e40
"""Beyond 32-bit floats, in which losses are counted."""


class Run(NamedTuple):
    """A run that has a record.

    Attributes:
        path: of its directory.
        record: as it stands there.
        plan: what `gangway plan --json` printed for its stack; None where no plan lies beside the record.
        signature: of the record.
    """

    path: Path
    record: RunRecord
    plan: dict[str, Any] | None
    signature: Signature = UNSIGNED


def find_readable_runs(
    places: Sequence[Path], flag: str = "--runs", trusted: str | None = None
) -> tuple[list[Run], list[Path]]:
    """As `find_runs`, with the directories of records that cannot be read beside it; InputError: none can be, or one
    is forged.
    """
    runs, broken = [], {}
    for path in _records(places, flag):
        try:
            runs.append(_read(path, trusted))
        except ForgedError:
            raise
        except InputError as mistake:
            broken[path.parent] = mistake
    if not runs:
        raise next(iter(broken.values()))
    return _in_order(runs), list(broken)


def read_run(folder: Path) -> Run:
    """The run of a directory that has a record. InputError: as `find_runs`."""
    return _read(folder / RECORD)


def why_unread(folder: Path) -> InputError | None:
    """What is wrong with the record of a directory that has one; None where it can be read."""
    try:
        read_run(folder)
    except InputError as mistake:
        return mistake
    return None


def find_runs(
    places: Sequence[Path], flag: str = "--runs", trusted: str | None = None, *, checked: bool = True
) -> list[Run]:
    """All runs below `places`, oldest first; each once: of copies, the one that goes on longest. InputError: a place
    that is not there or has no record below it, a record that cannot be read or is not as it was signed (by the key
    `trusted`, where there is one), or two runs that have one id. `checked`: False looks at no signature.
    """
    return _in_order([_read(path, trusted, checked=checked) for path in _records(places, flag)])


def _in_order(runs: Iterable[Run]) -> list[Run]:
    newest = _newest(sorted(runs, key=lambda run: run.record.sessions[-1].end))
    return sorted(newest, key=lambda run: (run.record.sessions[0].start, run.record.id))


def _records(places: Sequence[Path], flag: str) -> list[Path]:
    """Every record below `places`, each once."""
    records: list[Path] = []
    for place in places:
        there = is_there(place)
        found = [] if not there else [place.resolve()] if place.is_file() else _in_folders(place, RECORD)
        if not found:
            half = half_runs([place])
            problem = "holds no run.json" if there else "no such folder or file"
            if half:
                problem += f", but stats.jsonl of a run that goes on or was cut off, in {half[0]}"
            fix = _anew(half[0]) if half else "name a run's directory, or a folder of them"
            raise InputError(flag, problem, value=str(place), fix=fix)
        records += found
    return list(dict.fromkeys(records))


def _in_folders(place: Path, name: str) -> list[Path]:
    """Every file of that name below a folder, by the folder's own path: where the name itself is a link, as that."""
    return sorted(path.parent.resolve() / name for path in place.rglob(name))


def half_runs(places: Sequence[Path]) -> list[Path]:
    """Directories below `places` with lines of statistics and no record: of runs that go on, or were cut off."""
    found = (path.parent for place in places if is_there(place) for path in sorted(place.rglob(STATS)))
    return [path for path in dict.fromkeys(found) if not (path / RECORD).exists()]


def _anew(folder: Path) -> str:
    """The command that writes a run's record, of what the run has left; without that nothing can."""
    if not (folder / STATS).is_file():
        return f"fetch the run anew, or take {folder} away: without {STATS} nothing can write its {RECORD}"
    return f"write its run.json: {program()} record --run-dir {shlex.quote(str(folder))}"


def is_there(path: Path) -> bool:
    """Whether there is a file or folder of that name; of a name that no file can have there is none. PermissionError:
    it is in a folder that this user may not enter.
    """
    check_reachable(path)
    try:
        return path.exists()
    except OSError:  # longer than the file system takes, say
        return False


def _newest(runs: Iterable[Run]) -> list[Run]:
    """Of copies the last. Tables know runs by their ids: two that share one cannot stand in one."""
    newest: dict[str, Run] = {}
    for run in runs:
        other = newest.setdefault(run.record.id, run)
        if not _copies(run.record, other.record):
            raise InputError(
                str(run.path / RECORD),
                f"is another run than {other.path / RECORD}, and has its id",
                value=run.record.id,
                allowed="an id of its own for each run; copies of one run share seed, data and sessions",
                fix="name only one of the two, or give each a report of its own",
            )
        newest[run.record.id] = run
    return list(newest.values())


def _copies(one: RunRecord, other: RunRecord) -> bool:
    """Whether two records with one id are of one run: as it was at two times, or twice the same."""
    begun = {session.start for session in one.sessions} & {session.start for session in other.sessions}
    same = (one.seed, one.dataset.sha256) == (other.seed, other.dataset.sha256)
    ends_differ = one.images == other.images and one.state_sha256 != other.state_sha256 and one.status == other.status
    return bool(begun) and same and not ends_differ


def not_sealed(records: Iterable[RunRecord]) -> list[str]:
    """A sentence on each record without a digest: an older version wrote it so, or somebody took it out."""
    why = "not sealed: an older version wrote its run.json without a digest, or it was taken out: nobody sees a change"
    return [f"{record.id}: {why}" for record in records if not record.digest]


def not_covered(runs: Iterable[Run]) -> list[str]:
    """A sentence on each signed run whose signature says nothing of the files beside the record."""
    why = "its signature covers run.json alone: an older version wrote no sums of stats.jsonl and pictures into it"
    return [f"{run.record.id}: {why}" for run in runs if run.signature.key and not run.record.files]


def _read(path: Path, trusted: str | None = None, *, checked: bool = True) -> Run:
    try:
        content = read_regular(path.parent, path.name)
        signature = get_signature(path, content, trusted) if checked else UNSIGNED
        record = RunRecord.model_validate_json(content)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="name another run") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == WRONG_DIGEST:
            raise InputError(
                str(path),
                "was changed after it was written",
                value=f"content with digest {first['ctx']['found']}",
                allowed=f"digest {first['ctx']['expected']}",
                fix=_anew(path.parent),
            ) from None
        broken = first["type"] == "json_invalid"
        of = f", but of {writer}" if (writer := get_writer(content)) else ""
        problem = "is damaged or was cut off" if broken else f"no run record of this version{of}"
        wrong = first_wrong(error)
        raise InputError(wrong.within(str(path)), f"{problem}: {wrong.what}", fix=_anew(path.parent)) from None
    if not record.sessions:
        problem = "a record without a session is of no run"
        raise InputError(f"{path}: sessions", problem, value="[]", fix=_anew(path.parent))
    if signature.key:
        _refuse_changed_files(path, record)
    _refuse_odd_times(path, record)
    plain = record.model_dump()
    _refuse_odd_numbers(path, plain)
    if any(isinstance(leaf, str) and leaf != visible(leaf) for _, leaf in leaves(plain)):
        record = RunRecord.model_validate(all_visible(plain))
    plan = path.parent / "plan.json"
    return Run(path.parent, record, read_json(plan) if plan.is_file() else None, signature)


def _refuse_changed_files(path: Path, record: RunRecord) -> None:
    """Of a signed record, which answers for the files beside it, as far as it has their sums."""
    folder = path.parent
    changed = changed_since(folder, record.files, done=record.status == "done") if record.files else []
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ForgedError(
            f"{folder / changed[0]}{others}",
            "was tampered with, or is of another time than the signed record beside it",
            value="content that is not the record's",
            allowed=f"the bytes and sha256 that {path.name} has under `files`",
            fix="fetch the run anew; one of your own is written and signed again: "
            f"{program()} record --run-dir {shlex.quote(str(folder))}",
        )


def _refuse_odd_numbers(path: Path, plain: dict[str, Any]) -> None:
    """Tables multiply and divide what a record holds; what is no number or infinite they show as it is."""
    for loc, leaf in leaves(plain):
        if isinstance(leaf, int | float) and _MOST < abs(leaf) < float("inf"):
            raise InputError(
                f"{path}: {'.'.join(map(str, loc))}",
                "is larger than any figure of a run",
                value=f"{float(str(leaf)):g}",
                allowed=f"up to {_MOST:g}",
                fix=_anew(path.parent),
            )


def _refuse_odd_times(path: Path, record: RunRecord) -> None:
    """The record holds times as text; tables order runs by them, and drawings count from them."""
    spans = [(f"sessions.{place}", (one.start, one.end)) for place, one in enumerate(record.sessions)]
    stops = [(f"interruptions.{place}", (one.at,)) for place, one in enumerate(record.interruptions)]
    uses = [(f"cost.uses.{place}", (one.start, one.end)) for place, one in enumerate(record.cost.uses)]
    decided = [(f"decisions.{place}", (one.at,)) for place, one in enumerate(record.decisions)]
    for where, moments in (*spans, *stops, *uses, *decided):
        for moment in moments:
            try:
                at = datetime.fromisoformat(moment)
                is_one = at.tzinfo is not None and at.year in _YEARS
            except ValueError:
                is_one = False
            if not is_one:
                raise InputError(
                    f"{path}: {where}",
                    "is no time",
                    value=moment,
                    allowed="ISO 8601 with its zone, such as 2026-01-31T08:00:00+00:00, of the years "
                    f"{_YEARS[0]} to {_YEARS[-1]}",
                    fix=_anew(path.parent),
                )


def read_json(path: Path, *, follow_link: bool = False) -> dict[str, Any]:
    """A JSON object in a file; `follow_link` for one that the user names. InputError: it cannot be read, or is none."""
    try:
        content = read_file(path) if follow_link else read_regular(path.parent, path.name)
        data = all_visible(json.loads(content))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="name another file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is no JSON: {error}", fix="write it anew") from None
    if not isinstance(data, dict):
        raise InputError(str(path), "is no JSON object", fix="write it anew")
    return data
