"""Adaptive augmentation (Karras et al. 2020, arXiv:2006.06676): augment as much as keeps D from overfitting.

The statistic is the mean sign of the logits of real images, over the whole global batch, counted in whole numbers so
that it does not depend on the workers. Above the target D is too sure of what it has seen, and p, the probability of
each part of the augmentation, rises; else it falls. The paper averages the sign over 4 steps; here it is that of the
last of 4, so that the only state is p. The parts are DiffAugment's (trainer.steps.augment).
"""

from trainer.config import TrainConfig

__all__ = ["EVERY_STEPS", "adapted", "first_p", "is_due"]

EVERY_STEPS = 4
"""Steps from one adjustment to the next, as in the paper."""


def first_p(config: TrainConfig) -> float:
    """Probability of each part at the run's start: 1 where it does not adapt."""
    return 0.0 if config.ada_target else 1.0


def is_due(config: TrainConfig, step: int) -> bool:
    """Whether p is adjusted after that many steps."""
    return config.ada_target > 0 and step % EVERY_STEPS == 0


def adapted(p: float, sum_of_signs: int, config: TrainConfig) -> float:
    """The next p, equal on every worker; `sum_of_signs` is of the logits of the step's reals, over all workers."""
    mean_sign = sum_of_signs / config.step_images
    change = EVERY_STEPS * config.step_images / (config.ada_kimg * 1000)
    return min(1.0, max(0.0, p + (change if mean_sign > config.ada_target else -change)))
