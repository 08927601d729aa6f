"""Compares two runs: bit-equality (hashes of the trainer's state at common checkpoints), the size of differences, and
possible causes. A loss is a mean since the previous line, so only lines with equal start and end are compared.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gangway.components.core.findings import InputError
from gangway.runs.run_folders import Run
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular
from gangway.trainer.records.run_record import RunRecord

SERIES = ("loss_g", "loss_d", "r1", "grad_norm_g", "grad_norm_d")
Window = tuple[int, int]


@dataclass(frozen=True)
class QualityDifference:
    """A quality metric at the same number of images. `kimg`: thousands of images."""

    name: str
    kimg: float
    recorded: float
    again: float


@dataclass(frozen=True)
class Comparison:
    """The result.

    Attributes:
        images: of the newest common state; None without one.
        parts: whether hashes are equal there, by part of the state.
        states_equal: number of states equal in every part.
        left_out: lines of the record without a counterpart.
        max_relative_difference: of each series over all lines, |a - b| / max(|a|, |b|); None if nothing was comparable.
        worst_images: where the greatest of them is; None if all are 0.
    """

    images: int | None
    parts: dict[str, bool]
    states: int
    states_equal: int
    windows: int
    left_out: int
    max_relative_difference: dict[str, float | None]
    worst_images: int | None
    quality: tuple[QualityDifference, ...]
    reasons: tuple[str, ...]

    @property
    def bit_equal(self) -> bool | None:
        """Whether all that was compared is equal; None without comparable states and with equal losses."""
        differs = any(self.max_relative_difference.values()) or any(one.recorded != one.again for one in self.quality)
        if differs or self.states_equal < self.states:
            return False
        return True if self.states else None

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {"bit_equal": self.bit_equal, **asdict(self)}


def compare(then: Run, now: Run, reasons: Sequence[str] = ()) -> Comparison:
    """Compare a run with its repetition. `then`: the recorded run, with stats.jsonl and checkpoints if present;
    `reasons`: known differences, before those in the records.
    """
    old, new = _states(then), _states(now)
    common = sorted(old.keys() & new.keys())
    at = common[-1] if common else None
    parts = {} if at is None else {name: new[at].get(name) == digest for name, digest in old[at].items()}
    lines, now_lines = _windows(then.path / "stats.jsonl"), _windows(now.path / "stats.jsonl")
    shared = sorted(lines.keys() & now_lines.keys())
    ended = max((window[1] for window in now_lines), default=0)
    worst, worst_images = _losses([(window[1], lines[window], now_lines[window]) for window in shared])
    return Comparison(
        images=at,
        parts=parts,
        states=len(common),
        states_equal=sum(old[images] == new[images] for images in common),
        windows=len(shared),
        left_out=sum(window[1] <= ended for window in lines) - len(shared),
        max_relative_difference=worst,
        worst_images=worst_images,
        quality=tuple(sorted(_quality(then.record, now.record), key=lambda one: (one.name, one.kimg))),
        reasons=(*reasons, *differences(then.record, now.record)),
    )


def check_comparable(then: Run) -> None:
    """Check the recorded files before the repetition. InputError: a damaged checkpoint manifest."""
    _states(then)


def _states(run: Run) -> dict[int, dict[str, str]]:
    """Hashes of the state's parts by images: of the checkpoints and of the end."""
    found: dict[int, dict[str, str]] = {}
    for path in sorted((run.path / "checkpoints").glob("[0-9]*.json")):
        images, digests = _manifest(run.path, f"checkpoints/{path.name}", run.record.id)
        if digests:
            found[images] = digests
    if run.record.state_sha256:
        found[run.record.images] = run.record.state_sha256
    return found


def _manifest(folder: Path, name: str, run_id: str) -> tuple[int, dict[str, str]]:
    try:
        manifest = json.loads(read_regular(folder, name))
    except (OSError, ValueError, RecursionError):
        manifest = None
    match manifest:
        case {"identity": {"run_id": str(whose)}, "images": int(images), "state_sha256": dict(digests)}:
            return images, digests if whose == run_id else {}
    raise InputError(
        str(folder / name),
        "is not a checkpoint manifest: cut short, or unreadable",
        allowed="identity.run_id, images and state_sha256",
        fix="fetch it again, or remove this checkpoint's files: the other states are compared",
    )


