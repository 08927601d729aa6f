"""Runs that are repeated: what a record asks of this machine, what is refused, and two runs side by side."""

import json
import math
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.bench.local import Hardware
from gangway.bench.reproduce import _job, _start_command, compare, execute, plan_rerun, rerun_name
from gangway.components.core.findings import InputError
from gangway.runs.run_folders import Run, find_runs
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.quality import QualityInTraining, QualityPoint
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext, RunRecord

MACHINE = Hardware(cpu="Model 1", cores=2, memory_gib=8.0, gpus=[], system="Linux x86_64")
WITH_GPUS = Hardware({**MACHINE, "gpus": ["H200", "H200"]})


@pytest.fixture
def run(run_dir: Path) -> Run:
    return find_runs([run_dir / "run.json"])[0]


def with_session(run: Run, **changes: object) -> Run:
    """The run, its last session otherwise."""
    last = run.record.sessions[-1].model_copy(update=changes)
    return run._replace(record=run.record.model_copy(update={"sessions": (last,)}))


def test_a_whole_record_is_its_own_configuration(run: Run) -> None:
    again = plan_rerun(run, MACHINE, None, None)
    assert again.config == run.record.config
    assert (again.workers, again.threads, again.on_gpus, again.changes) == (1, 1, False, ())
    assert again.data_dir == run.path / "data"
    job = _job(again, Path("o"), RunContext(run_id="again"))
    assert job.argv[:3] == ["train", "--config", "o/train.json"]
    assert job.training is not None
    assert TrainConfig.from_json(job.training.document) == again.config
    assert (job.env["OMP_NUM_THREADS"], job.backend) == ("1", "gloo")


@pytest.mark.parametrize(("kimg", "images"), [(0.16, 160), (0.161, 176), (0.48, 480)])
def test_a_part_ends_with_a_whole_step(run: Run, kimg: float, images: int) -> None:
    assert plan_rerun(run, MACHINE, kimg, None).config.total_images == images


@pytest.mark.parametrize("kimg", [0, -1, 0.5, math.nan, math.inf])
def test_a_part_that_the_record_lacks_is_refused(run: Run, kimg: float) -> None:
    with pytest.raises(InputError, match=r"--kimg: run .* has nothing to compare there") as caught:
        plan_rerun(run, MACHINE, kimg, None)
    assert "at most 0.48" in str(caught.value)


def test_a_trainer_of_an_earlier_day_is_given_no_field_that_it_did_not_record(run_dir: Path, tmp_path: Path) -> None:
    path = run_dir / "run.json"
    record = json.loads(path.read_text())
    del record["config"]["mirror"], record["digest"]
    path.write_text(json.dumps(record))
    again = plan_rerun(find_runs([path])[0], MACHINE, 0.16, None)
    job, _ = _start_command(again, tmp_path / "out", "id-again", MACHINE, None)
    assert job.training is not None
    assert job.training.config == {**record["config"], "kimg": 0.16}
    context = json.loads(job.env["GANGWAY_CONTEXT"])
    assert {"run_id", "machine_type"} <= context.keys() < RunContext.model_fields.keys(), "what is said, and no default"


def test_a_run_without_images_is_refused(run: Run) -> None:
    nothing = run._replace(record=run.record.model_copy(update={"images": 0}))
    with pytest.raises(InputError, match="has trained on no image"):
        plan_rerun(nothing, MACHINE, None, None)


def test_a_machine_too_small_takes_fewer_workers_and_says_so(run: Run) -> None:
    again = plan_rerun(with_session(run, world_size=16), MACHINE, None, None)
    assert again.workers == 4
    assert again.changes == ("workers: 4 here, 16 then: this machine has 2 cores of Model 1, 8 GiB",)


def test_a_run_on_gpus_goes_to_the_cpu_where_there_are_none(run: Run) -> None:
    config = run.record.config.model_copy(update={"backend": "nccl"})
    on_gpus = with_session(run, device="NVIDIA H200", world_size=2)
    on_gpus = on_gpus._replace(record=on_gpus.record.model_copy(update={"config": config}))
    again = plan_rerun(on_gpus, MACHINE, None, None)
    assert (again.config.backend, again.on_gpus, again.threads) == ("auto", False, None)
    assert again.changes == ("device: CPU here, NVIDIA H200 then", "backend: auto here, nccl then")
    there = plan_rerun(on_gpus, WITH_GPUS, None, None)
    assert (there.config.backend, there.on_gpus, there.workers, there.changes) == ("nccl", True, 2, ())


def test_a_run_on_the_cpu_stays_there_on_a_machine_with_gpus(run: Run) -> None:
    again = plan_rerun(run, WITH_GPUS, None, None)
    assert (again.config.backend, again.on_gpus) == ("gloo", False)


def test_other_images_are_refused(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run.path / "data", other)
    index = json.loads((other / "index.json").read_text())
    (other / "index.json").write_text(json.dumps({**index, "sha256": "1" * 64}))
    with pytest.raises(InputError, match="not the images of the record") as caught:
        plan_rerun(run, MACHINE, None, other)
    assert "1" * 64 in str(caught.value)
    assert run.record.dataset.sha256 in str(caught.value)


def test_data_that_is_not_there(run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data: no shards of digits in"):
        plan_rerun(run, MACHINE, None, tmp_path)
    shutil.rmtree(run.path / "data")
    assert plan_rerun(run, MACHINE, None, None).data_dir is None, "the trainer prepares digits itself"
    celeba = run.record.dataset.model_copy(update={"name": "celeba"})
    with pytest.raises(InputError, match="no shards of celeba"):
        plan_rerun(run._replace(record=run.record.model_copy(update={"dataset": celeba})), MACHINE, None, None)


def test_shards_beside_the_run_are_found(run: Run) -> None:
    (run.path / "data").rename(run.path.parent / "data")
    assert plan_rerun(run, MACHINE, None, None).data_dir == run.path.parent / "data"


@pytest.mark.slow
def test_data_made_anew_that_is_other_data_leaves_nothing(run: Run, tmp_path: Path) -> None:
    again = plan_rerun(run, MACHINE, 0.016, None)._replace(data_dir=None, dataset_sha256="2" * 64)
    with pytest.raises(InputError, match="the trainer's shards: not the images"):
        execute(again, tmp_path / "out", "x", MACHINE, lambda images: None)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_trainer_that_refuses_is_quoted(run: Run, tmp_path: Path) -> None:
    again = plan_rerun(run, MACHINE, None, None)
    again = again._replace(config=again.config.model_copy(update={"dataset": "celeba"}))
    with pytest.raises(InputError, match=r"the trainer ended with 2: .*celeba"):
        execute(again, tmp_path / "out", "x", MACHINE, lambda images: None)


NAMES = st.text(max_size=300) | st.sampled_from(
    ["/etc/cron.d/x", "../../x", "..", ".", "", ".ssh", "-rf", "a/b", "a\nb", "\u202ea", "$(id)", "x" * 400]
)


@given(NAMES)
def test_the_new_runs_name_is_one_folders(name: str) -> None:
    """A record from elsewhere may call itself what it likes: the run lands in --out, under a name that a disk and an
    engine of containers take.
    """
    named = rerun_name(name, datetime(2026, 11, 1, tzinfo=UTC))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}", named)
    assert (Path("/out") / named).parent == Path("/out")
    assert named.endswith("-again-20261101T000000Z")


def test_a_plain_name_stays_as_it_is() -> None:
    assert rerun_name("20261101-a_b.c", datetime(2026, 11, 1, tzinfo=UTC)).startswith("20261101-a_b.c-again-")


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
