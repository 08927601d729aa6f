"""CycleGAN: its losses by hand, its two streams of images, what it makes of photographs, and what is refused of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gangway.trainer.__main__ import main
from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import COLUMNS, ROWS, run_grid
from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.index import INDEX_FILE
from gangway.trainer.data.packaged_data import day_dusk_recipe
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.families import cyclegan
from gangway.trainer.networks.base import Network
from gangway.trainer.phases.batch import Unpaired, to_floats
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps import replica_check
from gangway.trainer.steps.state import TrainState
from tests.shard_files import write_shards
from tests.trainer.local_training import local_train

CPU = torch.device("cpu")
PARTS = ["images", "step", "augment_p", "ab", "ba", "da", "db", "ema", "ema_ba", "opt_ab", "opt_ba", "opt_da", "opt_db"]
Families = dict[str, tuple[TrainConfig, Path]]


@pytest.fixture
def config(families: Families) -> TrainConfig:
    return families["cyclegan"][0]


@pytest.fixture
def domains(families: Families) -> Path:
    return families["cyclegan"][1]


def _networks(config: TrainConfig) -> dict[str, Network]:
    return {role.name: role.network.double() for role in cyclegan.roles(config)}


def _pair(config: TrainConfig, num: int = 3) -> Unpaired:
    drawn = torch.randn(2, num, *config.image_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Unpaired(*drawn.tanh())


def test_the_generators_loss_is_the_papers(config: TrainConfig) -> None:
    """Sections 3.1 and 3.2, and the identity of 5.2; logits are judged by least squares."""
    networks, (a, b) = _networks(config), _pair(config)
    _, phase = cyclegan.phases(config, networks)
    there, back, of_a, of_b = networks.values()
    terms = phase.run(phase.loss, Unpaired(a, b), penalised=False, settle=None)
    taken = (of_b(there(a)) - 1).square().mean() + (of_a(back(b)) - 1).square().mean()
    cycle = (back(there(a)) - a).abs().mean() + (there(back(b)) - b).abs().mean()
    identity = (there(b) - b).abs().mean() + (back(a) - a).abs().mean()
    torch.testing.assert_close(terms.total, taken + 10 * cycle + 5 * identity)
    torch.testing.assert_close(terms.means, torch.stack([terms.total, cycle, identity]).detach())
    without = config.replace({"identity_weight": 0.0})
    _, phase = cyclegan.phases(without, networks)
    terms = phase.run(phase.loss, Unpaired(a, b), penalised=False, settle=None)
    torch.testing.assert_close(terms.total, taken + 10 * cycle)


def test_the_discriminators_loss_is_the_papers_and_leaves_the_generators_alone(config: TrainConfig) -> None:
    networks, (a, b) = _networks(config), _pair(config)
    phase, _ = cyclegan.phases(config, networks)
    there, back, of_a, of_b = networks.values()
    terms = phase.run(phase.loss, Unpaired(a, b), penalised=False, settle=None)
    wanted = (of_a(a) - 1).square().mean() + of_a(back(b)).square().mean()
    wanted = (wanted + (of_b(b) - 1).square().mean() + of_b(there(a)).square().mean()) / 2
    torch.testing.assert_close(terms.total, wanted)
    torch.autograd.backward(terms.total)
    assert all(p.grad is None for network in (there, back) for p in network.parameters())
    assert all(p.grad is not None for network in (of_a, of_b) for p in network.parameters())


def _train(config: TrainConfig, run_dir: Path, data: Path) -> RunRecord:
    assert train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
def test_all_four_are_saved_compared_and_shown(
    config: TrainConfig,
    domains: Path,
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = config.replace({"check_gradients_steps": 2, "schedules": {"lr_g": {"steps": [[0, 2e-4], [0.04, 1e-4]]}}})
    record = _train(config, tmp_path, domains)
    said = capsys.readouterr().out
    assert "look at samples.png there\n" in said
    assert "evaluate" not in said, "it would be refused"
    assert list(record.state_sha256) == PARTS
    before = state_digests(TrainState.create(config, CPU).state_dict())
    assert {part for part in PARTS if before[part] != record.state_sha256[part]} == set(PARTS) - {"augment_p"}
    (start, *_), ticks = lines_of(tmp_path), [line for line in lines_of(tmp_path) if "step" in line]
    assert list(start["gradient_bytes"]) == ["ab", "ba", "da", "db"]
    assert start["flops"]["per_image"]["value"] > 0
    assert all(line["loss_cycle"] > 0 and line["grad_norm_g"] > 0 and line["grad_norm_d"] > 0 for line in ticks)
    assert [line["scheduled"]["lr_g"] for line in ticks] == [2e-4] * 4 + [1e-4] * 2
    assert record.summaries["r1"].last.value is None, "there is none"
    names = [name for name, _ in replica_check._named_tensors(TrainState.create(config, CPU))]
    for role in ("a_to_b", "b_to_a", "discriminator_a", "discriminator_b", "averaged a_to_b", "averaged b_to_a"):
        assert any(name.startswith(f"weight {role}.") for name in names), role
    with Image.open(tmp_path / "samples.png") as picture:
        assert picture.size == (COLUMNS * 66 + 2, ROWS * 66 + 2 * (14 + 2)), "a line of words above each domain's rows"


def test_a_grid_has_each_image_its_translation_and_that_translated_back(config: TrainConfig, domains: Path) -> None:
    state, data = TrainState.create(config, CPU), ShardedImages.open(domains)
    grid = run_grid(state, data, CPU)
    assert grid.shape == (ROWS * COLUMNS, *config.image_shape)
    of_a, of_b = grid.reshape(2, -1, 3, *config.image_shape)
    labels = data.labels(np.arange(len(data)))
    averages = state.averages_on(CPU)
    for label, part, there, back in ((0, of_a, "a_to_b", "b_to_a"), (1, of_b, "b_to_a", "a_to_b")):
        known = {image.tobytes() for image in data.take(np.flatnonzero(labels == label))}
        assert {image.numpy().tobytes() for image in part[:, 0]} <= known
        with torch.no_grad():
            made = averages[there](to_floats(part[:, 0]))
            again = averages[back](made)
        for found, wanted in ((part[:, 1], made), (part[:, 2], again)):
            assert (to_floats(found) - wanted).abs().max() <= 1 / 127.5


@pytest.mark.slow
def test_steps_alone_come_to_the_loops_state(config: TrainConfig, domains: Path, tmp_path: Path) -> None:
    record, shards = _train(config, tmp_path, domains), ShardedImages.open(domains)
    everything, state = np.arange(len(shards)), TrainState.create(config, CPU)
    while state.images < config.total_images:
        local_train(state, shards.take(everything), shards.labels(everything))
    assert state_digests(state.state_dict()) == record.state_sha256


def _colour(images: Tensor) -> Tensor:
    return images.mean(dim=(0, 2, 3))


@pytest.mark.slow
def test_photographs_take_the_other_domains_colours_and_come_back() -> None:
    """At 64x64, on crops of real photographs; after 40 steps, whatever else is to be learnt."""
    pytest.importorskip("skimage", reason="the photographs ship in scikit-image")
    recipe = day_dusk_recipe(resolution=64)
    parts = [recipe.decode(item) for item in range(2)]
    images = np.concatenate([part.images for part in parts])
    labels = np.repeat([0, 1], [len(part.images) for part in parts])
    small = {"ngf": 8, "ndf": 8, "batch_size": 2, "schedules": {}, "lr_g": 1e-3, "lr_d": 1e-3}
    state = TrainState.create(PRESETS["cyclegan-photos"].replace(small), CPU)
    first, second = (local_train(state, images, labels, steps=20).losses for _ in range(2))
    for name in ("loss_cycle", "loss_identity"):
        before, after = first[name], second[name]
        assert before is not None
        assert after is not None
        assert after < 0.9 * before, name
    day, dusk = (to_floats(torch.from_numpy(part.images[::20])) for part in parts)
    averages = state.averages_on(CPU)
    with torch.no_grad():
        made = (averages["a_to_b"](day), day, dusk), (averages["b_to_a"](dusk), dusk, day)
    for translated, original, other in made:
        to_other, to_own = (float((_colour(translated) - _colour(each)).norm()) for each in (other, original))
        assert to_other < 0.5 * to_own


WRONG = [
    (["--loss", "nonsaturating"], "loss: not an accepted value", "lsgan with cyclegan's networks"),
    (["--cycle-weight", "0"], "cycle_weight: not an accepted value", "above 0 with cyclegan's networks"),
    (["--architecture", "dcgan"], "loss: not an accepted value", "fix:     --loss nonsaturating"),
    (["--metrics", "fd-enl0", "--metrics-kimg", "1"], "metrics: not an accepted value", "--metrics none"),
]


@pytest.mark.parametrize(("flags", "problem", "more"), WRONG, ids=[" ".join(flags) for flags, _, _ in WRONG])
def test_one_familys_loss_with_anothers_networks_is_refused_before_data_is_touched(
    flags: list[str], problem: str, more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = ["--run-dir", str(tmp_path / "run"), "--data", str(tmp_path / "data")]
    assert main(["train", "--preset", "cyclegan-photos", *flags, *run_dir]) == 2
    said = capsys.readouterr().err.replace("-", "_")
    assert problem.replace("-", "_") in said
    assert more.replace("-", "_") in said
    assert list(tmp_path.iterdir()) == []


def test_a_generators_loss_with_latents_networks_is_refused_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--run-dir", str(tmp_path / "run"), "--data", str(tmp_path / "data")]
    assert main(["train", "--preset", "dcgan-digits", "--loss", "lsgan", *where]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in ("loss", "'lsgan'", "lsgan goes with cyclegan's networks", "nonsaturating"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("classes", [(), ("only",), ("a", "b", "c")])
def test_a_data_set_that_is_not_of_two_domains_is_refused(
    classes: tuple[str, ...], config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.zeros((6, 3, 16, 16), dtype=np.uint8)
    labels = np.arange(6) % len(classes) if classes else None
    write_shards(tmp_path / "data", "folder", images, labels=labels, classes=classes)
    (tmp_path / "config.json").write_text(config.to_json())
    words = ["--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    assert main(["train", *words, "--data", str(tmp_path / "data")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'data' / INDEX_FILE}: these shards are not of two domains" in said
    assert "labels of 2 classes, one for each domain" in said
    assert "--labels" in said
    assert not (tmp_path / "run" / "stats.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["sample", "--out", "{}/grid.png"],
        ["export", "--format", "safetensors", "--out", "{}/g.safetensors"],
        ["evaluate", "--data", "{}/no-such-data"],
    ],
    ids=lambda command: str(command[0]),
)
def test_what_is_made_of_latents_is_refused(
    command: list[str], config: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], domains: Path
) -> None:
    run_dir = tmp_path / "run"
    _train(config.replace({"kimg": 0.012}), run_dir, domains)
    words = [word.format(tmp_path) for word in command]
    assert main([*words, "--run-dir", str(run_dir)]) == 2
    said = capsys.readouterr().err
    assert "--run-dir: its networks translate images" in said
    assert "look at samples.png" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_checkpoint_of_other_networks_is_not_taken(config: TrainConfig, domains: Path, tmp_path: Path) -> None:
    state = TrainState.create(config, CPU)
    kept = {name: part for name, part in state.state_dict().items() if name != "db"}
    store.save(tmp_path, kept, config, 12, RunIdentity(run_id="r", session=0, dataset_sha256="ab"))
    newest = store.newest(tmp_path)
    assert newest is not None
    from gangway.trainer.checkpoint.compatibility import misfit

    assert misfit(config, store.load(newest).state) == "db is missing"
