"""`gangway reproduce`: repeats a recorded run from its record alone, on this machine or in its container, and compares
bit-equality (hashes of the trainer's state at common checkpoints), the size of differences, and possible causes.
"""

import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from gangway.bench.local import Hardware, describe
from gangway.bench.processes import last_words
from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import DIGEST, NAME, is_reference
from gangway.components.core.job import JobSpec, Volume
from gangway.images.shell import container_argv
from gangway.jobs.local.run import LocalRun, StatsTail, local_job
from gangway.runs.run_folders import Run, read_json
from gangway.stacks.base.extras import require
from gangway.stacks.estimates.run_context import local_context
from gangway.trainer.config.parts.fields import SELF_PREPARED
from gangway.trainer.config.refusals import prepare_command
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, read_regular
from gangway.trainer.records.run_record import RunContext, RunRecord

_UNMOUNTABLE = {",": "a comma", '"': "a quotation mark", "\n": "a line break"}
# The caller's user has no account inside: compiler caches ask for a name and a home.
_ACCOUNT = {"HOME": "/tmp", "USER": "gangway"}
_WORKERS_PER_CORE = 2
"""More would give the same result very slowly."""
_POLL_SEC = 0.2
_MOST_LETTERS = 100
"""Of a record's name in a rerun's."""
_THREADS = re.compile(r"cpu, (\d+) thread")


class Container(NamedTuple):
    """A container image. `program`: path of docker or podman; `image`: registry/gangway-trainer@sha256:..."""

    program: Path
    image: str
    digest: str


def find_container(name: str, record: RunRecord) -> Container:
    """The record's image, of that name, and a runtime for it. InputError: none, or another digest."""
    digest = record.image_digest
    if not re.fullmatch(DIGEST, digest):
        raise InputError(
            f"run {record.id}", "its record has no image digest", value=digest, allowed="sha256: and 64 digits",
            fix="remove --container to use this Python environment",
        )  # fmt: skip
    bare, at, named_digest = name.partition("@")
    if not is_reference(bare, NAME):
        allowed = "an image's name without a tag, such as registry.example.com/gangway-trainer"
        raise InputError("--container", "not an image name", value=name, allowed=allowed, fix="remove the tag")
    if at and named_digest != digest:
        raise InputError(
            "--container", "not the record's image", value=name, allowed=f"{bare}@{digest}",
            fix="remove the digest: the record has it",
        )  # fmt: skip
    program = _program()
    if program is None:
        raise InputError(
            "--container", "no container runtime found", value=name, allowed="docker or podman on PATH",
            fix="install one, or remove --container to use this Python environment",
        )  # fmt: skip
    return Container(program, f"{bare}@{digest}", digest)


def _program() -> Path | None:
    """Docker before podman, but podman if `docker` is an alias of it."""
    docker, podman = shutil.which("docker"), shutil.which("podman")
    if docker and podman:
        version = subprocess.run([docker, "--version"], capture_output=True, text=True, check=False)
        docker = None if "podman" in version.stdout.lower() else docker
    found = docker or podman
    return Path(found) if found else None


def container_job(job: JobSpec, container: Container, folder: Path, data: Path | None) -> JobSpec:
    """The job inside the image, with its folders mounted at their own paths. InputError: a path that cannot be."""
    folders = [(folder, False), *([] if data is None or data.is_relative_to(folder) else [(data, True)])]
    for each, _ in folders:
        for sign, called in _UNMOUNTABLE.items():
            if sign in str(each):
                raise InputError(f"{each}", f"has {called}, which mounts do not support", fix="name another folder")
    volumes = tuple(Volume(source=str(each), target=str(each), read_only=only) for each, only in folders)
    return job.model_copy(update={"image": container.image, "volumes": volumes, "env": {**_ACCOUNT, **job.env}})


def start_argv(container: Container, job: JobSpec, name: str, *, on_gpus: bool) -> list[str]:
    """The command that runs a job in its image. Files in its folders belong to the caller."""
    podman = container.program.name == "podman"
    gpus = ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", "all"]
    # Rootless podman maps users, and SELinux would deny the mount.
    as_outside = ["--userns", "keep-id", "--security-opt", "label=disable"] if podman else []
    extra = [*as_outside, "--user", f"{os.getuid()}:{os.getgid()}", *(gpus if on_gpus else [])]
    # Rootless users may not raise limits, and podman's containers are their processes.
    argv = container_argv(job, extra, None, {}, name=name, uid=None, sets_limits=not podman or os.getuid() == 0)
    return [str(container.program), *argv, container.image, *job.torchrun_argv()]


