"""The section gangway:azure, and the common settings on Azure."""

import re
from shlex import quote
from typing import Annotated

from pydantic import Field, StrictBool

from gangway.components.core.blob_url import read_blob_url
from gangway.components.core.fields import Whole
from gangway.stacks.config.provider_settings import Account, ImageForm, ObjectStore, OwnSection, ProviderSettings
from gangway.stacks.config.section import Section
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing_settings import PLACE, RESOURCE, ExistingConfig

_GUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_GUID_EXAMPLES = [f"{digit * 8}-0000-0000-0000-{digit * 12}" for digit in "123"]
_RESOURCE_EXAMPLE = f"/subscriptions/{_GUID_EXAMPLES[0]}/resourceGroups/my-group/providers"
_IMAGE = "microsoft-dsvm:ubuntu-hpc:2404:latest"


def _upload_command(folder: str, url: str) -> str:
    place = read_blob_url(url)
    path = f" --destination-path {quote(place.prefix)}" if place.prefix else ""
    return (
        f"az storage blob upload-batch --auth-mode login --account-name {place.account} "
        f"--destination {place.container}{path} --source {quote(folder)}"
    )


class AzureConfig(Section):
    """Settings of a stack on Azure.

    Attributes:
        subscription_id: subscription of all resources.
        tenant_id: Entra ID directory that the stack's key vault trusts; with encryption: customer-key.
        budget_starts_on: first day of the month in which the budget begins, in quotes; if omitted, the month of the
            `up` that creates it.
        source_account_id: resource id of the storage account of `storage.source`.
        importer_principal_id: object id, in this directory, of the service principal "HPC Cache Resource Provider",
            with which Managed Lustre reads that account.
        registry_id: resource id of the registry of `image.prebuilt` or of the image beside `job.command`.
        role_wait_sec: how long `up` waits for a role assignment to take effect.
        network_watcher: resource id, or GROUP/NAME, of the network watcher that writes the flow log; Azure's default of
            the region if omitted.
        trusted_launch: whether machines start with a virtual TPM, and with Secure Boot if their image allows it.
        secure_boot: whether nodes load signed kernel modules only; if omitted, only where their image should have no
            others.
        encryption_at_host: whether to encrypt caches and local disks of machines.
        proximity: whether to keep nodes without InfiniBand in one data centre.
        private_endpoints: whether machines reach the run account, the registry (then Premium) and the vault of the
            member key at private addresses.
        head_image: image of the head node, with Docker and, with a file system, the Lustre client; if omitted, the
            newest Ubuntu 24.04, on which both are installed.
        bastion: whether to allow logins through Azure Bastion, by SSH with Entra ID accounts.
        admin_group_ids: object ids of the directory groups that administer the Kubernetes cluster.
        existing: resources that the stack uses instead of creating them.
    """

    subscription_id: str = Field(
        pattern=_GUID,
        examples=[_GUID_EXAMPLES[0]],
        json_schema_extra={"value_source": "`az account show --query id --output tsv`"},
    )
    tenant_id: str | None = Field(
        default=None,
        pattern=_GUID,
        examples=[_GUID_EXAMPLES[1]],
        json_schema_extra={"value_source": "`az account show --query tenantId --output tsv`"},
    )
    budget_starts_on: str | None = Field(default=None, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2026-01-01"])
    source_account_id: str | None = Field(
        default=None,
        pattern=RESOURCE + r"Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.Storage/storageAccounts/myaccount"],
    )
    importer_principal_id: str | None = Field(default=None, pattern=_GUID, examples=[_GUID_EXAMPLES[2]])
    registry_id: str | None = Field(
        default=None,
        pattern=RESOURCE + r"Microsoft\.ContainerRegistry/registries/[A-Za-z0-9]{5,50}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.ContainerRegistry/registries/myregistry"],
    )
    role_wait_sec: Whole = Field(default=300, ge=0, le=900)
    network_watcher: str | None = Field(default=None, min_length=3, examples=["NetworkWatcherRG/NetworkWatcher_eastus"])
    trusted_launch: StrictBool = True
    secure_boot: StrictBool | None = None
    encryption_at_host: StrictBool = True
    proximity: StrictBool = False
    private_endpoints: StrictBool = False
    head_image: str | None = Field(
        default=None, min_length=1, examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.Compute/images/head"]
    )
    bastion: StrictBool = False
    admin_group_ids: tuple[Annotated[str, Field(pattern=_GUID)], ...] = Field(
        default=(), max_length=20, examples=[[_GUID_EXAMPLES[2]]]
    )
    existing: ExistingConfig = Field(
        default=ExistingConfig(),
        examples=[{"registry_id": f"{_RESOURCE_EXAMPLE}/Microsoft.ContainerRegistry/registries/myregistry"}],
    )


SETTINGS = ProviderSettings(
    own=OwnSection(
        "azure",
        AzureConfig,
        holds="subscription_id",
        example="{subscription_id: 11111111-0000-0000-0000-111111111111}",
    ),
    examples={
        "region": "eastus",
        "cluster": {"accelerator": "H100x8", "nodes": {"min": 2, "max": 4}, "capacity": [{"kind": "on-demand"}]},
        "cluster.accelerator": "H100x8",
        "cluster.machine_type": "Standard_ND96isr_H100_v5",
        "cluster.capacity": [{"kind": "spot"}, {"kind": "on-demand"}],
        "cluster.zone": "1",
        "cluster.image_id": _IMAGE,
        "storage": {"kind": "lustre", "capacity_gib": 8192, "throughput_mbps_per_tib": 500},
        "storage.source": "az://myaccount/images/celeba",
        "image.prebuilt": f"myregistry.azurecr.io/gan/trainer@sha256:{'0123456789abcdef' * 4}",
        "head.machine_type": "Standard_D2s_v5",
    },
    unsupported={
        "network.dns_firewall": "stacks on Azure have no DNS firewall",
        "storage.efa_setup_sha256": "only AWS has EFA",
    },
    lacking={
        "cluster.root_device_name": "Azure detects an image's boot disk",
        "budget.activate_tag": "Azure's tags count from the day they are set and need no activation",
    },
    image=ImageForm(
        re.compile(r"/(subscriptions|communitygalleries|sharedgalleries)/.+|[^/:]+(:[^/:]+){2,3}", re.IGNORECASE),
        _IMAGE,
    ),
    # An Azure storage account is not a bucket.
    store=ObjectStore("az", "az://account/container/folder", _upload_command, keeps_name=False),
    storage_kinds=("lustre",),
    queues=("kubernetes",),
    runs_commands=True,
    joins_commands=True,
    account=Account(
        "azure-native",
        "Azure",
        "location",
        "name the subscription in gangway:azure, and the account by `az login` or ARM_CLIENT_ID and its like",
    ),
)


def get_existing(config: StackConfig) -> ExistingConfig:
    """The resources that the stack only uses; none by default."""
    return config.section(AzureConfig).existing


def provided(config: StackConfig) -> dict[str, str]:
    """Config path -> id of each of them."""
    return {f"{PLACE}.{key}": id_ for key, id_ in get_existing(config).ids.items()}
