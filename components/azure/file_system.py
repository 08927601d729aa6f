"""LustreFileSystem: Azure Managed Lustre for training data and checkpoints; its SKUs, sizes and subnets."""

import re
from dataclasses import dataclass
from typing import NotRequired

import pulumi
from pulumi_azure_native import storage, storagecache
from pulumi_azure_native.storagecache import outputs

from gangway.components.azure.common import CommonArgs, common_inputs, heeded, replacing
from gangway.components.azure.identity import Grantee, KeyArgs
from gangway.components.azure.policies import (
    BLOB_CONTRIBUTOR,
    STORAGE_CONTRIBUTOR,
    container_id,
    import_log,
    importable,
)
from gangway.components.catalog.loader import load_amlfs_subnets, load_amlfs_tiers
from gangway.components.catalog.schema import AmlfsTier
from gangway.components.core.blob_url import BlobUrl, read_blob_url
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError, nearest
from gangway.components.core.limits import Setting, check_tier, refuse_foreign
from gangway.components.core.outputs import after, register_outputs
from gangway.components.estimate.storage_sizes import GIB_PER_TIB, amlfs_largest_tib, amlfs_sizes_around, refuse_size

IMPORTER_APP_ID = "4392ab71-2ce2-4b0d-8770-b352745c73f5"  # "HPC Cache Resource Provider"; object ids differ by tenant
EXPORT_PATH = "/runs"
# The only file system of a Managed Lustre server.
MOUNT_NAME = "lustrefs"
MAINTENANCE_DAY, MAINTENANCE_TIME_UTC = "Sunday", "03:00"
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


@dataclass(frozen=True)
class LustrePlan:
    """A valid file system. `sku` ends in the tier; `subnet_prefix_length`: of the smallest dedicated subnet."""

    sku: str
    capacity_tib: int
    throughput_mbps_per_tib: int
    subnet_prefix_length: int

    @property
    def capacity_gib(self) -> int:
        """Size as in stack files."""
        return self.capacity_tib * GIB_PER_TIB


def plan_lustre(
    capacity_gib: int,
    throughput_mbps_per_tib: int | None,
    place: str = "gangway:storage",
    *,
    deployment: LustreDeployment = LustreDeployment.PERSISTENT,
    efa: bool = False,
    metadata_iops: int | None = None,
    region: str = "",
) -> LustrePlan:
    """Check tier and size, and refuse FSx-only settings. InputError: the nearest values, with prices in `region`."""
    _check_foreign(place, deployment, efa, metadata_iops)
    tiers = load_amlfs_tiers()
    tier = tiers[check_tier(place, "Azure Managed Lustre", tiers, throughput_mbps_per_tib)]
    sizes = amlfs_sizes_around(tier, capacity_gib)
    if capacity_gib not in sizes:
        around = " and ".join(f"{size} ({size // GIB_PER_TIB} TiB)" for size in sizes)
        raise refuse_size(
            place,
            capacity_gib,
            f"not a size Azure Managed Lustre offers at {tier.throughput_mbps_per_tib} MB/s per TiB",
            f"multiples of {tier.step_tib.value * GIB_PER_TIB} up to {amlfs_largest_tib(tier) * GIB_PER_TIB}"
            f"{_why_no_larger(tier)}; nearest: {around}",
            sizes,
            bill=("azure", region, "managed-lustre"),
            tier=tier.throughput_mbps_per_tib,
            others=[name for name, other in tiers.items() if amlfs_sizes_around(other, capacity_gib) == [capacity_gib]],
        )
    capacity_tib = capacity_gib // GIB_PER_TIB
    prefix = next(rule.prefix_length.value for rule in load_amlfs_subnets() if capacity_tib <= rule.up_to_tib)
    return LustrePlan(tier.sku, capacity_tib, tier.throughput_mbps_per_tib, prefix)


def _why_no_larger(tier: AmlfsTier) -> str:
    """Some tiers end where Microsoft's support begins, one where Azure documents no subnet size."""
    if tier.largest_tib.value > amlfs_largest_tib(tier):
        return f" (the tier goes on to {tier.largest_tib.value} TiB, for which Azure documents no size of subnet)"
    return " (Microsoft's support makes larger ones)"


def _check_foreign(place: str, deployment: LustreDeployment, efa: bool, metadata_iops: int | None) -> None:
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


