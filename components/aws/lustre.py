"""Which FSx for Lustre file systems exist: sizes, tiers, EFA and metadata, checked before anything is declared.

FSx refuses a wrong size or combination only minutes into a deployment; here the answer comes at once and names the
value to write instead. Pure: the facts are the catalogue's, the resources are in `components.aws.storage`.
"""

from dataclasses import dataclass

from components.catalog import LustreOffer, load
from components.choices import LustreDeployment
from components.findings import InputError
from components.limits import nearest_number
from components.lustre import check_tier

__all__ = ["LustrePlan", "plan_lustre"]


@dataclass(frozen=True)
class LustrePlan:
    """A file system FSx accepts.

    Attributes:
        deployment_type: PERSISTENT_2 or SCRATCH_2.
        capacity_gib: size.
        throughput_mbps_per_tib: the tier; None on scratch, where it is fixed and may not be sent.
        efa: whether clients reach it over EFA (and GPUDirect Storage); settled at creation.
        metadata_mode: AUTOMATIC or USER_PROVISIONED; None on scratch, which has no such setting.
        metadata_iops: only with USER_PROVISIONED.
    """

    deployment_type: str
    capacity_gib: int
    throughput_mbps_per_tib: int | None
    efa: bool
    metadata_mode: str | None
    metadata_iops: int | None


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
    customer_key: bool = False,
) -> LustrePlan:
    """Checks size, tier and their combination. `metadata_iops` None lets FSx choose them by size.

    Raises:
        InputError: with the nearest value that FSx accepts, or the setting to leave out.
    """
    offer = load().lustre["aws"]
    if deployment == LustreDeployment.SCRATCH:
        _check_scratch(offer, place, throughput_mbps_per_tib, efa, metadata_iops, customer_key)
        _check_size(offer, place, capacity_gib, None)
        assert offer.scratch_deployment_type.value is not None, "AWS has scratch file systems"
        return LustrePlan(offer.scratch_deployment_type.value, capacity_gib, None, False, None, None)
    tier = check_tier(place, "FSx for Lustre", offer.throughput_mbps_per_tib.value, throughput_mbps_per_tib)
    _check_size(offer, place, capacity_gib, tier if efa else None)
    _check_metadata(offer, place, metadata_iops)
    # A file system made without a metadata configuration can never get one, and AUTOMATIC is in the price.
    mode = "AUTOMATIC" if metadata_iops is None else "USER_PROVISIONED"
    return LustrePlan(offer.deployment_type.value, capacity_gib, tier, efa, mode, metadata_iops)


def _check_scratch(
    offer: LustreOffer,
    place: str,
    throughput_mbps_per_tib: int | None,
    efa: bool,
    metadata_iops: int | None,
    customer_key: bool,
) -> None:
    """What a scratch file system cannot have."""
    if efa:
        raise InputError(
            f"{place}.efa",
            "a scratch file system has no EFA",
            value=efa,
            allowed="efa: true with deployment: persistent",
            fix="set deployment: persistent, or efa: false",
        )
    fixed = offer.scratch_throughput_mbps_per_tib.value
    settings = {
        "throughput_mbps_per_tib": (throughput_mbps_per_tib, f"its throughput is fixed at {fixed} MB/s per TiB"),
        "metadata_iops": (metadata_iops, "its metadata performance cannot be set"),
        "kms_key_arn": (customer_key or None, "FSx encrypts it with its own key"),
    }
    for name, (value, why) in settings.items():
        if value is not None:
            raise InputError(
                f"{place}.{name}",
                f"not a setting of a scratch file system: {why}",
                value=value,
                allowed=f"no {name} with deployment: scratch",
                fix=f"leave {name} out, or set deployment: persistent",
            )


def _check_size(offer: LustreOffer, place: str, capacity_gib: int, efa_tier: int | None) -> None:
    """Plain file systems come in one small size and multiples of a step; with EFA only in multiples of the tier's."""
    if efa_tier is None:
        smallest, step, with_efa = offer.smallest_gib.value, offer.step_gib.value, ""
    else:
        smallest = step = offer.efa_step_gib.value[efa_tier]
        with_efa = f" with EFA at {efa_tier} MB/s per TiB"
    if capacity_gib == smallest or (capacity_gib >= step and capacity_gib % step == 0):
        return
    below = capacity_gib // step * step or smallest
    around = sorted({size for size in (smallest, below, below + step, step) if size >= smallest})
    lower = [size for size in around if size < capacity_gib][-1:]
    upper = [size for size in around if size > capacity_gib][:1]
    sizes = [*lower, *upper]
    rule = f"multiples of {step} GiB" if smallest == step else f"{smallest} GiB or a multiple of {step} GiB"
    raise InputError(
        f"{place}.capacity_gib",
        f"not a size FSx for Lustre offers{with_efa}",
        value=capacity_gib,
        allowed=f"{rule}; around this value {' and '.join(map(str, sizes))}",
        fix=f"set capacity_gib: {nearest_number(capacity_gib, sizes)}",
    )


def _check_metadata(offer: LustreOffer, place: str, metadata_iops: int | None) -> None:
    values = offer.metadata_iops.value
    if metadata_iops is None or metadata_iops in values:
        return
    raise InputError(
        f"{place}.metadata_iops",
        "not a number of metadata IOPS that FSx for Lustre provisions",
        value=metadata_iops,
        allowed=", ".join(map(str, values)),
        fix=f"set metadata_iops: {nearest_number(metadata_iops, values)}, or leave it out: FSx then sets it by size",
    )
