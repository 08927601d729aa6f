"""What a stack file asks of the trainer's controller, and of autoscaling, and can never have: bounds outside the
cluster, and aims whose data nobody has. What needs a machine or a price is `stacks.plan`'s.
"""

from collections.abc import Iterator

from components.core.findings import InputError
from stacks.config.stack_config import StackConfig

_PLACE = "gangway:job.controller"
_SITE_PRICE = "gangway:site.usd_per_node_hour"


def controller_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each such setting."""
    if config.work.controller is not None:
        yield from _nodes(config)
        yield from _cost(config)
        yield from _carbon(config)
    yield from _autoscale_money(config)


def _nodes(config: StackConfig) -> Iterator[InputError]:
    asked, nodes = config.work.controller, config.cluster.nodes
    bounds = None if asked is None else asked.bounds.nodes
    if bounds is None or nodes.min <= bounds[0] <= bounds[1] <= nodes.max:
        return
    least, most = (min(max(bound, nodes.min), nodes.max) for bound in bounds)
    yield InputError(
        f"{_PLACE}.bounds.nodes",
        "outside the cluster's own nodes",
        value=list(bounds),
        allowed=f"within {nodes.min} to {nodes.max}, gangway:cluster.nodes",
        fix=f"write nodes: [{least}, {most}]",
    )


def _cost(config: StackConfig) -> Iterator[InputError]:
    asked, site = config.work.controller, config.site
    if asked is None or site is None or site.usd_per_node_hour is not None:
        return
    if asked.objective == "cost":
        yield InputError(
            f"{_PLACE}.objective",
            f"nobody knows what an hour of a node costs with provider: {config.provider}",
            value=asked.objective,
            allowed=f"time, energy or carbon; cost with {_SITE_PRICE}",
            fix="set gangway:site.usd_per_node_hour: 14.5, or write objective: time",
        )
    if asked.bounds.usd_per_hour is not None:
        yield InputError(
            f"{_PLACE}.bounds.usd_per_hour",
            f"nobody knows what an hour of a node costs with provider: {config.provider}",
            value=asked.bounds.usd_per_hour,
            allowed=f"only with {_SITE_PRICE}",
            fix="set gangway:site.usd_per_node_hour: 14.5, or leave usd_per_hour out",
        )


def _carbon(config: StackConfig) -> Iterator[InputError]:
    """A world average that stands in for a site's grid is good for an estimate, and no aim."""
    asked, site = config.work.controller, config.site
    if asked is None or site is None or site.intensity_g_per_kwh is not None:
        return
    if asked.objective == "carbon":
        yield InputError(
            f"{_PLACE}.objective",
            "nobody knows the intensity of this site's grid",
            value=asked.objective,
            allowed="time, cost or energy; carbon with gangway:site.intensity_g_per_kwh",
            fix="set gangway:site.intensity_g_per_kwh: 380, or write objective: energy",
        )


def _autoscale_money(config: StackConfig) -> Iterator[InputError]:
    asked, site = config.work.autoscale, config.site
    if asked is None or site is None or site.usd_per_node_hour is not None:
        return
    for name in ("budget_usd", "least_images_per_usd"):
        if (value := getattr(asked, name)) is not None:
            yield InputError(
                f"gangway:job.autoscale.{name}",
                f"nobody knows what an hour of a node costs with provider: {config.provider}",
                value=value,
                allowed=f"only with {_SITE_PRICE}",
                fix=f"set gangway:site.usd_per_node_hour: 14.5, or leave {name} out",
            )
