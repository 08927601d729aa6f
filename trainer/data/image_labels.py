"""Labels of images: by folder, or from dataset.json of StyleGAN's dataset_tool."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, ValidationError

from trainer.core.errors import TrainerError, from_validation
from trainer.data.listing import Listing, Skipped, Tally
from trainer.data.sources import FileSet

LABELS_FILE = "dataset.json"
_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class ImageLabels:
    """Labels of images; `content` identifies the label file, empty for folders; `skipped` are classes and labels
    without image.
    """

    classes: tuple[str, ...]
    numbers: tuple[int, ...]
    content: str
    skipped: tuple[Skipped, ...]


class _Document(BaseModel):
    """dataset.json; other keys are ignored."""

    labels: tuple[tuple[str, Annotated[StrictInt, Field(ge=0, lt=_MOST_CLASSES)]], ...] | None


def image_labels(files: FileSet, listing: Listing, names: Sequence[str]) -> ImageLabels:
    """The labels of the images `names`. TrainerError: missing labels, an invalid dataset.json, or a single class."""
    return _by_file(files, names) if LABELS_FILE in listing.files else _by_folder(files, listing, names)


def _by_folder(files: FileSet, listing: Listing, names: Sequence[str]) -> ImageLabels:
    bare = [name for name in names if "/" not in name]
    if bare:
        raise TrainerError(
            place="--labels",
            problem="labels are missing: an image lies in no folder that could be its class",
            value=f"{bare[0]} in {files.place}" + (f" and {len(bare) - 1} others" if len(bare) > 1 else ""),
            allowed="CLASS/image.png",
            fix="move every image into a folder named like its class, or leave --labels out",
        )
    image_classes = [name.partition("/")[0] for name in names]
    classes = tuple(sorted(set(image_classes)))
    if len(classes) == 1:
        raise _one_class(files, names)
    tally = Tally()
    for folder in sorted({name.partition("/")[0] for name in listing.files if "/" in name}.difference(classes)):
        tally.skip("class", "has no image", folder)
    number = {name: position for position, name in enumerate(classes)}
    return ImageLabels(classes, tuple(number[name] for name in image_classes), "", tally.listing().skipped)


def _one_class(files: FileSet, names: Sequence[str]) -> TrainerError:
    """Suggests the first subfolder with several folders, which was probably meant."""
    level, below = "", [names[0].partition("/")[0]]
    while len(below) == 1 and not any(name == level + below[0] for name in names):
        level += f"{below[0]}/"
        below = sorted({name[len(level) :].partition("/")[0] for name in names})
    folders = [each for each in below if any(name.startswith(f"{level}{each}/") for name in names)]
    fix = "name the folder above, which holds one for each class, or leave --labels out"
    if len(folders) > 1:
        shown = ", ".join(folders[:3]) + (f" and {len(folders) - 3} more" if len(folders) > 3 else "")
        is_archive = files.place.lower().endswith(".zip")
        source = f"unpack it, and --source {level}" if is_archive else f"--source {files.place.rstrip('/')}/{level}"
        fix = f"{source.rstrip('/')}, which holds {shown}"
    return TrainerError(
        place="--labels",
        problem="all images would be of one class",
        value=f"{names[0].partition('/')[0]}, {len(names):,} images",
        allowed=f"two or more folders of images in {files.place}",
        fix=fix,
    )


def _by_file(files: FileSet, names: Sequence[str]) -> ImageLabels:
    place = f"{LABELS_FILE} of {files.place}"
    try:
        content = files.read(LABELS_FILE)
        listed = _Document.model_validate_json(content).labels
    except OSError as error:
        raise TrainerError(place=place, problem=f"cannot be read: {error}", fix="copy it again") from None
    except ValidationError as error:
        fix = "--labels reads it as StyleGAN's dataset_tool writes it; rename it to take the folders' names"
        raise from_validation(error, place, fix=fix) from None
    label = {name.replace("\\", "/"): number for name, number in listed or ()}
    missing = [name for name in names if name not in label]
    if missing:
        raise TrainerError(
            place=place,
            problem="labels are missing: an image has none there" if label else "says that the images have no labels",
            value=missing[0] + (f" and {len(missing) - 1:,} others" if len(missing) > 1 else ""),
            allowed='{"labels": [["00000/img00000000.png", 6], ...]}, with every image',
            fix=f"leave --labels out, or rename {LABELS_FILE} to take the folders' names",
        )
    numbers = tuple(label[name] for name in names)
    used = set(numbers)
    if len(used) == 1:
        raise TrainerError(
            place=place,
            problem="all images are of one class",
            value=numbers[0],
            allowed="two or more classes",
            fix="leave --labels out",
        )
    tally = Tally()
    for name in sorted(label.keys() - set(names)):
        tally.skip("label", "has no image", name)
    for number in range(max(used)):
        if number not in used:
            tally.skip("class", "has no image", str(number))
    classes = tuple(map(str, range(max(used) + 1)))
    return ImageLabels(
        classes, numbers, f"labels sha256 {hashlib.sha256(content).hexdigest()}", tally.listing().skipped
    )