class Rerun(NamedTuple):
    """`config`: the record's, up to the compared images; `changes`: deviations that this machine forces."""

    config: TrainConfig
    workers: int
    threads: int | None
    data_dir: Path | None
    dataset_sha256: str
    on_gpus: bool
    changes: tuple[str, ...]


def plan_rerun(run: Run, machine: Hardware, kimg: float | None, data: Path | None) -> Rerun:
    """`kimg`: to stop after, as recorded by default; `data`: shards, by default the run's. InputError."""
    record = run.record
    changes: list[str] = []
    images = _images(record, kimg)
    # The length does not affect a step's results.
    config = record.config
    if images != config.total_images:
        config = config.model_copy(update={"kimg": images / 1000})
    session = record.sessions[-1]
    needs_gpus = not session.device.startswith("cpu")
    gpus, room = len(machine["gpus"]), machine["cores"] * _WORKERS_PER_CORE
    on_gpus = gpus > 0 and needs_gpus
    workers = min(session.world_size, gpus if on_gpus else room)
    if workers < session.world_size:
        changes.append(f"workers: {workers} here, {session.world_size} then: this machine has {describe(machine)}")
    if needs_gpus and not on_gpus:
        changes.append(f"device: CPU here, {session.device} then")
    if not on_gpus and config.backend in ("nccl", "xla"):
        changes.append(f"backend: auto here, {config.backend} then")
        config = config.model_copy(update={"backend": "auto"})
    elif not needs_gpus and gpus and config.backend == "auto":
        config = config.model_copy(update={"backend": "gloo"})  # it ran on a CPU, and does again
    threads = _THREADS.match(session.device)
    return Rerun(
        config=config,
        workers=workers,
        threads=int(threads[1]) if threads else None,
        data_dir=_data_dir(run, data),
        dataset_sha256=record.dataset.sha256,
        on_gpus=on_gpus,
        changes=tuple(changes),
    )


def _images(record: RunRecord, kimg: float | None) -> int:
    if not record.images:
        raise InputError(f"run {record.id}", "has trained on no image: nothing to repeat", fix="name another run")
    if kimg is None:
        return record.images
    step = record.config.step_images
    images = -(-round(kimg * 1000) // step) * step if math.isfinite(kimg) else 0
    if not 0 < images <= record.images:
        raise InputError(
            "--kimg",
            f"run {record.id} has nothing to compare there",
            value=kimg,
            allowed=f"above 0, at most {record.images / 1000:g}",
            fix="remove --kimg to repeat the whole run",
        )
    return images


def _data_dir(run: Run, data: Path | None) -> Path | None:
    places = [data] if data is not None else [run.path / "data", run.path.parent / "data"]
    found = next((place for place in places if (place / "index.json").is_file()), None)
    dataset = run.record.dataset
    if found is None:
        if data is None and dataset.name in SELF_PREPARED:
            return None
        raise InputError(
            "--data",
            f"no shards of {dataset.name} in {', '.join(map(str, places))}",
            value=None if data is None else str(data),
            allowed=f"a folder with an index.json of sha256 {dataset.sha256}",
            fix=f"prepare them: `{prepare_command(run.record.config, 'DIR')}`, then --data DIR",
        )
    _check_data(str(found), read_json(found / "index.json").get("sha256"), dataset.sha256)
    return found


def _check_data(place: str, found: object, dataset: str) -> None:
    if found != dataset:
        raise InputError(
            place,
            "not the images of the record",
            value=f"sha256 {found}",
            allowed=f"sha256 {dataset}",
            fix="name the folder of the run's shards with --data",
        )


def execute(
    rerun: Rerun,
    out: Path,
    run_id: str,
    machine: Hardware,
    on_images: Callable[[int], None],
    container: Container | None = None,
) -> Path:
    """Run in a new folder `out`; its run directory. InputError: the folder, the data or the trainer failed."""
    if container is None:
        require("torch")
    job, command = _start_command(rerun, out, run_id, machine, container)
    _make(out)
    tail, checked = StatsTail(out / "stats.jsonl"), False
    try:
        with _remove_container(container, run_id), LocalRun.start(job, out / "train.log", command) as run:
            while True:
                code = run.exit_code
                for line in tail.new_lines():
                    if line.get("event") == "start":
                        _check_data("the trainer's shards", line["dataset"]["sha256"], rerun.dataset_sha256)
                        checked = True
                    on_images(line["images"])
                if code is not None:
                    break
                time.sleep(_POLL_SEC)
    except InputError:
        with suppress(OSError):
            shutil.rmtree(out)
        raise
    if code != 0 or not checked:
        program = "the trainer" if container is None else f"{container.program.name} run"
        problem = f"{program} ended with {code}: {last_words(run.log)}"
        raise InputError(str(run.log), problem, fix="fix that, then try again")
    return out


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True)
    except OSError as error:
        fix = "name a new folder with --out"
        raise InputError(str(out), f"cannot be created: {error.strerror or error}", fix=fix) from None


