"""Step sizes of single layers, as factors of their network's. No torch.

layer_rates: [{layers: "generator.first.*", lr_factor: 0.01}]
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from trainer.config.values.schedules import from_text
from trainer.config.values.strict_numbers import LrFactor, Written


class LayerRate(Written):
    """Weights with a step size of their own.

    Attributes:
        layers: pattern of their names, as generator.layers.0.*; of several that fit the first counts.
        lr_factor: their step size is their network's times this, with its schedule.
    """

    layers: str = Field(min_length=1)
    lr_factor: LrFactor


LayerRatesField = Annotated[tuple[LayerRate, ...], BeforeValidator(from_text)]
