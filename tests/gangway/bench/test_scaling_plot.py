"""The fitted curve of a scaling study: through the fitted steps, Amdahl's between them, and never beyond."""

import itertools
from collections.abc import Mapping

import pytest

from gangway.bench.local import Placement
from gangway.bench.scaling import Mode, Sample, Study, draw_scaling, fit_curve, study

WAITS = {1: 0.0, 2: 2e-3, 4: 6e-3}
"""Of an all-reduce by the number of processes, seconds."""
STRONG = {1: 0.1, 2: 0.062, 4: 0.046}
"""Steps of which a fifth is serial, and the all-reduce."""
WEAK = {1: 0.1, 2: 0.125, 4: 0.15}


def studied(steps: Mapping[Mode, Mapping[int, float]], untimed: str = "") -> Study:
    """One round of these steps; the size of a message changes nothing."""
    samples = {}
    for mode, by_workers in steps.items():
        for n, seconds in by_workers.items():
            waits = {} if n == 1 or untimed else {1_000: WAITS[n], 2_000: WAITS[n]}
            samples[mode, n] = Sample(seconds, waits, 3_000_000, "cpu", untimed if n > 1 else "")
    return study([samples], 64, None, (0.0, 0.0), [], Placement("cpu", 1, "no GPU here"))


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_it_goes_through_the_fitted_steps_and_no_further(mode: Mode) -> None:
    made = studied({"weak": WEAK, "strong": STRONG})
    curve = fit_curve(made, mode, 33)
    by_workers = {one.workers: one for one in made.measured if one.mode == mode}
    assert curve[0] == (1, 1)
    for index, workers in ((16, 2), (32, 4)):
        parts = 1 if mode == "weak" else workers
        assert curve[index] == pytest.approx((workers, 0.1 / (parts * by_workers[workers].model_sec)))
    counts = [n for n, _ in curve]
    assert counts == sorted(counts)
    assert (len(set(counts)), counts[-1]) == (33, 4)
    assert all(before > after for (_, before), (_, after) in itertools.pairwise(curve))


def test_between_measured_numbers_it_is_amdahls() -> None:
    """The all-reduce lies on a line there: 2 ms at 2 processes, 6 at 4."""
    made = studied({"strong": STRONG})
    assert made.fit is not None
    assert made.fit.serial_share == pytest.approx(0.2)
    n, value = fit_curve(made, "strong", 4)[2]
    assert n == pytest.approx(4 ** (2 / 3))
    wait = 0.002 + (n - 2) * 0.002
    assert value == pytest.approx(0.1 / (n * (0.1 * (0.2 + 0.8 / n) + wait)))


def test_one_process_has_no_curve() -> None:
    made = studied({"weak": {1: 0.1}})
    assert fit_curve(made, "weak") == fit_curve(made, "strong") == []
    assert b"fit" not in draw_scaling(made, "svg")


def test_all_reduces_that_nobody_timed_are_none_and_said() -> None:
    made = studied({"weak": {1: 0.1, 2: 0.1}, "strong": {1: 0.1, 2: 0.06}}, untimed="no RDMA device")
    assert made.untimed == "no RDMA device"
    assert {one.workers: one.all_reduce_sec for one in made.measured} == {1: 0.0, 2: None}
    assert made.fit is not None
    assert made.fit.serial_share == pytest.approx(0.2)
    assert fit_curve(made, "weak") == [], "one alone, and nothing to add to it"
    assert fit_curve(made, "strong")[-1][1] == pytest.approx(0.1 / 0.12)
    assert made.to_json()["measured"]["all_reduce_untimed"] == "no RDMA device"
    picture = draw_scaling(made, "svg")
    assert b"strong, fit: serial share 20.0%" in picture
    assert b"+ all-reduce" not in picture