def _start_command(
    rerun: Rerun, out: Path, run_id: str, machine: Hardware, container: Container | None
) -> tuple[JobSpec, list[str]]:
    known = {"machine_type": describe(machine), "image_digest": "" if container is None else container.digest}
    context = local_context("reproduce", run_id).model_copy(update=known)
    if container is None:
        return _job(rerun, out, context), []
    data = None if rerun.data_dir is None else rerun.data_dir.resolve()
    folder = out.resolve()  # inside, the working directory is another
    job = container_job(_job(rerun._replace(data_dir=data), folder, context), container, folder, data)
    return job, start_argv(container, job, _container_name(run_id), on_gpus=rerun.on_gpus)


def rerun_name(record_id: str, moment: datetime) -> str:
    """The name of the run's folder and container. Record ids are untrusted: no path, no hidden name, bounded."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", record_id).lstrip(".-")[:_MOST_LETTERS]
    return f"{readable or 'run'}-again-{moment:%Y%m%dT%H%M%SZ}"


def _container_name(run_id: str) -> str:
    return f"gangway-{run_id}"


@contextmanager
def _remove_container(container: Container | None, run_id: str) -> Iterator[None]:
    """Removes the container: it outlives a killed client."""
    try:
        yield
    finally:
        if container is not None:
            command = [str(container.program), "rm", "--force", _container_name(run_id)]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _job(rerun: Rerun, out: Path, context: RunContext) -> JobSpec:
    # Only what the record has: older trainers refuse unknown fields.
    document = rerun.config.model_dump(mode="json", exclude_unset=True)
    return local_job(
        "reproduce",
        document,
        out,
        rerun.workers,
        on_gpus=rerun.on_gpus,
        threads=rerun.threads,
        data_dir=rerun.data_dir or out / "data",
        context=context,
    )


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
    """The result. `images`: of the newest common state, None without one; `parts`: whether hashes are equal there, by
    part of the state; `states_equal`: number of states equal in every part; `left_out`: lines of the record without a
    counterpart; `max_relative_difference`: of each series over all lines, |a - b| / max(|a|, |b|), None if nothing was
    comparable; `worst_images`: where the greatest of them is, None if all are 0.
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
    """`then`: the recorded run, with stats.jsonl and checkpoints if present; `reasons`: known differences."""
    old, new = _states(then), _states(now)
    common = sorted(old.keys() & new.keys())
    at = common[-1] if common else None
    parts = {} if at is None else {name: new[at].get(name) == digest for name, digest in old[at].items()}
    lines, now_lines = _windows(then.path / "stats.jsonl"), _windows(now.path / "stats.jsonl")
    shared = sorted(lines.keys() & now_lines.keys())
    ended = max((window[1] for window in now_lines), default=0)
    worst, worst_images = _losses([(window[1], lines[window], now_lines[window]) for window in shared])
    recorded, again = _qualities(then.record), _qualities(now.record)
    return Comparison(
        images=at,
        parts=parts,
        states=len(common),
        states_equal=sum(old[images] == new[images] for images in common),
        windows=len(shared),
        left_out=sum(window[1] <= ended for window in lines) - len(shared),
        max_relative_difference=worst,
        worst_images=worst_images,
        quality=tuple(
            QualityDifference(*key, recorded=recorded[key], again=again[key])
            for key in sorted(recorded.keys() & again.keys())
        ),
        reasons=(*reasons, *differences(then.record, now.record)),
    )


def check_comparable(then: Run) -> None:
    """Check the recorded files before the repetition. InputError: a damaged checkpoint manifest."""
    _states(then)


def _states(run: Run) -> dict[int, dict[str, str]]:
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


def _qualities(record: RunRecord) -> dict[tuple[str, float], float]:
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
