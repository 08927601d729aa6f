"""Which run this is and which of its sessions: known from the diary, and from the checkpoint when the diary is lost.

Every checkpoint's manifest carries a RunIdentity, so that a resumed run keeps its name and its count of sessions even
when stats.jsonl was truncated or deleted. Not here: what a session did (trainer.records.diary,
trainer.records.summary).
"""

import secrets
from datetime import UTC, datetime
from pathlib import Path

from trainer.errors import TrainerError
from trainer.figure import Frozen
from trainer.records.diary import STATS_FILE, Diary

__all__ = ["RunIdentity", "check_dataset", "identify"]


class RunIdentity(Frozen):
    """Of one session of a run.

    Attributes:
        run_id: the record's id.
        session: number of the session, from 0; as many came before it, whatever the diary still holds of them.
        dataset_sha256: of the shards it trains on.
    """

    run_id: str
    session: int
    dataset_sha256: str


def identify(
    run_dir: Path, diary: Diary, saved: RunIdentity | None, wanted_id: str, preset: str, dataset_sha256: str
) -> RunIdentity:
    """The identity of a session that is about to begin.

    Args:
        run_dir: of the run, for the error message.
        diary: what can be read of the sessions before.
        saved: of the checkpoint it goes on from; None for none.
        wanted_id: the launcher's id for a new run; empty for one made up of preset, time and four random digits.
        preset: of the configuration.
        dataset_sha256: of the shards.

    Raises:
        TrainerError: diary and checkpoint are of two different runs.
    """
    told = diary.beginnings[0]["run_id"] if diary.beginnings else ""
    if saved is not None and told and told != saved.run_id:
        raise TrainerError(
            place=str(run_dir / STATS_FILE),
            problem="is of another run than the checkpoints beside it",
            value=told,
            allowed=saved.run_id,
            fix=f"move {STATS_FILE} away, or put the checkpoints back that belong to it",
        )
    known = [line["session"] for line in diary.lines] + ([] if saved is None else [saved.session])
    return RunIdentity(
        run_id=(saved.run_id if saved else told) or wanted_id or _made_up(preset),
        session=1 + max(known, default=-1),
        dataset_sha256=dataset_sha256,
    )


def _made_up(preset: str) -> str:
    """An id that runs begun in one second do not share: the seeds of a loop in a shell begin so."""
    return f"{preset}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def check_dataset(saved: RunIdentity, dataset_sha256: str, data_dir: Path) -> None:
    """Compares the shards with those a checkpoint was trained on.

    Raises:
        TrainerError: they are others; going on would mix two data sets in one run.
    """
    if saved.dataset_sha256 != dataset_sha256:
        raise TrainerError(
            place="--data",
            problem=f"the shards in {data_dir} are not those the run was trained on",
            value=f"sha256 {dataset_sha256}",
            allowed=f"sha256 {saved.dataset_sha256}",
            fix="name the folder of the run's own shards with --data, or start a new run in another --run-dir",
        )
