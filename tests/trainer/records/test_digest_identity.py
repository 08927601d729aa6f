"""A run keeps its id and its count of sessions while diary or checkpoint knows them."""

import re
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.digest import RunIdentity, check_dataset, identify
from gangway.trainer.records.stats_log import StatsLog

SAVED = RunIdentity(run_id="r", session=2, dataset_sha256="ab")


def _begin(session: int, run_id: str = "r") -> dict[str, Any]:
    return {"event": "resume" if session else "start", "session": session, "run_id": run_id}


@pytest.mark.parametrize(
    ("lines", "saved", "wanted", "expected"),
    [
        ([], None, "wanted", ("wanted", 0)),
        ([_begin(0), _begin(1)], None, "wanted", ("r", 2)),
        ([], SAVED, "wanted", ("r", 3)),
        ([_begin(0)], SAVED, "", ("r", 3)),
        ([_begin(0), _begin(4)], SAVED, "", ("r", 5)),
        ([{"session": 6}], SAVED, "", ("r", 7)),
        ([{"session": 0}], None, "wanted", ("wanted", 1)),
    ],
)
def test_identity(
    lines: list[dict[str, Any]], saved: RunIdentity | None, wanted: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    found = identify(tmp_path, StatsLog(lines, 0), saved, wanted, "p", "ab")
    assert (found.run_id, found.session) == expected
    assert found.dataset_sha256 == "ab"


def test_a_run_nobody_named_is_named_by_preset_and_time_and_by_chance(tmp_path: Path) -> None:
    made = {identify(tmp_path, StatsLog([], 0), None, "", "p", "ab").run_id for _ in range(8)}
    assert all(re.fullmatch(r"p-\d{8}T\d{6}Z-[0-9a-f]{4}", one) for one in made)
    assert len(made) > 1, "runs that begin in one second are runs of their own"


def test_a_diary_and_a_checkpoint_of_two_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="is of another run than the checkpoints") as caught:
        identify(tmp_path, StatsLog([_begin(0, "other")], 0), SAVED, "", "p", "ab")
    assert (caught.value.value, caught.value.allowed) == ("other", "r")


def test_other_shards_than_the_runs_own_are_refused(tmp_path: Path) -> None:
    check_dataset(SAVED, "ab", tmp_path)
    with pytest.raises(TrainerError, match=r"--data: the shards in .* are not those the run was trained on") as caught:
        check_dataset(SAVED, "cd", tmp_path)
    assert (caught.value.value, caught.value.allowed) == ("sha256 cd", "sha256 ab")
