"""What a plan is told that the trainer would refuse is what the trainer refuses."""

from typing import Any, get_args

import pytest
import torch

from trainer.config.metric_names import FEWEST_IMAGES, METRICS
from trainer.config.presets import PRESETS
from trainer.config.refusals import DATA_SETS, Machine, refusals
from trainer.config.train_config import TrainConfig
from trainer.core.errors import TrainerError
from trainer.data import cifar10
from trainer.data.dataset import SHIPPED, prepare_if_missing
from trainer.data.index import ShardIndex
from trainer.distributed.world import require_xla, start_world
from trainer.metrics import scores
from trainer.metrics import scores as manifold
from trainer.metrics.metric_registry import check_applies
from trainer.steps.compilation import check_graphs
from trainer.steps.precision import choose

DIGITS, PROGAN, VIDEO = PRESETS["dcgan-digits"], PRESETS["progan-celeba128"], PRESETS["progan-video-ucf101"]
GPU = Machine("cuda", "H100x8")
TPU = Machine("xla", "v5litepod-8")


def fields(config: TrainConfig, machine: Machine = GPU) -> list[str]:
    return [found.field for found in refusals(config, machine)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_starts_on_a_gpu_and_with_xla_on_a_tpu(name: str) -> None:
    assert fields(PRESETS[name]) == []
    assert fields(PRESETS[name].replace({"backend": "xla"}), TPU) == []


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("machine", "backend", "device"), [(GPU, "auto", "cuda"), (GPU, "gloo", "cpu"), (TPU, "xla", "xla")]
)
def test_a_precision_is_refused_where_the_trainer_refuses_it(
    precision: str, machine: Machine, backend: str, device: str
) -> None:
    try:
        choose(precision, torch.device(device))
        refused = False
    except TrainerError:
        refused = True
    config = DIGITS.replace({"precision": precision, "backend": backend})
    found = list(refusals(config, machine))
    assert [one.field for one in found] == (["precision"] if refused else [])
    for one in found:
        assert fields(config.replace(one.changes), machine) == [], "the change mends it"


@pytest.mark.parametrize(("machine", "backend", "device"), [(GPU, "gloo", "cpu"), (TPU, "xla", "xla")])
def test_graphs_are_refused_where_the_trainer_refuses_them(machine: Machine, backend: str, device: str) -> None:
    config = DIGITS.replace({"cuda_graphs": True, "compile": "on", "backend": backend})
    with pytest.raises(TrainerError, match="has no CUDA graphs"):
        check_graphs(config, torch.device(device))
    (found,) = refusals(config, machine)
    assert (found.field, found.changes) == ("cuda_graphs", {"cuda_graphs": False})
    on_gpu = config.replace({"backend": "auto"})
    check_graphs(on_gpu, torch.device("cuda"))
    assert fields(on_gpu) == []


def test_a_backend_that_the_machine_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TrainerError, match="xla needs torch_xla"):
        require_xla()
    assert [(one.field, one.changes) for one in refusals(DIGITS.replace({"backend": "xla"}), GPU)] == [
        ("backend", {"backend": "auto"})
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainerError, match="nccl needs CUDA"), start_world("nccl"):
        pass
    assert [one.problem for one in refusals(DIGITS.replace({"backend": "nccl"}), TPU)] == [
        "backend nccl: it needs CUDA, and not on v5litepod-8"
    ]
    assert [one.changes for one in refusals(DIGITS.replace({"backend": "gloo"}), TPU)] == [{"backend": "xla"}]


def test_sharded_networks_are_refused_with_xla() -> None:
    with pytest.raises(TrainerError, match="--shard ddp"):
        DIGITS.replace({"shard": "fsdp2", "backend": "xla"})
    config = DIGITS.replace({"shard": "fsdp2"}).model_copy(update={"backend": "xla"})
    assert [(one.field, one.changes) for one in refusals(config, TPU)] == [("shard", {"shard": "ddp"})]


def test_every_data_set_is_known() -> None:
    assert set(DATA_SETS) == set(get_args(TrainConfig.model_fields["dataset"].annotation))
    assert DATA_SETS["cifar10"].num_classes == len(cifar10._CLASSES)


