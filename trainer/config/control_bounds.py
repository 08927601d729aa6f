"""Bounds of a controller that do not go with the run that they are of: the trainer refuses them when it starts, a plan
before. Imports no torch.
"""

from collections.abc import Iterator
from typing import NamedTuple

from trainer.config.replicas import largest_share, replicas
from trainer.config.train_config import TrainConfig
from trainer.config.values.control import Bounds


class Misfit(NamedTuple):
    """Why a bound cannot be kept.

    Attributes:
        field: of `Bounds`.
        problem: what is wrong with it.
        value: as it was asked for.
        allowed: what would be accepted, in words.
        fix: the nearest value that would be.
    """

    field: str
    problem: str
    value: tuple[int | str, ...]
    allowed: str
    fix: tuple[int | str, ...]


def misfits(bounds: Bounds, config: TrainConfig, workers: int, *, least_workers: int | None = None) -> Iterator[Misfit]:
    """Those of a run of this configuration on so many workers, or on `least_workers` for a while. Each needs an image,
    or a group of them where the discriminator looks at groups, takes no more at once than it has, and what the run
    begins with has to be within.
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
    of_a_worker = largest_share(largest, replicas(config, least_workers or workers), config.group)
    if bounds.batch_gpu is not None and bounds.batch_gpu[0] > of_a_worker:
        why = f"more than a worker's share of the batch, {of_a_worker} images"
        yield Misfit("batch_gpu", why, bounds.batch_gpu, f"up to {of_a_worker}", (of_a_worker, of_a_worker))
    if bounds.precision and config.precision not in bounds.precision:
        why = f"leaves out what the run begins with, {config.precision}"
        allowed = f"words with {config.precision} among them"
        yield Misfit("precision", why, bounds.precision, allowed, (config.precision, *bounds.precision))