class LustreFileSystemArgs(CommonArgs):
    """Inputs of LustreFileSystem. `subnet_id` is the network's `lustre_subnet_id`. `source` is the
    `az://account/container/prefix` behind the file system, `source_account_id` its account's resource id, and
    `importer_principal_id` the object id of Azure's service principal in this tenant (`az ad sp show --id
    IMPORTER_APP_ID --query id`), which gets roles on the account: `up` needs the right to grant them. `role_wait_sec`
    (0): wait for Azure to apply these, only in Python programs (`gangway.components.core.settling`). `export_runs`
    copies EXPORT_PATH into that container. `deployment`, `efa` and `metadata_iops` are FSx's and refused. Azure
    maintains the servers about every two months, at `maintenance_time_utc` (03:00) on `maintenance_day` (Sunday). The
    key cannot change.
    """

    subscription_id: str
    zone: str
    stack: str
    capacity_gib: int
    throughput_mbps_per_tib: NotRequired[int | None]
    deployment: NotRequired[LustreDeployment]
    efa: NotRequired[bool]
    metadata_iops: NotRequired[int | None]
    subnet_id: pulumi.Input[str]
    source: NotRequired[str | None]
    source_account_id: NotRequired[str | None]
    importer_principal_id: NotRequired[str | None]
    role_wait_sec: NotRequired[float]
    export_runs: NotRequired[bool]
    maintenance_day: NotRequired[str]
    maintenance_time_utc: NotRequired[str]
    key: NotRequired[KeyArgs | None]


class LustreFileSystem(pulumi.ComponentResource):
    """A Managed Lustre file system in the nodes' zone. `mount_point`: `IP@tcp:/NAME`, for clients; `dns_name`: the IP
    address in it; there is no DNS name; `mount_name`: NAME; `data_path`: the blobs of `source` below the mount: their
    path in the container.
    """

    file_system_id: pulumi.Output[str]
    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]
    data_path: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:LustreFileSystem", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plan = plan_lustre(
            args["capacity_gib"],
            args.get("throughput_mbps_per_tib"),
            deployment=args.get("deployment", LustreDeployment.PERSISTENT),
            efa=args.get("efa", False),
            metadata_iops=args.get("metadata_iops"),
        )
        url = args.get("source")
        source = read_blob_url(url) if url else None
        hsm, before = self._container(source) if source else (None, [])
        file_system = self._file_system(plan, hsm, before)
        if args.get("export_runs", False):
            self._export(file_system, url)
        self.file_system_id = file_system.id
        self.dns_name = file_system.client_info.apply(_address)
        self.mount_name = pulumi.Output.from_input(MOUNT_NAME)
        self.mount_point = pulumi.Output.concat(self.dns_name, "@tcp:/", MOUNT_NAME)
        self.data_path = pulumi.Output.from_input(f"/{source.prefix}" if source else "/")
        register_outputs(self)

    def _file_system(
        self,
        plan: LustrePlan,
        hsm: storagecache.AmlFilesystemHsmArgs | None,
        before: list[pulumi.Resource],
    ) -> storagecache.AmlFilesystem:
        args = self._args
        key = args.get("key")
        return storagecache.AmlFilesystem(
            f"{self._name}-lustre",
            **common_inputs(args),
            zones=[args["zone"]] if args["zone"] else None,
            sku=storagecache.SkuNameArgs(name=plan.sku),
            storage_capacity_ti_b=plan.capacity_tib,
            filesystem_subnet=args["subnet_id"],
            maintenance_window=storagecache.AmlFilesystemMaintenanceWindowArgs(
                day_of_week=_day(args.get("maintenance_day", MAINTENANCE_DAY)),
                time_of_day_utc=_time(args.get("maintenance_time_utc", MAINTENANCE_TIME_UTC)),
            ),
            hsm=hsm,
            identity=None if key is None else _identity(key),
            encryption_settings=None if key is None else _encryption(key),
            # A subnet holds one file system.
            opts=pulumi.ResourceOptions.merge(
                self._child, pulumi.ResourceOptions(depends_on=before, delete_before_replace=True)
            ),
        )

    def _container(self, source: BlobUrl) -> tuple[storagecache.AmlFilesystemHsmArgs, list[pulumi.Resource]]:
        args = self._args
        account_id, log_name = args.get("source_account_id") or "", import_log(args["stack"])
        place = importable(account_id, source, args["subscription_id"], args["stack"])
        log = storage.BlobContainer(
            f"{self._name}-lustre-log",
            resource_group_name=place.resource_group_name,
            account_name=source.account,
            container_name=log_name,
            public_access=storage.PublicAccess.NONE,
            opts=self._child,
        )
        settings = storagecache.AmlFilesystemHsmSettingsArgs(
            container=container_id(account_id, source.container),
            # It waits for the container.
            logging_container=after(container_id(account_id, log_name), log),
            # An older name of the same setting, which the SDK would default to everything.
            import_prefix=f"/{source.prefix}",
            import_prefixes_initial=[f"/{source.prefix}"],
        )
        return storagecache.AmlFilesystemHsmArgs(settings=settings), [log, *self._grant_import(account_id)]

    def _grant_import(self, account_id: str) -> list[pulumi.CustomResource]:
        """The roles of "Blob integration prerequisites" and a wait, or "file system creation fails" for good."""
        args = self._args
        principal = args.get("importer_principal_id")
        if principal is None:
            raise InputError(
                "gangway:azure.importer_principal_id",
                "missing: Azure's own service principal has to be let into the account of source",
                allowed="the object id of HPC Cache Resource Provider in your directory",
                fix=f"copy it from `az ad sp show --id {IMPORTER_APP_ID} --query id`",
            )
        grantee = Grantee(self._name, "lustre", principal, args["subscription_id"], args["stack"], self._child)
        grants = [
            grantee.may("account", STORAGE_CONTRIBUTOR, account_id),
            grantee.may("blobs", BLOB_CONTRIBUTOR, account_id),
        ]
        wait_sec = args.get("role_wait_sec", 0)
        return heeded(f"{self._name}-lustre-heeded", "Managed Lustre", grants, wait_sec, self._child)

    def _export(self, file_system: storagecache.AmlFilesystem, source: str | None) -> None:
        """A continuous job. Azure runs one at a time; the import of names ends before the system exists."""
        if not source:
            raise InputError(
                "gangway:storage.export_runs",
                "there is no container to export to",
                allowed="export_runs with a source",
                fix="set source, or leave export_runs out: nodes put their records into the run bucket anyway",
            )
        storagecache.AutoExportJob(
            f"{self._name}-lustre-runs",
            **common_inputs(self._args),
            aml_filesystem_name=file_system.name,
            admin_status=storagecache.AutoExportJobAdminStatus.ENABLE,
            auto_export_prefixes=[EXPORT_PATH],
            opts=self._child,
        )


