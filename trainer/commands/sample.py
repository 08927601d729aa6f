"""`python -m gangway.trainer sample`: grids and films of what a run's averaged generator makes, from any seed."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangway.trainer.config.arguments import Parser, add_out, add_run_dir, count, positive, whole
from gangway.trainer.core.errors import TrainerError

if TYPE_CHECKING:
    from torch import Tensor

    from gangway.trainer.checkpoint.samples import Trained
    from gangway.trainer.config.train_config import TrainConfig

_STOPS = 4
"""Latents that a film comes by before it is back at its first."""
_BATCH = 64
_FILMS = (".mp4", ".gif")
_MOST_BYTES = 2 << 30
"""Of pixels: they are all in memory before the file is written."""


def add_sample(parser: Parser) -> None:
    """Adds the command's options."""
    add_run_dir(parser)
    add_out(parser, f"file to write: .png, or a film: {', '.join(_FILMS)}")
    parser.add_argument("--num", type=count, default=64, metavar="N", help="images or clips [64]")
    parser.add_argument("--seed", type=whole, default=0, metavar="S", help="seed of the latents [0]")
    parser.add_argument("--labels", metavar="0,1,...", help="classes to generate, in turn [all]")
    parser.add_argument("--truncation", type=positive, metavar="T", help="limit latents to -T..T, for fewer odd images")
    parser.add_argument("--interpolate", type=count, metavar="N", help="make a film with N frames between two latents")
    fps_help = "frames per second of a film [16]"
    parser.add_argument("--fps", dest="frames_per_sec", type=count, default=16, metavar="FPS", help=fps_help)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    names = ("num", "seed", "labels", "truncation", "interpolate", "frames_per_sec", "overwrite")
    images = sample(arguments.run_dir, arguments.out, **{name: getattr(arguments, name) for name in names})
    print(f"wrote {arguments.out}: {arguments.num} of the generator after {images:,} images, seed {arguments.seed}")
    return 0


def sample(
    run_dir: Path,
    out: Path,
    *,
    num: int = 64,
    seed: int = 0,
    labels: str | None = None,
    truncation: float | None = None,
    interpolate: int | None = None,
    frames_per_sec: int = 16,
    overwrite: bool = False,
) -> int:
    """Writes a grid or a film, and returns the images that the generator was trained for. A PNG of clips is a strip;
    `labels` are taken in turn; `interpolate` is frames from one latent to the next. TrainerError: a file that exists,
    no checkpoint, options that do not fit, or more pixels than fit in memory.
    """
    _check_suffix(out)
    import torch

    from gangway.trainer.checkpoint.samples import film_frames, load_generator, strip, tile, write_film, write_png
    from gangway.trainer.records.folders import check_new_file

    check_new_file(out, overwrite=overwrite)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trained = load_generator(run_dir, device)
    config, columns = trained.manifest.config, math.ceil(math.sqrt(num))
    _check_film(out, config, interpolate)
    uniform = config.latents == "uniform"
    if uniform and truncation is not None:
        raise TrainerError(
            place="--truncation",
            problem="cuts off the tails of normal latents, and this run's are uniform",
            value=truncation,
            allowed="no truncation for this run",
            fix="leave --truncation out",
        )
    _check_amount(num, config, _STOPS * interpolate if interpolate else 1)
    classes = _classes(labels, config, num)
    stops = [_latents(config, num, seed, stop, truncation) for stop in range(_STOPS if interpolate else 1)]
    made = [
        _images(trained, latents.to(device), classes) for latents in walk(stops, interpolate or 1, straight=uniform)
    ]
    if interpolate:
        write_film(out, [tile(images, columns) for images in made], frames_per_sec)
    elif config.frames == 1:
        write_png(out, tile(made[0], columns))
    elif out.suffix == ".png":
        write_png(out, strip(made[0]))
    else:
        write_film(out, film_frames(made[0], columns), frames_per_sec)
    return trained.manifest.images


def walk(stops: "Sequence[Tensor]", frames: int, *, straight: bool = False) -> "list[Tensor]":
    """Latents from each stop to the next and from the last to the first, `frames` for each way. Between independent
    standard normal a and b, cos t a + sin t b is standard normal at every t; a straight line would pass nearer to zero,
    where no latent of the training lies. `straight` is for uniform ones: it keeps to -1..1.
    """
    if len(stops) == 1:
        return list(stops)
    ways = zip(stops, [*stops[1:], stops[0]], strict=True)
    if straight:
        return [start + (end - start) * (frame / frames) for start, end in ways for frame in range(frames)]
    angles = [math.pi / 2 * frame / frames for frame in range(frames)]
    return [math.cos(angle) * start + math.sin(angle) * end for start, end in ways for angle in angles]


