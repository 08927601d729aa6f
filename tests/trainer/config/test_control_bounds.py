"""Bounds that do not go with their run, and values that do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.config.control_bounds import misfits
from gangway.trainer.config.presets import preset
from gangway.trainer.config.step_memory import images_per_worker
from gangway.trainer.config.values.control import Bounds

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
    found = {each.field: each for each in misfits(bounds, config, workers)}
    fits = workers * config.group <= least <= config.batch_size <= most
    assert ("batch_size" not in found) == fits
    whole = config.model_copy(update={"batch_size": max(config.batch_size, most)})
    share = images_per_worker(whole, workers)
    assert ("batch_gpu" not in found) == (at_once is None or at_once[0] <= share)
    assert ("precision" not in found) == (not precision or "fp32" in precision)
    for each in found.values():
        assert each.value == getattr(bounds, each.field)
    mended = bounds.model_copy(update={name: each.fix for name, each in found.items()})
    assert not list(misfits(mended, config, workers))
