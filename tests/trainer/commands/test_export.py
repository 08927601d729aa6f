"""Exports: what others compute from the file is what the generator computes, for any number of images."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # has no types
import pytest
import torch

from gangway.trainer.__main__ import main
from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import load_generator
from gangway.trainer.commands.export import FORMATS, export, safetensors
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.networks.factory import build
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState

IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")
NUM_CLASSES = (0, 3)
Numbers = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture
def make_run(tmp_path: Path, tiny_config: TrainConfig) -> Callable[[int], Path]:
    """Makes a run directory that holds one checkpoint."""

    def make(num_classes: int) -> Path:
        config = tiny_config.replace({"num_classes": num_classes})
        state = TrainState.create(config, torch.device("cpu"))
        state.images = 320
        store.save(tmp_path / "run/checkpoints", state.state_dict(), config, 320, IDENTITY)
        return tmp_path / "run"

    return make


def _cases(num_classes: int) -> list[tuple[torch.Tensor, ...]]:
    """Arguments for one image, for two and for seven."""
    cases: list[tuple[torch.Tensor, ...]] = []
    for num in (1, 2, 7):
        latents = torch.randn(num, 8, generator=torch.Generator().manual_seed(num))
        cases.append((latents, torch.arange(num) % num_classes) if num_classes else (latents,))
    return cases


def _with_onnxruntime(path: Path) -> Callable[..., Numbers]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    assert [each.shape[0] for each in session.get_inputs()] == ["batch"] * len(names)

    def run(*arguments: torch.Tensor) -> Numbers:
        (images,) = session.run(["images"], dict(zip(names, [each.numpy() for each in arguments], strict=True)))
        return np.asarray(images)

    return run


def _with_torch(path: Path) -> Callable[..., Numbers]:
    program = torch.export.load(path).module()
    return lambda *arguments: np.asarray(program(*arguments).numpy())


def _with_safetensors(path: Path) -> Callable[..., Numbers]:
    """Reads the file as its format is described, not as it is written here."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, numbers = json.loads(content[8 : 8 + length]), content[8 + length :]
    assert (8 + length) % 8 == 0
    assert header.pop("__metadata__")["format"] == "pt"
    assert max(each["data_offsets"][1] for each in header.values()) == len(numbers)
    tensors = {
        name: torch.from_numpy(
            np.frombuffer(numbers[slice(*each["data_offsets"])], "<f4").reshape(each["shape"]).copy()
        )
        for name, each in header.items()
    }
    config = json.loads(path.with_name(f"{path.name}.json").read_text())["config"]
    generator, _ = build(TrainConfig.model_validate(config))
    generator.load_state_dict(tensors)
    return lambda *arguments: generator(*arguments).detach().numpy()


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", NUM_CLASSES)
@pytest.mark.parametrize(
    ("name", "reader", "tolerance"),
    [("onnx", _with_onnxruntime, 1e-4), ("torch-export", _with_torch, 0), ("safetensors", _with_safetensors, 1e-5)],
    ids=FORMATS,
)
def test_the_file_computes_what_the_generator_does(
    make_run: Callable[[int], Path],
    tmp_path: Path,
    num_classes: int,
    name: str,
    reader: Callable[[Path], Callable[..., Numbers]],
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_dir = make_run(num_classes)
    path = tmp_path / f"generator{FORMATS[name].suffix}"
    sidecar = export(run_dir, name, path)
    network = load_generator(run_dir, torch.device("cpu")).network.to(memory_format=torch.contiguous_format)
    compute = reader(path)
    # A program has PyTorch's own layers, where the network that runs at once has faster ones (scaling_layers).
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: name == "torch-export")
    for arguments in _cases(num_classes):
        expected = network(*arguments).numpy()
        found = compute(*arguments)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= tolerance
    assert sidecar == json.loads((tmp_path / f"{path.name}.json").read_text())
    assert sidecar["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (sidecar["images"], sidecar["run_id"]) == (320, "r")
    assert [each["name"] for each in sidecar["inputs"]] == ["latents", "labels"][: 2 if num_classes else 1]
    assert sidecar["outputs"][0]["shape"] == ["batch", 1, 32, 32]
    assert path.name in "".join(sidecar["how_to_use"])


SMALL = {"z_dim": 8, "ngf": 8, "ndf": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("wgan-gp-cifar10", {}),
        ("r3gan-cifar10", {}),
        ("progan-celeba128", {"resolution": 16}),
        ("progan-video-ucf101", {"resolution": 16, "frames": 4}),
    ],
)
def test_every_family_takes_any_number_of_latents(tmp_path: Path, preset: str, changes: dict[str, int]) -> None:
    config = PRESETS[preset].replace({**SMALL, **changes})
    state = TrainState.create(config, torch.device("cpu"))
    state.images = config.total_images
    store.save(tmp_path / "run/checkpoints", state.state_dict(), config, state.images, IDENTITY)
    network = load_generator(tmp_path / "run", torch.device("cpu")).network.to(memory_format=torch.contiguous_format)
    for name, reader in (("onnx", _with_onnxruntime), ("torch-export", _with_torch)):
        path = tmp_path / f"generator{FORMATS[name].suffix}"
        export(tmp_path / "run", name, path)
        compute = reader(path)
        for arguments in _cases(config.num_classes):
            expected = network(*arguments).numpy()
            assert expected.shape[1:] == config.image_shape
            assert np.abs(compute(*arguments) - expected).max() <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("label", [-1, -3, 3])
