"""`python -m gangway.trainer export`: a run's averaged generator, with FILE.json, for those who have no trainer."""

import argparse
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangway.trainer.config.arguments import Parser, add_out, add_run_dir
from gangway.trainer.core.errors import TrainerError

if TYPE_CHECKING:
    import torch

    from gangway.trainer.config.train_config import TrainConfig
    from gangway.trainer.networks.base import Generator


def add_export(parser: Parser) -> None:
    """Adds the command's options."""
    add_run_dir(parser)
    parser.add_argument("--format", choices=tuple(FORMATS), required=True, help=", ".join(FORMATS))
    add_out(parser, "file to write; also writes FILE.json")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    sidecar = export(arguments.run_dir, arguments.format, arguments.out, overwrite=arguments.overwrite)
    print(f"wrote {arguments.out}: {sidecar['bytes']:,} bytes, of the generator after {sidecar['images']:,} images")
    return 0


def export(run_dir: Path, format_name: str, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Writes the averaged generator of the newest valid checkpoint; returns the content of FILE.json. TrainerError: a
    wrong suffix, an existing file without `overwrite`, no checkpoint, or not writable.
    """
    chosen = FORMATS[format_name]
    if out.suffix != chosen.suffix:
        raise TrainerError(
            place="--out",
            problem=f"is not how a file of {format_name} ends",
            value=str(out),
            allowed=f"a name that ends in {chosen.suffix}",
            fix=f"--out {out.stem or 'generator'}{chosen.suffix}",
        )
    import torch

    from gangway.trainer.checkpoint.samples import load_generator
    from gangway.trainer.core.files import write_atomically
    from gangway.trainer.core.host import versions
    from gangway.trainer.records.folders import check_new_file

    check_new_file(out, overwrite=overwrite, written=lambda out: (out, _sidecar(out)))
    network, manifest = load_generator(run_dir, torch.device("cpu"))
    # Weights and maps in torch's default layout: the trainer's is of no use to other programs.
    network.layout = torch.contiguous_format
    network.to(memory_format=network.layout)
    content = chosen.encode(network, manifest.config)
    shape = ["batch", *network(*_example(manifest.config)).shape[1:]]
    sidecar = {
        "format": format_name,
        "file": out.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
        "run_id": manifest.identity.run_id,
        "images": manifest.images,
        "checkpoint_sha256": manifest.sha256,
        "inputs": _inputs(manifest.config),
        "outputs": [{"name": "images", "dtype": "float32", "shape": shape, "values": "about -1 (black) to 1 (white)"}],
        "how_to_use": chosen.how_to_use(out.name, manifest.config),
        "config": manifest.config.model_dump(mode="json"),
        "versions": versions(),
    }
    # First what describes the file: a file in place always has its description, and the hash tells if it is its own.
    write_atomically(_sidecar(out), (json.dumps(sidecar, indent=2) + "\n").encode())
    write_atomically(out, content)
    return sidecar


def _sidecar(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def _inputs(config: "TrainConfig") -> list[dict[str, Any]]:
    latents = {"name": "latents", "dtype": "float32", "shape": ["batch", config.z_dim], "values": "standard normal"}
    classes = f"whole numbers, 0 to {config.num_classes - 1}"
    labels = {"name": "labels", "dtype": "int64", "shape": ["batch"], "values": classes}
    return [latents, labels] if config.num_classes else [latents]


def _example(config: "TrainConfig") -> tuple["torch.Tensor", ...]:
    """Returns arguments for two images; with one the exporter would treat the batch's length as a constant."""
    import torch

    latents = torch.zeros(2, config.z_dim)
    return (latents, torch.zeros(2, dtype=torch.int64)) if config.num_classes else (latents,)


def _program(network: "torch.nn.Module", config: "TrainConfig") -> "torch.export.ExportedProgram":
    import torch

    return torch.export.export(network, _example(config), dynamic_shapes=_shapes(config))


def _shapes(config: "TrainConfig") -> dict[str, Any]:
    import torch

    return {each["name"]: {0: torch.export.Dim("batch", min=1)} for each in _inputs(config)}


def _refusing(network: "Generator", num_classes: int) -> "torch.nn.Module":
    """Wraps the network to refuse labels that are no class. ONNX would count a negative one from the last class: here
    it becomes one above all classes, which a runtime refuses; on a GPU, which does not, the image is NaN.
    """
    import torch

    class Refusing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, latents: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            is_class = (labels >= 0) & (labels < num_classes)
            images = self.network(latents, torch.where(is_class, labels, num_classes))
            return torch.where(is_class.reshape(-1, *[1] * (images.dim() - 1)), images, torch.nan)

    return Refusing()


def _onnx(network: "Generator", config: "TrainConfig") -> bytes:
    import torch

    whole = _refusing(network, config.num_classes) if config.num_classes else network
    program = torch.onnx.export(
        _program(whole, config),
        dynamo=True,
        input_names=[each["name"] for each in _inputs(config)],
        output_names=["images"],
        # For the length's name; all inputs have the same, and to name it twice is a warning.
        dynamic_shapes={name: shape if name == "latents" else None for name, shape in _shapes(config).items()},
        # The optimiser takes PixelNorm's 1e-8 for a zero and leaves it out: features that are all 0 become NaN.
        optimize=False,
        verbose=False,
    )
    assert program is not None, "it returns None only when it writes the file itself"
    content: bytes = program.model_proto.SerializeToString()
    return content


def _torch_export(network: "Generator", config: "TrainConfig") -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.export.save(_program(network, config), buffer)
    return buffer.getvalue()


def safetensors(tensors: Mapping[str, "torch.Tensor"], metadata: Mapping[str, str]) -> bytes:
    """Writes float32 tensors in the safetensors format: the header's length, the header as JSON, then the numbers."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    parts, end = [], 0
    for name, tensor in tensors.items():
        parts.append(tensor.detach().contiguous().numpy().astype("<f4").tobytes())
        start, end = end, end + len(parts[-1])
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


class _Format(NamedTuple):
    """A way to write a generator; `how_to_use` returns lines of Python for a file name and configuration."""

    suffix: str
    encode: Callable[["Generator", "TrainConfig"], bytes]
    how_to_use: Callable[[str, "TrainConfig"], list[str]]


def _use_onnx(file: str, config: "TrainConfig") -> list[str]:
    given = "{'latents': latents, 'labels': labels}" if config.num_classes else "{'latents': latents}"
    draw = "uniform(-1, 1, " if config.latents == "uniform" else "standard_normal("
    return [
        "import numpy, onnxruntime",
        f"session = onnxruntime.InferenceSession('{file}')",
        f"latents = numpy.random.{draw}(16, {config.z_dim})).astype(numpy.float32)",
        *([f"labels = numpy.arange(16) % {config.num_classes}"] if config.num_classes else []),
        f"(images,) = session.run(None, {given})",
    ]


def _use_torch_export(file: str, config: "TrainConfig") -> list[str]:
    labels = f", torch.arange(16) % {config.num_classes}" if config.num_classes else ""
    shape = f"(16, {config.z_dim})"
    latents = f"torch.rand{shape} * 2 - 1" if config.latents == "uniform" else f"torch.randn{shape}"
    return [
        "import torch",
        f"generator = torch.export.load('{file}').module()",
        f"images = generator({latents}{labels})",
    ]


def _use_safetensors(file: str, _: "TrainConfig") -> list[str]:
    return [
        "import json, safetensors.torch",
        "from gangway.trainer.config.train_config import TrainConfig",
        "from gangway.trainer.networks.factory import build",
        f"generator, _ = build(TrainConfig.model_validate(json.load(open('{file}.json'))['config']))",
        f"generator.load_state_dict(safetensors.torch.load_file('{file}'))",
    ]


FORMATS: Mapping[str, _Format] = {
    "onnx": _Format(".onnx", _onnx, _use_onnx),
    "torch-export": _Format(".pt2", _torch_export, _use_torch_export),
    "safetensors": _Format(
        ".safetensors",
        lambda network, config: safetensors(
            network.state_dict(), {"format": "pt", "architecture": config.architecture}
        ),
        _use_safetensors,
    ),
}
"""What `--format` may name."""