WRONG_DATA: list[tuple[TrainConfig, dict[str, Any], str]] = [
    (DIGITS, {"channels": 3}, "channels"),
    (PROGAN, {"dataset": "digits", "resolution": 32, "channels": 1, "frames": 16}, "frames"),
    (DIGITS, {"num_classes": 7}, "num_classes"),
    (PROGAN, {"dataset": "photos", "frames": 4}, "frames"),
    (PROGAN, {"dataset": "photos", "num_classes": 10}, "num_classes"),
    (PROGAN, {"dataset": "clips"}, "frames"),
    (VIDEO, {"dataset": "clips", "num_classes": 101}, "num_classes"),
    (PRESETS["dcgan-cifar10"], {"resolution": 64}, "resolution"),
    (PRESETS["dcgan-cifar10"], {"channels": 1, "augment": "none"}, "channels"),
    (PRESETS["r3gan-cifar10"], {"num_classes": 100}, "num_classes"),
    (PROGAN, {"num_classes": 2}, "num_classes"),
    (PROGAN, {"dataset": "ucf101"}, "frames"),
    (VIDEO, {"num_classes": 5}, "num_classes"),
    (VIDEO, {"dataset": "folder"}, "frames"),
]


@pytest.mark.parametrize(("base", "changes", "field"), WRONG_DATA, ids=[str(changes) for _, changes, _ in WRONG_DATA])
def test_a_data_set_that_nobody_can_prepare_is_refused(base: TrainConfig, changes: dict[str, Any], field: str) -> None:
    config = base.replace(changes)
    (found,) = refusals(config, GPU)
    assert found.field == field
    assert str(getattr(config, field)) in found.problem
    assert not found.changes or fields(config.replace(found.changes)) == [], "the change mends it"
    if config.dataset in SHIPPED:
        try:
            recipe = SHIPPED[config.dataset](config)
        except TrainerError:
            return
        fits = recipe.shape == config.image_shape and config.num_classes in (0, len(recipe.classes))
        assert not fits, "the shards that the trainer would prepare are others"


@pytest.mark.parametrize("resolution", [16, 32, 256])
def test_what_prepares_itself_is_as_the_table_says(resolution: int) -> None:
    phases = {"architecture": "progressive", "stable_kimg": 1}
    for name, make in SHIPPED.items():
        facts = DATA_SETS[name]
        for channels in facts.channels:
            frames = {"frames": 4} if facts.is_video else {}
            data = {"dataset": name, "channels": channels, "resolution": resolution, "augment": "none"}
            config = DIGITS.replace({**data, **frames, **phases})
            recipe = make(config)
            assert (recipe.shape, len(recipe.classes)) == (config.image_shape, facts.num_classes)
            assert fields(config.replace({"num_classes": len(recipe.classes)})) == []


def test_the_digits_written_are_of_the_classes_said(tmp_path: Any) -> None:
    prepare_if_missing(DIGITS, tmp_path)
    assert ShardIndex.read(tmp_path).num_classes == DATA_SETS["digits"].num_classes


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("config", [DIGITS, DIGITS.replace({"resolution": 64}), PROGAN, VIDEO], ids=str)
def test_a_metric_is_refused_where_the_trainer_refuses_it(name: str, config: TrainConfig) -> None:
    asked = config.replace({"metrics": name, "metrics_kimg": 10})
    try:
        check_applies(name, config)
        refused = False
    except TrainerError:
        refused = True
    found = list(refusals(asked, GPU))
    assert [one.field for one in found] == (["metrics"] if refused else [])
    for one in found:
        assert fields(asked.replace(one.changes)) == [], "the change mends it"


@pytest.mark.parametrize("name", METRICS)
def test_too_few_fakes_for_a_metric_are_refused(name: str) -> None:
    fewest = FEWEST_IMAGES[name]
    assert fewest == {"is": scores.SPLITS, "video-is": scores.SPLITS, "digits-classes": 1}.get(
        name, manifold.COVERAGE_NEIGHBOURS + 1 if name.startswith("precision-recall") else 2
    )
    base = VIDEO if name in ("video-is", "fd-enl0-frames") else DIGITS
    config = base.replace({"metrics": name, "metrics_kimg": 1, "metrics_samples": max(2, fewest)})
    assert fields(config) == []
    if fewest > 2:
        (found,) = refusals(config.replace({"metrics_samples": fewest - 1}), GPU)
        assert (found.field, found.changes) == ("metrics_samples", {"metrics_samples": fewest})