def test_a_label_that_is_no_class_is_refused(make_run: Callable[[int], Path], tmp_path: Path, label: int) -> None:
    """ONNX counts negative ones from the end: -1 would be the last class."""
    export(make_run(3), "onnx", tmp_path / "generator.onnx")
    compute = _with_onnxruntime(tmp_path / "generator.onnx")
    latents = torch.zeros(2, 8)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        compute(latents, torch.tensor([0, label]))
    assert np.isfinite(compute(latents, torch.tensor([0, 2]))).all()


@pytest.mark.slow
@pytest.mark.parametrize("num_classes", NUM_CLASSES)
@pytest.mark.parametrize("name", ["onnx", "torch-export"])
def test_the_lines_beside_the_file_run(
    make_run: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, num_classes: int
) -> None:
    monkeypatch.chdir(tmp_path)
    sidecar = export(make_run(num_classes), name, Path(f"generator{FORMATS[name].suffix}"))
    names: dict[str, Any] = {}
    exec("\n".join(sidecar["how_to_use"]), names)
    assert tuple(names["images"].shape) == (16, 1, 32, 32)


def test_another_suffix_is_refused_with_the_right_one(make_run: Callable[[int], Path], tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="--out: is not how a file of onnx ends") as caught:
        export(make_run(0), "onnx", tmp_path / "generator.pt")
    assert caught.value.fix == "--out generator.onnx"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_full_disk_leaves_the_earlier_file(
    make_run: Callable[[int], Path], tmp_path: Path, full_disk: Callable[[str], None]
) -> None:
    path = tmp_path / "generator.safetensors"
    export(make_run(0), "safetensors", path)
    before = path.read_bytes()
    full_disk(path.name)
    with pytest.raises(TrainerError, match="No space left on device"):
        export(tmp_path / "run", "safetensors", path, overwrite=True)
    assert path.read_bytes() == before


def test_the_command_tells_what_it_wrote(
    make_run: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "generator.safetensors"
    arguments = ["export", "--run-dir", str(make_run(0)), "--format", "safetensors", "--out", str(path)]
    assert main(arguments) == 0
    size = path.stat().st_size
    assert capsys.readouterr().out == f"wrote {path}: {size:,} bytes, of the generator after 320 images\n"
    assert main([*arguments[:-3], "torchscript", *arguments[-2:]]) == 2
    assert "--format: not an accepted value" in capsys.readouterr().err


def test_tensors_of_any_layout_are_written_in_the_usual_one() -> None:
    tensor = torch.arange(16.0).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last)
    content = safetensors({"weight": tensor}, {})
    assert np.frombuffer(content[-64:], "<f4").tolist() == list(range(16))


@pytest.mark.parametrize("there", ["generator.safetensors", "generator.safetensors.json"])
def test_nothing_is_written_over_another_file_unless_it_may_go(
    make_run: Callable[[int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    words = ["export", "--run-dir", str(make_run(0)), "--format", "safetensors"]
    out, mine = tmp_path / "generator.safetensors", tmp_path / there
    mine.write_text("mine", "utf-8")
    assert main([*words, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "is there already" in error
    assert f"  fix:     --out {tmp_path / 'generator-1.safetensors'}" in error
    assert mine.read_text("utf-8") == "mine"
    assert main([*words, "--out", str(tmp_path / "generator-1.safetensors")]) == 0
    assert main([*words, "--out", str(out), "--overwrite"]) == 0
    assert mine.read_bytes() != b"mine"
