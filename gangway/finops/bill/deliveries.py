"""Deliveries of bills: the files of one run of an export, and which deliveries count.

Every run rewrites its billing period, so only the newest delivery of a period counts. A manifest lists a delivery's
files; without one, they are in its run folder. Layouts and key names, read in November 2026:

AWS Data Exports (docs.aws.amazon.com/cur/latest/userguide: dataexports-export-delivery, dataexports-manifest)
    EXPORT/data/BILLING_PERIOD=2026-10/EXPORT-00001.csv.gz                                       overwrite
    EXPORT/data/BILLING_PERIOD=2026-10/2026-11-03T04:05:06.789Z-EXECUTION_ID/EXPORT-00001.csv.gz  create new
    EXPORT/metadata/BILLING_PERIOD=2026-10/EXPORT-Manifest.json: executionId, exportArn, dataFiles
Azure Cost Management (learn.microsoft.com/azure/cost-management-billing/costs/tutorial-improved-exports)
    EXPORT/20261001-20261031/[202611030405/]RUN_ID/part_0_0001.csv and manifest.json beside it:
    exportConfig {resourceId, type}, runInfo {submittedTime, runId, startDate, endDate}, blobs [{blobName}]
Google's BigQuery export is a table: its extracts are whole if `bq extract` wrote them (NAME-000000000000.json), and
ordered where each lies in a folder named after its time, such as 2026-11-03T04:05:06Z.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from gangway.components.core.findings import InputError
from gangway.runs.run_folders import is_there
from gangway.trainer.core.regular_files import read_file
from gangway.trainer.core.validation import first_mistake

SUFFIXES = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")
_PARTITION = re.compile(r"billing_period=(\d{4})-(\d\d)", re.IGNORECASE)
_RANGE = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d{4})(\d\d)(\d\d)")
_RUN_TIME = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)[T_-]?(\d\d)[:_-]?(\d\d)(?:[:_-]?(\d\d)(?:\.(\d{1,6})\d*)?)?Z?(?:-.+)?")
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PART = re.compile(r"(?:[-_]?\d{5}|[-_]?0{4}\d{8}|(?<=part)(?:[-_]?\d+)+)$")
"""Part suffixes: AWS's five digits, BigQuery's twelve, Azure's part_0_0001."""
_COSTS = ("", "ActualCost", "FocusCost", "Usage")
"""Azure's data sets that are bills. Amortized cost spreads purchases, as FOCUS does beside the billed cost."""
_EXPORT_AGAIN = "download or export it again"


@dataclass(frozen=True)
class Delivery:
    """The files of one run of an export.

    Attributes:
        export: identifies the export: its ARN or resource id, else its folder, else the file.
        days: first and last day covered, by manifest or folder name; None if unknown.
        delivered_at: UTC; None if unknown.
        dataset: Azure's name of the export type; empty for others.
    """

    export: str
    run_id: str
    place: Path
    paths: tuple[Path, ...]
    days: tuple[date, date] | None
    delivered_at: datetime | None
    missing: tuple[str, ...] = ()
    dataset: str = ""

    def is_newer(self, other: "Delivery") -> bool:
        """Whether it was certainly written after `other`. Manifests come last: a later folder without is incomplete."""
        if self.delivered_at is None or other.delivered_at is None or (other.run_id and not self.run_id):
            return False
        return self.delivered_at > other.delivered_at

    def shares_days(self, other: "Delivery") -> bool | None:
        """Whether both cover a common day; None if unknown."""
        if self.days is None or other.days is None:
            return None
        return self.days[0] <= other.days[1] and other.days[0] <= self.days[1]

    def replaces(self, other: "Delivery") -> bool:
        """Whether it is certainly newer and covers every day of `other`, of the same export."""
        if self.days is None or other.days is None or not self.is_newer(other):
            return False
        return self.days[0] <= other.days[0] and other.days[1] <= self.days[1]

    def to_json(self) -> dict[str, object]:
        """Plain JSON data."""
        return {
            "export": self.export,
            "run_id": self.run_id,
            "files": [str(path) for path in self.paths],
            "first_day": self.days and self.days[0].isoformat(),
            "last_day": self.days and self.days[1].isoformat(),
            "delivered_at": self.delivered_at and self.delivered_at.isoformat(),
        }


class Deliveries(NamedTuple):
    """`used`: the newest of each export and period, newest first; `replaced`: the others, each with its successor."""

    used: tuple[Delivery, ...]
    replaced: tuple[tuple[Delivery, Delivery], ...]


def conflict(one: Delivery, other: Delivery, what: str = "") -> InputError:
    """The error for two deliveries of one period if neither is known to be newer."""
    return InputError(
        str(one.place),
        f"covers the same billing period as {other.place}{what}; which of the two is newer is unknown",
        allowed="one delivery per account and billing period; several of one export only with manifests or in its run "
        "folders; parts of one delivery with the export's names, such as bill-00001.csv and bill-00002.csv",
        fix=f"pass one of the two: --bill '{other.place}'",
    )


