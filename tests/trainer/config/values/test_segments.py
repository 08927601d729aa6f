"""Segments as people write them: where they begin and end, what they set, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.segment_plan import (
    Plan,
    check_begun,
    check_workers,
    stretches,
    stretches_from,
    unreached,
    with_decided,
)
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError

DIGITS = PRESETS["dcgan-digits"].replace({"kimg": 1})
PLAN: list[dict[str, object]] = [
    {"from_image": 200, "batch_size": 128, "lr_factor": 2},
    {"from_image": 500, "precision": "bf16", "workers": 2},
]


def _with(*segments: dict[str, object], **changes: object) -> TrainConfig:
    return DIGITS.replace({"segments": list(segments), **changes})


def test_what_a_segment_does_not_name_stays() -> None:
    config = _with(*PLAN)
    found = [(s.first, s.end, s.step, s.config.batch_size, s.config.precision, s.config.lr_g, s.workers)
             for s in stretches(config)]  # fmt: skip
    assert found == [
        (0, 256, 0, 64, "fp32", 1e-3, None),
        (256, 512, 4, 128, "fp32", 2e-3, None),
        (512, 1024, 6, 128, "bf16", 2e-3, 2),
    ]
    assert config.total_images == 1024
    assert [s.place for s in stretches_from(config, 300)] == ["segments.0", "segments.1"]
    assert [s.first for s in stretches_from(config, 256)] == [256, 512], "at a boundary the next one begins"
    assert [s.first for s in stretches_from(config, 1024)] == [512], "at the end it is the last one"


def test_a_run_without_any_is_one_stretch_of_its_own_configuration() -> None:
    (only,) = stretches(DIGITS)
    assert only.config is DIGITS
    assert (only.first, only.end, only.step) == (0, DIGITS.total_images, 0)


def test_a_segment_at_the_beginning_takes_the_fields_place() -> None:
    (first, second) = stretches(_with({"from_image": 0, "workers": 2}, {"from_image": 128, "batch_size": 32}))
    assert (first.first, first.workers, second.first, second.workers) == (0, 2, 128, 2)


def test_step_sizes_that_follow_a_schedule_are_scaled_too() -> None:
    schedules = {"lr_g": {"from": 1e-3, "to": 1e-4, "over_kimg": 1}}
    scaled = stretches(_with(*PLAN, schedules=schedules))[1].config
    assert scaled.at("lr_g", 500) == pytest.approx(2 * 5.5e-4)
    assert scaled.at("lr_d", 500) == pytest.approx(2e-3)


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5),
    gaps=st.lists(st.integers(1, 2000), min_size=5, max_size=5),
    kimg=st.floats(0.01, 9),
)
def test_segments_join_and_are_made_of_whole_steps(sizes: list[int], gaps: list[int], kimg: float) -> None:
    begins = [sum(gaps[: number + 1]) for number in range(len(sizes))]
    plan: list[dict[str, object]] = [
        {"from_image": begin, "batch_size": size} for begin, size in zip(begins, sizes, strict=True)
    ]
    config = _with(*plan, kimg=kimg)
    found = stretches(config)
    assert found[0].first == 0
    assert found[-1].end == config.total_images >= round(kimg * 1000)
    for before, after in pairwise(found):
        assert (before.end, before.step + (before.end - before.first) // before.config.step_images) == (
            after.first,
            after.step,
        )
    assert all((each.end - each.first) % each.config.step_images == 0 for each in found)


@pytest.mark.parametrize(
    ("segment", "place", "allowed", "fix"),
    [
        ({"batch_gpu": 7}, "batch_gpu", "divisor of batch_size", "batch_gpu: 8, which divides batch_size: 64"),
        ({"batch_size": 8, "workers": 16}, "workers", "at most the segment's batch_size, 8", '"workers": 8'),
        ({"batch_size": 0}, "batch_size", "a whole number, at least 1", "allowed value"),
        ({"precision": "fp8"}, "precision", "fp32, bf16 or fp16", "allowed value"),
        ({"batch_sise": 8}, "batch_sise", "from_image, batch_size, batch_gpu, precision, lr_factor, workers", "size'?"),
        ({"image": 8}, "image", "from_image, batch_size, batch_gpu, precision", "mean 'from_image'?"),
        ({"from_image": 50}, "from_image", "above 100, where the one before begins", "the run's order"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    segment: dict[str, object], place: str, allowed: str, fix: str
) -> None:
    with pytest.raises(TrainerError) as caught:
        _with({"from_image": 100}, {"from_image": 200, **segment})
    assert caught.value.place == f"TrainConfig.segments.1.{place}"
    assert allowed in caught.value.allowed
    assert fix in caught.value.fix
    assert caught.value.exit_code == 2


def test_other_workers_than_planned_are_refused_where_they_would_train() -> None:
    config = _with(*PLAN)
    check_workers(config, 0, 4)
    check_workers(config, 600, 2)
    with pytest.raises(TrainerError, match=r"segments\.1\.workers: images 512 to 1,024 are planned") as caught:
        check_workers(config, 512, 4)
    assert (caught.value.allowed, caught.value.exit_code) == ("2 workers", 2)
    with pytest.raises(TrainerError, match=r"TrainConfig\.segments\.0\.batch_size: fewer images in a step") as caught:
        check_workers(_with({"from_image": 200, "batch_size": 8}), 0, 16)
    assert "at least 16" in caught.value.allowed


@pytest.mark.parametrize(
    ("second", "place", "allowed", "fix"),
    [
        ({"workers": 3}, "1.workers", "at most 2, of a batch of 8: each worker needs a group of 4", '"workers": 2, or'),
        ({"batch_size": 4}, "1.batch_size", "at least 8 with the 2 workers of segments.0", '"workers": 1 in this'),
    ],
)
def test_each_planned_worker_needs_a_whole_group_of_images(
    second: dict[str, object], place: str, allowed: str, fix: str
) -> None:
    grouped = PRESETS["progan-celeba128"].replace({"batch_size": 8, "minibatch_std": 4})
    plan = [{"from_image": 40, "workers": 2}, {"from_image": 80, **second}]
    with pytest.raises(TrainerError) as caught:
        grouped.replace({"segments": plan})
    assert caught.value.place == f"TrainConfig.segments.{place}"
    assert allowed in caught.value.allowed
    assert fix in caught.value.fix
    grouped.replace({"segments": [plan[0], {"from_image": 80, "batch_size": 4, "workers": 1}]})


@pytest.mark.parametrize(("workers", "nearest"), [(3, 2), (48, 32)])
def test_planned_workers_have_equal_shares_on_xla(workers: int, nearest: int) -> None:
    plan: dict[str, object] = {"from_image": 200, "workers": workers}
    _with(plan)
    with pytest.raises(TrainerError, match=r"segments\.0\.workers: .*\n.*\n.*XLA's workers") as caught:
        _with(plan, backend="xla")
    assert f'"workers": {nearest}, or' in caught.value.fix
    _with({**plan, "workers": nearest}, backend="xla")


def test_a_segment_lets_any_number_of_workers_go_on_again() -> None:
    config = _with({"from_image": 200, "workers": 2}, {"from_image": 500}, {"from_image": 700, "workers": 0})
    assert [stretch.workers for stretch in stretches(config)] == [None, 2, 2, None]
    check_workers(config, 800, 5)
    with pytest.raises(TrainerError, match=r"segments\.1\.workers: .*another number") as caught:
        check_workers(config, 600, 5)
    assert 'write "workers": 0 in that segment' in caught.value.fix
    _with({"from_image": 200, "workers": 2}, {"from_image": 500, "workers": 0})


def test_segments_without_a_step_are_told() -> None:
    assert unreached(_with(*PLAN)) == []
    assert unreached(_with({"from_image": 0, "workers": 2})) == []
    assert unreached(_with(PLAN[0], {"from_image": 210}, {"from_image": 100_000_000, "batch_size": 8})) == [
        "segments.0 (from_image 200) has no step: the next one begins first",
        "segments.2 (from_image 100,000,000) has no step: the run ends after 1,024 images",
    ]


def test_what_has_begun_stays_and_what_is_to_come_may_change() -> None:
    before = _with(*PLAN)
    check_begun(before, _with(PLAN[0], {"from_image": 700, "batch_size": 32}), 300)
    check_begun(before, _with(*PLAN, kimg=9), 1024)
    check_begun(DIGITS, _with({"from_image": 1000, "batch_size": 32}), 960)
    with pytest.raises(TrainerError, match=r"segments: the first 600 images were trained in other segments"):
        check_begun(before, _with(PLAN[0], {"from_image": 500, "precision": "fp16"}), 600)
    with pytest.raises(TrainerError, match="trained in other segments"):
        check_begun(before, DIGITS, 300)


@pytest.mark.parametrize(
    ("saved", "current", "fix"),
    [
        (_with(*PLAN), DIGITS, 'write segments.0 as it was, {"from_image":200,"batch_size":128,"lr_factor":2.0}, or'),
        (_with(*PLAN), _with(PLAN[0]), 'write segments.1 as it was, {"from_image":500,"precision":"bf16","workers":2}'),
        (_with({"from_image": 0, "batch_size": 8}), DIGITS, "write segments.0 as it was"),
        (DIGITS, _with({"from_image": 200, "batch_size": 8}), "leave segments.0 out, or have it begin from image 600"),
        (DIGITS, _with({"from_image": 0, "batch_size": 8}), "leave segments.0 out"),
        (_with(PLAN[0]), _with(*PLAN), "leave segments.1 out"),
    ],
)
def test_what_has_begun_is_named_by_its_number_in_the_list(saved: TrainConfig, current: TrainConfig, fix: str) -> None:
    with pytest.raises(TrainerError) as caught:
        check_begun(saved, current, 600)
    assert fix in caught.value.fix


def test_a_new_segment_may_begin_where_the_run_is() -> None:
    check_begun(DIGITS, _with({"from_image": 600, "batch_size": 8}), 600)


def test_a_decision_ends_the_segment_and_what_was_planned_comes_still() -> None:
    plan = Plan(_with({"from_image": 512, "precision": "bf16"}, batch_size=32), 0)
    seen = []
    for stretch in plan:
        seen.append((stretch.first, stretch.config.batch_size, stretch.config.precision, stretch.lr_factor))
        if stretch.first == 0:
            plan.decide(96, {"batch_size": 64, "lr_factor": 1.5})
            assert plan.end == 96
    assert seen == [(0, 32, "fp32", 1.0), (96, 64, "fp32", 1.5), (544, 64, "bf16", 1.5)]
    assert plan.config.segments[0].decided
    assert plan.config.total_images == 1056


def test_a_decision_that_the_configuration_does_not_take_changes_nothing() -> None:
    plan = Plan(_with(batch_size=32), 0)
    with pytest.raises(TrainerError, match="batch_size"):
        plan.decide(96, {"batch_size": 0})
    assert (plan.end, plan.config.segments) == (1024, ())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([16, 32, 48, 64]), min_size=1, max_size=5),
    steps=st.lists(st.integers(1, 6), min_size=5, max_size=5),
    planned=st.lists(st.integers(1, 900), max_size=2, unique=True),
    killed=st.integers(0, 1024),
)
def test_a_resumed_run_goes_on_as_decided(sizes: list[int], steps: list[int], planned: list[int], killed: int) -> None:
    """From any image, with the command that began it, in the segments that an undisturbed one comes through."""
    segments: list[dict[str, object]] = [{"from_image": image, "lr_factor": 0.5} for image in sorted(planned)]
    command = _with(*segments, batch_size=32)
    plan, images, todo, seen = Plan(command, 0), 0, list(zip(sizes, steps, strict=False)), []
    for stretch in plan:
        seen.append((stretch.config.batch_size, stretch.lr_factor))
        images = stretch.first
        while images < plan.end:
            images += stretch.config.step_images
            if todo and images < plan.end and (images - stretch.first) // stretch.config.step_images >= todo[0][1]:
                plan.decide(images, {"batch_size": todo.pop(0)[0]})
    assert images == plan.config.total_images
    resumed = with_decided(command, plan.config)
    assert resumed == plan.config
    check_begun(plan.config, resumed, killed)
    ahead = [(each.config.batch_size, each.lr_factor) for each in Plan(resumed, killed)]
    assert ahead == seen[-len(ahead) :]


def test_what_a_lost_session_had_decided_is_gone_with_it() -> None:
    """The run's own config.json has it still; the checkpoint that it goes on from does not."""
    before = _with({"from_image": 96, "batch_size": 64, "decided": True})
    after = _with(
        {"from_image": 96, "batch_size": 64, "decided": True}, {"from_image": 320, "batch_size": 16, "decided": True}
    )
    assert with_decided(after, before) == before
    assert with_decided(_with({"from_image": 700, "lr_factor": 2}), before).segments[1].lr_factor == 2
