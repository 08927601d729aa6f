"""However a global batch is shared out, the workers' weighted gradients and statistics are those of the whole batch."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gangway.trainer.checkpoint.samples import to_uint8
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import Sampler, order_digest
from gangway.trainer.data.shards import open_matching
from gangway.trainer.distributed.world import World
from gangway.trainer.phases import rng
from gangway.trainer.phases.augment import GATES, UNIFORMS
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.losses import DLoss, GLoss, Inputs
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run.loop import train
from gangway.trainer.steps.state import TrainState


@pytest.fixture
def alone() -> World:
    return World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "a test's")


THREE_WORKERS = """
import dataclasses, sys
from pathlib import Path
import torch
from gangway.trainer.distributed.world import start_world
from gangway.trainer.phases.batch import Batch
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.shards import open_matching
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases

def doubled(inputs):
    # In float64, but for labels.
    return type(inputs)(*(each.double() if each is not None and each.is_floating_point() else each for each in inputs))

def gradients(config, data, world, step):
    # One step's losses as the loop computes them, in float64 and without an optimiser.
    state = TrainState.create(config, world.device)
    state.load_state_dict({**state.state_dict(), "images": step * config.step_images})
    networks = {name: role.network.double() for name, role in state.roles.items()}
    phases, batch = get_phases(state), Batch(config, world, data)
    losses = {phase.key: world.wrap(phase.loss) for phase in phases}
    for phase in phases:
        loss, penalised = losses[phase.key], step % config.r1_interval == 0
        for name in phase.resting:
            networks[name].requires_grad_(False)
        for micro in phase.inputs(batch, state, state.images):
            with world.accumulating(loss, last=micro.last):
                terms = phase.run(loss, doubled(micro.inputs), penalised=penalised, settle=None)
                (micro.weight * terms.total).backward()
    for loss in losses.values():
        world.settle(loss)
    named = [(role, name, value) for role, each in networks.items() for name, value in each.named_parameters()]
    return {(f"{role}.{name}", value.shape): value.grad for role, name, value in named}

with start_world("gloo") as world:
    alone = dataclasses.replace(world, rank=0, world_size=1, control_ref=None, mesh=None)
    for config_path, folder in zip(sys.argv[1::2], sys.argv[2::2]):
        config = TrainConfig.from_file(Path(config_path))
        data = open_matching(config, Path(folder))
        pieces = config.replace({"batch_gpu": 2})
        part = world.slice(config.batch_size, config.group)
        assert world.gather(part.stop - part.start) == ([5, 5, 4] if config.group == 1 else [6, 4, 4])
        for step in (0, 1, 2):  # with the lazy penalty and without it; progressive: 4x4, and a fade's begin and middle
            whole, shared = gradients(config, data, alone, step), gradients(pieces, data, world, step)
            assert whole.keys() == shared.keys() and sum(value.abs().sum() > 0 for value in whole.values()) > 8
            for name, expected in whole.items():
                # Float64 sums of the same terms in another order: 1e-16 each, a thousandth of the least tolerated.
                message = f"{config.preset}, step {step}: {name}"
                torch.testing.assert_close(shared[name], expected, rtol=1e-9, atol=1e-12, msg=message)
    print("worker is content")
