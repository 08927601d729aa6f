"""Checkpoints: hashed, kept, refused when corrupt, and never lost to a full disk."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.store import OtherVersionError, is_finite, state_digests
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import sha256_of
from gangway.trainer.records.digest import RunIdentity

State = dict[str, object]
IDENTITY = RunIdentity(run_id="r", session=3, dataset_sha256="ab")


def _state(value: float) -> State:
    return {
        "images": 1,
        "step": 4,
        "g": {"weight": torch.full((3, 3), value)},
        "opt": {"state": [{"step": torch.tensor(value)}]},
    }


def _save_three(folder: Path, config: TrainConfig) -> list[Path]:
    return [store.save(folder, _state(images), config, images, IDENTITY) for images in (100, 200, 300)]


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_saved_is_loaded(tmp_path: Path, tiny_config: TrainConfig) -> None:
    path = store.save(tmp_path, _state(2.5), tiny_config, 123, IDENTITY)
    assert path.name == "000000000123.pt"
    loaded = store.load(path)
    assert loaded.manifest.config == tiny_config
    assert (loaded.manifest.images, loaded.manifest.identity) == (123, IDENTITY)
    assert loaded.manifest.bytes == path.stat().st_size
    assert state_digests(loaded.state) == loaded.manifest.state_sha256
    assert torch.equal(loaded.state["g"]["weight"], torch.full((3, 3), 2.5))


def test_only_the_newest_are_kept(tmp_path: Path, tiny_config: TrainConfig) -> None:
    _save_three(tmp_path, tiny_config.replace({"keep_checkpoints": 2}))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["000000000200.json", "000000000200.pt", "000000000300.json", "000000000300.pt"]
    assert store.newest(tmp_path) == tmp_path / "000000000300.pt"
    assert store.newest(tmp_path / "none") is None


def test_one_that_lacks_a_part_is_passed_over_however_well_its_hash_fits(
    tmp_path: Path, tiny_config: TrainConfig
) -> None:
    newest = _save_three(tmp_path, tiny_config)[-1]
    state = store.load(newest).state
    torch.save({name: part for name, part in state.items() if name != "opt"}, newest)
    manifest = newest.with_suffix(".json")
    promised = json.loads(manifest.read_text()) | {"sha256": sha256_of(newest)}
    manifest.write_text(json.dumps(promised | {"bytes": newest.stat().st_size}))
    with pytest.raises(TrainerError, match="has not the parts") as caught:
        store.load(newest)
    assert (caught.value.value, caught.value.allowed) == ("g, images, step", "g, images, opt, step")
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 200
    assert str(newest) in passed_over[0]


def test_a_corrupt_newest_one_is_passed_over_and_said_so(tmp_path: Path, tiny_config: TrainConfig) -> None:
    newest = _save_three(tmp_path, tiny_config)[-1]
    _damage(newest)
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 200
    assert len(passed_over) == 1
    assert f"{newest}: checkpoint is corrupt" in passed_over[0]


def test_a_corrupt_one_asked_for_by_name_shows_both_hashes(tmp_path: Path, tiny_config: TrainConfig) -> None:
    path = store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    expected = store.load(path).manifest.sha256
    _damage(path)
    with pytest.raises(TrainerError) as caught:
        store.load(path)
    assert caught.value.allowed == f"sha256 {expected}"
    assert str(caught.value.value).startswith("sha256 ")


def test_when_all_are_corrupt_the_run_does_not_start_anew(tmp_path: Path, tiny_config: TrainConfig) -> None:
    for path in _save_three(tmp_path, tiny_config):
        _damage(path)
    with pytest.raises(TrainerError, match="all 3 checkpoints are corrupt") as caught:
        store.load_newest_valid(tmp_path)
    assert str(caught.value).count("fix:") == 1
    assert "000000000300.pt: checkpoint is corrupt" in str(caught.value)
    assert store.load_newest_valid(tmp_path / "empty") == (None, [])


def _replace_content(path: Path, content: bytes) -> None:
    """Other bytes, with the hash and the size that its manifest promises."""
    path.write_bytes(content)
    manifest = path.with_suffix(".json")
    promised = {"sha256": sha256_of(path), "bytes": len(content)}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | promised))


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("notes/readme.txt", "no tensors here")
    return buffer.getvalue()


WHOLE = _saved({"images": 1, "g": {"weight": torch.zeros(3, 3)}, "opt": {}})
UNLOADABLE = {
    "empty": b"",
    "truncated": WHOLE[: len(WHOLE) // 2],
    "without its directory's end": WHOLE[:-30],
    "another archive": _zipped(),
    "text": b"not a checkpoint",
    "an old pickle": pickle.dumps({"images": 1}),
    "a list": _saved([torch.zeros(3), {}]),
    "a tensor": _saved(torch.zeros(3)),
    "numbered parts": _saved({0: torch.zeros(3)}),
    "a number": _saved(3),
}


@pytest.mark.parametrize("content", UNLOADABLE.values(), ids=UNLOADABLE)
def test_what_cannot_be_loaded_is_passed_over_with_its_reason(
    tmp_path: Path, tiny_config: TrainConfig, content: bytes
) -> None:
    *_, newest = paths = _save_three(tmp_path, tiny_config)
    _replace_content(newest, content)
    with pytest.raises(TrainerError, match="holds nothing that can be loaded") as caught:
        store.load(newest)
    assert not isinstance(caught.value, OtherVersionError)
    assert caught.value.value
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 200
    assert f"{newest}: checkpoint holds nothing" in passed_over[0]
    for path in paths:
        _replace_content(path, content)
    with pytest.raises(TrainerError, match="all 3 checkpoints are corrupt"):
        store.load_newest_valid(tmp_path)


def _of_another_version(path: Path, **changes: object) -> None:
    manifest = path.with_suffix(".json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


NEWER: dict[str, dict[str, object]] = {
    "format": {"format": 2},
    "format and other fields": {"format": 2, "identity": None, "config": []},
    "field": {"roles": ["g", "d"]},
}


@pytest.mark.parametrize("changes", NEWER.values(), ids=NEWER)
def test_another_version_is_no_damage(tmp_path: Path, tiny_config: TrainConfig, changes: dict[str, object]) -> None:
    *_, newest = paths = _save_three(tmp_path, tiny_config)
    _of_another_version(newest, **changes)
    with pytest.raises(OtherVersionError, match="is of another version of the trainer"):
        store.load(newest)
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 200
    assert "another version" in passed_over[0]
    for path in paths:
        _of_another_version(path, **changes)
    with pytest.raises(TrainerError, match="all 3 checkpoints are whole, but of another version") as caught:
        store.load_newest_valid(tmp_path)
    assert caught.value.place == str(tmp_path)
    assert str(newest.with_suffix(".json")) in str(caught.value.value)
    assert caught.value.fix.startswith("go on with the version that wrote them; or start anew")
    _damage(paths[0])
    _of_another_version(paths[0], format=1)
    if "roles" not in changes and "config" not in changes:
        with pytest.raises(TrainerError, match="of 3 checkpoints 1 are corrupt and 2 of another trainer's version"):
            store.load_newest_valid(tmp_path)


@pytest.mark.parametrize("change", [{"architecture": "transformer"}, {"lr_schedule": 3}, {"lr_g": -1}])
def test_a_configuration_that_this_version_does_not_know_is_no_damage(
    tmp_path: Path, tiny_config: TrainConfig, change: dict[str, object]
) -> None:
    newest = _save_three(tmp_path, tiny_config)[-1]
    config = json.loads(tiny_config.to_json()) | change
    _of_another_version(newest, config=config)
    with pytest.raises(OtherVersionError, match=next(iter(change))):
        store.load(newest)


def test_manifests_from_before_they_had_a_format_are_read(tmp_path: Path, tiny_config: TrainConfig) -> None:
    path = store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    manifest = path.with_suffix(".json")
    old = {name: value for name, value in json.loads(manifest.read_text()).items() if name != "format"}
    manifest.write_text(json.dumps(old))
    assert store.load(path).manifest.format == 1


def test_networks_that_compute_otherwise_now_are_refused(tmp_path: Path) -> None:
    """R3GAN's of before have the same names and shapes, and made other images of them."""
    config = PRESETS["r3gan-cifar10"].replace({"num_classes": 0})
    path = store.save(tmp_path, _state(1), config, 100, IDENTITY)
    assert store.load(path).manifest.revision == 2
    manifest = path.with_suffix(".json")
    content = json.loads(manifest.read_text())
    del content["revision"]
    manifest.write_text(json.dumps(content))
    with pytest.raises(
        OtherVersionError, match="its r3gan networks are of revision 1, and this version builds"
    ) as told:
        store.load(path)
    assert told.value.fix == "go on with the version that wrote it, or start anew in another --run-dir"