def find_deliveries(places: Sequence[Path]) -> Deliveries:
    """Deliveries in files and folders. InputError: none, a damaged manifest, missing files, or an unknown order."""
    files, manifests = _collect(places)
    by_manifest, roots = list[Delivery](), dict[Path, str]()
    for path in manifests:
        if (found := _read_manifest(path)) is not None:
            root, delivery = found
            roots[root] = delivery.export
            by_manifest.append(delivery)
    covered = {path for delivery in by_manifest for path in delivery.paths}
    stale = {(path.parent, _stem(path)) for path in covered}
    loose = [path for path in files if path not in covered and (path.parent, _stem(path)) not in stale]
    exports = dict[str, list[Delivery]]()
    for delivery in (*_deduplicate(by_manifest), *_group_by_folder(loose, roots)):
        exports.setdefault(delivery.export, []).append(delivery)
    used, replaced = list[Delivery](), list[tuple[Delivery, Delivery]]()
    for group in exports.values():
        newest = _pick_newest(group)
        used += newest.used
        replaced += newest.replaced
    oldest = datetime.min.replace(tzinfo=UTC)
    return Deliveries(tuple(sorted(used, key=lambda each: each.delivered_at or oldest, reverse=True)), tuple(replaced))


def _collect(places: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    files, manifests = list[Path](), list[Path]()
    for place in places:
        if not is_there(place):
            raise InputError("--bill", "no such file or folder", value=str(place), fix="name an export's file")
        if not place.is_dir():
            manifests += sorted(path for path in place.resolve().parent.glob("*.json") if _is_manifest(path))
            files += [] if _is_manifest(place) else [place.resolve()]
            continue
        inner = sorted(path.resolve() for path in place.rglob("*") if path.name.lower().endswith(SUFFIXES))
        manifests += [path for path in inner if _is_manifest(path)]
        tables = [path for path in inner if not _is_manifest(path)]
        if not tables:
            raise InputError(
                "--bill", "contains no table", value=str(place), allowed=", ".join(SUFFIXES), fix="name a file"
            )
        files += tables
    return tuple(dict.fromkeys(files)), tuple(dict.fromkeys(manifests))


def _is_manifest(path: Path) -> bool:
    return "manifest" in path.name.lower() and path.name.lower().endswith(".json")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class _AwsManifest(_Model):
    execution_id: str = Field(min_length=1)
    export_arn: str = ""
    data_files: tuple[str, ...]


class _AzureExport(_Model):
    resource_id: str = ""
    type: str = ""


class _AzureRun(_Model):
    run_id: str = Field(min_length=1)
    submitted_time: datetime
    start_date: datetime
    end_date: datetime


class _AzureBlob(_Model):
    blob_name: str


class _AzureManifest(_Model):
    export_config: _AzureExport
    run_info: _AzureRun
    blobs: tuple[_AzureBlob, ...]


def _read_manifest(path: Path) -> tuple[Path, Delivery] | None:
    try:
        content = read_file(path)
        if b'"dataFiles"' in content:
            return _read_aws(path, _AwsManifest.model_validate_json(content))
        if b'"runInfo"' in content:
            return _read_azure(path, _AzureManifest.model_validate_json(content))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix=_EXPORT_AGAIN) from None
    except ValidationError as error:
        wrong = first_mistake(error)
        raise InputError(wrong.within(str(path)), f"a damaged manifest: {wrong.summary}", fix=_EXPORT_AGAIN) from None
    return None


def _read_aws(path: Path, manifest: _AwsManifest) -> tuple[Path, Delivery]:
    parts = path.parts
    root = Path(*parts[: _last(parts, "metadata")]) if "metadata" in parts[:-1] else path.parent
    keys = [PurePosixPath(name.partition("://")[2] or name) for name in manifest.data_files]
    if odd := next((str(key) for key in keys if ".." in key.parts), None):
        raise InputError(str(path), "a damaged manifest: names a file outside", value=odd, fix=_EXPORT_AGAIN)
    found, missing = list[Path](), list[str]()
    for key in keys:
        inner = key.parts[_last(key.parts[:-1], "data") :] if "data" in key.parts[:-1] else key.parts[-1:]
        local = next((each for each in (root.joinpath(*inner), path.parent / key.name) if each.is_file()), None)
        missing += [] if local else [key.name]
        found += [local] if local else []
    period = next(filter(None, map(_PARTITION.search, (str(path), *map(str, keys)))), None)
    days = None if period is None else _month(int(period[1]), int(period[2]))
    delivered_at = next((at for key in keys if (at := _run_time(key.parent.name))), None) or _run_time(path.parent.name)
    export = manifest.export_arn or str(root)
    place = found[0].parent if found else path.parent
    return root, Delivery(export, manifest.execution_id, place, tuple(found), days, delivered_at, tuple(missing))


