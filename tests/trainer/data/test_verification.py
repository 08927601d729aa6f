"""Data compared with its hashes beside the training: once a node and version, remembered by this user alone, and damage
ends all workers.
"""

import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data import verification
from gangway.trainer.data.shards import ShardedImages, verify_file
from gangway.trainer.data.verification import Verification
from gangway.trainer.distributed.world import World
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from tests.shard_files import write_shards

ALONE = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "a test's")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files that are read whole, in an empty place for notes."""
    notes = tmp_path / "tmp"
    notes.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(notes))
    names: list[str] = []
    compare = verify_file

    def counted(folder: Path, file: Any) -> None:
        names.append(file.name)
        compare(folder, file)

    monkeypatch.setattr(verification, "verify_file", counted)
    return names


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    images = np.arange(10 * 3 * 4 * 4, dtype=np.uint8).reshape(10, 3, 4, 4)
    write_shards(tmp_path / "data", "noise", images, images_per_shard=5)
    return tmp_path / "data"


def flip(path: Path) -> None:
    """A bit of the last image."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    later = time.time_ns() + 10**9  # a clock's tick is longer than a test
    os.utime(path, ns=(later, later))


def verified(folder: Path, world: World = ALONE) -> Verification:
    found = Verification(ShardedImages.open(folder, verify=False), world)
    with found:
        assert not found.finish()
    return found


def test_a_second_start_reads_nothing(read: list[str], shards: Path) -> None:
    first = verified(shards).outcome
    assert first is not None
    assert not first.remembered
    assert sorted(read) == ["00000.npy", "00001.npy"]
    second = verified(shards).outcome
    assert len(read) == 2
    assert second == first.model_copy(update={"remembered": True})


def test_another_version_of_a_file_or_of_the_index_is_read_again(read: list[str], shards: Path) -> None:
    verified(shards)
    read.clear()
    os.utime(shards / "00001.npy", (1, 1))
    verified(shards)
    assert len(read) == 2, "written since"
    read.clear()
    other = shards.with_name("other")
    write_shards(other, "noise", np.zeros((10, 3, 4, 4), np.uint8), images_per_shard=5)
    for path in shards.iterdir():
        path.unlink()
    for path in other.iterdir():
        shutil.copy2(path, shards / path.name)
    verified(shards)
    assert len(read) == 2, "another data set in the same place"


def test_damage_is_found_although_an_earlier_version_was_remembered(read: list[str], shards: Path) -> None:
    verified(shards)
    flip(shards / "00001.npy")
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt"):
        verified(shards)
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt"):
        verified(shards)


@pytest.mark.parametrize("kind", ["nonsense", "another's", "writable by others", "a link"])
def test_a_note_that_others_could_have_written_is_not_trusted(
    read: list[str], shards: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified(shards)
    (folder,) = (tmp_path / "tmp").iterdir()
    (note,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    read.clear()
    match kind:
        case "nonsense":
            note.write_text("{}")
        case "another's":
            monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
            folder.rename(folder.with_name(f"gangway-{os.geteuid() + 1}"))
        case "writable by others":
            folder.chmod(0o777)
        case "a link":
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
    verified(shards)
    assert len(read) == 2


def test_of_a_nodes_workers_the_first_alone_reads(read: list[str], shards: Path) -> None:
    second = World(1, 1, 2, 0, 1, torch.device("cpu"), "none", "a test's")
    assert verified(shards, second).outcome is None
    assert read == []


def test_whoever_has_to_stop_does_not_wait(
    read: list[str], shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    monkeypatch.setattr(verification, "verify_file", lambda *_: going_on.wait(60))
    with Verification(ShardedImages.open(shards, verify=False), ALONE) as found:
        assert found.finish(lambda: True)
        going_on.set()
    assert found.outcome is None or not found.failed
    assert not list((tmp_path / "tmp").rglob("*.json")) or found.outcome is not None


def test_a_file_written_meanwhile_is_not_remembered(
    read: list[str], shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "verify_file", lambda folder, file: os.utime(folder / file.name, (2, 2)))
    assert verified(shards).outcome is not None
    assert not list((tmp_path / "tmp").rglob("*.json"))


@pytest.mark.slow
def test_damage_found_beside_the_training_ends_all_workers_before_another_checkpoint(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    """Labels are compared before the training, shards are not: these workers have begun when it is found."""
    data = tmp_path / "data"
    shutil.copytree(digits_dir, data)
    flip(data / "00000.npy")
    (tmp_path / "config.json").write_text(tiny_config.to_json())
    argv = ["train", "--config", str(tmp_path / "config.json"), "--run-dir", str(tmp_path / "run")]
    code, text = torchrun("-m", "gangway.trainer", *argv, "--data", str(data)).finish()
    assert code == 2, text
    assert text.count("00000.npy: shard is corrupt") == 1, text
    assert "Traceback" not in text
    lines = [json.loads(line) for line in (tmp_path / "run" / "stats.jsonl").read_text().splitlines()]
    assert lines[0]["event"] == "start", "it had begun"
    assert lines[-1]["event"] == "failed"
    assert "00000.npy: shard is corrupt" in lines[-1]["why"]
    assert not any(line.get("event") == "done" for line in lines)


def test_the_record_says_when_and_by_whom(tiny_config: TrainConfig, digits_dir: Path, tmp_path: Path) -> None:
    config = tiny_config.replace({"kimg": 0.064})
    assert train(config, tmp_path / "run", digits_dir, RunContext(run_id="r"), Interruption()) == 0
    (session,) = RunRecord.read(tmp_path / "run" / "run.json").sessions
    (node,) = session.data_verified
    assert (node.node, node.host) == (0, os.uname().nodename)
    assert node.sec >= 0
    assert node.at <= session.end
