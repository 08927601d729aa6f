"""Step sizes of single layers, as factors of their network's. No torch.

layer_rates: [{layers: "generator.first.*", lr_factor: 0.01}]
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gangway.trainer.config.values.schedules import from_text
from gangway.trainer.config.values.strict_numbers import LrFactor, Written


class LayerRate(Written):
    """A different learning rate for some weights.

    Attributes:
        layers: pattern of their names, such as generator.layers.0.*; the first pattern that matches applies.
        lr_factor: factor on the learning rate of their network, with its schedule.
    """

    layers: str = Field(min_length=1)
    lr_factor: LrFactor


LayerRatesField = Annotated[tuple[LayerRate, ...], BeforeValidator(from_text)]
