"""Resumes from a run directory's newest valid checkpoint of this run and data. All checks come before any write."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.compatibility import misfit
from gangway.trainer.config.segment_plan import check_begun, with_decided
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import check_folder
from gangway.trainer.records.digest import RunIdentity, check_dataset
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.records.stats_log import STATS_FILE, StatsLog
from gangway.trainer.steps.state import TrainState


class Restored(NamedTuple):
    """What `restore` found: `identity` is None without a checkpoint; `passed_over` has a sentence per skipped one."""

    identity: RunIdentity | None
    passed_over: list[str]
    config: TrainConfig


def check_run_dir(run_dir: Path, data_dir: Path) -> None:
    """Raises TrainerError for a directory that cannot be written; run_dir itself was checked."""
    for folder in (run_dir / "checkpoints", run_dir / "samples"):
        check_folder(folder, "--run-dir")
    if not data_dir.is_dir():  # existing shards are only read
        check_folder(data_dir, "--data")


def restore(
    state: TrainState,
    config: TrainConfig,
    run_dir: Path,
    data_dir: Path,
    dataset_sha256: str,
    *,
    resume: bool,
    damaged: Mapping[str, str] | None = None,
) -> Restored:
    """Loads the newest valid checkpoint, if any (TrainerError: none loads, other config or data, or no `resume`)."""
    folder = run_dir / "checkpoints"
    if not resume and (store.newest(folder) or (run_dir / STATS_FILE).exists()):
        raise TrainerError(
            place="--resume",
            problem=f"{run_dir} holds a run already, and never would mix two runs",
            value="never",
            allowed="auto, or an empty --run-dir",
            fix="choose another --run-dir, or --resume auto",
        )
    found, passed_over = store.load_newest_valid(folder, misfit, damaged)
    if found is None:
        return Restored(None, passed_over, config)
    store.check_config(found.manifest.config, config, run_dir)
    config = with_decided(config, found.manifest.config)
    check_begun(found.manifest.config, config, found.manifest.images)
    check_dataset(found.manifest.identity, dataset_sha256, data_dir)
    state.load_state_dict(found.read(state.room_for(found.state) if found.manifest.parts else None))
    return Restored(found.manifest.identity, passed_over, config)


def find_damage(
    run_dir: Path, stats_log: StatsLog, identity: RunIdentity, restored: Restored
) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yields a sentence, event and details for each file that earlier sessions left unreadable."""
    for sentence in restored.passed_over:
        yield f"passed over a checkpoint: {sentence}", "checkpoint-skipped", {"why": sentence}
    losses = stats_log.losses(identity.session)
    if losses and losses not in [line.get("losses") for line in stats_log.lines]:
        sentence = f"{STATS_FILE} is damaged: {losses}; run {identity.run_id} goes on, its record says so"
        yield sentence, "stats-damaged", {"losses": losses, "unreadable_lines": stats_log.unreadable}
    readers: dict[str, tuple[Callable[[Path], object], str]] = {
        "config.json": (TrainConfig.from_file, "written anew from this command's configuration"),
        "run.json": (RunRecord.read, "written anew from stats.jsonl when this session ends"),
    }
    for name, (read, done) in readers.items():
        if (run_dir / name).exists():
            try:
                read(run_dir / name)
            except TrainerError as error:
                found = error.headline
                is_whole = error.place != str(run_dir / name)  # but for one value in it
                problem = "is not what this version writes" if is_whole else "was damaged"
                yield f"{name} {problem} ({found}); {done}", "repaired", {"file": name, "found": found, "done": done}


def newest_images(folder: Path) -> int:
    """Returns the images of the newest checkpoint by its name, unverified; 0 without any."""
    path = store.newest(folder)
    return 0 if path is None or not path.stem.isdecimal() else int(path.stem)


def is_done(record: Path) -> bool:
    """Whether the record says so; with a damaged record the last session's end is repeated, which rewrites it."""
    try:
        return RunRecord.read(record).status == "done"
    except TrainerError:
        return False


def check_same_images(images: list[int], run_dir: Path) -> None:
    """Raises TrainerError on every rank where workers restored different checkpoints."""
    if len(set(images)) > 1:
        raise TrainerError(
            place=str(run_dir / "checkpoints"),
            problem="the workers restored different checkpoints",
            value=f"images seen, by rank: {images}",
            allowed="one shared file system, with the same files for all",
            fix="mount the run directory from the parallel file system on every node",
        )