def test_networks_that_never_changed_have_manifests_that_older_versions_read(
    tmp_path: Path, tiny_config: TrainConfig
) -> None:
    path = store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    assert not {"revision", "parts"} & set(json.loads(path.with_suffix(".json").read_text()))


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_a_checkpoint_without_its_manifest_is_not_valid(tmp_path: Path, tiny_config: TrainConfig, damage: str) -> None:
    manifest = _save_three(tmp_path, tiny_config)[-1].with_suffix(".json")
    manifest.unlink() if damage == "missing" else manifest.write_text('{"images": 300')
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert found.manifest.images == 200
    assert "000000000300.json" in passed_over[0]


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no such checkpoint"):
        store.load(tmp_path / "000000000001.pt")


@pytest.mark.parametrize("file", ["000000000200.pt", "000000000200.json"])
def test_a_full_disk_leaves_the_earlier_checkpoint(
    tmp_path: Path, tiny_config: TrainConfig, file: str, full_disk: Callable[[str], None]
) -> None:
    store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    full_disk(file)
    with pytest.raises(TrainerError, match=f"{file}: cannot be written: No space left on device"):
        store.save(tmp_path, _state(2), tiny_config, 200, IDENTITY)
    found, passed_over = store.load_newest_valid(tmp_path)
    assert found is not None
    assert (found.manifest.images, passed_over) == (100, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000100.json", "000000000100.pt"]


def test_a_full_disk_leaves_the_checkpoint_that_was_to_be_replaced(
    tmp_path: Path, tiny_config: TrainConfig, full_disk: Callable[[str], None]
) -> None:
    path = store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    full_disk(path.name)
    with pytest.raises(TrainerError, match="No space left on device"):
        store.save(tmp_path, _state(2), tiny_config, 100, IDENTITY)
    assert torch.equal(store.load(path).state["g"]["weight"], torch.full((3, 3), 1.0))


class Malicious:
    """What runs a command when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def test_a_checkpoint_cannot_carry_code(tmp_path: Path, tiny_config: TrainConfig) -> None:
    folder, target = tmp_path / "checkpoints", tmp_path / "it-ran"
    store.save(folder, _state(1), tiny_config, 100, IDENTITY)
    state = {"images": 1, "g": Malicious(target)}
    path = store.save(folder, state, tiny_config, 200, IDENTITY)  # with the right hash in its manifest
    with pytest.raises(TrainerError, match="holds more than tensors and numbers, and none of it was run"):
        store.load(path)
    found, passed_over = store.load_newest_valid(folder)
    assert found is not None
    assert found.manifest.images == 100
    assert f"{path}: checkpoint holds more than tensors" in passed_over[0]
    assert not target.exists()
    torch.load(path, weights_only=False)
    assert target.exists(), "it would have run"


@pytest.mark.parametrize(
    ("every_kimg", "kept"),
    [(0, [800, 900]), (0.3, [300, 600, 800, 900]), (0.25, [300, 500, 800, 900]), (10, [800, 900])],
)
def test_the_first_of_each_stretch_stays_for_good(
    tmp_path: Path, tiny_config: TrainConfig, every_kimg: float, kept: list[int]
) -> None:
    config = tiny_config.replace({"keep_checkpoints": 2, "keep_every_kimg": every_kimg})
    for images in range(100, 1000, 100):
        store.save(tmp_path, _state(1), config, images, IDENTITY)
    assert _names(tmp_path) == [str(images) for images in kept]
    assert len(list(tmp_path.glob("*.json"))) == len(kept)


def test_a_changed_field_is_named_with_both_values(tiny_config: TrainConfig) -> None:
    with pytest.raises(TrainerError) as caught:
        store.check_config(tiny_config, tiny_config.replace({"lr_g": 0.5}), Path("runs/a"))
    assert str(caught.value).startswith("TrainConfig.lr_g: the run in runs/a was started with another value")
    assert (caught.value.value, caught.value.allowed) == (0.5, repr(tiny_config.lr_g))
    store.check_config(tiny_config, tiny_config.replace({"kimg": 99, "stats_kimg": 2}), Path("runs/a"))


def test_all_changed_fields_are_in_the_fix(tiny_config: TrainConfig) -> None:
    """As for a run from before its preset had the authors' widths and latents."""
    now = tiny_config.replace({"ngf": 128, "latents": "uniform", "dequantise": True})
    with pytest.raises(TrainerError) as caught:
        store.check_config(tiny_config, now, Path("runs/a"))
    assert caught.value.place == "TrainConfig.latents"
    assert 'go on with "normal" (and ngf 4, dequantise false), or start a new run' in caught.value.fix


def _names(folder: Path) -> list[str]:
    return [path.stem.lstrip("0") for path in sorted(folder.glob("*.pt"))]


def test_corrupt_checkpoints_do_not_push_good_ones_out(tmp_path: Path, tiny_config: TrainConfig) -> None:
    config = tiny_config.replace({"keep_checkpoints": 2})
    for images in (100, 200):
        store.save(tmp_path, _state(1), config, images, IDENTITY)
    (tmp_path / "000000000200.pt").write_bytes(b"cut short")
    store.save(tmp_path, _state(1), config, 300, IDENTITY)
    (tmp_path / "000000000300.json").unlink()
    store.save(tmp_path, _state(1), config, 400, IDENTITY)
    assert _names(tmp_path) == ["100", "200", "300", "400"], "100 and 400 alone can be resumed from"
    for images in (500, 600):
        store.save(tmp_path, _state(1), config, images, IDENTITY)
    assert _names(tmp_path) == ["500", "600"]


def test_checkpoints_of_another_run_do_not_count(tmp_path: Path, tiny_config: TrainConfig) -> None:
    config = tiny_config.replace({"keep_checkpoints": 2})
    other = IDENTITY.model_copy(update={"run_id": "other"})
    for images, identity in ((100, IDENTITY), (200, other), (300, IDENTITY)):
        store.save(tmp_path, _state(1), config, images, identity)
    assert _names(tmp_path) == ["100", "200", "300"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_that_is_not_finite_is_not_saved(tmp_path: Path, tiny_config: TrainConfig, bad: float) -> None:
    store.save(tmp_path, _state(1), tiny_config, 100, IDENTITY)
    several = tiny_config.replace({"d_steps": 3})  # of 48 images
    with pytest.raises(TrainerError, match="opt at step 4, 200 images, not saved: is no longer a finite number"):
        store.save(tmp_path, {**_state(1), "opt": {"state": [torch.tensor([1, bad])]}}, several, 200, IDENTITY)
    assert _names(tmp_path) == ["100"]
    assert not (tmp_path / "000000000200.json").exists()


def test_digests_ignore_layout_and_see_bits() -> None:
    plain = torch.arange(24.0).reshape(1, 2, 3, 4)
    laid_out = plain.contiguous(memory_format=torch.channels_last)
    negative_zero = plain.clone()
    negative_zero[0, 0, 0, 0] = -0.0
    digests = [state_digests({"g": [value]})["g"] for value in (plain, laid_out, negative_zero)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_number_is_found_and_a_large_sum_is_none(bad: float) -> None:
    large = torch.full((4,), 3e38)  # whose sum is infinite
    assert is_finite({"opt": [{"step": large}], "images": 3})
    assert not is_finite({"opt": [{"step": torch.tensor([1.0, bad])}]})