def _day(day: str) -> storagecache.MaintenanceDayOfWeekType:
    days = [each.value for each in storagecache.MaintenanceDayOfWeekType]
    if day not in days:
        place, fix = "gangway:storage.maintenance_day", f"set maintenance_day: {nearest(day, days) or MAINTENANCE_DAY}"
        raise InputError(place, "not a day of the week", value=day, allowed=", ".join(days), fix=fix)
    return storagecache.MaintenanceDayOfWeekType(day)


def _time(time: str) -> str:
    if not _TIME.fullmatch(time):
        place, fix = "gangway:storage.maintenance_time_utc", f"set maintenance_time_utc: {MAINTENANCE_TIME_UTC!r}"
        raise InputError(place, "not a time of the day", value=time, allowed="00:00 to 23:59, quoted", fix=fix)
    return time


def _address(info: outputs.AmlFilesystemClientInfoResponse | None) -> str:
    """Nothing is mounted in a plan, where no address is known."""
    return "" if info is None else info.mgs_address


def _identity(key: KeyArgs) -> storagecache.AmlFilesystemIdentityArgs:
    return storagecache.AmlFilesystemIdentityArgs(
        type=storagecache.AmlFilesystemIdentityType.USER_ASSIGNED, user_assigned_identities=[key["identity_id"]]
    )


def _encryption(key: KeyArgs) -> storagecache.AmlFilesystemEncryptionSettingsArgs:
    return storagecache.AmlFilesystemEncryptionSettingsArgs(
        key_encryption_key=storagecache.KeyVaultKeyReferenceArgs(
            key_url=key["key_url"],
            source_vault=storagecache.KeyVaultKeyReferenceSourceVaultArgs(id=key["vault_id"]),
        )
    )
