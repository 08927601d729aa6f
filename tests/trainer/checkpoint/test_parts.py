"""Checkpoints in parts: what workers write is read back, whole or in other parts; nothing else is taken for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import parts, store
from gangway.trainer.checkpoint.parts import Piece, get_blocks, get_pieces, part_name, to_meta, write_part
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.sharded_modules import tensors
from gangway.trainer.distributed.world import World
from gangway.trainer.records.digest import RunIdentity

IDENTITY = RunIdentity(run_id="a" * 32, session=0, dataset_sha256="b" * 64)
ALONE = World.alone(torch.device("cpu"))


def _state(value: float = 1.0) -> dict[str, Any]:
    weight = torch.arange(12.0).reshape(4, 3) * value
    moments = {"state": {0: {"step": torch.tensor(7.0), "exp_avg": weight / 2}}, "param_groups": [{"params": [0]}]}
    return {"images": 80, "step": 5, "g": {"weight": weight, "bias": torch.full((3,), value)}, "opt_g": moments}


def _save(folder: Path, config: TrainConfig, images: int, state: dict[str, Any]) -> Path:
    """As two workers would: the first writes the first rows of the weight, and all else."""
    path, numbers = folder / f"{images:012d}.pt", dict(tensors(state))
    rows = [parts.Block("g/weight", (first, 0), (2, 3)) for first in (0, 2)]
    alike = [block for block in get_blocks(state, split=True, whole=True) if block.name != "g/weight"]
    written = []
    for number, blocks in enumerate(([rows[0], *alike], [rows[1]])):
        part = {**numbers, "g/weight": numbers["g/weight"][2 * number : 2 * number + 2]}
        written.append(write_part(folder / part_name(path, number, 2), number, blocks, part))
    return store.save_parts(folder, to_meta(state), written, config, images, IDENTITY)


def test_what_workers_wrote_is_read_back(tiny_config: TrainConfig, tmp_path: Path) -> None:
    state = _state()
    found = store.load(_save(tmp_path, tiny_config, 80, state))
    assert {each.device.type for _, each in tensors(found.state)} == {"meta"}
    whole = found.read()
    assert store.state_digests(whole) == store.state_digests(state)
    assert whole["opt_g"]["param_groups"] == [{"params": [0]}]
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "000000000080.json",
        "000000000080.part-0-of-2",
        "000000000080.part-1-of-2",
        "000000000080.pt",
    ]


def test_a_damaged_part_has_the_one_before_taken(tiny_config: TrainConfig, tmp_path: Path) -> None:
    _save(tmp_path, tiny_config, 80, _state())
    _save(tmp_path, tiny_config, 160, _state(2.0))
    (tmp_path / "000000000160.part-1-of-2").write_bytes(b"\0" * 24)
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 80
    assert len(passed_over) == 1
    assert "the hash of 000000000160.part-1-of-2 is not the one in its manifest" in passed_over[0]
    told = store.damaged_parts(tmp_path, ALONE)
    assert list(told) == ["000000000160.part-1-of-2"]
    # Who has been told looks at no part.
    (tmp_path / "000000000160.part-1-of-2").unlink()
    assert store.load(tmp_path / "000000000160.pt", {}).manifest.images == 160
    with pytest.raises(TrainerError, match="hash of 000000000160"):
        store.load(tmp_path / "000000000160.pt", told)


def test_old_checkpoints_go_with_their_parts(tiny_config: TrainConfig, tmp_path: Path) -> None:
    config = tiny_config.replace({"keep_checkpoints": 2})
    for images in (80, 160, 240):
        _save(tmp_path, config, images, _state())
    (tmp_path / "000000000300.part-0-of-2").write_bytes(b"of a save that failed")
    _save(tmp_path, config, 320, _state())
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"000000000240", "000000000320"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda pieces: pieces[1:], "is not all there"),
        (lambda pieces: [*pieces, ("g/other", (0,), (1,), 0, 0)], "no such tensor"),
        (lambda pieces: [("g/weight", (3, 0), (2, 3), 0, 0), *pieces[1:]], "not inside it"),
        (lambda pieces: [("g/weight", (0, 0), (2, 3), 2, 0), *pieces[1:]], "no part has"),
        (lambda pieces: [("g/weight", (0, 0), (2, 3), 0, -8), *pieces[1:]], "no part has"),
        (lambda pieces: [("g/weight", (0, 0), (2, 3), 0, 1 << 40), *pieces[1:]], "no part has"),
        (lambda pieces: [("g/weight", (0, 0), (2, 3), "0", 0), *pieces[1:]], "no list of pieces"),
        (lambda _: "pieces", "no list of pieces"),
    ],
)
def test_pieces_that_cannot_be_are_refused(
    change: Callable[[Any], object], why: str, tiny_config: TrainConfig, tmp_path: Path
) -> None:
    found = store.load(_save(tmp_path, tiny_config, 80, _state()))
    plain = [tuple(piece) for piece in found.pieces]
    assert plain[0] == Piece("g/weight", (0, 0), (2, 3), 0, 0)
    assert get_pieces(plain, found.state, found.manifest.parts) == list(found.pieces)
    with pytest.raises(ValueError, match=why):
        get_pieces(change(plain), found.state, found.manifest.parts)


def test_a_part_outside_the_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    part = parts.Part(
        file="../secret", sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", bytes=0
    )
    assert parts.get_damage(folder, part) == "../secret is missing"


FULL_DISK = """
import sys
from pathlib import Path
import torch
from torch.distributed.tensor import Shard, distribute_tensor
from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.async_saver import PartSaver
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import start_world
from gangway.trainer.records.digest import RunIdentity

