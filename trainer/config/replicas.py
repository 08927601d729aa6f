"""Shares of a batch, and worker counts for a pipeline of two stages."""

from gangway.trainer.config.parts.fields import ConfigFields
from gangway.trainer.core.errors import TrainerError


def replicas(config: ConfigFields, workers: int) -> int:
    """Shares of a batch: one per worker, or per pair in a pipeline. A single process has whole networks."""
    return max(1, workers // config.pipeline_stages)


def largest_share(batch_size: int, shares: int, group: int = 1) -> int:
    """Images in the largest of so many shares of whole groups."""
    return -(-batch_size // (shares * group)) * group


def unpaired(config: ConfigFields, workers: int) -> TrainerError | None:
    """Why so many workers cannot train in a pipeline, which needs whole pairs and micro-batches of one size."""
    stages = config.pipeline_stages
    if stages == 1 or workers == 1:
        return None
    if workers % stages:
        return TrainerError(
            place="TrainConfig.pipeline_stages",
            problem=f"{workers} workers are no whole pairs, and each half of the generator is on one of a pair",
            value=stages,
            allowed="1, or 2 with an even number of workers; one process alone has whole networks",
            fix=f"start {workers - 1} or {workers + 1} processes, or --pipeline-stages 1",
        )
    shares = replicas(config, workers)
    share = config.batch_size // shares
    micro = min(config.batch_gpu or share, share)
    if micro and config.batch_size % (shares * config.group) == 0 and share % micro == 0:
        return None
    unit = shares * max(config.batch_gpu, config.group)
    return TrainerError(
        place="TrainConfig.batch_size",
        problem=f"is no whole micro-batches of one size for each of {shares} pairs of workers, as a pipeline has them",
        value=config.batch_size,
        allowed=f"a multiple of {unit}; a run that has begun keeps its batch size, but not its batch_gpu",
        fix=f"a new run with --batch-size {-(-config.batch_size // unit) * unit}, another number of workers, "
        "or --pipeline-stages 1",
    )
