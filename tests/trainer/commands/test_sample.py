"""Grids and films on demand: the same for a seed, walks that stay among likely latents, and every mistake named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image

from gangway.trainer.__main__ import main
from gangway.trainer.checkpoint import store
from gangway.trainer.commands.sample import sample, truncated, walk
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.networks import dcgan
from gangway.trainer.networks.base import Generator
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState

IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")


@pytest.fixture
def make_run(tmp_path: Path, tiny_config: TrainConfig) -> Callable[..., Path]:
    """Makes a run directory that holds one checkpoint."""

    def make(**changes: Any) -> Path:
        config = tiny_config.replace(changes)
        state = TrainState.create(config, torch.device("cpu"))
        state.images = 320
        store.save(tmp_path / "run/checkpoints", state.state_dict(), config, 320, IDENTITY)
        return tmp_path / "run"

    return make


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def test_a_grid_is_a_function_of_the_seed_and_each_image_of_its_number(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run_dir = make_run()
    assert sample(run_dir, tmp_path / "a.png", num=4) == 320
    torch.rand(1)
    sample(run_dir, tmp_path / "b.png", num=4)
    sample(run_dir, tmp_path / "c.png", num=4, seed=1)
    sample(run_dir, tmp_path / "d.png", num=1)
    first = _pixels(tmp_path / "a.png")
    assert first.shape == (2 * 66 + 2, 2 * 66 + 2)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (first != _pixels(tmp_path / "c.png")).any()
    assert np.array_equal(first[:66, :66], _pixels(tmp_path / "d.png")[:66, :66])


def test_truncation_bounds_what_the_generator_gets(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, asked = make_run(), []
    forward = dcgan.Generator.forward

    def watched(self: dcgan.Generator, latents: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        asked.append(latents.abs().max().item())
        return forward(self, latents, labels)

    monkeypatch.setattr(dcgan.Generator, "forward", watched)
    for bound in (None, 0.5):
        sample(run_dir, tmp_path / f"{bound}.png", num=16, truncation=bound)
    assert asked[0] > 1
    assert 0.4 < asked[1] <= 0.5


def test_truncated_numbers_keep_their_ranks_and_their_bound() -> None:
    drawn = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    moved = truncated(drawn, 0.7)
    assert moved.abs().max() <= 0.7
    assert torch.equal(moved.argsort(), drawn.argsort())
    # Of a normal distribution cut off at b, the variance is 1 - 2 b phi(b) / (2 Phi(b) - 1).
    assert moved.var().item() == pytest.approx(1 - 2 * 0.7 * 0.312254 / (2 * 0.758036 - 1), rel=0.03)
    assert torch.allclose(truncated(drawn, 8.0), drawn, atol=1e-4)


def test_a_walk_comes_by_each_latent_and_keeps_their_length() -> None:
    stops = [torch.randn(1000, 8, generator=torch.Generator().manual_seed(number)) for number in range(4)]
    way = walk(stops, 5)
    assert len(way) == 20
    assert all(torch.allclose(way[5 * number], stop) for number, stop in enumerate(stops))
    assert all(latents.var().item() == pytest.approx(1, abs=0.05) for latents in way)
    assert walk(stops[:1], 1) == stops[:1]


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_walk_is_a_film(make_run: Callable[..., Path], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"walk{suffix}"
    sample(make_run(), path, num=4, interpolate=3)
    if suffix == ".gif":
        with Image.open(path) as film:
            assert film.n_frames == 12  # type: ignore[attr-defined]  # of animated formats
    else:
        with av.open(str(path)) as container:
            frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
        assert [frame.shape for frame in frames] == [(134, 134)] * 12
        assert (frames[0] != frames[6]).any()


class Clips(Generator):
    """Grey clips whose brightness is their latents'."""

    def forward(self, latents: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        return latents[:, :1, None, None, None].expand(-1, 1, 4, 32, 32)


@pytest.fixture
def clips_run(monkeypatch: pytest.MonkeyPatch, tiny_config: TrainConfig) -> None:
    """A run of clips, played by a generator that needs no training."""
    from gangway.trainer.checkpoint.samples import Trained
    from gangway.trainer.checkpoint.store import Manifest

    config = tiny_config.model_copy(update={"frames": 4})
    manifest = Manifest.model_construct(
        images=320, sha256="", bytes=0, state_sha256={}, config=config, identity=IDENTITY
    )
    monkeypatch.setattr("gangway.trainer.checkpoint.samples.load_generator", lambda *_: Trained(Clips(), manifest))


@pytest.mark.usefixtures("clips_run")
def test_clips_are_a_strip_or_a_film(tmp_path: Path) -> None:
    sample(tmp_path, tmp_path / "strip.png", num=3)
    assert _pixels(tmp_path / "strip.png").shape == (3 * 66 + 2, 4 * 66 + 2)
    sample(tmp_path, tmp_path / "clips.mp4", num=3)
    with av.open(str(tmp_path / "clips.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 4
    with pytest.raises(TrainerError, match="--interpolate: the run makes clips"):
        sample(tmp_path, tmp_path / "film.mp4", num=3, interpolate=2)


@pytest.mark.parametrize(("labels", "classes"), [(None, [0, 1, 2, 0, 1]), ("2,0", [2, 0, 2, 0, 2])])
def test_classes_are_taken_in_turn(
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    labels: str | None,
    classes: list[int],
) -> None:
    run_dir = make_run(num_classes=3)
    asked: list[list[int]] = []
    forward = dcgan.Generator.forward

    def watched(self: dcgan.Generator, latents: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        asked.append(labels.tolist())
        return forward(self, latents, labels)

    monkeypatch.setattr(dcgan.Generator, "forward", watched)
    sample(run_dir, tmp_path / "grid.png", num=5, labels=labels)
    assert asked == [classes]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "grid.jpg"], "--out: its suffix names no format"),
        (["--out", "film.mp4"], "--out: the run makes images, and only --interpolate"),
        (["--out", "grid.png", "--interpolate", "4"], "--interpolate: is shown in a film"),
        (["--out", "grid.png", "--labels", "3"], "--labels: the run was trained without classes"),
        (
            ["--out", "grid.png", "--num", "0"],
            "--num: not an accepted value\n  got:     '0'\n  allowed: a whole number above 0",
        ),
        (
            ["--out", "grid.png", "--seed", "-1"],
            "--seed: not an accepted value\n  got:     '-1'\n  allowed: a whole number, at least 0",
        ),
        (
            ["--out", "grid.png", "--truncation", "0"],
            "--truncation: not an accepted value\n  got:     '0'\n  allowed: a number above 0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    run_dir = make_run()
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "--run-dir", str(run_dir), *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("  fix:") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("labels", ["3", "-1", "cat", "0,", "1.0"])
def test_classes_that_the_run_does_not_know_are_refused(
    make_run: Callable[..., Path], tmp_path: Path, labels: str
) -> None:
    with pytest.raises(TrainerError, match="--labels: not classes of this run") as caught:
        sample(make_run(num_classes=3), tmp_path / "grid.png", labels=labels)
    assert caught.value.allowed.endswith("0 to 2")


def test_the_command_tells_what_it_wrote(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new/grid.png"
    assert main(["sample", "--run-dir", str(make_run()), "--out", str(path), "--num", "4"]) == 0
    assert capsys.readouterr().out == f"wrote {path}: 4 of the generator after 320 images, seed 0\n"
    assert path.exists()


@pytest.mark.parametrize(
    ("num", "interpolate", "allowed"),
    [(10**8, None, "1 to 2,097,152 with"), (30_000, 24, "1 to 21,845 with"), (10, 10**6, "2 GiB: a shorter film")],
)
def test_more_than_memory_holds_is_refused_before_anything_is_drawn(
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num: int,
    interpolate: int | None,
    allowed: str,
) -> None:
    monkeypatch.setattr("gangway.trainer.phases.rng.latents", lambda *_, **__: pytest.fail("drawn"))
    out = tmp_path / ("a.mp4" if interpolate else "a.png")
    with pytest.raises(TrainerError, match=r"^--num: makes [\d,.]+ GiB of pixels") as caught:
        sample(make_run(), out, num=num, interpolate=interpolate)
    assert caught.value.allowed.startswith(allowed)
    assert not out.exists()


def test_nothing_is_written_over_another_file_unless_it_may_go(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grid.png"
    words = ["sample", "--run-dir", str(make_run()), "--num", "1", "--out", str(out)]
    out.write_text("mine", "utf-8")
    (tmp_path / "grid-1.png").touch()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "--out: is there already" in error
    assert f"  fix:     --out {tmp_path / 'grid-2.png'}" in error
    assert out.read_text("utf-8") == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert _pixels(out).shape == (68, 68)


def test_uniform_latents_are_walked_in_a_straight_line_and_have_no_tails_to_cut(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    stops = [2 * torch.rand(3, 8, generator=torch.Generator().manual_seed(seed)) - 1 for seed in range(3)]
    way = walk(stops, 4, straight=True)
    assert all(torch.equal(way[4 * number], stop) for number, stop in enumerate(stops))
    assert torch.allclose(way[2], (stops[0] + stops[1]) / 2)
    assert max(float(latents.abs().max()) for latents in way) <= 1
    run_dir = make_run(latents="uniform")
    assert sample(run_dir, tmp_path / "grid.png", num=4) == 320, "images that it was trained for"
    with pytest.raises(TrainerError, match="cuts off the tails of normal latents") as caught:
        sample(run_dir, tmp_path / "cut.png", num=4, truncation=0.7)
    assert caught.value.place == "--truncation"