def _windows(path: Path) -> dict[Window, Mapping[str, Any]]:
    """Lines of statistics by their window of images; for repeated work the newest."""
    try:
        texts = read_regular(path.parent, path.name, MOST_BYTES_OF_STATS).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        texts = []
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it again") from None
    found: dict[Window, Mapping[str, Any]] = {}
    since: dict[int, int] = {}
    for line in filter(None, map(_parse_line, texts)):
        session, images = line["session"], line["images"]
        if line.get("event") in ("start", "resume"):
            since[session] = images
        elif "event" not in line and session in since:
            found[since[session], images] = line
            since[session] = images
    return found


def _parse_line(text: str) -> dict[str, Any] | None:
    """A line of stats.jsonl; None if damaged, as the record's notes say."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or not all(type(line.get(key)) is int for key in ("session", "images")):
        return None
    return line if all(isinstance(line.get(name), int | float | None) for name in SERIES) else None


def _losses(
    pairs: Sequence[tuple[int, Mapping[str, Any], Mapping[str, Any]]],
) -> tuple[dict[str, float | None], int | None]:
    """The greatest relative difference of each series, and where the greatest of all is."""
    worst: dict[str, float | None] = dict.fromkeys(SERIES)
    greatest, worst_images = 0.0, None
    for images, old, new in pairs:
        for name in SERIES:
            if old.get(name) is None or new.get(name) is None:
                continue
            a, b = old[name], new[name]
            difference = 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))
            worst[name] = max(worst[name] or 0.0, difference)
            if difference > greatest:
                greatest, worst_images = difference, images
    return worst, worst_images


def _quality(then: RunRecord, now: RunRecord) -> Iterator[QualityDifference]:
    old, new = _points(then), _points(now)
    for key in old.keys() & new.keys():
        yield QualityDifference(*key, recorded=old[key], again=new[key])


def _points(record: RunRecord) -> dict[tuple[str, float], float]:
    in_training = record.quality_in_training.points if record.quality_in_training else ()
    points = {(one.name, one.kimg): one.value for one in in_training}
    newest = {(one.name, one.protocol.kimg): one.trained.value for one in record.quality}
    return {key: value for key, value in {**points, **newest}.items() if value is not None and math.isfinite(value)}


def differences(then: RunRecord, now: RunRecord) -> Iterator[str]:
    """Describe differences in the records that can change the bits."""
    if then.code_sha256 != now.code_sha256:
        yield f"trainer's code: {now.code_sha256[:12]} here, {then.code_sha256[:12]} then"
    for name in sorted(then.versions.keys() | now.versions.keys()):
        before, after = then.versions.get(name, "not recorded"), now.versions.get(name, "not recorded")
        if before != after:
            yield f"{name}: {after} here, {before} then"
    old, new = then.sessions[-1], now.sessions[-1]
    if old.device != new.device:
        yield f"device: {new.device} here, {old.device} then"
    elif not new.device.startswith("cpu"):
        yield f"device: {new.device}: kernels without a fixed order of additions may differ between runs"
    sizes = list(dict.fromkeys(session.world_size for session in then.sessions))
    if sizes != [new.world_size]:
        yield f"workers: {new.world_size} here, {', then '.join(map(str, sizes))} then: sums have another order"
    if old.num_nodes != new.num_nodes:
        yield f"nodes: {new.num_nodes} here, {old.num_nodes} then"
    for name in sorted(then.choices.keys() | now.choices.keys()):
        if then.choices.get(name) != now.choices.get(name):
            yield f"{name}: {now.choices.get(name, 'not recorded')} here, {then.choices.get(name, 'not recorded')} then"
    if then.image_digest != now.image_digest:
        environment = now.image_digest or "this Python environment, no image"
        yield f"image: {environment} here, {then.image_digest or 'none'} then"
