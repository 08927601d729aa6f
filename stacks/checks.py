"""What a plan says on every provider: image, prices, spot caps and the budget. Pure.

What only one provider knows (its fabric, its zones) is said by that provider's module.
"""

from collections.abc import Iterable

from components.capacity import Spot
from components.catalog import MachineType, load
from components.cost import CostEstimate
from components.findings import Finding, InputError, Severity
from stacks.config import PLACEHOLDER_DIGEST, StackConfig
from trainer.config import PRESETS

__all__ = ["check_budget", "common_findings"]


def common_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> list[Finding]:
    """Findings about image, batch, state, capacity, prices and budget.

    Args:
        config: the stack.
        machine: its nodes.
        cost: the priced plan; None under the engine, which prices nothing, and then money is not spoken of.
    """
    unpriced = [*_image(config), *_batch(config, machine), *_state(config), *_spot_caps(config, machine)]
    return unpriced if cost is None else [*unpriced, *_prices(config, cost), *_budget(config, cost)]


def check_budget(config: StackConfig, cost: CostEstimate) -> None:
    """Refuses a budget that one hour of the stack would use up.

    Raises:
        InputError: with the smallest budget that makes sense.
    """
    if config.budget.monthly_usd < cost.hourly:
        raise InputError(
            "gangway:budget.monthly_usd",
            "below the cost of one hour of this stack",
            value=config.budget.monthly_usd,
            allowed=f"at least {cost.hourly:.2f} USD",
            fix=f"set monthly_usd: {cost.monthly:.0f} for a full month",
        )


def _image(config: StackConfig) -> Iterable[Finding]:
    if config.job.image_digest == PLACEHOLDER_DIGEST:
        yield Finding(
            Severity.WARNING,
            "image.placeholder",
            "gangway:job.image_digest",
            "no image is named: nodes would have nothing to pull",
            "push the trainer image to the stack's repository and set its digest",
        )


def _batch(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """The global batch stays what it is when nodes come and go, so it must divide evenly at each size."""
    batch_size, nodes = PRESETS[config.job.preset].batch_size, config.cluster.nodes
    sizes = [num * machine.gpus.value for num in range(nodes.min, nodes.max + 1)]
    uneven = [size for size in sizes if batch_size % size]
    if uneven:
        even = [num for num in range(1, nodes.max + 1) if batch_size % (num * machine.gpus.value) == 0]
        yield Finding(
            Severity.ERROR,
            "batch.uneven",
            "gangway:cluster.nodes",
            f"batch_size {batch_size} of {config.job.preset} does not divide over {uneven[0]} workers",
            f"set min and max to one of {', '.join(map(str, even))}" if even else "choose a smaller machine type",
        )


def _state(config: StackConfig) -> Iterable[Finding]:
    """Checkpoints and data must be where every node, also the next one, can read them."""
    if config.storage is not None:
        return
    if config.cluster.nodes.max > 1:
        yield Finding(
            Severity.ERROR,
            "storage.not-shared",
            "gangway:storage",
            "several nodes need one file system for data and checkpoints, and this stack has none",
            "add storage, or set nodes: {min: 1, max: 1}",
        )
    if any(isinstance(rung, Spot) for rung in config.cluster.capacity):
        yield Finding(
            Severity.WARNING,
            "storage.lost-with-node",
            "gangway:storage",
            "checkpoints stay on the node's own volume, which a spot interruption takes away",
            "add storage",
        )


def _spot_caps(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    price = load().price(machine.name, config.region)
    low = None if price is None else price.spot_low.value
    for position, rung in enumerate(config.cluster.capacity):
        cap = rung.max_usd_per_hour if isinstance(rung, Spot) else None
        if price is not None and low is not None and cap is not None and cap < low:
            yield Finding(
                Severity.WARNING,
                "capacity.spot-cap-low",
                f"gangway:cluster.capacity[{position}].max_usd_per_hour",
                f"{cap:g} USD is below the lowest spot price seen for {machine.name}, {low:g} USD",
                f"set max_usd_per_hour: {price.spot_high.value:g}",
            )


def _prices(config: StackConfig, cost: CostEstimate) -> Iterable[Finding]:
    if any("(price of " in component.source for component in cost.components):
        yield Finding(
            Severity.INFO,
            "cost.other-region",
            "gangway:region",
            f"some prices are not listed for {config.region}: another region's stand in, and each line says so",
        )
    for name in cost.unknown:
        yield Finding(
            Severity.WARNING, "cost.price-unknown", "gangway:cluster", f"not in the estimate, price unknown: {name}"
        )


def _budget(config: StackConfig, cost: CostEstimate) -> Iterable[Finding]:
    if cost.monthly > config.budget.monthly_usd:
        yield Finding(
            Severity.WARNING,
            "budget.below-estimate",
            "gangway:budget.monthly_usd",
            f"{config.budget.monthly_usd:.2f} USD is less than a full month at {cost.monthly:.2f} USD",
            f"set monthly_usd: {cost.monthly:.0f}, or destroy the stack when the run is done",
        )