def _read_azure(path: Path, manifest: _AzureManifest) -> tuple[Path, Delivery]:
    run, folder = manifest.run_info, _Folder.read(path)
    names = [PurePosixPath(blob.blob_name.strip()).name for blob in manifest.blobs]
    local = [each for name in names if (each := path.parent / name).is_file()]
    missing = tuple(name for name in names if not (path.parent / name).is_file())
    submitted = run.submitted_time
    return folder.root, Delivery(
        manifest.export_config.resource_id or str(folder.root),
        run.run_id,
        path.parent,
        tuple(local),
        folder.days or (run.start_date.date(), run.end_date.date()),
        submitted.replace(tzinfo=UTC) if submitted.tzinfo is None else submitted.astimezone(UTC),
        missing,
        manifest.export_config.type,
    )


def _deduplicate(deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
    """Each run once, complete copies first: AWS writes two manifests of the newest run."""
    seen = set[tuple[str, str, tuple[date, date] | None]]()
    for delivery in sorted(deliveries, key=lambda each: len(each.missing)):
        key = (delivery.export, delivery.run_id, delivery.days)
        if key not in seen:
            seen.add(key)
            yield delivery


class _Folder(NamedTuple):
    root: Path
    run: Path | None
    days: tuple[date, date] | None
    delivered_at: datetime | None

    @classmethod
    def read(cls, path: Path) -> "_Folder":
        upper, run = path.parent, None
        if _RUN_ID.fullmatch(upper.name):
            run, upper = upper, upper.parent
        if delivered_at := _run_time(upper.name):
            run, upper = run or upper, upper.parent
        if (days := _days(upper.name)) is not None:
            upper = upper.parent
            upper = upper.parent if upper.name == "data" else upper
        return cls(upper, run, days, delivered_at)


def _group_by_folder(files: Sequence[Path], roots: dict[Path, str]) -> Iterator[Delivery]:
    """Deliveries without a manifest. `roots`: exports by folder, from the manifests of other runs."""
    groups = dict[tuple[Path, str], list[Path]]()
    for path in files:
        run = _Folder.read(path).run
        groups.setdefault((run or path.parent, "" if run else _stem(path)), []).append(path)
    for paths in groups.values():
        folder, place = _Folder.read(paths[0]), paths[0]
        export = str(place)
        if folder.run is not None or folder.days is not None:
            export = roots.get(folder.root, str(folder.root))
            place = folder.run or place
        yield Delivery(export, "", place, tuple(paths), folder.days, folder.delivered_at)


def _pick_newest(group: Sequence[Delivery]) -> Deliveries:
    replaced = dict[Delivery, Delivery]()
    for older in group:
        newer = [each for each in group if each.replaces(older)]
        if newer:
            replaced[older] = max(newer, key=lambda each: each.delivered_at or datetime.min)
    current = [each for each in group if each not in replaced]
    for at, one in enumerate(current):
        if other := next((each for each in current[:at] if each.shares_days(one)), None):
            raise conflict(one, other)
    present = [each for each in current if each.paths or each in replaced.values() or not each.missing]
    for delivery in present:
        _check_whole(delivery)
    return Deliveries(tuple(present), tuple(replaced.items()))


def _check_whole(delivery: Delivery) -> None:
    if delivery.missing:
        raise InputError(
            str(delivery.place),
            "lacks files of its manifest",
            value=", ".join(delivery.missing[:8]),
            allowed="all files of a delivery",
            fix="download the whole folder again",
        )
    if delivery.dataset not in _COSTS:
        raise InputError(
            str(delivery.place),
            f"is Azure's export of {delivery.dataset}, not a bill",
            value=delivery.dataset,
            allowed="cost and usage details as FOCUS, or as actual cost",
            fix="make such an export in Cost Management",
        )


def _last(parts: Sequence[str], name: str) -> int:
    return len(parts) - 1 - parts[::-1].index(name)


def _stem(path: Path) -> str:
    name = path.name.lower()
    suffix = next((each for each in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(each)), "")
    return _PART.sub("", path.name[: len(name) - len(suffix)].removesuffix(".snappy"))


def _days(name: str) -> tuple[date, date] | None:
    """The days in a folder's name: BILLING_PERIOD=2026-10, or 20261001-20261031."""
    try:
        if match := _PARTITION.fullmatch(name):
            return _month(int(match[1]), int(match[2]))
        if match := _RANGE.fullmatch(name):
            numbers = [int(each) for each in match.groups()]
            return date(*numbers[:3]), date(*numbers[3:])
    except ValueError:  # not a date
        pass
    return None


def _month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


def _run_time(name: str) -> datetime | None:
    match = _RUN_TIME.fullmatch(name)
    if match is None or _RANGE.fullmatch(name):
        return None
    year, month, day, hour, minute, second, fraction = match.groups(default="0")
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:{second.zfill(2)}+00:00")
        return moment + timedelta(microseconds=int(fraction.ljust(6, "0")))
    except ValueError:
        return None
