"""A damaged checkpoint ends no job that is moved: the one before it goes along."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gangway.jobs import moves
from gangway.jobs.base import Phase
from gangway.jobs.copying import copy_run
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import limited, over, until
from tests.gangway.jobs.test_copying import quiet

OLDER, NEWER = ("000000001024", "000000001280")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two checkpoints in parts, as the trainer writes them."""
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "stats.jsonl").write_text("{}\n")
    for name in (OLDER, NEWER):
        sums = {}
        for file in (f"{name}.pt", f"{name}.part-0-of-1"):
            (folder / file).write_bytes(file.encode() * 100)
            sums[file] = sha256((folder / file).read_bytes()).hexdigest()
        state, part = sums.items()
        manifest = {"images": 1, "sha256": state[1], "parts": [{"file": part[0], "sha256": part[1], "bytes": 1}]}
        (folder / f"{name}.json").write_text(json.dumps(manifest))
    return tmp_path / "run"


def copied(run: Path) -> tuple[set[str], tuple[str, ...]]:
    """Which checkpoints there are in a copy, and what is said to have stayed."""
    target = run.with_name("copy")
    target.mkdir()
    left_out = copy_run(run.as_uri(), target.as_uri(), quiet, whole=False).left_out
    assert (target / "stats.jsonl").exists()
    found = {path.name for path in (target / "checkpoints").iterdir()}
    names = {name.partition(".")[0] for name in found}
    for name in names:
        wanted = {path.name for path in (run / "checkpoints").glob(f"{name}.*")}
        assert {each for each in found if each.startswith(name)} == wanted
    return names, left_out


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".pt", zeroed),
        (".part-0-of-1", zeroed),
        (".part-0-of-1", Path.unlink),
        (".json", zeroed),
        (".json", Path.unlink),
        (".pt", Path.unlink),
    ],
)
def test_the_newest_that_is_intact_goes_along(run: Path, ending: str, damage: Callable[[Path], None]) -> None:
    damage(run / "checkpoints" / f"{NEWER}{ending}")
    names, left_out = copied(run)
    assert names == {OLDER}
    is_one = (ending, damage) != (".pt", Path.unlink)  # the trainer sees none there either
    assert [NEWER in line for line in left_out] == [True] * is_one


@pytest.mark.parametrize("damaged", [(), (OLDER,), (OLDER, NEWER)])
def test_the_newest_does_where_it_is_intact_or_none_is(run: Path, damaged: tuple[str, ...]) -> None:
    for name in damaged:
        zeroed(run / "checkpoints" / f"{name}.pt")
    assert copied(run) == ({NEWER}, ())


@pytest.mark.slow
def test_a_trained_run_goes_on_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = LocalQueue(tmp_path / "a"), LocalQueue(tmp_path / "b")
    keys = {
        "name": "digits", "preset": "dcgan-digits", "kimg": 3, "seed": 7, "max_hours": 1, "checkpoint_kimg": 0.5,
        "settings": {"ngf": 4, "ndf": 4, "metrics": "none", "batch_size": 16, "stats_kimg": 0.1},
    }  # fmt: skip
    job_id = source.submit(JobFile.model_validate(keys))
    checkpoints = tmp_path / "a" / job_id / "run" / "checkpoints"
    until(source, job_id, lambda found, log: len(list(checkpoints.glob("*.pt"))) > 1)

    def after_a_crash(*args: Any, **kwargs: Any) -> Any:
        zeroed(max(checkpoints.glob("*.pt")))
        return copy_run(*args, **kwargs)

    monkeypatch.setattr(moves, "copy_run", after_a_crash)
    moved = move_job(source, job_id, target, limited(), quiet)
    assert moved.copied is not None
    (line,) = moved.copied.left_out
    assert max(checkpoints.glob("*.pt")).name in line
    assert over(target, moved.job_id).phase is Phase.DONE
    record = json.loads((tmp_path / "b" / moved.job_id / "run" / "run.json").read_bytes())
    assert len(record["sessions"]) == 2
