"""Directories of runs that earlier versions of the trainer began go on, or say in one line why not and what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices, Field

from gangway.trainer.__main__ import main
from gangway.trainer.checkpoint import store
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train

Lines = Callable[[Path], list[dict[str, Any]]]

FIRST = (
    *("preset", "dataset", "resolution", "channels", "z_dim", "ngf", "ndf", "batch_size", "kimg", "lr_g", "lr_d"),
    *("beta1", "beta2", "r1_gamma", "r1_interval", "ema_kimg", "augment", "seed", "checkpoint_kimg"),
    *("keep_checkpoints", "stats_kimg", "sample_kimg", "channels_last", "backend", "metrics_samples"),
)
"""The fields of the first version's config.json."""


@pytest.fixture
def short(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"kimg": 0.16, "checkpoint_kimg": 0.16, "sample_kimg": 1, "stats_kimg": 0.08})


@pytest.fixture
def begun(short: TrainConfig, tmp_path: Path, digits_dir: Path) -> Path:
    """A run's directory after ten steps."""
    _train(short, tmp_path / "run", digits_dir)
    return tmp_path / "run"


def _train(config: TrainConfig, run_dir: Path, data: Path) -> int:
    return train(config, run_dir, data, RunContext(run_id="r"), Interruption())


def _rewrite(run_dir: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The saved configuration, in both places, as another version would have written it."""
    path = run_dir / "config.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    for manifest in (run_dir / "checkpoints").glob("*.json"):
        content = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**content, "config": edit(content["config"])}))


def _resumed(run_dir: Path, data: Path) -> int:
    words = ["--run-dir", str(run_dir), "--data", str(data), "--kimg", "0.32"]
    return main(["train", "--config", str(run_dir / "config.json"), *words])


def test_a_run_from_before_most_fields_were_there_goes_on(
    short: TrainConfig, begun: Path, digits_dir: Path, tmp_path: Path
) -> None:
    """To the same bits as one whose configuration names them all: their defaults are what was done before."""
    _train(short.replace({"kimg": 0.32}), tmp_path / "whole", digits_dir)
    _rewrite(begun, lambda config: {name: config[name] for name in FIRST})
    assert _resumed(begun, digits_dir) == 0
    found, whole = (RunRecord.read(path / "run.json") for path in (begun, tmp_path / "whole"))
    assert (found.images, found.config) == (320, whole.config)
    assert found.state_sha256 == whole.state_sha256


@pytest.mark.parametrize("left_out", sorted(set(TrainConfig.model_fields) - {*FIRST}))
def test_each_newer_field_has_a_default(left_out: str) -> None:
    config = PRESETS["dcgan-digits"]
    written = {name: value for name, value in json.loads(config.to_json()).items() if name != left_out}
    assert TrainConfig.from_json(json.dumps(written)) == config


def test_what_may_change_in_a_run_may_have_been_anything(
    short: TrainConfig, begun: Path, digits_dir: Path, lines_of: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    """Graphs with micro-batches, which a rule refuses that came later, and a metric that is gone: the session that goes
    on brings its own."""
    _rewrite(begun, lambda config: {**config, "cuda_graphs": True, "compile": "on", "batch_gpu": 8, "metrics": "fd-x"})
    assert _train(short.replace({"kimg": 0.32}), begun, digits_dir) == 0
    assert RunRecord.read(begun / "run.json").images == 320
    (event,) = [line for line in lines_of(begun) if line.get("event") == "repaired"]
    assert event["found"] == f"{begun / 'config.json'}: metrics: not an accepted value"
    assert f"config.json is not what this version writes ({event['found']}); written anew" in capsys.readouterr().out


UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "a word that is gone": (
        {"precision": "fp8"},
        "config.precision: not an accepted value: 'fp8', where this version takes fp32, bf16 or fp16",
    ),
    "a field nobody knows": ({"lr_schedule": "cosine"}, "config.lr_schedule: unknown key"),
    "a rule that came later": (
        {"stable_kimg": 800},
        "config.stable_kimg: not an accepted value: 800.0, "
        "where this version takes 0 unless the architecture is progressive",
    ),
}


@pytest.mark.parametrize(("change", "why"), UNLIKE.values(), ids=UNLIKE)
def test_what_this_version_cannot_take_is_said_in_one_line(
    short: TrainConfig, begun: Path, digits_dir: Path, change: dict[str, Any], why: str
) -> None:
    _rewrite(begun, lambda config: config | change)
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with pytest.raises(TrainerError, match="all 1 checkpoints are whole, but of another version") as caught:
        _train(short.replace({"kimg": 0.32}), begun, digits_dir)
    manifest = begun / "checkpoints" / "000000000160.json"
    assert caught.value.value == f"{manifest}: is of another version of the trainer: {why}"
    assert caught.value.fix == "go on with the version that wrote them; or start anew in another --run-dir"
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("change", "why"), UNLIKE.values(), ids=UNLIKE)
def test_its_file_says_so_too(
    begun: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], why: str
) -> None:
    """To remove the field would not be enough: the checkpoints have it."""
    _rewrite(begun, lambda config: config | change)
    assert _resumed(begun, digits_dir) == 2
    said = capsys.readouterr().err
    assert f"{begun / 'config.json'}: {next(iter(change))}: " in said
    assert f"in another --run-dir; the run in {begun} goes on with the version that wrote it\n" in said


def test_a_value_that_may_change_is_mended_in_the_file(
    begun: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _rewrite(begun, lambda config: {**config, "shard": "fsdp3"})
    assert _resumed(begun, digits_dir) == 2
    assert "fix:     did you mean 'fsdp2'?\n" in capsys.readouterr().err
    _rewrite(begun, lambda config: {**config, "shard": "ddp"})
    assert _resumed(begun, digits_dir) == 0


def test_where_several_fields_differ_the_runs_own_file_is_named(begun: Path, short: TrainConfig) -> None:
    saved = store.load_newest_valid(begun / "checkpoints")[0]
    assert saved is not None
    with pytest.raises(TrainerError) as caught:
        store.check_config(saved.manifest.config, short.replace({"ngf": 8, "lr_g": 0.5}), begun)
    assert caught.value.fix.endswith(f"--config {begun / 'config.json'} has them all")


class _Renamed(TrainConfig):
    """As a later version that calls `ngf` otherwise: the former name stays, as an alias."""

    generator_width: int = Field(default=32, ge=1, validation_alias=AliasChoices("generator_width", "g_width"))


def test_a_field_that_was_renamed_is_read_by_its_former_name() -> None:
    """What docs/architecture.md says of renaming, held against everything that reads and writes a configuration."""
    written = {**json.loads(PRESETS["dcgan-digits"].to_json()), "g_width": 48}
    config = _Renamed.from_json(json.dumps(written), "c.json")
    assert config.generator_width == 48
    assert '"generator_width": 48' in config.to_json()
    assert _Renamed.from_json(config.to_json()) == config
    assert config.replace({"kimg": 1}).generator_width == 48
    with pytest.raises(TrainerError, match=r"^c\.json: g_width: ") as caught:
        _Renamed.from_json(json.dumps({**written, "g_width": 0}), "c.json")
    assert caught.value.allowed == "a whole number, at least 1"
    with pytest.raises(TrainerError, match=r"^c\.json: g_width: unknown key"):
        _Renamed.from_json(json.dumps({**written, "generator_width": 48}), "c.json")
