"""Images in memory are numbered, labelled and mirrored as those in shards are."""

from pathlib import Path

import numpy as np

from gangway.trainer.data.images_in_memory import ImagesInMemory, ImageSource
from gangway.trainer.data.shards import ShardedImages, write_shards


def test_an_array_gives_what_its_shards_give(tmp_path: Path) -> None:
    drawn = np.random.Generator(np.random.PCG64(0))
    pixels = drawn.integers(0, 256, (7, 3, 16, 16), dtype=np.uint8)
    labels = drawn.integers(0, 3, 7)
    folder = tmp_path / "shards"
    write_shards(folder, "folder", pixels, labels=labels, classes=("a", "b", "c"))
    sources: tuple[ImageSource, ...] = (ImagesInMemory(pixels, labels, 3), ShardedImages.open(folder))
    for ours, shards in (sources, tuple(source.mirrored() for source in sources)):
        everything = np.arange(len(shards))[::-1]
        assert (len(ours), ours.num_classes) == (len(shards), shards.num_classes)
        assert np.array_equal(ours.take(everything), shards.take(everything))
        assert np.array_equal(ours.labels(everything), shards.labels(everything))
