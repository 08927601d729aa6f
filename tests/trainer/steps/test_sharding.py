"""Split networks train as whole ones do, and their checkpoints are whole: a run may be split now and not then."""

import json
import os
import shutil
import subprocess
import sys
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

# The fixture trains on four processes.
pytestmark = pytest.mark.timeout(900)


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


STEPS = """
import dataclasses, json, sys
from pathlib import Path
import numpy as np, torch
from gangway.trainer.checkpoint.async_saver import PartSaver
from gangway.trainer.checkpoint.store import load, state_digests
from gangway.trainer.config.presets import PRESETS
from local_training import ImagesInMemory
from gangway.trainer.distributed.sharded_modules import GatheredWindow
from gangway.trainer.distributed.sharded_modules import local, whole
from gangway.trainer.steps.sharding import shard
from gangway.trainer.distributed.world import get_mesh, start_world
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState
from gangway.trainer.phases import batch as batches
from gangway.trainer.networks.precision import choose
from gangway.trainer.steps.step import new_game, get_phases, step
from gangway.trainer.phases.updates import Accumulator

def bytes_of(tensors):
    # Of their storages, each once: a unit's gradients lie in one.
    storages = {id(each.untyped_storage()): each.untyped_storage() for each in map(local, tensors)}
    return sum(storage.nbytes() for storage in storages.values())

def memory(state):
    weights = [each for role in state.roles.values() for each in role.network.parameters()]
    moments = [each for role in state.roles.values() for each in role.learner.state.values()]
    return {
        "weights": bytes_of(weights),
        "gradients": bytes_of([each.grad for each in weights if each.grad is not None]),
        "moments": bytes_of([each[name] for each in moments for name in ("exp_avg", "exp_avg_sq")]),
        "averages": bytes_of([e for role in state.roles.values() if role.ema for e in role.ema.parameters()]),
    }

def layout(state):
    # Rows of each parameter and their bytes: of every unit, of what is in none, and of all.
    found = {}
    for role in state.roles.values():
        rows = {each: (each.shape[0], each[0].numel() * each.element_size()) for each in role.network.parameters()}
        units = [[rows[each] for each in unit.parameters()] for unit in role.network.units()]
        inside = {each for unit in role.network.units() for each in unit.parameters()}
        rest = [row for each, row in rows.items() if each not in inside]
        found[role.key] = {"units": units, "rest": rest, "rows": list(rows.values()), "averaged": role.ema is not None}
    return found

def peaks(windows, gathered):
    unpack = GatheredWindow._unpack

    def looked(window, kept):
        gathered.append(sum(each.bytes for each in windows))  # with what FSDP2 has gathered besides
        return unpack(window, kept)

    return looked

def check_saved(state, world, config, folder):
    # Loads into as many workers that share the other way, and whole.
    saver = PartSaver(folder, config, RunIdentity(run_id="r", session=0, dataset_sha256="d"), lambda _: None, world)
    saver.save(state.live(), state.images)
    saver.wait()
    digests = state_digests(state.live())
    found = load(folder / f"{state.images:012d}.pt")
    assert state_digests(found.read()) == digests
    other = "hsdp" if config.shard == "fsdp2" else "fsdp2"
    world = dataclasses.replace(world, mesh=get_mesh(world.world_size, 2, world.device, other))
    again = TrainState.create(config, world.device)
    for role in again.roles.values():
        for network in filter(None, (role.network, role.ema)):
            network.to(next(state.roles["generator"].ema.parameters()).dtype)
    again.renew_optimisers()
    shard(again, config.replace({"shard": other}), world)
    again.load_state_dict(found.read(again.room_for(found.state)))
    assert state_digests(again.live()) == digests
    again.load_state_dict(found.read())  # of whole tensors each takes its part
    assert state_digests(again.live()) == digests

def train(world, config, out):
    images = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (64, *config.image_shape), dtype=np.uint8)
    data = ImagesInMemory(images, np.arange(64) % max(1, config.num_classes), config.num_classes)
    exact = config.precision == "fp32"  # then in float64, in which sums in another order are the same
    state = TrainState.create(config, world.device)
    for role in state.roles.values():
        drawn = torch.Generator().manual_seed(1)
        for network in filter(None, (role.network, role.ema)):
            network.to(torch.float64 if exact else torch.float32)
        for parameter in role.network.parameters():  # none of them zero, or its gradients would say little
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=drawn)
        if exact and role.key == "g":
            role.network.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(), *inputs[1:]))
    state.renew_optimisers()
    state.use(choose(config.precision, world.device))
    planned = layout(state)
    shard(state, config, world)
    windows = [role.network.gathered for role in state.roles.values() if role.network.gathered is not None]
    gathered, unpack = [0], GatheredWindow._unpack
    GatheredWindow._unpack = peaks(windows, gathered)
    to_floats = batches.to_floats
    batches.to_floats = lambda *pixels: to_floats(*pixels).to(torch.float64 if exact else torch.float32)
    phases = get_phases(state)
    batch, game = batches.Batch(config, world, data), new_game(phases, config, world)
    lines = []
    for _ in range(3):
        sums = Accumulator(phases, world.device)
        step(state, batch, game, sums)
        lines.append(sums.means(world.gather(sums.tolist())))
    weights = {
        f"{role.key}{part}": torch.cat([whole(each.detach()).flatten() for each in network.parameters()])
        for role in state.roles.values()
        for part, network in (("", role.network), ("_ema", role.ema)) if network is not None
    }
    if config.shard != "ddp":
        check_saved(state, world, config, Path(out))
    left = sum(window.bytes for window in windows)
    is_split = world.mesh is not None and "dp_shard" in (world.mesh.mesh_dim_names or ())
    own_shard = world.mesh.get_local_rank("dp_shard") if is_split else 0
    places = {"dp": world.dp_rank, "shard": own_shard}
    told = world.gather({"kept": memory(state), "gathered": max(gathered), "left": left, **places})
    if world.rank == 0:
        torch.save(weights, f"{out}.pt")
        with open(f"{out}.json", "w") as file:
            json.dump({"lines": lines, "workers": told, "planned": planned}, file)
    batch.close()
    GatheredWindow._unpack, batches.to_floats = unpack, to_floats

with start_world("gloo") as world:
    for name, preset, changes in json.loads(sys.argv[2]):
        for how, nodes in (("ddp", 1), ("fsdp2", 1), ("hsdp", 2)):
            mesh = get_mesh(world.world_size, nodes, world.device, how)
            config = PRESETS[preset].replace({**changes, "shard": how})
            train(dataclasses.replace(world, mesh=mesh), config, f"{sys.argv[1]}/{name}-{how}")
"""
SMALL: dict[str, object] = {"batch_size": 8, "ngf": 8, "ndf": 8, "z_dim": 8, "resolution": 16, "schedules": {}}
R3GAN = {"num_classes": 3, "r1_interval": 1, "lr_g": 1e-3, "lr_d": 1e-3}
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "both penalties, classes": ("r3gan-cifar10", {**R3GAN, "precision": "fp32"}),
    "critic's penalty": ("wgan-gp-cifar10", {"d_steps": 2}),
    "lazy penalty, uneven shares in micro-batches": (
        "dcgan-cifar10",
        {"r1_interval": 2, "batch_size": 9, "batch_gpu": 1, "resolution": 32},
    ),
    "both penalties, recomputed": ("r3gan-cifar10", {**R3GAN, "precision": "fp32", "activation_checkpointing": True}),
    "bfloat16": ("r3gan-cifar10", {**R3GAN, "precision": "bf16"}),
}
Told = dict[str, Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of each case, whole and sharded both ways, on four workers: what they told, and the weights. What is
    sharded is saved in parts besides, and loaded again (`check_saved`).
    """
    folder = tmp_path_factory.mktemp("trained")
    (folder / "steps.py").write_text(STEPS)
    shutil.copy(Path(__file__).parents[1] / "local_training.py", folder)
    cases = json.dumps([(name, preset, {**SMALL, **changes}) for name, (preset, changes) in CASES.items()])
    launch = [
        sys.executable,
        "-m",
        "gangway.trainer.launch",
        "--standalone",
        "--nproc-per-node=4",
        str(folder / "steps.py"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([*launch, str(folder), cases], env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    return folder


def _told(folder: Path, case: str, how: str) -> Told:
    found: Told = json.loads((folder / f"{case}-{how}.json").read_text())
    return found


def _losses(told: Told) -> list[float]:
    """But for the reals' signs, which are counts."""
    named = [each for line in told["lines"] for each in line.items()]
    return [value for name, value in named if value is not None and name != "real_sign"]


def _difference(folder: Path, one: str, other: str) -> float:
    """The largest of any weight."""
    first, second = (torch.load(folder / f"{name}.pt") for name in (one, other))
    assert set(first) == set(second) == {"g", "g_ema", "d"}
    return max(float((first[part] - second[part]).abs().max()) for part in first)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fsdp2", "hsdp"])
@pytest.mark.parametrize("case", [name for name in CASES if name != "bfloat16"])
def test_units_train_as_whole_networks_do(case: str, how: str, trained: Path) -> None:
    """In float64: what is different here is a mistake, and no sum in another order."""
    whole, told = (_told(trained, case, each) for each in ("ddp", how))
    assert _losses(told) == pytest.approx(_losses(whole), abs=1e-9)
    assert _difference(trained, f"{case}-ddp", f"{case}-{how}") < 1e-9


@pytest.mark.slow
def test_recomputed_units_train_as_ever(trained: Path) -> None:
    for how in ("ddp", "fsdp2"):
        plain, recomputed = (f"{case}-{how}" for case in ("both penalties, classes", "both penalties, recomputed"))
        assert _difference(trained, plain, recomputed) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("how", "parts"), [("fsdp2", 4), ("hsdp", 2)])
