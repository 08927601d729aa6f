"""Which run this is and which of its sessions: known from stats.jsonl, or from the checkpoint when that is lost.

Every checkpoint's manifest carries a RunIdentity.
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
        session: its number, from 0; as many came before it, whatever stats.jsonl still holds of them.
        dataset_sha256: of the shards it trains on.
    """

    run_id: str
    session: int
    dataset_sha256: str


def identify(
    run_dir: Path, diary: Diary, saved: RunIdentity | None, wanted_id: str, preset: str, dataset_sha256: str
) -> RunIdentity:
    """The identity of a session that is about to begin (TrainerError: stats.jsonl and checkpoint are of two runs).

    `saved` is of the checkpoint it goes on from, None for none; `wanted_id` is the launcher's for a new run, empty for
    one made up of preset, time and four random digits.
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
    """TrainerError where a checkpoint was trained on other shards: going on would mix two data sets in one run."""
    if saved.dataset_sha256 != dataset_sha256:
        raise TrainerError(
            place="--data",
            problem=f"the shards in {data_dir} are not those the run was trained on",
            value=f"sha256 {dataset_sha256}",
            allowed=f"sha256 {saved.dataset_sha256}",
            fix="name the folder of the run's own shards with --data, or start a new run in another --run-dir",
        )
