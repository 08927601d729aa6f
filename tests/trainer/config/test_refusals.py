"""What a plan is told that the trainer would refuse is what the trainer refuses."""

import shlex
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.network_size import state_gib
from gangway.trainer.config.parts.fields import RESOLUTIONS
from gangway.trainer.config.presets import PRESETS, preset
from gangway.trainer.config.refusals import (
    DATA_SETS,
    Machine,
    bounds_misfits,
    misfit,
    refusals,
    train_command,
    untrainable,
)
from gangway.trainer.config.segment_plan import stretches
from gangway.trainer.config.step_memory import images_per_worker
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds
from gangway.trainer.config.values.metric_names import FEWEST_IMAGES, METRICS, parse
from gangway.trainer.config.values.segments import Span
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data import cifar10
from gangway.trainer.data.index import ShardIndex
from gangway.trainer.data.shards import SHIPPED, prepare_if_missing
from gangway.trainer.distributed.world import World, require_xla, start_world
from gangway.trainer.metrics import scores
from gangway.trainer.metrics import scores as manifold
from gangway.trainer.metrics.metric_registry import check_applies
from gangway.trainer.networks.precision import choose
from gangway.trainer.run.session_setup import check_networks_fit, check_start
from gangway.trainer.steps.compilation import check_graphs
from tests.trainer.command_lines import train_config

DIGITS, PROGAN, VIDEO = PRESETS["dcgan-digits"], PRESETS["progan-celeba128"], PRESETS["progan-video-ucf101"]
GPU = Machine("cuda", "H100x8")
OLD = Machine("cuda", "T4x1", has_bf16=False)
TPU = Machine("xla", "v5litepod-8")


def fields(config: TrainConfig, machine: Machine = GPU) -> list[str]:
    return [found.field for found in refusals(config, machine)]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_starts_on_a_gpu_and_with_xla_on_a_tpu(name: str) -> None:
    assert fields(PRESETS[name]) == []
    assert fields(PRESETS[name].replace({"backend": "xla"}), TPU) == []


