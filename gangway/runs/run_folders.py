"""Reads runs: a directory with run.json (and maybe plan.json, stats.jsonl), a folder of such directories, or a run.json
fetched from a bucket.
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import all_visible, leaves, visible
from gangway.runs.signatures import UNSIGNED, ForgedError, Signature, get_signature
from gangway.trainer.core.host import program
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, check_reachable, read_file, read_regular
from gangway.trainer.core.validation import first_mistake
from gangway.trainer.records.digest import WRONG_DIGEST, changed_since
from gangway.trainer.records.run_record import RunRecord, get_writer

RECORD = "run.json"
STATS = "stats.jsonl"
_YEARS = range(1970, 2200)
"""Plausible years of a session; a clock that was never set says 1970."""
_MAX_VALUE = 1e40
"""Above 32-bit floats, the type of losses."""


class Run(NamedTuple):
    """A run with a record. `plan`: the output of `gangway plan --json` for its stack."""

    path: Path
    record: RunRecord
    plan: dict[str, Any] | None
    signature: Signature = UNSIGNED


def find_readable_runs(
    places: Sequence[Path], flag: str = "--runs", trusted: str | None = None
) -> tuple[list[Run], list[Path]]:
    """As `find_runs`, plus the directories of unreadable records. InputError: all are unreadable, or one is forged."""
    runs, broken = [], {}
    for path in _find_records(places, flag):
        try:
            runs.append(_read(path, trusted))
        except ForgedError:
            raise
        except InputError as mistake:
            broken[path.parent] = mistake
    if not runs:
        raise next(iter(broken.values()))
    return _sort(runs), list(broken)


def read_run(folder: Path) -> Run:
    """Read the run of a directory with a record. InputError: see `find_runs`."""
    return _read(folder / RECORD)


def unreadable_reason(folder: Path) -> InputError | None:
    """Why a directory's record cannot be read; None if it can."""
    try:
        read_run(folder)
    except InputError as mistake:
        return mistake
    return None


def find_runs(
    places: Sequence[Path], flag: str = "--runs", trusted: str | None = None, *, checked: bool = True
) -> list[Run]:
    """Runs below `places`, oldest first, newest copies. InputError: missing, unreadable, forged, or ids in conflict."""
    return _sort([_read(path, trusted, checked=checked) for path in _find_records(places, flag)])


def _sort(runs: Iterable[Run]) -> list[Run]:
    newest = _drop_copies(sorted(runs, key=lambda run: run.record.sessions[-1].end))
    return sorted(newest, key=lambda run: (run.record.sessions[0].start, run.record.id))


def _find_records(places: Sequence[Path], flag: str) -> list[Path]:
    records: list[Path] = []
    for place in places:
        exists = is_there(place)
        if not exists:
            found = []
        elif place.is_file():
            found = [place.resolve()]
        else:  # only the folder is resolved: run.json itself may be a link
            found = sorted(path.parent.resolve() / RECORD for path in place.rglob(RECORD))
        if not found:
            half = half_runs([place])
            problem = "contains no run.json" if exists else "no such folder or file"
            if half:
                problem += f", only stats.jsonl of a running or interrupted run in {half[0]}"
            fix = _record_fix(half[0]) if half else "name a run's directory, or a folder of them"
            raise InputError(flag, problem, value=str(place), fix=fix)
        records += found
    return list(dict.fromkeys(records))


def half_runs(places: Sequence[Path]) -> list[Path]:
    """Directories below `places` with stats.jsonl but no record: the run is active, or was cut off."""
    found = (path.parent for place in places if is_there(place) for path in sorted(place.rglob(STATS)))
    return [path for path in dict.fromkeys(found) if not (path / RECORD).exists()]


def _record_fix(folder: Path) -> str:
    if not (folder / STATS).is_file():
        return f"fetch the run again, or remove {folder}: without {STATS} its {RECORD} cannot be rebuilt"
    return f"rebuild its run.json: {program()} record --run-dir {shlex.quote(str(folder))}"


def is_there(path: Path) -> bool:
    """Whether it exists; False for impossible names. PermissionError: in a folder that this user may not enter."""
    check_reachable(path)
    try:
        return path.exists()
    except OSError:  # such as a name too long for the file system
        return False


