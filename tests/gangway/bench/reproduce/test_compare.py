"""Two runs side by side: equal bits, differences in size and place, and the reasons that records can give."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.bench.reproduce import compare
from gangway.runs.run_folders import Run, find_runs
from gangway.trainer.records.quality import QualityInTraining, QualityPoint
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

Rewrite = Callable[..., RunRecord]


@pytest.fixture
def other_dir(run_dir: Path) -> Path:
    """The same run once more."""
    shutil.copytree(run_dir, run_dir.parent / "b")
    return run_dir.parent / "b"


def read(folder: Path) -> Run:
    return find_runs([folder / "run.json"])[0]


def edit_lines(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    path = folder / "stats.jsonl"
    lines = [change(json.loads(text)) for text in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


@pytest.mark.slow
def test_a_run_equals_itself(run_dir: Path, other_dir: Path) -> None:
    found = compare(read(run_dir), read(other_dir))
    assert found.bit_equal is True
    assert (found.images, found.states, found.states_equal, found.windows, found.left_out) == (480, 3, 3, 3, 0)
    assert set(found.parts) >= {"g", "d", "ema", "opt_g", "opt_d"}
    assert set(found.max_relative_difference.values()) == {0.0}
    assert (found.worst_images, found.reasons) == (None, ())


@pytest.mark.slow
def test_another_state_differs_part_by_part(run_dir: Path, other_dir: Path, rewrite: Rewrite) -> None:
    states = read(other_dir).record.state_sha256
    rewrite(other_dir, state_sha256={**states, "ema": "0" * 64})
    found = compare(read(run_dir), read(other_dir))
    assert found.bit_equal is False
    assert [name for name, same in found.parts.items() if not same] == ["ema"]
    assert (found.states, found.states_equal) == (3, 2)


@pytest.mark.slow
def test_losses_differ_by_so_much_and_there(run_dir: Path, other_dir: Path) -> None:
    def change(line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "loss_g": line["loss_g"] * 1.25} if line["images"] == 320 and "loss_g" in line else line

    edit_lines(other_dir, change)
    found = compare(read(run_dir), read(other_dir))
    assert found.bit_equal is False
    assert found.max_relative_difference["loss_g"] == pytest.approx(0.2), "0.25 of the smaller is 0.2 of the greater"
    assert found.max_relative_difference["loss_d"] == 0
    assert found.worst_images == 320


def test_lines_with_other_ends_are_not_compared(run_dir: Path, other_dir: Path) -> None:
    edit_lines(other_dir, lambda line: None if line["images"] == 160 and "loss_g" in line else line)
    found = compare(read(run_dir), read(other_dir))
    assert (found.windows, found.left_out, found.bit_equal) == (1, 2, True)


def test_without_a_common_state_nobody_knows(run_dir: Path, other_dir: Path, rewrite: Rewrite) -> None:
    shutil.rmtree(run_dir / "checkpoints")
    rewrite(run_dir, state_sha256={})
    assert compare(read(run_dir), read(other_dir)).bit_equal is None
    (run_dir / "stats.jsonl").unlink()
    found = compare(read(run_dir), read(other_dir))
    assert (found.bit_equal, found.windows) == (None, 0)
    assert set(found.max_relative_difference.values()) == {None}


def test_a_damaged_line_is_passed_over(run_dir: Path, other_dir: Path) -> None:
    with (other_dir / "stats.jsonl").open("a") as file:
        file.write('{"images": 4\n[1]\n')
    assert compare(read(run_dir), read(other_dir)).bit_equal is True


def test_quality_is_compared_at_the_same_moment(run_dir: Path, other_dir: Path, rewrite: Rewrite) -> None:
    for folder, values in ((run_dir, (9.0, 5.0)), (other_dir, (9.0, 4.5))):
        points = (
            QualityPoint(name="fd", kimg=0.16, value=values[0]),
            QualityPoint(name="fd", kimg=0.48, value=values[1]),
        )
        cost = Quantity.absent("s", "test")
        whole = QualityInTraining(points=points, cost_sec=cost, share_of_wall=cost)
        rewrite(folder, quality_in_training=whole.model_dump(mode="json"))
    found = compare(read(run_dir), read(other_dir))
    assert [(one.kimg, one.recorded, one.again) for one in found.quality] == [(0.16, 9.0, 9.0), (0.48, 5.0, 4.5)]
    assert found.bit_equal is False
    assert found.to_json()["quality"][1] == {"name": "fd", "kimg": 0.48, "recorded": 5.0, "again": 4.5}


def test_everything_that_was_otherwise_is_a_reason(run_dir: Path, other_dir: Path, rewrite: Rewrite) -> None:
    record = read(run_dir).record
    sessions = [session.model_dump(mode="json") for session in record.sessions]
    before = [{**sessions[0], "world_size": 4}, {**sessions[0], "world_size": 2, "num_nodes": 2, "device": "GPU X"}]
    versions = {name: value for name, value in record.versions.items() if name != "cpu"}
    rewrite(
        run_dir,
        code_sha256="a" * 64,
        versions={**versions, "torch": "1.0"},
        sessions=before,
        choices={**record.choices, "compile": "on: asked for"},
        image_digest="sha256:1",
    )
    reasons = compare(read(run_dir), read(other_dir), ["told before"]).reasons
    assert reasons[0] == "told before"
    assert [reason.partition(":")[0] for reason in reasons[1:]] == [
        "trainer's code", "cpu", "torch", "device", "workers", "nodes", "compile", "image",
    ]  # fmt: skip
    assert reasons[2].endswith("not recorded then")
    assert reasons[5] == "workers: 1 here, 4, then 2 then: sums have another order"


def test_a_gpu_is_a_reason_of_its_own(run_dir: Path, other_dir: Path, rewrite: Rewrite) -> None:
    session = {**read(run_dir).record.sessions[0].model_dump(mode="json"), "device": "NVIDIA H200"}
    for folder in (run_dir, other_dir):
        rewrite(folder, sessions=[session])
    (reason,) = compare(read(run_dir), read(other_dir)).reasons
    assert "without a fixed order" in reason