@pytest.mark.parametrize("case", CASES)
def test_a_worker_keeps_its_part_of_everything(case: str, how: str, parts: int, trained: Path) -> None:
    """Its rows of every parameter, rounded up to as many for each worker where torch sends them; and it has gathered
    few units at a time.
    """
    told = _told(trained, case, how)
    for rank, worker in enumerate(told["workers"]):
        assert (worker["dp"], worker["shard"]) == (rank, rank % parts)
        padded = averaged = own = 0
        for network in told["planned"].values():
            for rows, row_bytes in network["rows"]:
                most = -(-rows // parts)
                padded += most * row_bytes
                averaged += most * row_bytes * network["averaged"]
                own += max(0, min(most, rows - rank % parts * most)) * row_bytes
        kept = {"weights": padded, "gradients": padded, "moments": 2 * own, "averages": averaged}
        assert worker["kept"] == kept
        assert worker["left"] == 0, "between steps nothing is gathered"
        # The two read last and, for an instant, the one that comes next; and what is in none.
        assert 0 < worker["gathered"] <= max(_window(each, parts) for each in told["planned"].values())


def _window(network: dict[str, Any], parts: int) -> int:
    """Bytes of a network's three largest units and of what is in none, gathered from so many workers."""

    def gathered(rows: list[tuple[int, int]]) -> int:
        return sum(parts * -(-count // parts) * row_bytes for count, row_bytes in rows)

    return sum(sorted(map(gathered, network["units"]))[-3:]) + gathered(network["rest"])


@pytest.mark.slow
def test_bf16_is_near_fp32(trained: Path) -> None:
    exact = _losses(_told(trained, "both penalties, classes", "fsdp2"))
    for how in ("ddp", "fsdp2"):
        rounded = _losses(_told(trained, "bfloat16", how))
        assert rounded != exact
        assert rounded == pytest.approx(exact, rel=0.05, abs=0.01)
