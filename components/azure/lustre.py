"""Which file systems of Azure Managed Lustre exist: SKUs, sizes, the subnet of each, checked before one is declared.

Azure refuses a wrong size, or a subnet too small, only when the file system is asked for; here the answer comes at once
and names the sizes around it. What FSx has and Azure Managed Lustre has not is refused by name, never ignored. Pure:
the facts are the catalogue's, the resources are in `components.azure.file_system`.
"""

from dataclasses import dataclass

from components.catalog import AmlfsTier, load_amlfs_subnets, load_amlfs_tiers
from components.choices import LustreDeployment
from components.findings import InputError
from components.limits import nearest_number
from components.lustre import Setting, check_tier, refuse_foreign

__all__ = ["GIB_PER_TIB", "LustrePlan", "plan_lustre"]

GIB_PER_TIB = 1024


@dataclass(frozen=True)
class LustrePlan:
    """A file system Azure Managed Lustre accepts.

    Attributes:
        sku: `AMLFS-Durable-Premium-` and the tier.
        capacity_tib: size, as Azure takes it.
        throughput_mbps_per_tib: the tier.
        subnet_prefix_length: of the smallest subnet it fits into, in which it is alone.
    """

    sku: str
    capacity_tib: int
    throughput_mbps_per_tib: int
    subnet_prefix_length: int

    @property
    def capacity_gib(self) -> int:
        """Size, as stack files have it."""
        return self.capacity_tib * GIB_PER_TIB


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
) -> LustrePlan:
    """Checks tier and size, and that nothing is asked for which only FSx for Lustre has.

    Raises:
        InputError: with the nearest values that Azure Managed Lustre accepts, or the setting to leave out.
    """
    _check_foreign(place, deployment, efa, metadata_iops)
    tiers = load_amlfs_tiers()
    tier = tiers[check_tier(place, "Azure Managed Lustre", tiers, throughput_mbps_per_tib)]
    sizes = _sizes_around(tier, capacity_gib)
    if capacity_gib not in sizes:
        _refuse_size(place, capacity_gib, tier, sizes)
    capacity_tib = capacity_gib // GIB_PER_TIB
    prefix = next(rule.prefix_length.value for rule in load_amlfs_subnets() if capacity_tib <= rule.up_to_tib)
    return LustrePlan(tier.sku, capacity_tib, tier.throughput_mbps_per_tib, prefix)


def _largest_tib(tier: AmlfsTier) -> int:
    """The largest size of a tier for which Azure also says what subnet it needs."""
    step = tier.step_tib.value
    return min(tier.largest_tib.value, load_amlfs_subnets()[-1].up_to_tib) // step * step


def _why_no_larger(tier: AmlfsTier) -> str:
    """Some tiers end where Microsoft's support begins, one where Azure no longer says what subnet it needs."""
    if tier.largest_tib.value > _largest_tib(tier):
        return f" (the tier goes on to {tier.largest_tib.value} TiB, for which Azure documents no size of subnet)"
    return " (Microsoft's support makes larger ones)"


def _sizes_around(tier: AmlfsTier, wanted_gib: int) -> list[int]:
    """The sizes next to `wanted_gib` from below and from above, in GiB, ascending; itself alone where it is one."""
    step, largest = tier.step_tib.value * GIB_PER_TIB, _largest_tib(tier) * GIB_PER_TIB
    inside = min(max(wanted_gib, step), largest)
    return sorted({inside // step * step, -(-inside // step) * step})


def _check_foreign(place: str, deployment: LustreDeployment, efa: bool, metadata_iops: int | None) -> None:
    """What FSx for Lustre has and Azure Managed Lustre has not."""
    wrong: dict[str, Setting] = {
        "deployment": (
            deployment != LustreDeployment.PERSISTENT,
            str(deployment),
            "every file system there is durable",
        ),
        "efa": (efa, efa, "clients reach it over TCP; its servers are not on the InfiniBand network"),
        "metadata_iops": (metadata_iops is not None, metadata_iops, "metadata performance follows the size"),
    }
    refuse_foreign(place, "Azure Managed Lustre", "azure", wrong)


def _refuse_size(place: str, capacity_gib: int, tier: AmlfsTier, sizes: list[int]) -> None:
    around = " and ".join(f"{size} ({size // GIB_PER_TIB} TiB)" for size in sizes)
    raise InputError(
        f"{place}.capacity_gib",
        f"not a size Azure Managed Lustre offers at {tier.throughput_mbps_per_tib} MB/s per TiB",
        value=capacity_gib,
        allowed=f"multiples of {tier.step_tib.value * GIB_PER_TIB} up to {_largest_tib(tier) * GIB_PER_TIB}"
        f"{_why_no_larger(tier)}; nearest: {around}",
        fix=f"set capacity_gib: {nearest_number(capacity_gib, sizes)}",
    )
