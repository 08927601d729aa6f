"""`data prepare`, `show` and `speed`: what they print, and exit code 2 with one clear message for every mistake."""

import io
import json
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gangway.trainer.__main__ import main
from gangway.trainer.data.shards import ShardedImages

PREPARE = ("data", "prepare")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    for number, kind in enumerate(("cat", "cat", "dog")):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (number * 80,) * 3).save(folder / kind / f"{number}.png")
    return folder


def test_a_folder_is_prepared_and_told(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    out = tmp_path / "out"
    flags = ["--source", str(pictures), "--out", str(out), "--resolution", "8", "--labels", "--channels", "1"]
    assert main([*PREPARE, "folder", *flags]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"wrote {out}: 3 images (1, 8, 8), 2 classes, 1 shards",
        "official: not applicable; licence: unknown: that of the images",
    ]
    data = ShardedImages.open(out)
    assert data.take(np.arange(3))[:, 0, 0, 0].tolist() == [0, 80, 160]
    assert data.labels(np.arange(3)).tolist() == [0, 0, 1]
    assert signal.getsignal(signal.SIGTERM) == before
    for name in ("00000.npy", "labels.npy"):
        (out / name).write_bytes(b"")
        assert main([*PREPARE, "folder", *flags]) == 0
        said = capsys.readouterr().out
        assert f"folder: {name} is damaged or missing and is made again" in said
        assert f"wrote {out}: 3 images" in said
        ShardedImages.open(out)


def test_what_nothing_trains_on_is_said_and_what_does_is_proposed(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepared(size: str) -> tuple[str, str]:
        out = str(tmp_path / size)
        flags = ["--source", str(pictures), "--out", out, "--resolution", size, "--workers", "1"]
        assert main([*PREPARE, "folder", *flags]) == 0, "shards serve other programs too"
        said = capsys.readouterr()
        return said.out, said.err

    out, err = prepared("50")
    assert "no network here trains on 50x50, but on 16, 32, 64, 128, 256, 512: to train, prepare --resolution 64" in err
    assert "to train on it" not in out
    out, err = prepared("32")
    assert "no network" not in err
    assert f"to train on it: python -m gangway.trainer train --preset few-images --data {tmp_path / '32'}" in out


def test_what_is_there_already_is_not_said_to_be_written(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = [*PREPARE, "folder", "--source", str(pictures), "--out", str(out), "--resolution", "8", "--labels"]
    assert main(command) == 0
    times = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        f"{out} is complete already, every file compared with its hash: 3 images (3, 8, 8), 2 classes, 1 shards"
    )
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == times


def test_broken_files_are_counted(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pictures / "x.png").write_bytes(b"x")
    flags = ["--source", str(pictures), "--out", str(tmp_path / "out"), "--resolution", "8", "--workers", "1"]
    assert main([*PREPARE, "folder", *flags]) == 2
    assert "x.png: cannot be used: not a readable image" in capsys.readouterr().err
    assert main([*PREPARE, "folder", *flags, "--skip-broken"]) == 0
    told = f"left out of {pictures}: 1, named in index.json\n  1  .png file  not a readable image  x.png\n"
    assert told in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "index.json").read_text())["source"]["skipped"][0]["names"] == ["x.png"]
    assert main(["data", "show", "--data", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'out'}: 3 images (3, 8, 8), 1 shards\n")
    assert told in said


def test_every_data_set_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for dataset in ("cifar10", "celeba", "ucf101", "folder", "digits", "photos", "day-dusk", "clips"):
        with pytest.raises(SystemExit) as caught:
            main([*PREPARE, dataset, "--help"])
        assert caught.value.code == 0
        shown[dataset] = capsys.readouterr().out
    with_frames = {dataset for dataset, text in shown.items() if "--frames" in text}
    with_source = {dataset for dataset, text in shown.items() if "--source" in text}
    assert with_frames == {"ucf101", "clips"}
    assert with_source == {"cifar10", "celeba", "ucf101", "folder"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["imagenet", "--out", "x"], "DATASET: not an accepted value\n  got:     'imagenet'"),
        (["cifar10", "--out", "x"], "--source: is required, and was not given"),
        (["cifar10", "--source", "none", "--out", "x"], "--source: there is no such source\n  got:     'none'"),
        (["celeba", "--source", "none", "--out", "x"], "--source: there is no such source\n  got:     'none'"),
        (["celeba", "--source", "none", "--out", "x", "--split", "dev"], "--split: not an accepted value"),
        (["folder", "--source", "http://x/y", "--out", "x"], "--source: not a kind of storage that is read"),
        (["folder", "--source", "none.zip", "--out", "x"], "--source: there is no such source\n  got:     'none.zip'"),
        (["ucf101", "--source", ".", "--out", "x"], "--source: holds no .avi file"),
        (["ucf101", "--source", ".", "--out", "x", "--fold", "4"], "--fold: not an accepted value"),
        (["digits", "--out", "x", "--frames", "4"], "unknown flag --frames"),
        (
            ["digits", "--out", "x", "--resolution", "0"],
            "--resolution: not an accepted value\n  got:     '0'\n  allowed: a whole number",
        ),
        (["digits", "--out", "x", "--resolution", "big"], "--resolution: not an accepted value\n  got:     'big'"),
        (["clips", "--out", "x", "--frames", "1"], "--frames: a clip has at least two frames"),
        (["photos", "--out", "x", "--channels", "2"], "--channels: not an accepted value"),
        (["photos", "--out", "/dev/null/x"], "--out: /dev/null is a file where a folder is needed"),
    ],
)
def test_a_mistake_is_named_and_exits_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PREPARE, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("  fix:") == 1
    assert not list(tmp_path.iterdir())


def test_the_speed_of_reading_is_measured(digits_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "speed", "--data", str(digits_dir), "--batch-size", "100", "--seconds", "1"]) == 0
    rate, rest = capsys.readouterr().out.split(" ", 1)
    assert int(rate.replace(",", "")) > 0
    assert rest == "images/s, batches of 100, in the loop's order, one process\n"
    assert main(["data", "speed", "--data", str(tmp_path)]) == 2
    assert "no data set here" in capsys.readouterr().err


def test_a_picture_of_the_wrong_kind_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = io.BytesIO()
    Image.new("RGB", (4, 4)).save(content, "GIF")
    (tmp_path / "a.png").write_bytes(content.getvalue()[:20])
    assert main([*PREPARE, "folder", "--source", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "a.png: cannot be used" in capsys.readouterr().err