folder, config = Path(sys.argv[1]), TrainConfig.from_file(Path(sys.argv[2]))
identity = RunIdentity(run_id="r", session=0, dataset_sha256="d")
with start_world("gloo", "fsdp2") as world:
    weight = distribute_tensor(torch.arange(10.0).reshape(5, 2), world.mesh, [Shard(0)])
    state = {"images": 80, "step": 5, "g": {"weight": weight}}
    saver = PartSaver(folder, config, identity, lambda _: None, world.for_thread())
    saver.save(state, 80)
    saver.wait()
    whole = store.load_newest_valid(folder)[0].read()
    assert torch.equal(whole["g"]["weight"], torch.arange(10.0).reshape(5, 2))
    nowhere = folder / "000000000080.pt" / "checkpoints"  # beneath a file
    broken = PartSaver(nowhere if world.rank == 1 else folder, config, identity, lambda _: None, world.for_thread())
    if world.rank == 0:
        weight.to_local()[0, 0] = 7.0
    broken.save(state, 160)
    try:
        broken.wait()
    except TrainerError as error:
        assert "000000000160.part-1-of-2" in error.place, error
        print("worker was told")
    assert store.newest(folder).name == "000000000080.pt"
    weight.to_local()[:1] = float("nan")
    saver.save(state, 160)
    try:
        saver.wait()
    except TrainerError as error:
        assert "the generator at step 5, 160 images, not saved" in error.place, error
        print("worker was told")
"""


@pytest.mark.slow
def test_what_fails_on_one_worker_fails_on_all(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, tmp_path: Path
) -> None:
    (tmp_path / "full_disk.py").write_text(FULL_DISK)
    (tmp_path / "config.json").write_text(tiny_config.to_json())
    words = (str(tmp_path / "full_disk.py"), str(tmp_path / "checkpoints"), str(tmp_path / "config.json"))
    code, text = torchrun(*words, PYTHONPATH=str(Path.cwd())).finish()
    assert (code, text.count("worker was told")) == (0, 4), text
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("*80*"))[-1] == "000000000080.pt"