@pytest.mark.parametrize("shard", ["ddp", "fsdp2"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("machine", "backend", "device", "capability"),
    [
        (GPU, "auto", "cuda", (9, 0)),
        (OLD, "auto", "cuda", (7, 5)),
        (OLD, "gloo", "cpu", (7, 5)),
        (GPU, "gloo", "cpu", (9, 0)),
        (TPU, "xla", "xla", (0, 0)),
    ],
)
def test_a_precision_is_refused_where_the_trainer_refuses_it(
    precision: str,
    machine: Machine,
    backend: str,
    device: str,
    capability: tuple[int, int],
    shard: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    if shard != "ddp" and (precision == "fp16" or machine == TPU):
        return  # no configuration
    try:
        choose(precision, torch.device(device))
        refused = False
    except TrainerError:
        refused = True
    config = DIGITS.replace({"precision": precision, "backend": backend, "shard": shard})
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
    (PRESETS["cyclegan-photos"], {"dataset": "photos"}, "dataset"),
    (PRESETS["cyclegan-photos"], {"dataset": "celeba"}, "dataset"),
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
        labels = (len(recipe.classes),) if config.translates else (0, len(recipe.classes))
        fits = recipe.shape == config.image_shape and config.num_labels in labels
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
    assert fewest == {"is": scores.SPLITS, "digits-classes": 1}.get(
        name, manifold.COVERAGE_NEIGHBOURS + 1 if name.startswith("precision-recall") else 2
    )
    base = VIDEO if name in ("video-is", "fd-enl0-frames") else DIGITS
    config = base.replace({"metrics": name, "metrics_kimg": 1, "metrics_samples": max(2, fewest)})
    assert fields(config) == []
    if fewest > 2:
        (found,) = refusals(config.replace({"metrics_samples": fewest - 1}), GPU)
        assert (found.field, found.changes) == ("metrics_samples", {"metrics_samples": fewest})


LARGE: list[tuple[dict[str, Any], int]] = [
    ({"batch_size": 1 << 17, "ndf": 512}, 1),
    ({"batch_size": 1 << 18, "ndf": 512, "batch_gpu": 1 << 16}, 2),
    ({"batch_size": 1 << 18, "ndf": 512, "shard": "fsdp2"}, 2),
    ({"ngf": 8192, "shard": "hsdp"}, 4),
    ({"ngf": 8192}, 1),
    ({"ndf": 16384, "resolution": 64, "metrics": "none", "metrics_kimg": 0}, 2),
    ({"num_classes": 65536, "z_dim": 65536, "dataset": "folder"}, 1),
    ({"z_dim": 65536, "ngf": 4096, "batch_size": 8}, 1),
    ({"architecture": "progressive", "resolution": 64, "stable_kimg": 1.0, "batch_size": 1 << 16, "ngf": 512}, 1),
    ({"architecture": "progressive", "resolution": 64, "stable_kimg": 1.0, "batch_size": 1 << 18, "kimg": 3000.0}, 1),
]


def test_what_growing_networks_never_reach_needs_no_room() -> None:
    """The same batch at 8x8, where the run ends, and at 64x64."""
    growing = {"architecture": "progressive", "resolution": 64, "stable_kimg": 1000.0, "ngf": 128, "ndf": 128}
    short = DIGITS.replace({**growing, "batch_size": 1 << 13, "kimg": 1500.0})
    there = GPU._replace(device_memory_gib=15.0)
    assert fields(short, there) == []
    assert fields(short.replace({"kimg": 4000.0}), there) == ["batch_gpu"]


@pytest.mark.parametrize(("changes", "num_nodes"), LARGE, ids=[str(changes) for changes, _ in LARGE])
@pytest.mark.parametrize("machine", [GPU, TPU], ids=["gpu", "tpu"])
def test_what_has_no_room_is_refused_as_the_trainer_refuses_it(
    changes: dict[str, Any], num_nodes: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node of eight workers, 15 GiB a device and 100 GiB of memory."""
    if machine == TPU and "shard" in changes:
        return  # no configuration
    config = DIGITS.replace({"backend": "xla" if machine == TPU else "auto", "precision": "fp32", **changes})
    there = machine._replace(num_workers=8, memory_gib=100.0, device_memory_gib=15.0)
    device = torch.device("xla" if machine == TPU else "cuda")
    world = World(0, 0, 8 * num_nodes, 0, num_nodes, device, "none", "a test's")
    monkeypatch.setattr("gangway.trainer.run.session_setup.free_host_memory_gib", lambda: 100.0)
    monkeypatch.setattr("gangway.trainer.run.session_setup.device_memory_gib", lambda _: 15.0)

    def refused(config: TrainConfig) -> str:
        try:
            check_networks_fit(config, world)
        except TrainerError as error:
            return error.place.removeprefix("TrainConfig.")
        return ""

    found = list(refusals(config, there, num_nodes))
    assert bool(found) == bool(refused(config))
    assert not found or refused(config) == found[0].field
    for one in found:
        mended = config.replace(one.changes)
        assert one.changes
        assert one.field not in [each.field for each in refusals(mended, there, num_nodes)], "the change mends it"
    assert found or (machine == TPU and "batch_size" in changes), "XLA may compute a step's own numbers anew"


def test_a_later_segment_is_refused_before_the_first_is_paid_for() -> None:
    plan = [{"from_image": 50_000, "batch_size": 128}, {"from_image": 90_000, "precision": "bf16"}]
    config = DIGITS.replace({"segments": plan})
    assert fields(config) == []
    (found,) = refusals(config, OLD)
    assert (found.field, dict(found.changes)) == ("segments", {})
    assert found.problem.startswith("segments.1: precision bf16: T4x1 is older")
    assert found.allowed == "fp32 or fp16"


@pytest.mark.parametrize("machine", [GPU, TPU], ids=["gpu", "tpu"])
def test_a_segment_is_refused_by_the_sizes_that_it_trains_at(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """8,192 images at 4x4 and 8x8, and few from there on, or the other way round: by the plan and by the trainer."""
    growing = {"architecture": "progressive", "resolution": 64, "stable_kimg": 1000.0, "ngf": 128, "ndf": 128}
    backend = "xla" if machine == TPU else "auto"
    config = DIGITS.replace({**growing, "kimg": 4000.0, "batch_size": 64, "backend": backend})
    many, few = {"batch_size": 1 << 13}, {"batch_size": 64}
    there = machine._replace(device_memory_gib=15.0)
    early = config.replace({"segments": [{"from_image": 0, **many}, {"from_image": 1_500_000, **few}]})
    late = config.replace({"segments": [{"from_image": 0, **few}, {"from_image": 1_500_000, **many}]})
    world = World(0, 0, 1, 0, 1, torch.device("xla" if machine == TPU else "cuda"), "none", "a test's")
    monkeypatch.setattr("gangway.trainer.run.session_setup.device_memory_gib", lambda _: 15.0)

    def refused(config: TrainConfig) -> list[str]:
        found = []
        for stretch in stretches(config):
            try:
                check_networks_fit(stretch.config, world, stretch.span)
            except TrainerError:
                found.append(stretch.place)
        return found

    for run, places in ((early, []), (late, ["segments.1"] if machine == GPU else [])):
        problems = [one.problem.partition(":")[0] for one in refusals(run, there)]
        assert problems == refused(run) == places
    if machine == TPU:  # of what stays between steps the sizes to come are no part yet
        first, whole = stretches(early)[0], config.replace({"segments": ()})
        assert state_gib(first.config, first.span) < state_gib(whole)


def test_the_trainer_looks_at_each_segment_at_its_own_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PRESETS["progan-celebahq512"]
    looked_at: list[tuple[int, Span]] = []
    monkeypatch.setattr(
        "gangway.trainer.run.session_setup.check_networks_fit",
        lambda config, world, span: looked_at.append((config.batch_size, span)),
    )
    with start_world("gloo") as world:
        check_start(config, world)
    assert looked_at == [(each.config.batch_size, each.span) for each in stretches(config)]


CONFIG = preset("dcgan-digits").replace({"precision": "fp32"})


@pytest.mark.slow
@given(
    bound=st.tuples(st.integers(1, 600), st.integers(1, 600)).map(sorted),
    start=st.sampled_from([8, 64, 256]),
    workers=st.sampled_from([1, 2, 8]),
    group=st.sampled_from([0, 4]),
    at_once=st.none() | st.tuples(st.integers(1, 9000), st.integers(1, 9000)).map(sorted),
    precision=st.lists(st.sampled_from(["fp32", "bf16", "fp16"]), unique=True),
)
def test_what_does_not_go_with_a_run_is_found_and_its_fix_does(
    bound: list[int], start: int, workers: int, group: int, at_once: list[int] | None, precision: list[str]
) -> None:
    config = CONFIG.model_copy(update={"batch_size": 32 * start, "minibatch_std": group})
    least, most = bound
    bounds = Bounds.model_validate({"batch_size": (least, most), "batch_gpu": at_once, "precision": tuple(precision)})
    found = {each.field: each for each in bounds_misfits(bounds, config, workers)}
    fits = workers * config.group <= least <= config.batch_size <= most
    assert ("batch_size" not in found) == fits
    whole = config.model_copy(update={"batch_size": max(config.batch_size, most)})
    share = images_per_worker(whole, workers)
    assert ("batch_gpu" not in found) == (at_once is None or at_once[0] <= share)
    assert ("precision" not in found) == (not precision or "fp32" in precision)
    for each in found.values():
        assert each.value == getattr(bounds, each.field)
    mended = bounds.model_copy(update={name: each.fix for name, each in found.items()})
    assert not list(bounds_misfits(mended, config, workers))


def read(command: str) -> TrainConfig:
    return train_config(shlex.split(command)[3:])


@pytest.mark.parametrize(
    ("shape", "fix"),
    [
        ((3, 50, 50), "--resolution 64"),
        ((1, 8, 8), "--resolution 16"),
        ((3, 96, 96), "--resolution 128"),
        ((3, 1024, 1024), "--resolution 512"),
        ((3, 16, 50, 50), "--resolution 64"),
        ((3, 5, 64, 64), "--frames 4"),
        ((3, 64, 32, 32), "--frames 32"),
    ],
)
def test_what_no_network_trains_on_is_told_with_the_nearest_that_one_does(shape: tuple[int, ...], fix: str) -> None:
    assert untrainable(shape).endswith(f"to train, prepare {fix}")
    assert not train_command("folder", shape, "x")


@pytest.mark.parametrize("dataset", ["digits", "cifar10", "celeba", "folder", "photos"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_the_command_that_trains_on_images_is_one_that_the_trainer_takes(
    dataset: str, channels: int, resolution: int
) -> None:
    command = train_command(dataset, (channels, resolution, resolution), "my pictures")
    config = read(command)
    assert config.dataset == dataset
    if dataset != "folder":  # there size and channels are those of the pictures
        assert config.image_shape == (channels, resolution, resolution)
        assert not any(misfit(name, config) for name in parse(config.metrics))
    assert command.endswith("--data 'my pictures'")


@pytest.mark.parametrize("dataset", ["ucf101", "clips"])
@pytest.mark.parametrize("shape", [(3, 16, 64, 64), (1, 8, 16, 16), (3, 64, 64, 64)])
def test_the_command_that_trains_on_clips_is_one_that_the_trainer_takes(dataset: str, shape: tuple[int, ...]) -> None:
    config = read(train_command(dataset, shape, "x"))
    assert (config.dataset, config.image_shape, config.architecture) == (dataset, shape, "progressive")
    assert not any(misfit(name, config) for name in parse(config.metrics))


def test_the_preset_on_the_same_data_set_is_proposed() -> None:
    assert train_command("celeba", (3, 64, 64), "x").endswith("train --preset dcgan-celeba64 --data x")
    assert train_command("digits", (1, 16, 16), "x").endswith("train --preset dcgan-digits --resolution 16 --data x")
    assert train_command("folder", (1, 32, 32), "x").endswith("train --preset few-images --data x")
    assert train_command("day-dusk", (3, 64, 64), "x").endswith("train --preset cyclegan-photos --data x")
    assert "cyclegan" not in train_command("photos", (3, 64, 64), "x"), "they are of seven classes"
