"""What a stack file says of its site, as the plan of its provider takes it: the machine, the place, the price.

Pure. Shared by the providers whose machines no catalogue knows; the shapes and their facts are `components.site`.
"""

from components.catalog import MachinePrice, Region
from components.site import SiteConfig, SiteMachine, site_machine, site_price, site_region
from stacks.settings.config import StackConfig

__all__ = ["machine_of", "price_of", "region_of", "site_of"]


def site_of(config: StackConfig) -> SiteConfig:
    """The site's own section."""
    assert config.site is not None, "stacks.providers.settings has seen to it"
    return config.site


def machine_of(config: StackConfig) -> SiteMachine:
    """One machine, called after `cluster.machine_type`, or after its accelerator.

    Raises:
        InputError: nobody knows what such an accelerator draws.
    """
    site, cluster = site_of(config), config.cluster
    accelerator = site.accelerator or cluster.accelerator
    assert accelerator is not None, "stacks.providers.settings has seen to it"
    return site_machine(site, config.provider, accelerator, cluster.machine_type or "")


def region_of(config: StackConfig) -> Region:
    """The place, with its grid and its building."""
    return site_region(site_of(config), config.provider, config.region)


def price_of(config: StackConfig, machine: SiteMachine) -> MachinePrice:
    """What an hour of one machine costs its owner, where the stack file says it."""
    return site_price(site_of(config), machine, config.region)
