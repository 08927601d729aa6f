"""What a stack file says of toys: the section gangway:toy, and which common settings nothing reads there."""

from pydantic import Field, StrictBool

from gangway.stacks.config.provider_settings import OwnSection, ProviderSettings
from gangway.stacks.config.section import Section
from gangway.stacks.config.stack_config import StackConfig

__all__ = ["SETTINGS", "ToyConfig", "toy_of"]


class ToyConfig(Section):
    """What a stack of toys says besides.

    Attributes:
        owner: whose they are.
        labelled: whether machines carry the stack's tags.
    """

    owner: str = Field(pattern=r"^[a-z]+$", examples=["ann"])
    labelled: StrictBool = True


def toy_of(config: StackConfig) -> ToyConfig:
    """The provider's own section."""
    return config.section(ToyConfig)


SETTINGS = ProviderSettings(
    own=OwnSection("toy", ToyConfig, holds="owner", example="{owner: ann}"),
    examples={"region": "attic", "cluster.machine_type": "toy.8"},
    unsupported={
        "storage": "toys share no file system",
        "network": "toys have no network",
        "head.machine_type": "toys do not meet",
    },
    lacking={"budget.activate_tag": "play money is counted at once"},
)