def truncated(latents: "Tensor", bound: float) -> "Tensor":
    """Maps standard normal numbers to normal ones truncated at -bound and bound, keeping ranks. Drawing again, as in
    BigGAN (Brock et al. 2019, arXiv:1809.11096), has the same distribution.
    """
    import torch

    shares = torch.special.ndtr(latents.double())
    below = torch.special.ndtr(torch.tensor(-bound, dtype=torch.float64))
    moved: Tensor = torch.special.ndtri(below + shares * (1 - 2 * below)).clamp(-bound, bound)
    return moved.to(latents.dtype)


def _latents(config: "TrainConfig", num: int, seed: int, stop: int, truncation: float | None) -> "Tensor":
    import torch

    from gangway.trainer.phases.rng import Purpose, latents

    # A draw for each image, so that it does not depend on how many there are.
    numbers = (image * _STOPS + stop for image in range(num))
    latent_rows = torch.cat(
        [latents(1, config, seed=seed, images=number, purpose=Purpose.GALLERY) for number in numbers]
    )
    return latent_rows if truncation is None else truncated(latent_rows, truncation)


def _images(trained: "Trained", latents: "Tensor", classes: "Tensor | None") -> "Tensor":
    """Yields uint8 images or clips in batches: a whole grid may not fit on a GPU."""
    import torch

    from gangway.trainer.checkpoint.samples import to_uint8

    config, device = trained.manifest.config, latents.device
    parts: list[Any] = [slice(start, start + _BATCH) for start in range(0, len(latents), _BATCH)]
    with torch.no_grad():
        made = [
            to_uint8(trained.network(latents[part], None if classes is None else classes[part].to(device)), config)
            for part in parts
        ]
    return torch.cat(made)


def _classes(labels: str | None, config: "TrainConfig", num: int) -> "Tensor | None":
    import torch

    if labels is not None and not config.num_classes:
        raise TrainerError(
            place="--labels",
            problem="the run was trained without classes",
            value=labels,
            allowed="no --labels",
            fix="leave it out, or train with --num-classes",
        )
    if not config.num_classes:
        return None
    words = [str(number) for number in range(config.num_classes)] if labels is None else labels.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) < config.num_classes for word in words):
        raise TrainerError(
            place="--labels",
            problem="not classes of this run",
            value=labels,
            allowed=f"comma-separated whole numbers, 0 to {config.num_classes - 1}",
            fix="--labels 0, for example, or leave it out for all",
        )
    return torch.tensor([int(words[number % len(words)]) for number in range(num)])


def _check_suffix(out: Path) -> None:
    if out.suffix not in (".png", *_FILMS):
        raise TrainerError(
            place="--out",
            problem="its suffix names no format that is written here",
            value=str(out),
            allowed=f".png for a grid; {' or '.join(_FILMS)} for a film",
            fix="--out grid.png",
        )


def _check_amount(num: int, config: "TrainConfig", times: int) -> None:
    bytes_each = math.prod(config.image_shape) * times
    most = _MOST_BYTES // bytes_each
    if num > most:
        raise TrainerError(
            place="--num",
            problem=f"makes {num * bytes_each / 2**30:,.1f} GiB of pixels, which are held in memory all at once",
            value=num,
            allowed=f"1 to {most:,} with these options" if most else f"{_MOST_BYTES >> 30} GiB: a shorter film",
            fix=f"--num {min(most, 64)}; more with another --seed for each file" if most else "a smaller --interpolate",
        )


def _check_film(out: Path, config: "TrainConfig", interpolate: int | None) -> None:
    if interpolate and (config.frames > 1 or out.suffix not in _FILMS):
        raise TrainerError(
            place="--interpolate",
            problem="the run makes clips, which move by themselves" if config.frames > 1 else "is shown in a film",
            value=interpolate,
            allowed="with a run that makes images, and a film as --out",
            fix="leave it out" if config.frames > 1 else f"--out {out.with_suffix('.mp4')}",
        )
    if config.frames == 1 and out.suffix in _FILMS and not interpolate:
        raise TrainerError(
            place="--out",
            problem="the run makes images, and only --interpolate makes a film of them",
            value=str(out),
            allowed=".png, or a film with --interpolate",
            fix=f"--interpolate 24, or --out {out.with_suffix('.png')}",
        )
