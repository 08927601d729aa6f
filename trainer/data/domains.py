"""The two domains of a data set for translation: images with the first and the second label."""

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.images_in_memory import ImageSource

NUM_DOMAINS = 2


def numbers_by_domain(data: ImageSource) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Image numbers of the first and of the second domain."""
    labels = data.labels(np.arange(len(data)))
    return np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)


def check_domains(data: ImageSource, place: str) -> None:
    """TrainerError at `place` unless the images are of two non-empty domains."""
    fix = (
        "put the pictures into two folders in one: `data prepare folder --source THAT_FOLDER --labels`, into another "
        "folder of shards, and name that with --data"
    )
    if data.num_classes != NUM_DOMAINS:
        raise TrainerError(
            place=place,
            problem="these shards are not of two domains, which the networks translate between",
            value=f"{data.num_classes} classes" if data.num_classes else "no labels",
            allowed=f"labels of {NUM_DOMAINS} classes, one for each domain",
            fix=fix,
        )
    counts = [len(numbers) for numbers in numbers_by_domain(data)]
    if not all(counts):
        raise TrainerError(
            place=place,
            problem="one of the two domains has no image",
            value=f"{counts[0]} and {counts[1]} images",
            allowed="at least one image of each domain",
            fix=fix,
        )