"""


@pytest.mark.slow
def test_three_workers_and_micro_batches_come_to_the_gradient_of_the_whole_batch(
    torchrun: Callable[..., Any], tmp_path: Path, some_families: dict[str, tuple[TrainConfig, Path]]
) -> None:
    script = tmp_path / "three_workers.py"
    script.write_text(THREE_WORKERS)
    argv = [str(script)]
    for name, (config, folder) in some_families.items():
        (tmp_path / f"{name}.json").write_text(config.replace({"batch_size": 14}).to_json())
        argv += [str(tmp_path / f"{name}.json"), str(folder)]
    code, output = torchrun(*argv, workers=3).finish()
    assert code == 0, output
    assert output.count("worker is content") == 3, output


def test_mirrored_reals_come_as_often_as_the_others(families: dict[str, tuple[TrainConfig, Path]]) -> None:
    config, folder = families["dcgan"]
    data, world = open_matching(config, folder), World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    once = torch.from_numpy(data.take(np.arange(len(data)))).float() / 127.5 - 1
    for mirror, wanted in ((False, torch.cat([once, once])), (True, torch.cat([once, once.flip(-1)]))):
        batch = Batch(config.replace({"mirror": mirror, "batch_size": 2 * len(data)}), world, data)
        shown = batch.reals(0)
        assert sorted(shown.flatten(1).tolist()) == sorted(wanted.flatten(1).tolist())


@pytest.mark.slow
def test_statistics_of_uneven_shares_are_those_of_one_worker(
    torchrun: Callable[..., Any],
    train_argv: Callable[..., list[str]],
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    """Four images over three workers: the first has two. Unweighted means would be off by percents."""
    config = tiny_config.replace({"batch_size": 4, "kimg": 0.016, "stats_kimg": 0.004, "r1_interval": 1})
    argv = train_argv(config, tmp_path / "3", digits_dir)
    code, output = torchrun(*argv, workers=3).finish()
    assert code == 0, output
    train(config, tmp_path / "1", digits_dir, RunContext(), Interruption())
    one, three = ([line for line in lines_of(tmp_path / name) if "step" in line] for name in "13")
    assert [line["world_size"] for line in one + three] == [1] * 4 + [3] * 4
    assert [line["images"] for line in three] == [line["images"] for line in one] == [4, 8, 12, 16]
    for key in ("loss_g", "loss_d", "r1", "grad_norm_g", "grad_norm_d"):
        # Float32, and Adam's first steps magnify the rounding of near-zero gradients.
        assert [line[key] for line in three] == pytest.approx([line[key] for line in one], rel=1e-3), key


def test_draws_are_made_ahead_in_the_loaders_thread(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    honest = rng.StepRng.__call__

    def noted(self: rng.StepRng, images: int) -> dict[str, torch.Tensor]:
        threads.add(threading.current_thread().name.split("_")[0])
        return honest(self, images)

    monkeypatch.setattr(rng.StepRng, "__call__", noted)
    config = tiny_config.replace({"kimg": 0.16, "augment": "translation"})
    train(config, tmp_path, digits_dir, RunContext(), Interruption())
    assert threads == {"loader"}


def test_gates_follow_the_present_p(tiny_config: TrainConfig, digits_dir: Path, alone: World) -> None:
    """The draws were made before p was known."""
    config = tiny_config.replace({"augment": "translation", "ada_target": 0.6})
    batch, state = Batch(config, alone, open_matching(config, digits_dir)), TrainState.create(config, alone.device)
    for state.augment_p in (0.0, 0.3, 1.0):
        (micro,) = batch.for_discriminator(state, 0)
        gates = rng.uniforms(16, seed=config.seed, images=0, purpose=rng.Purpose.REAL_GATE, columns=GATES)
        assert micro.inputs.real_uniforms is not None
        assert torch.equal(micro.inputs.real_uniforms[:, UNIFORMS:], (gates < state.augment_p).float())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_no_step_waits_for_its_inputs(families: dict[str, tuple[TrainConfig, Path]]) -> None:
    device = torch.device("cuda", 0)
    world = World(0, 0, 1, 0, 1, device, "none", "a test's")
    for config, folder in families.values():
        batch, state = Batch(config, world, open_matching(config, folder)), TrainState.create(config, device)
        for _ in range(3):
            torch.cuda.set_sync_debug_mode("error")
            try:
                for images in range(state.images, state.images + config.step_images, config.batch_size):
                    assert all(len(micro.inputs.latents) for micro in batch.for_discriminator(state, images))
                assert all(len(micro.inputs.latents) for micro in batch.for_generator(state))
                state.advance()
            finally:
                torch.cuda.set_sync_debug_mode("default")


def _losses(config: TrainConfig, folder: Path, workers: int, images: int) -> torch.Tensor:
    """Both losses of the global batch after so many images, from the shares and micro-batches of that many workers."""
    total = torch.zeros(2, dtype=torch.float64)
    for rank in range(workers):
        world = World(rank, rank, workers, 0, 1, torch.device("cpu"), "none", "a test's")
        state = TrainState.create(config, world.device)
        state.load_state_dict({**state.state_dict(), "images": images})
        batch = Batch(config, world, open_matching(config, folder))
        d_loss, g_loss = DLoss(state.discriminator, config), GLoss(state.generator, state.discriminator, config)
        for micro in batch.for_discriminator(state, images):
            with torch.no_grad():
                fakes = state.generator(micro.inputs.latents, micro.inputs.labels)
            total[0] += micro.weight * d_loss(micro.inputs, fakes, True).total.double().item() / workers
        for micro in batch.for_generator(state):
            total[1] += micro.weight * g_loss(micro.inputs).double().item() / workers
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", ["progressive", "video"])
def test_groups_see_the_same_deviation_on_any_number_of_workers(
    families: dict[str, tuple[TrainConfig, Path]], name: str
) -> None:
    config, folder = families[name]
    config = config.replace({"batch_size": 16, "minibatch_std": 4})
    expected = _losses(config, folder, 1, 0)
    for workers, batch_gpu in ((1, 4), (1, 8), (2, 0), (2, 4), (3, 0), (4, 0)):
        found = _losses(config.replace({"batch_gpu": batch_gpu}), folder, workers, 0)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, msg=f"{workers} workers, {batch_gpu} at once")
    other = _losses(config.replace({"minibatch_std": 8}), folder, 1, 0)
    assert (other - expected).abs().max() > 1e-5, "it does depend on the groups"


def test_dequantised_values_lie_in_the_256th_that_they_stand_for(families: dict[str, tuple[TrainConfig, Path]]) -> None:
    config, folder = families["resnet"]
    assert config.dequantise
    data, world = open_matching(config, folder), World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    shown = Batch(config, world, data).reals(0)
    plain = Batch(config.replace({"dequantise": False}), world, data).reals(0)
    grey = ((plain + 1) * 127.5).round()
    assert shown.min() >= -1
    assert shown.max() < 1
    within = (shown + 1) * 128 - grey
    assert within.min() >= 0
    assert within.max() <= 1, "float32 may round the last numbers below 1 up to it"
    assert float(within.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(within.std()) == pytest.approx(12**-0.5, abs=0.01)
    read = to_uint8(shown, config).float()
    assert torch.equal(read[within < 1], grey[within < 1]), "samples are read as the reals are shown"
    assert torch.equal(to_uint8(plain, config.replace({"dequantise": False})).float(), grey)


def test_fresh_reals_of_the_generator_have_an_order_and_draws_of_their_own(
    families: dict[str, tuple[TrainConfig, Path]], alone: World
) -> None:
    config, folder = families["r3gan"]
    data, state = open_matching(config, folder), TrainState.create(config, alone.device)
    seen: dict[str, list[Inputs]] = {}
    for kind in ("same", "fresh"):
        batch = Batch(config.replace({"g_reals": kind}), alone, data)
        (of_d,), (of_g,) = batch.for_discriminator(state, 0), batch.for_generator(state)
        seen[kind] = [of_d.inputs, of_g.inputs]
        batch.close()
    same, fresh = seen["same"], seen["fresh"]
    assert same[1].real is not None
    assert fresh[1].real is not None
    assert same[0].real is not None
    assert torch.equal(same[0].real, same[1].real)
    assert not torch.equal(same[1].real, fresh[1].real)
    for name in ("latents", "fake_uniforms"):
        assert torch.equal(getattr(same[1], name), getattr(fresh[1], name)), "only the reals are others"
    assert not torch.equal(same[1].real_uniforms, fresh[1].real_uniforms)  # type: ignore[arg-type]
    # Each real image comes with its own label.
    numbers = Sampler(2 * len(data), config.seed, 1).indices(0, config.batch_size)
    assert fresh[1].labels is not None
    assert fresh[1].labels.tolist() == data.mirrored().labels(numbers).tolist()


def test_two_domains_are_shown_unpaired_each_in_an_order_of_its_own(families: Any, alone: World) -> None:
    """A function of seed and images seen: whole epochs of each, in any shares and pieces, and of both in the digest."""
    config, folder = families["cyclegan"]
    config = config.replace({"mirror": False})
    data = open_matching(config, folder)
    labels = data.labels(np.arange(len(data)))
    known = [data.take(np.flatnonzero(labels == label)) for label in (0, 1)]
    batch = Batch(config, alone, data)
    steps = [next(batch.for_translation(images)).inputs for images in range(0, 72, 12)]
    for domain, part in enumerate(known):
        shown = to_uint8(torch.cat([each[domain] for each in steps]), config).numpy()
        numbers = [int((part == image).all(axis=(1, 2, 3)).argmax()) for image in shown]
        assert all((part[number] == image).all() for number, image in zip(numbers, shown, strict=True))
        assert sorted(numbers[: len(part)]) == list(range(len(part))), "an epoch"
        assert numbers[: len(part)] != list(range(len(part)))
    orders = [batch.order(images) for images in range(0, 72, 12)]
    batch.close()
    again = Batch(config.replace({"batch_gpu": 4}), alone, data, 36)  # a later session
    assert again.order(36) == orders[3]
    pieces = list(again.for_translation(36))
    assert [piece.images for piece in pieces] == [4, 4, 4]
    for domain in (0, 1):
        assert torch.equal(torch.cat([piece.inputs[domain] for piece in pieces]), steps[3][domain])
    again.close()
    shares = [World(rank, 0, 3, 0, 1, torch.device("cpu"), "none", "a test's") for rank in range(3)]
    batches = [Batch(config, world, data, 12) for world in shares]
    parts = [next(each.for_translation(12)).inputs for each in batches]
    assert sum(each.order(12) for each in batches) % 2**64 == orders[1]
    for domain in (0, 1):
        assert torch.equal(torch.cat([part[domain] for part in parts]), steps[1][domain])
    for each in batches:
        each.close()
    other = Batch(config.replace({"seed": 1}), alone, data)
    assert other.order(0) != orders[0]
    other.close()


def test_the_digest_knows_both_domains(families: Any, alone: World) -> None:
    config, folder = families["cyclegan"]
    config = config.replace({"mirror": False})
    data = open_matching(config, folder)
    batch = Batch(config, alone, data)
    labels = data.labels(np.arange(len(data)))
    found = 0
    for label, stream in ((0, 0), (1, 2)):
        numbers = np.flatnonzero(labels == label)
        found += order_digest(0, numbers[Sampler(len(numbers), config.seed, stream).indices(0, 12)])
    assert batch.order(0) == found % 2**64
    batch.close()


def test_workers_that_gather_weights_together_make_as_many_passes(families: Any) -> None:
    """Three workers share eight images, one at a time: the last has none left for the third pass."""
    config, folder = families["dcgan"]
    config = config.replace({"batch_size": 8, "batch_gpu": 1, "shard": "fsdp2"})
    data = open_matching(config, folder)
    shares = []
    for rank in range(3):
        batch = Batch(config, World(rank, 0, 3, 0, 1, torch.device("cpu"), "none", "a test's"), data)
        shares.append(list(batch.for_discriminator(TrainState.create(config, torch.device("cpu")), 0)))
        batch.close()
    assert [[micro.images for micro in share] for share in shares] == [[1, 1, 1], [1, 1, 1], [1, 1, 0]]
    assert [micro.last for micro in shares[2]] == [False, False, True]
    assert shares[2][2].weight == 0
    assert sum(micro.weight for share in shares for micro in share) == pytest.approx(3)
