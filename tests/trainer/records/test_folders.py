"""Whose a folder is: a run is not begun among somebody's files, and goes on wherever ours are."""

import json
from pathlib import Path

import pytest

from gangway.trainer.__main__ import main
from gangway.trainer.config.presets import preset
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.folders import check_run_folder, free_name, is_run

DONE = {"event": "done", "images": 64, "time": 1.0, "session": 0, "state_sha256": {}}


def write(folder: Path, name: str, text: str = "") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.mark.parametrize(
    "name", ["config.json", "samples.png", "stats.jsonl", "run.json", "cat.jpg", "samples/1.png", "checkpoints/best.pt"]
)
def test_somebodys_files_are_refused_and_kept(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "my pictures"
    write(folder, name, '{"mine": 1}')
    with pytest.raises(TrainerError) as caught:
        check_run_folder(folder)
    assert caught.value.place == "--run-dir"
    assert name.partition("/")[0] in str(caught.value)
    assert str(caught.value).endswith(f"--run-dir '{tmp_path / 'my pictures-1'}'")


@pytest.mark.parametrize("name", ["config.json", "stats.jsonl", "cat.jpg"])
def test_train_writes_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    write(tmp_path / "mine", name, '{"mine": 1}')
    words = ["train", "--preset", "dcgan-digits", "--kimg", "0.064", "--run-dir", str(tmp_path / "mine")]
    assert main(words) == 2
    assert f"--run-dir: holds no run but other files: {name}" in capsys.readouterr().err
    assert {path.name: path.read_text("utf-8") for path in (tmp_path / "mine").iterdir()} == {name: '{"mine": 1}'}


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("plan.json", "job.json", "train.log"),
        ("train.json", "data/shard-00000.bin", "data/index.json"),
        (".launch/1a2b/node-0.json", ".launch/1a2b/over.json", ".results-node-0/config.json"),
        (".lock", ".results/config.json", "lost+found/1"),
    ],
)
def test_what_comes_before_a_run_is_nobodys(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "an empty folder" / "another").mkdir(parents=True)
    for name in names:
        write(tmp_path, name)
    check_run_folder(tmp_path)
    check_run_folder(tmp_path / "new")
    assert not is_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("checkpoints/000000000064.pt", "damaged"),
        ("stats.jsonl", f"half a li\n{json.dumps(DONE)}\n"),
        ("config.json", preset("dcgan-digits").to_json()),
    ],
)
def test_a_run_goes_on_whatever_else_is_there(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, "config.json", "{dam")
    write(tmp_path, "my notes.txt")
    with pytest.raises(TrainerError):
        check_run_folder(tmp_path)
    write(tmp_path, name, text)
    check_run_folder(tmp_path)
    assert is_run(tmp_path)


def test_a_free_name_is_a_neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v1.0").mkdir()
    write(tmp_path, "a.png")
    write(tmp_path, "a-1.png")
    write(tmp_path, "a-2.png.json")
    assert free_name(tmp_path / "v1.0") == tmp_path / "v1.0-1"
    assert free_name(tmp_path / "a.png") == tmp_path / "a-2.png"
    both = free_name(tmp_path / "a.png", lambda out: (out, out.with_name(f"{out.name}.json")))
    assert both == tmp_path / "a-3.png"
    monkeypatch.chdir(tmp_path / "v1.0")
    assert free_name(Path()) == tmp_path / "v1.0-1"