def _drop_copies(runs: Iterable[Run]) -> list[Run]:
    """Keep the last of each id. InputError: two different runs share an id."""
    newest: dict[str, Run] = {}
    for run in runs:
        other = newest.setdefault(run.record.id, run)
        if not _is_copy(run.record, other.record):
            raise InputError(
                str(run.path / RECORD),
                f"is another run with the same id as {other.path / RECORD}",
                value=run.record.id,
                allowed="a unique id for each run; copies of one run share seed, data and sessions",
                fix="name only one of the two, or report them separately",
            )
        newest[run.record.id] = run
    return list(newest.values())


def _is_copy(one: RunRecord, other: RunRecord) -> bool:
    """Whether two records with one id are of the same run, at the same time or at two times."""
    begun = {session.start for session in one.sessions} & {session.start for session in other.sessions}
    same = (one.seed, one.dataset.sha256) == (other.seed, other.dataset.sha256)
    ends_differ = one.images == other.images and one.state_sha256 != other.state_sha256 and one.status == other.status
    return bool(begun) and same and not ends_differ


def not_sealed(records: Iterable[RunRecord]) -> list[str]:
    """A warning for each record without a digest."""
    why = "not sealed: its run.json has no digest (written by an older version, or removed), so changes go unnoticed"
    return [f"{record.id}: {why}" for record in records if not record.digest]


def not_covered(runs: Iterable[Run]) -> list[str]:
    """A warning for each signed run whose record has no hashes of the other files."""
    why = "its signature covers run.json only: an older version wrote it without hashes of stats.jsonl and pictures"
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
                fix=_record_fix(path.parent),
            ) from None
        is_broken = first["type"] == "json_invalid"
        of = f", but of {writer}" if (writer := get_writer(content)) else ""
        problem = "is damaged or was cut off" if is_broken else f"not a run record of this version{of}"
        wrong = first_mistake(error)
        raise InputError(wrong.within(str(path)), f"{problem}: {wrong.summary}", fix=_record_fix(path.parent)) from None
    if not record.sessions:
        problem = "the record has no session"
        raise InputError(f"{path}: sessions", problem, value="[]", fix=_record_fix(path.parent))
    if signature.key:
        _check_files(path, record)
    _check_times(path, record)
    plain = record.model_dump()
    _check_numbers(path, plain)
    if any(isinstance(leaf, str) and leaf != visible(leaf) for _, leaf in leaves(plain)):
        record = RunRecord.model_validate(all_visible(plain))
    plan = path.parent / "plan.json"
    return Run(path.parent, record, read_json(plan) if plan.is_file() else None, signature)


def _check_files(path: Path, record: RunRecord) -> None:
    """A signed record vouches for the files next to it whose hashes it has."""
    folder = path.parent
    changed = changed_since(folder, record.files, done=record.status == "done") if record.files else []
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ForgedError(
            f"{folder / changed[0]}{others}",
            "was changed, or is older or newer than the signed record",
            value="content that differs from the record",
            allowed=f"the bytes and sha256 under `files` in {path.name}",
            fix="fetch the run again; rebuild and sign your own: "
            f"{program()} record --run-dir {shlex.quote(str(folder))}",
        )


def _check_numbers(path: Path, plain: dict[str, Any]) -> None:
    """Tables calculate with a record's numbers; infinity and NaN are shown as they are."""
    for loc, leaf in leaves(plain):
        if isinstance(leaf, int | float) and _MAX_VALUE < abs(leaf) < float("inf"):
            raise InputError(
                f"{path}: {'.'.join(map(str, loc))}",
                "is too large for a run",
                value=f"{float(str(leaf)):g}",
                allowed=f"up to {_MAX_VALUE:g}",
                fix=_record_fix(path.parent),
            )


def _check_times(path: Path, record: RunRecord) -> None:
    """The record's times are text, but tables sort by them and drawings use them."""
    spans = [(f"sessions.{index}", (one.start, one.end)) for index, one in enumerate(record.sessions)]
    stops = [(f"interruptions.{index}", (one.at,)) for index, one in enumerate(record.interruptions)]
    uses = [(f"cost.uses.{index}", (one.start, one.end)) for index, one in enumerate(record.cost.uses)]
    decisions = [(f"decisions.{index}", (one.at,)) for index, one in enumerate(record.decisions)]
    for place, times in (*spans, *stops, *uses, *decisions):
        for text in times:
            try:
                time = datetime.fromisoformat(text)
                is_valid = time.tzinfo is not None and time.year in _YEARS
            except ValueError:
                is_valid = False
            if not is_valid:
                raise InputError(
                    f"{path}: {place}",
                    "is not a valid time",
                    value=text,
                    allowed="ISO 8601 with a time zone, such as 2026-01-31T08:00:00+00:00, years "
                    f"{_YEARS[0]} to {_YEARS[-1]}",
                    fix=_record_fix(path.parent),
                )


