"""Which file systems of Managed Lustre and Filestore exist: names, tiers, sizes, checked before anything is declared.

Google refuses a wrong size only when the file system is asked for; here the answer comes at once and names the sizes
around it. What FSx has and Managed Lustre has not is refused by name, never ignored. Pure: the facts are the
catalogue's, the resources are in `components.gcp.storage`.
"""

from dataclasses import dataclass
from typing import Any

from components.catalog import SizeRange, load_filestore_tiers, load_lustre_tiers
from components.choices import LustreDeployment
from components.findings import InputError
from components.gcp.names import filesystem_name
from components.limits import nearest_number
from components.lustre import Setting, check_tier, refuse_foreign

__all__ = [
    "DATA_PATH",
    "FilestorePlan",
    "ImportRequest",
    "LustrePlan",
    "import_request",
    "plan_filestore",
    "plan_lustre",
    "sizes_around",
]

API_URL = "https://lustre.googleapis.com/v1"
# Where the objects of `source` appear below the mount, as on AWS.
DATA_PATH = "/data"


@dataclass(frozen=True)
class LustrePlan:
    """A file system Managed Lustre accepts.

    Attributes:
        filesystem: name by which it is mounted.
        capacity_gib: size.
        throughput_mbps_per_tib: the tier.
    """

    filesystem: str
    capacity_gib: int
    throughput_mbps_per_tib: int


@dataclass(frozen=True)
class FilestorePlan:
    """A share Filestore accepts: `tier` in the API's word, `capacity_gib` its size."""

    tier: str
    capacity_gib: int


@dataclass(frozen=True)
class ImportRequest:
    """The call that copies a bucket's objects into a file system. Incremental: to repeat it does no harm."""

    url: str
    body: dict[str, Any]


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    stack: str,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
    export_runs: bool = False,
) -> LustrePlan:
    """Checks tier and size, and that nothing is asked for which only FSx for Lustre has.

    Raises:
        InputError: with the nearest values that Managed Lustre accepts, or the setting to leave out.
    """
    _check_foreign(place, deployment, efa, metadata_iops, export_runs)
    tiers = load_lustre_tiers()
    tier = tiers[check_tier(place, "Managed Lustre", tiers, throughput_mbps_per_tib)]
    if capacity_gib not in (sizes := sizes_around(tier, capacity_gib)):
        _refuse_size(
            place, capacity_gib, sizes, f"Managed Lustre offers at {tier.throughput_mbps_per_tib} MB/s per TiB"
        )
    return LustrePlan(filesystem_name(stack), capacity_gib, tier.throughput_mbps_per_tib)


def plan_filestore(
    capacity_gib: int, tier: str = "basic-ssd", place: str = "gangway:storage", *, customer_key: bool = False
) -> FilestorePlan:
    """Checks tier and size of a Filestore share, and that the tier takes a key of the stack's where it has one.

    Raises:
        InputError: with the tiers there are, or the sizes around the wanted one.
    """
    tiers = load_filestore_tiers()
    if tier not in tiers:
        raise InputError(
            f"{place}.tier", "not a tier of Filestore", value=tier, allowed=", ".join(tiers), fix="set tier: basic-ssd"
        )
    if customer_key and tier.startswith("basic-"):
        # The API's answer is 400: "tier BASIC_HDD does not support KMS encryption".
        raise InputError(
            f"{place}.tier",
            "Filestore encrypts its basic tiers with Google's own keys alone",
            value=tier,
            allowed=", ".join(name for name in tiers if not name.startswith("basic-")) + " with a customer's key",
            fix="set tier: zonal, or gangway:encryption: provider-key",
        )
    if capacity_gib not in (sizes := sizes_around(tiers[tier], capacity_gib)):
        _refuse_size(place, capacity_gib, sizes, f"Filestore offers in its tier {tier}")
    return FilestorePlan(tiers[tier].api_tier, capacity_gib)


def import_request(instance: str, source: str) -> ImportRequest:
    """The request that fills DATA_PATH of `instance` (`projects/P/locations/Z/instances/I`) from `gs://bucket/prefix`.

    No resource of Pulumi's makes it, so the head or a node does, once the file system is mounted and DATA_PATH made in
    it: Managed Lustre imports only into a folder that exists. Its token needs `lustre.instances.importData`, and the
    service agent of Managed Lustre needs to read the bucket.
    """
    # A path inside a bucket has to end with a slash.
    body = {"gcsPath": {"uri": f"{source.rstrip('/')}/"}, "lustrePath": {"path": DATA_PATH}}
    return ImportRequest(f"{API_URL}/{instance}:importData", body)


def sizes_around(tier: SizeRange, wanted: int) -> list[int]:
    """The sizes of a tier next to `wanted` from below and from above, ascending; `wanted` alone where it is one."""
    step, until, large = tier.step_gib.value, tier.step_until_gib.value, tier.large_step_gib.value
    smallest, largest = tier.smallest_gib.value, tier.largest_gib.value
    inside = min(max(wanted, smallest), largest)
    width = step if inside <= until else large
    # The last small size lies below the first large one, which may be more than a step away.
    below = max(inside // width * width, until // step * step if inside > until else smallest)
    above = -(-inside // width) * width
    return sorted({below, min(above, largest)}) if inside == wanted else [inside]


def _check_foreign(
    place: str, deployment: LustreDeployment, efa: bool, metadata_iops: int | None, export_runs: bool
) -> None:
    """What FSx for Lustre has and Managed Lustre has not."""
    wrong: dict[str, Setting] = {
        "deployment": (
            deployment != LustreDeployment.PERSISTENT,
            str(deployment),
            "every file system there is persistent",
        ),
        "efa": (efa, efa, "clients reach it over TCP"),
        "metadata_iops": (metadata_iops is not None, metadata_iops, "metadata performance follows the size"),
        "export_runs": (export_runs, export_runs, "it exports on demand only; nodes put their records into the bucket"),
    }
    refuse_foreign(place, "Google Cloud Managed Lustre", "gcp", wrong)


def _refuse_size(place: str, capacity_gib: int, sizes: list[int], what: str) -> None:
    raise InputError(
        f"{place}.capacity_gib",
        f"not a size {what}",
        value=capacity_gib,
        allowed=f"nearest: {' and '.join(map(str, sizes))}",
        fix=f"set capacity_gib: {nearest_number(capacity_gib, sizes)}",
    )
