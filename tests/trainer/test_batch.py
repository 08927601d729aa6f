"""However a global batch is shared out, the workers' weighted gradients and statistics are those of the whole batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import PRESETS, TrainConfig
from trainer.interruption import Interruption
from trainer.loop import train
from trainer.record import RunContext

THREE_WORKERS = """
import dataclasses, sys
from pathlib import Path
import torch
from trainer import distributed
from trainer.batch import Batch
from trainer.config import TrainConfig
from trainer.data import open_matching
from trainer.draws import Purpose
from trainer.losses import DLoss, GLoss
from trainer.networks import build

config = TrainConfig.from_file(Path(sys.argv[1]))
data = open_matching(config, Path(sys.argv[2]))

def gradients(world, step):
    # One step's losses as the loop computes them, in float64 and without an optimiser.
    generator, discriminator = (network.double() for network in build(config))
    d_loss = world.wrap(DLoss(discriminator, config.augment, config.r1_gamma / 2 * config.r1_interval))
    g_loss = world.wrap(GLoss(generator, discriminator, config.augment))
    batch = Batch(config, world, data)
    images = step * config.batch_size
    with torch.no_grad():
        fakes = generator(batch.latents(images, Purpose.D_LATENTS).double())
    uniforms = [batch.uniforms(images, purpose).double() for purpose in (Purpose.REAL_AUGMENT, Purpose.FAKE_AUGMENT)]
    terms = d_loss(batch.reals(images).double(), fakes, *uniforms, step == 0)
    (batch.weight * terms.total).backward()
    discriminator.requires_grad_(False)
    loss = g_loss(batch.latents(images, Purpose.G_LATENTS).double(), batch.uniforms(images, Purpose.G_AUGMENT).double())
    (batch.weight * loss).backward()
    named = [*generator.named_parameters(), *discriminator.named_parameters()]
    return {(name, value.shape): value.grad for name, value in named}

with distributed.start("gloo") as world:
    assert [part.stop - part.start for part in world.gather(world.slice(64))] == [22, 21, 21]
    alone = dataclasses.replace(world, rank=0, world_size=1, control=None)
    for step in (0, 1):  # with the penalty, and without it
        whole, shared = gradients(alone, step), gradients(world, step)
        assert whole.keys() == shared.keys() and all(value.abs().sum() > 0 for value in whole.values())
        for name, expected in whole.items():
            # Float64 sums of the same 64 terms in another order: 1e-16 each, a thousandth of the least tolerated.
            torch.testing.assert_close(shared[name], expected, rtol=1e-9, atol=1e-12, msg=f"step {step}: {name}")
    print("worker is content")
"""


def test_three_workers_average_to_the_gradient_of_the_whole_batch(
    torchrun: Callable[..., Any], tmp_path: Path, digits_dir: Path
) -> None:
    config = PRESETS["dcgan-digits"].replace({"ngf": 8, "ndf": 8})
    assert config.batch_size == 64
    (tmp_path / "config.json").write_text(config.to_json())
    script = tmp_path / "three_workers.py"
    script.write_text(THREE_WORKERS)
    code, output = torchrun(str(script), str(tmp_path / "config.json"), str(digits_dir), workers=3).finish()
    assert code == 0, output
    assert output.count("worker is content") == 3, output


def test_statistics_of_uneven_shares_are_those_of_one_worker(
    torchrun: Callable[..., Any],
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    """Four images over three workers: the first has two. Unweighted means would be off by percents."""
    config = tiny_config.replace({"batch_size": 4, "kimg": 0.016, "stats_kimg": 0.004, "r1_interval": 1})
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    argv = [
        "-m",
        "trainer",
        "train",
        "--config",
        str(path),
        "--run-dir",
        str(tmp_path / "3"),
        "--data",
        str(digits_dir),
    ]
    code, output = torchrun(*argv, workers=3).finish()
    assert code == 0, output
    train(config, tmp_path / "1", digits_dir, RunContext(), Interruption())
    one, three = ([line for line in lines_of(tmp_path / name) if "step" in line] for name in "13")
    assert [line["world_size"] for line in one + three] == [1] * 4 + [3] * 4
    assert [line["images"] for line in three] == [line["images"] for line in one] == [4, 8, 12, 16]
    for key in ("loss_g", "loss_d", "r1", "grad_norm_g", "grad_norm_d"):
        # Float32, and Adam's first steps magnify the rounding of near-zero gradients.
        assert [line[key] for line in three] == pytest.approx([line[key] for line in one], rel=1e-3), key
