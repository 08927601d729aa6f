"""The sections of a stack file that only one provider reads: whose account, and what is told nowhere else.

The sections that all of them read are `stacks.sections`; which of these a provider wants, `stacks.providers.settings`
says.
"""

from pydantic import Field

from components.fields import PositiveNumber
from stacks.sections import Section

__all__ = ["AzureConfig", "GcpConfig"]

_GUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_RESOURCE = r"^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]{1,90}/providers/"
_GUID_EXAMPLES = [f"{digit * 8}-0000-0000-0000-{digit * 12}" for digit in "123"]
_RESOURCE_EXAMPLE = f"/subscriptions/{_GUID_EXAMPLES[0]}/resourceGroups/my-group/providers"


class GcpConfig(Section):
    """What a stack on Google Cloud says besides.

    Attributes:
        project: id of the project that everything is made in.
        billing_account: whose budget counts; whoever runs `up` is its Costs Manager.
        currency: of the billing account, where it is not kept in dollars: Google takes a budget in no other.
        monthly_amount: the budget in `currency`; the plan goes on comparing `monthly_usd` with its prices.
        tpu_api_url: where the TPU API answers, such as a Private Service Connect endpoint; Google's own when left out.
    """

    project: str = Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$", examples=["my-project"])
    billing_account: str = Field(pattern=r"^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", examples=["012345-6789AB-CDEF01"])
    currency: str | None = Field(default=None, pattern=r"^[A-Z]{3}$", examples=["EUR"])
    monthly_amount: PositiveNumber | None = None
    tpu_api_url: str | None = Field(
        default=None, pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?/?$", examples=["https://tpu-lab.p.googleapis.com"]
    )


class AzureConfig(Section):
    """What a stack on Azure says besides.

    Attributes:
        subscription_id: that everything is made in and billed to.
        tenant_id: the directory, whose identities a vault of the stack trusts; with encryption: customer-key.
        budget_starts_on: the first of the month in which the budget begins, in quotes. Pinned, for a computed day would
            change the stack each month.
        source_account_id: resource id of the storage account that `storage.source` is in.
        importer_principal_id: object id, in this directory, of the service principal by which Managed Lustre fetches
            what is in there: "HPC Cache Resource Provider".
        registry_id: resource id of the registry that `image.prebuilt` is in: an image's name does not say where its
            registry is.
    """

    subscription_id: str = Field(pattern=_GUID, examples=[_GUID_EXAMPLES[0]])
    tenant_id: str | None = Field(default=None, pattern=_GUID, examples=[_GUID_EXAMPLES[1]])
    budget_starts_on: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2026-01-01"])
    source_account_id: str | None = Field(
        default=None,
        pattern=_RESOURCE + r"Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.Storage/storageAccounts/myaccount"],
    )
    importer_principal_id: str | None = Field(default=None, pattern=_GUID, examples=[_GUID_EXAMPLES[2]])
    registry_id: str | None = Field(
        default=None,
        pattern=_RESOURCE + r"Microsoft\.ContainerRegistry/registries/[A-Za-z0-9]{5,50}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.ContainerRegistry/registries/myregistry"],
    )
