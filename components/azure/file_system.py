"""LustreFileSystem: Azure Managed Lustre, where training data and running checkpoints are.

Which sizes and tiers there are is `components.azure.lustre`. A container of the user's can stand behind it: Azure makes
the names of its blobs appear when the file system is made and fetches each one at its first reading, and copies what
changes below EXPORT_PATH back while it trains, if wanted. For that Azure's own service principal, not ours, has to be
let into the account, which has to allow access by key (Azure Managed Lustre documentation, "Blob integration
prerequisites"): the run bucket, which knows no keys, cannot be that container. Not a backup.
"""

import re
from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import storage, storagecache
from pulumi_azure_native.storagecache import outputs

from components.azure.encryption import KeyArgs
from components.azure.grants import Grantee
from components.azure.lustre import LustrePlan, plan_lustre
from components.azure.policies import (
    BLOB_CONTRIBUTOR,
    STORAGE_CONTRIBUTOR,
    BlobSource,
    blob_source,
    container_id,
    import_log,
    importable,
)
from components.azure.settling import heeded
from components.choices import LustreDeployment
from components.findings import InputError, nearest
from components.order import after

__all__ = ["EXPORT_PATH", "IMPORTER_APP_ID", "LustreFileSystem", "LustreFileSystemArgs"]

IMPORTER_APP_ID = "4392ab71-2ce2-4b0d-8770-b352745c73f5"
"""The application "HPC Cache Resource Provider", the same in every tenant; its object id is another in each."""
EXPORT_PATH = "/runs"
# The only file system of a Managed Lustre server.
MOUNT_NAME = "lustrefs"
MAINTENANCE_DAY, MAINTENANCE_TIME_UTC = "Sunday", "03:00"
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


class LustreFileSystemArgs(TypedDict):
    """Inputs of LustreFileSystem.

    `subnet_id` is the network's `lustre_subnet_id`. `source` is the `az://account/container/prefix` behind the file
    system, `source_account_id` the resource id of its account and `importer_principal_id` the object id of Azure's
    service principal in this tenant (`az ad sp show --id IMPORTER_APP_ID --query id`), which gets its roles on the
    account: whoever runs `up` must be allowed to. `role_wait_sec` (0) is how long Azure gets to heed these, before it
    looks into the container: from Python programs alone (`components.azure.settling`). `export_runs` copies what is
    below EXPORT_PATH into that container. `deployment`, `efa` and `metadata_iops` are FSx's: here only to be refused.
    Azure maintains the servers every two months or so, at `maintenance_time_utc` (03:00) on `maintenance_day` (Sunday).
    A key has to stay as it is.
    """

    subscription_id: str
    resource_group_name: pulumi.Input[str]
    location: str
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
    tags: dict[str, str]


class LustreFileSystem(pulumi.ComponentResource):
    """A Managed Lustre file system in the nodes' zone.

    Attributes:
        file_system_id: resource id.
        mount_point: what clients mount: `IP@tcp:/NAME`.
        dns_name: the IP address in it; there is no DNS name.
        mount_name: NAME.
        data_path: where the blobs of `source` appear below the mount: their own path in the container.
    """

    file_system_id: pulumi.Output[str]
    mount_point: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]
    data_path: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:LustreFileSystem", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        plan = plan_lustre(
            args["capacity_gib"],
            args.get("throughput_mbps_per_tib"),
            deployment=args.get("deployment", LustreDeployment.PERSISTENT),
            efa=args.get("efa", False),
            metadata_iops=args.get("metadata_iops"),
        )
        url = args.get("source")
        source = blob_source(url) if url else None
        hsm, before = self._behind(source) if source else (None, [])
        file_system = self._file_system(plan, hsm, before)
        if args.get("export_runs", False):
            self._export(file_system, url)
        self.file_system_id = file_system.id
        self.dns_name = file_system.client_info.apply(_address)
        self.mount_name = pulumi.Output.from_input(MOUNT_NAME)
        self.mount_point = pulumi.Output.concat(self.dns_name, "@tcp:/", MOUNT_NAME)
        self.data_path = pulumi.Output.from_input(f"/{source.prefix}" if source else "/")
        self.register_outputs(
            {
                "file_system_id": self.file_system_id,
                "mount_point": self.mount_point,
                "dns_name": self.dns_name,
                "mount_name": self.mount_name,
                "data_path": self.data_path,
            }
        )

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
            resource_group_name=args["resource_group_name"],
            location=args["location"],
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
            tags=args["tags"],
            # One subnet holds one file system: the old one has to go first.
            opts=pulumi.ResourceOptions.merge(
                self._child, pulumi.ResourceOptions(depends_on=before, delete_before_replace=True)
            ),
        )

    def _behind(self, source: BlobSource) -> tuple[storagecache.AmlFilesystemHsmArgs, list[pulumi.Resource]]:
        """The container behind the file system, and what has to stand before Azure looks into it."""
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
            # The older word for the same thing, which the SDK would set to everything.
            import_prefix=f"/{source.prefix}",
            import_prefixes_initial=[f"/{source.prefix}"],
        )
        return storagecache.AmlFilesystemHsmArgs(settings=settings), [log, *self._let_in(account_id)]

    def _let_in(self, account_id: str) -> list[pulumi.CustomResource]:
        """The roles that Azure's documentation asks for, on the account, and the wait until Azure heeds them.

        Without access to the container "file system creation fails", and what failed so is no file system that another
        `up` could mend ("Blob integration prerequisites").
        """
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
        """A job that goes on. Azure runs one at a time, and the import of the names is over when the system stands."""
        if not source:
            raise InputError(
                "gangway:storage.export_runs",
                "there is no container to export to",
                allowed="export_runs with a source",
                fix="set source, or leave export_runs out: nodes put their records into the run bucket anyway",
            )
        storagecache.AutoExportJob(
            f"{self._name}-lustre-runs",
            resource_group_name=self._args["resource_group_name"],
            location=self._args["location"],
            aml_filesystem_name=file_system.name,
            admin_status=storagecache.AutoExportJobAdminStatus.ENABLE,
            auto_export_prefixes=[EXPORT_PATH],
            tags=self._args["tags"],
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
