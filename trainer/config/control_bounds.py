"""Bounds of a controller that do not fit their run: refused by plans and by the trainer at its start. No torch."""

from collections.abc import Iterator
from typing import NamedTuple

from gangway.trainer.config.replicas import largest_share, replicas
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.control import Bounds


class Misfit(NamedTuple):
    """A bound of `Bounds` that cannot be kept, with the nearest value as its `fix`."""

    field: str
    problem: str
    value: tuple[int | str, ...]
    allowed: str
    fix: tuple[int | str, ...]


def misfits(bounds: Bounds, config: TrainConfig, workers: int, *, least_workers: int | None = None) -> Iterator[Misfit]:
    """Bounds that do not fit this configuration on so many workers, or `least_workers` at times. Each worker needs an
    image, or a group of them for minibatch_std, and the run's initial values must be within bounds.
    """
    if bounds.batch_size is not None:
        (least, most), start, fewest = bounds.batch_size, config.batch_size, workers * config.group
        fix = (max(min(least, start), fewest), max(most, start, fewest))
        if least < fewest:
            share = "an image" if config.group == 1 else f"a group of {config.group} images (minibatch_std)"
            why = f"less than {share} for each of {workers} workers"
            yield Misfit("batch_size", why, bounds.batch_size, f"from {fewest} on", fix)
        elif not least <= start <= most:
            why = f"leaves out the batch that the run begins with, {start}"
            yield Misfit("batch_size", why, bounds.batch_size, f"bounds around {start}", fix)
    largest = max(config.batch_size, (bounds.batch_size or (0, 0))[1])
    worker_share = largest_share(largest, replicas(config, least_workers or workers), config.group)
    if bounds.batch_gpu is not None and bounds.batch_gpu[0] > worker_share:
        why = f"more than a worker's share of the batch, {worker_share} images"
        yield Misfit("batch_gpu", why, bounds.batch_gpu, f"up to {worker_share}", (worker_share, worker_share))
    if bounds.precision and config.precision not in bounds.precision:
        why = f"leaves out what the run begins with, {config.precision}"
        allowed = f"words with {config.precision} among them"
        yield Misfit("precision", why, bounds.precision, allowed, (config.precision, *bounds.precision))
