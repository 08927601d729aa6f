"""Split networks train as whole ones do, and their checkpoints are whole: a run may be split now and not then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gangway.trainer.checkpoint.samples import load_generator
from gangway.trainer.checkpoint.store import load_newest_valid, state_digests
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.sharded_modules import accumulate, gradients, is_sharded, whole
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps.state import TrainState


def _row(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in weights.values()])


@pytest.mark.slow
def test_a_split_run_is_the_whole_one(
    torchrun: Callable[..., Any],
    tiny_config: TrainConfig,
    digits_dir: Path,
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    """In micro-batches, so that the split networks add up gradients too before they average; begun by two workers, gone
    on with by four, and then by one, which reads their parts.
    """
    changes = {"kimg": 0.32, "checkpoint_kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.08, "batch_gpu": 4}
    config = tiny_config.replace(changes)
    assert train(config, tmp_path / "whole", digits_dir, RunContext(), Interruption()) == 0
    (tmp_path / "config.json").write_text(config.to_json())
    for shard, kimg, workers in (("fsdp2", "0.16", 2), ("hsdp", "0.32", 4)):
        argv = [
            "train",
            "--config",
            str(tmp_path / "config.json"),
            "--run-dir",
            str(tmp_path / "split"),
            "--kimg",
            kimg,
        ]
        words = ("--data", str(digits_dir), "--shard", shard)
        code, text = torchrun("-m", "gangway.trainer", *argv, *words, workers=workers).finish()
        assert code == 0, text
    sessions = [line["choices"]["shard"] for line in lines_of(tmp_path / "split") if line.get("event") == "choices"]
    assert sessions == ["fsdp2: over 2 workers, 10 units, asked for", "hsdp: over 1 x 4 workers, 10 units, asked for"]
    ticks = [
        {line["images"]: line for line in lines_of(tmp_path / name) if "step" in line} for name in ("whole", "split")
    ]
    assert list(ticks[0]) == list(ticks[1]) == [80, 160, 240, 320]
    for images, line in ticks[0].items():
        for name in ("loss_g", "loss_d", "r1", "grad_norm_g", "grad_norm_d"):
            assert ticks[1][images][name] == pytest.approx(line[name], rel=1e-3), (images, name)
    states = [load_newest_valid(tmp_path / name / "checkpoints")[0] for name in ("whole", "split")]
    assert states[0] is not None
    assert states[1] is not None
    first = TrainState.create(config, torch.device("cpu")).state_dict()
    for part in ("g", "d", "ema"):
        # The same sums in another order, which Adam's first steps magnify: by the direction of a gradient that is
        # almost zero a weight goes a whole step either way. Of all that a network has learnt it is next to nothing.
        begun, expected, found = (_row(state[part]) for state in (first, states[0].state, states[1].read()))
        assert float((found - expected).norm() / (expected - begun).norm()) < 0.01, part
        assert float((found - expected).abs().max()) <= 4 * max(config.lr_g, config.lr_d), "two such steps of twenty"

    assert [part.file for part in states[1].manifest.parts] == [f"000000000320.part-{n}-of-4" for n in range(4)]
    digests = RunRecord.read(tmp_path / "split" / "run.json").state_sha256
    assert state_digests(states[1].read()) == digests, "what the record says is of the whole tensors"

    # One process goes on with what two had split, and has nothing to split.
    further = config.replace({"kimg": 0.48, "shard": "fsdp2"})
    assert train(further, tmp_path / "split", digits_dir, RunContext(), Interruption()) == 0
    record = RunRecord.read(tmp_path / "split" / "run.json")
    assert [session.world_size for session in record.sessions] == [2, 4, 1]
    assert record.choices["shard"] == "ddp: fsdp2 was asked for, but one process has nothing to share"

    # What one has written whole two go on with, each with its part.
    argv[-1] = "0.56"
    code, text = torchrun("-m", "gangway.trainer", *argv, "--data", str(digits_dir), "--shard", "fsdp2").finish()
    assert code == 0, text
    assert "goes on from 480 of 560 images" in text


@pytest.mark.slow
def test_a_damaged_part_is_found_by_all_workers(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    config = tiny_config.replace({"kimg": 0.16, "checkpoint_kimg": 0.08, "sample_kimg": 100, "shard": "fsdp2"})
    (tmp_path / "config.json").write_text(config.to_json())
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run"), "--data", str(digits_dir)]
    code, text = torchrun("-m", "gangway.trainer", "train", *words).finish()
    assert code == 0, text
    part = tmp_path / "run" / "checkpoints" / "000000000160.part-1-of-2"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    code, text = torchrun("-m", "gangway.trainer", "train", *words, "--kimg", "0.24").finish()
    assert code == 0, text
    assert f"the hash of {part.name} is not the one in its manifest" in text
    assert "goes on from 80 of 240 images" in text
    (tmp_path / "run" / "checkpoints" / "000000000240.part-0-of-2").unlink()
    trained = load_generator(tmp_path / "run", torch.device("cpu"))
    assert trained.manifest.images == 160, "written anew over the damaged one"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"precision": "fp16"}, "precision"),
        ({"compile": "on"}, "compile"),
        ({"backend": "xla"}, "backend"),
    ],
)
def test_what_does_not_go_with_split_networks_is_refused(
    tiny_config: TrainConfig, changes: dict[str, str], field: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        tiny_config.replace({"shard": "fsdp2", **changes})
    assert caught.value.place == f"TrainConfig.{field}"
    assert "--shard ddp" in caught.value.fix


def test_whole_networks_are_left_alone() -> None:
    network = nn.Linear(2, 2)
    accumulate(network, last=False)
    assert not is_sharded(network)
    assert gradients(network) == []
    value = torch.ones(2)
    assert whole({"a": [value, 3]})["a"][0] is value
