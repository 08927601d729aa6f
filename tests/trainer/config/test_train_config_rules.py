"""Values that do not go together are refused by the field's name, with the step that mends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.parts.rules import RULES, first_broken, replicas
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.refusals import Machine, refusals
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.schedules import Schedules, Steps
from gangway.trainer.config.values.segments import Segment
from gangway.trainer.core.errors import TrainerError, as_keys

DIGITS, WGAN, R3GAN = PRESETS["dcgan-digits"], PRESETS["wgan-gp-cifar10"], PRESETS["r3gan-cifar10"]
PROGAN, CYCLEGAN = PRESETS["progan-celeba128"], PRESETS["cyclegan-photos"]
_STEPS = Steps(steps=((0.0, 0.5),))

BROKEN: list[tuple[TrainConfig, dict[str, object], str, str]] = [
    (DIGITS, {"frames": 4}, "frames", "--architecture progressive"),
    (PROGAN, {"resolution": 16, "frames": 32}, "frames", "--frames 16"),
    (DIGITS, {"num_classes": 1}, "num_classes", "--num-classes 0"),
    (DIGITS, {"batch_gpu": 24}, "batch_gpu", "--batch-gpu 32"),
    (PROGAN, {"minibatch_std": 1}, "minibatch_std", "4 as in the paper"),
    (DIGITS, {"minibatch_std": 4}, "minibatch_std", "--minibatch-std 0"),
    (PROGAN, {"batch_size": 30}, "batch_size", "--batch-size 32"),
    (PROGAN, {"batch_gpu": 2}, "batch_gpu", "--batch-gpu 4"),
    (PROGAN, {"stable_kimg": 0}, "stable_kimg", "--stable-kimg 800"),
    (DIGITS, {"stable_kimg": 1}, "stable_kimg", "--stable-kimg 0"),
    (DIGITS, {"fade_kimg": 1}, "fade_kimg", "--fade-kimg 0"),
    (DIGITS, {"full_width_up_to": 64}, "full_width_up_to", "--full-width-up-to 32"),
    (DIGITS, {"group_width": 32}, "group_width", "--group-width 16"),
    (R3GAN, {"ngf": 12}, "ngf", "--ngf 16"),
    (R3GAN, {"ndf": 8, "resolution": 64}, "ndf", "--ndf 16"),
    (R3GAN, {"ngf": 24, "group_width": 32}, "ngf", "--ngf 32"),
    (R3GAN, {"ndf": 40, "resolution": 64, "full_width_up_to": 16, "group_width": 3}, "ndf", "--ndf 36"),
    (DIGITS, {"loss": "wgan-gp"}, "gp_weight", "--gp-weight 10"),
    (DIGITS, {"gp_weight": 1}, "gp_weight", "--gp-weight 0"),
    (WGAN, {"r1_gamma": 1}, "r1_gamma", "--r1-gamma 0"),
    (WGAN, {"r2_gamma": 1}, "r2_gamma", "--r2-gamma 0"),
    (WGAN, {"r1_interval": 16}, "r1_interval", "--r1-interval 1"),
    (DIGITS, {"drift": 1}, "drift", "--drift 0"),
    (DIGITS, {"augment": "none", "ada_target": 0.6}, "ada_target", "--augment translation"),
    (R3GAN, {"ada_target": 0.6}, "ada_target", "--ada-target 0"),
    (DIGITS, {"g_reals": "fresh"}, "g_reals", "--g-reals same"),
    (DIGITS, {"augment": "none", "schedules": Schedules(augment_p=_STEPS)}, "schedules", "--augment translation"),
    (DIGITS, {"schedules": Schedules(r2_gamma=_STEPS)}, "schedules", "--r1-gamma"),
    (DIGITS, {"shard": "fsdp2", "freeze": ("generator.*",)}, "freeze", "--shard ddp"),
    (DIGITS, {"cuda_graphs": True, "compile": "off"}, "cuda_graphs", "--compile on"),
    (DIGITS, {"cuda_graphs": True, "compile": "on", "batch_gpu": 32}, "batch_gpu", "--batch-gpu 0"),
    (DIGITS, {"activation_checkpointing": True}, "activation_checkpointing", "--activation-checkpointing false"),
    (WGAN, {"activation_checkpointing": True, "compile": "on"}, "compile", "--compile off"),
    (WGAN, {"activation_checkpointing": True, "step_graph": "on"}, "step_graph", "--step-graph off"),
    (WGAN, {"activation_checkpointing": True, "backend": "xla"}, "backend", "--activation-checkpointing false"),
    (DIGITS, {"shard": "fsdp2", "segments": (Segment(from_image=6400, precision="bf16"),)}, "segments", "--shard ddp"),
    (DIGITS, {"shard": "fsdp2", "precision": "fp16"}, "precision", "--precision bf16"),
    (DIGITS, {"shard": "fsdp2", "compile": "on"}, "compile", "--compile off"),
    (DIGITS, {"shard": "fsdp2", "backend": "xla"}, "backend", "--shard ddp"),
    (PROGAN, {"shard": "fsdp2"}, "shard", "--shard ddp"),
    (DIGITS, {"pipeline_stages": 2}, "pipeline_stages", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "shard": "fsdp2"}, "shard", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "backend": "xla"}, "backend", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "precision": "fp16"}, "precision", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "compile": "on"}, "compile", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "step_graph": "on"}, "step_graph", "--pipeline-stages 1"),
    (WGAN, {"pipeline_stages": 2, "freeze": ("generator.*",)}, "freeze", "--pipeline-stages 1"),
    (
        WGAN,
        {"pipeline_stages": 2, "segments": (Segment(from_image=6400, workers=2),)},
        "segments",
        "--pipeline-stages 1",
    ),
    (DIGITS, {"loss": "lsgan"}, "loss", "--loss nonsaturating"),
    (CYCLEGAN, {"loss": "nonsaturating"}, "loss", "--loss lsgan"),
    (CYCLEGAN, {"cycle_weight": 0}, "cycle_weight", "--cycle-weight 10"),
    (DIGITS, {"cycle_weight": 10}, "cycle_weight", "--cycle-weight 0"),
    (DIGITS, {"identity_weight": 0.5}, "identity_weight", "--identity-weight 0"),
    (CYCLEGAN, {"num_classes": 2}, "num_classes", "--num-classes 0"),
    (CYCLEGAN, {"z_dim": 64}, "z_dim", "--z-dim 1"),
    (CYCLEGAN, {"latents": "uniform"}, "latents", "--latents normal"),
    (CYCLEGAN, {"r1_gamma": 1}, "r1_gamma", "--r1-gamma 0"),
    (CYCLEGAN, {"r2_gamma": 1}, "r2_gamma", "--r2-gamma 0"),
    (CYCLEGAN, {"augment": "translation"}, "augment", "--mirror true"),
    (CYCLEGAN, {"dequantise": True}, "dequantise", "--dequantise false"),
    (CYCLEGAN, {"shard": "fsdp2"}, "shard", "--shard ddp"),
    (CYCLEGAN, {"metrics": "fd-enl0", "metrics_kimg": 1}, "metrics", "--metrics none --metrics-kimg 0"),
    (DIGITS, {"metrics": "fd-enl0"}, "metrics_kimg", "--metrics-kimg 20"),
]


@pytest.mark.parametrize(("base", "changes", "field", "fix"), BROKEN, ids=[str(changes) for _, changes, _, _ in BROKEN])
def test_a_broken_rule_names_field_value_and_fix(
    base: TrainConfig, changes: dict[str, object], field: str, fix: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        base.replace(changes)
    assert caught.value.place == f"TrainConfig.{field}"
    assert caught.value.value == changes.get(field, getattr(base, field))
    assert fix in caught.value.fix
    assert caught.value.allowed in {rule.allowed for rule in RULES if rule.field == field}, "the rule's own words"
    assert str(caught.value).startswith(f"TrainConfig.{field}: not an accepted value\n  got: ")


def test_every_rule_is_told_above() -> None:
    told = {(first_broken(base.model_copy(update=changes)), fix) for base, changes, _, fix in BROKEN}
    assert {rule for rule, _ in told} == set(RULES)
    assert {rule.field for rule in RULES} <= set(TrainConfig.model_fields)


def test_a_file_is_named_with_the_field() -> None:
    text = WGAN.to_json().replace('"r1_gamma": 0.0', '"r1_gamma": 2.0')
    with pytest.raises(TrainerError, match=r"^run/config\.json: r1_gamma: not an accepted value"):
        TrainConfig.from_json(text, "run/config.json")


@given(batch_size=st.integers(1, 256), batch_gpu=st.integers(0, 256))
def test_micro_batches_are_whole_parts_of_the_batch(batch_size: int, batch_gpu: int) -> None:
    config = DIGITS.model_copy(update={"batch_size": batch_size, "batch_gpu": batch_gpu})
    assert (first_broken(config) is None) == (batch_gpu == 0 or batch_size % batch_gpu == 0)


def test_a_file_is_told_of_its_keys() -> None:
    text = DIGITS.to_json().replace('"gp_weight": 0.0', '"gp_weight": 10')
    with pytest.raises(TrainerError) as caught:
        TrainConfig.from_json(text, "job.json")
    assert caught.value.place == "job.json: gp_weight"
    assert caught.value.fix == "gp_weight: 0, or loss: wgan-gp"
    with pytest.raises(TrainerError) as caught:
        TrainConfig.from_json(DIGITS.to_json().replace('"metrics": "none"', '"metrics": "fd-enl0"'), "job.json")
    assert caught.value.fix.startswith("metrics: fd-enl0, metrics_kimg: 20, for example; or metrics: none, ")
    assert all("--" not in as_keys(rule.advice(DIGITS)) + as_keys(rule.allowed) for rule in RULES)


PIPELINED = PRESETS["r3gan-cifar10"].replace({"batch_size": 24, "batch_gpu": 0, "pipeline_stages": 2})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"architecture": "dcgan", "full_width_up_to": 32, "group_width": 16}, "pipeline_stages"),
        ({"shard": "fsdp2"}, "shard"),
        ({"backend": "xla"}, "backend"),
        ({"precision": "fp16"}, "precision"),
        ({"compile": "on"}, "compile"),
        ({"step_graph": "on"}, "step_graph"),
        ({"freeze": "generator.basis"}, "freeze"),
        ({"segments": [{"from_image": 240, "workers": 2}]}, "segments"),
        ({"segments": [{"from_image": 240, "precision": "fp32"}]}, "segments"),
    ],
)
def test_what_does_not_go_with_a_pipeline_is_refused(changes: dict[str, object], field: str) -> None:
    PRESETS["r3gan-cifar10"].replace({**changes, "pipeline_stages": 1})
    with pytest.raises(TrainerError) as caught:
        PRESETS["r3gan-cifar10"].replace({**changes, "pipeline_stages": 2})
    assert caught.value.place == f"TrainConfig.{field}"
    assert "--pipeline-stages 1" in caught.value.fix


@pytest.mark.parametrize("name", ["progan-celeba128", "cyclegan-photos"])
def test_families_that_cannot_be_divided_are_refused(name: str) -> None:
    with pytest.raises(TrainerError) as caught:
        PRESETS[name].replace({"pipeline_stages": 2})
    assert caught.value.place == "TrainConfig.pipeline_stages"


@pytest.mark.parametrize(
    ("workers", "batch_gpu", "field"),
    [
        (1, 0, ""),
        (1, 8, ""),
        (2, 0, ""),
        (2, 8, ""),
        (3, 0, "pipeline_stages"),
        (4, 0, ""),
        (4, 8, "batch_size"),  # 12 images are no whole micro-batches of 8
        (4, 24, ""),  # larger than the share
        (10, 0, "batch_size"),
        (64, 0, "batch_size"),
    ],
)
def test_workers_come_in_pairs_with_equal_micro_batches(workers: int, batch_gpu: int, field: str) -> None:
    config = PIPELINED.replace({"batch_gpu": batch_gpu})
    if not field:
        config.check_workers(workers)
        return
    with pytest.raises(TrainerError) as caught:
        config.check_workers(workers)
    assert caught.value.place == f"TrainConfig.{field}"


def test_a_batch_is_divided_over_pairs() -> None:
    whole = TrainConfig.replace(PIPELINED, {"pipeline_stages": 1})
    assert [replicas(PIPELINED, workers) for workers in (1, 2, 8)] == [1, 1, 4]
    assert replicas(whole, 8) == 8


def test_a_plan_for_tpus_is_refused() -> None:
    found = {each.field: each.changes for each in refusals(PIPELINED, Machine("xla", "v5litepod-8"))}
    assert found["pipeline_stages"] == {"pipeline_stages": 1}