def read_json(path: Path, *, follow_link: bool = False) -> dict[str, Any]:
    """Read a JSON object; `follow_link` for a file that the user names. InputError: unreadable, or not an object."""
    try:
        content = read_file(path) if follow_link else read_regular(path.parent, path.name)
        data = all_visible(json.loads(content))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="name another file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is not JSON: {error}", fix="write it again") from None
    if not isinstance(data, dict):
        raise InputError(str(path), "is not a JSON object", fix="write it again")
    return data


NEEDED = ("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "images_per_sec", "world_size")
"""Required to plot a line, besides its place in the run; null if not measured."""
_NUMBERS = (
    *("images", "kimg", "images_per_sec", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "energy_joules"),
    *("wall_sec", "cpu_utilisation", "gpu_utilisation", "host_memory_gib", "rss_gib", "gpu_gib", "mfu", "world_size"),
    *("time", "metrics_sec"),
)
"""Fields that are numbers if present."""
_FIX = "fetch it again, or remove it: tables need run.json only"


def read_stats(path: Path, needed: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """Complete lines of a stats.jsonl, if any. `needed`: keys of each line, maybe null. InputError: an invalid line."""
    try:
        complete = read_regular(path.parent, path.name, MOST_BYTES_OF_STATS).rpartition(b"\n")[0]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it again") from None
    lines = ((number, text) for number, text in enumerate(complete.split(b"\n"), 1) if text.strip())
    return tuple(_parse(path, number, text, needed) for number, text in lines)


def is_stats_line(line: object) -> bool:
    """Whether it is a line of a run's statistics."""
    return not _find_problem(line, ())


def hints(stats: Sequence[Mapping[str, Any]]) -> list[str]:
    """The trainer's hints about signs of collapse, in order."""
    return [str(line["text"]) for line in stats if line.get("event") == "hint" and "text" in line]


def _parse(path: Path, number: int, text: bytes, needed: Sequence[str]) -> dict[str, Any]:
    try:
        line = all_visible(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"has a line that is not JSON: {error}", value=f"line {number}", fix=_FIX) from None
    problem = _find_problem(line, needed)
    if problem:
        shown = text[:80].decode("utf-8", "replace")
        raise InputError(f"{path}: line {number}", f"is not a line of a run: {problem}", value=shown, fix=_FIX)
    assert isinstance(line, dict), "anything else is a problem"
    return line


def _find_problem(line: object, extra: Sequence[str]) -> str:
    if not isinstance(line, dict):
        return "not a JSON object"
    needed = ("images",) if "event" in line else ("images", "session", "kimg")
    invalid = [key for key in needed if not _is_number(line.get(key))]
    if invalid:
        return f"{invalid[0]} is not a number"
    if "event" in line:
        return "" if isinstance(line["event"], str) else "event is not text"
    if missing := [key for key in extra if key not in line]:
        return f"missing {', '.join(missing)}"
    invalid = [key for key in _NUMBERS if not _is_optional_number(line.get(key))]
    return f"{invalid[0]} is not a number" if invalid else _find_energy_problem(line.get("energy"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MAX_VALUE


def _is_optional_number(value: object) -> bool:
    """Infinite floats leave a gap in plots; huge integers are damage."""
    return isinstance(value, float | None) or (isinstance(value, int) and abs(value) < _MAX_VALUE)


def _find_energy_problem(energy: object) -> str:
    if energy is None:
        return ""
    if not isinstance(energy, Mapping):
        return "energy is not by device"
    is_complete = all(isinstance(one, list) and len(one) == 3 for one in energy.values())
    if is_complete and all(_is_optional_number(one[0]) for one in energy.values()):
        return ""
    return "energy is not joules, provenance and method of each device"
