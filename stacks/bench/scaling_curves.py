"""The fit of a scaling study as a curve, between one process and the most that were measured: never beyond.

    strong: t(n) = t(1) x (serial + (1 - serial) / n) + all-reduce(n)
    weak:   t(n) = t(1) + all-reduce(n)

the same as the tables' column `fitted`, through which it goes. The all-reduce was timed at the measured numbers alone;
between them it lies on straight lines. Not a projection: that is `components.scaling`.
"""

import numpy as np

from stacks.bench.scaling import Mode, Study

__all__ = ["fitted"]


def fitted(study: Study, mode: Mode, number: int = 65) -> list[tuple[float, float]]:
    """Workers (1 up to the most measured, even on a logarithmic axis) and the efficiency that the fit says of them.

    Args:
        study: with its fit.
        mode: weak or strong.
        number: of points, two at least.

    Returns:
        Nothing where one process alone was measured, and of weak scaling where no all-reduce was timed.
    """
    points = sorted((one for one in study.measured if one.mode == mode), key=lambda one: one.workers)
    largest = points[-1].workers if points else 1
    if largest == 1 or (mode == "weak" and study.untimed):
        return []
    counts = [one.workers for one in points]
    waits = [one.all_reduce_sec or 0.0 for one in points]
    alone = points[0].step_sec.median
    curve = []
    for n in (largest ** (index / (number - 1)) for index in range(number)):
        wait = float(np.interp(n, counts, waits))
        if mode == "weak":
            curve.append((n, alone / (alone + wait)))
        elif study.fit is not None:
            curve.append((n, alone / (n * study.fit.step_sec(n, wait))))
    return curve
