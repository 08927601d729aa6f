"""UCF101 (Soomro et al. 2012, CRCV-TR-12-01): clips of human actions from the unpacked films and the split lists."""

from collections.abc import Mapping
from pathlib import Path

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.decode import Cut, FilmDecoder, check_cut
from gangway.trainer.data.index import Recipe, SourceNote, shard_size
from gangway.trainer.data.sources import FileSet, check_count, files_in, fingerprint, read_text

_NUM_FILMS = 13_320
_CLASSES = "classInd.txt"
_CLIPS_PER_FILM = 12  # 186 frames on average give 11 clips of 16


def ucf101_recipe(source: str, out: Path, *, cut: Cut, split: str, fold: int, allow_other_hash: bool) -> Recipe:
    """Returns the recipe of UCF101 (TrainerError: a list or film is missing, or it is not official)."""
    check_cut(cut)
    files = files_in(source, out)
    listing = files.listing()
    sizes = listing.files
    films = {"/".join(name.split("/")[-2:]): name for name in sizes if name.endswith(".avi")}
    if not films:
        raise TrainerError(
            place="--source",
            problem="holds no .avi file",
            value=source,
            allowed="the folder that UCF101.rar unpacks to, and ucfTrainTestlist beside it",
            fix="unpack UCF101.rar (unrar x UCF101.rar); archives of films are not read",
        )
    official = check_count(source, "films", len(films), _NUM_FILMS, allow_other=allow_other_hash)
    classes = _classes(read_text(files, _list(files, sizes, _CLASSES)), source)
    parts = ("train", "test") if split == "all" else (split,)
    wanted = [
        line.split()[0]  # Class/film.avi; training lists add the class number
        for part in parts
        for line in read_text(files, _list(files, sizes, f"{part}list{fold:02d}.txt")).splitlines()
        if line.strip()
    ]
    labels = tuple(_label(name, classes, films, source) for name in wanted)
    names = tuple(films[name] for name in wanted)
    return Recipe(
        dataset="ucf101",
        shape=cut.shape,
        classes=tuple(classes),
        items=names,
        items_per_shard=max(1, shard_size(cut.shape) // _CLIPS_PER_FILM),
        decode=FilmDecoder(files, names, cut, labels),
        note=SourceNote(
            name="UCF101",
            location=source,
            content=fingerprint({name: sizes[name] for name in names}),
            official=official,
            split=f"{split}, lists {fold:02d}",
            processing=str(cut),
            licence="none stated: films from YouTube, for research; https://www.crcv.ucf.edu/data/UCF101.php",
            skipped=listing.skipped,
        ),
    )


def _list(files: FileSet, names: Mapping[str, int], wanted: str) -> str:
    found = next((name for name in names if name.rpartition("/")[2] == wanted), None)
    if found is None:
        raise TrainerError(
            place="--source",
            problem=f"there is no {wanted}",
            value=files.place,
            allowed="the films, and the folder ucfTrainTestlist",
            fix="unpack UCF101TrainTestSplits-RecognitionTask.zip into that folder",
        )
    return found


def _classes(text: str, source: str) -> dict[str, int]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    numbered = {words[1]: position for position, words in enumerate(lines) if len(words) == 2}
    if len(numbered) != len(lines) or [words[0] for words in lines] != [str(n + 1) for n in range(len(lines))]:
        raise TrainerError(
            place=f"{_CLASSES} of {source}",
            problem="is not the list of classes",
            value=text[:60],
            allowed="a line for each class: 1 ApplyEyeMakeup",
            fix="unpack it again",
        )
    return numbered


def _label(name: str, classes: Mapping[str, int], films: Mapping[str, str], source: str) -> int:
    kind = name.partition("/")[0]
    if name not in films or kind not in classes:
        raise TrainerError(
            place=source,
            problem="a film of the split list is missing"
            if kind in classes
            else f"a film's class is not in {_CLASSES}",
            value=name,
            allowed="every listed film",
            fix="unpack UCF101.rar again",
        )
    return classes[kind]
