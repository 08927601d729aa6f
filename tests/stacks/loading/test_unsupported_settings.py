"""Settings of one provider in another's stack file: each is told at the door with its place and its fix."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import stack_model
from gangway.stacks.loading.unsupported_settings import provider_mistakes

GPU, TPU = "gcp-a3-spot", "gcp-v5p-multislice"
DEV, V4, V5 = "azure-nc-dev", "azure-ndv4", "azure-ndv5-spot"
GcpEdited = Callable[..., StackConfig]
Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def told(error: pytest.ExceptionInfo[ExceptionGroup[Any]]) -> dict[str, InputError]:
    """The mistakes by their config paths; each names its file too."""
    mistakes = [mistake for mistake in error.value.exceptions if isinstance(mistake, InputError)]
    assert all(".yaml: gangway:" in mistake.place for mistake in mistakes)
    return {mistake.place.rpartition(": ")[2]: mistake for mistake in mistakes}


ON_GCP: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no project": (GPU, {"gcp": None}, "gangway:gcp", "add gangway:gcp: {project: my-project, billing_account: "),
    "an empty section": (GPU, {"gcp": {"project": None, "billing_account": None}}, "gangway:gcp", "add gangway:gcp: "),
    "an AMI": (
        GPU, {"cluster": {"image_id": "ami-0123456789abcdef0"}}, "gangway:cluster.image_id",
        "write image_id: projects/my-project/global/images/my-image",
    ),
    "a topology of GPUs": (
        GPU, {"cluster": {"topology": "4x4x4"}}, "gangway:cluster.topology", "leave topology out",
    ),
    "data in S3": (
        GPU, {"storage": {"source": "s3://my-bucket/digits"}}, "gangway:storage.source", "gs://my-bucket/digits",
    ),
    "a tag to activate": (
        GPU, {"budget": {"activate_tag": True}}, "gangway:budget.activate_tag", "leave activate_tag out",
    ),
    "a firewall for names": (
        GPU, {"network": {"dns_firewall": False}}, "gangway:network.dns_firewall", "leave dns_firewall out",
    ),
    "a root device": (
        GPU,
        {"cluster": {"image_id": "projects/p/global/images/i", "root_device_name": "/dev/xvda"}},
        "gangway:cluster.root_device_name", "leave root_device_name out",
    ),
    "a tier of Lustre": (GPU, {"storage": {"tier": "zonal"}}, "gangway:storage.tier", "leave tier out"),
    "throughput of Filestore": (
        TPU, {"storage": {"kind": "filestore"}}, "gangway:storage.throughput_mbps_per_tib",
        "leave throughput_mbps_per_tib out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ON_GCP)
def test_what_google_cloud_does_not_have(gcp_edited: GcpEdited, what: str) -> None:
    name, changes, place, fix = ON_GCP[what]
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(name, **changes)
    mistakes = told(caught)
    assert list(mistakes) == [place]
    assert fix in mistakes[place].fix


ON_AZURE: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no subscription": (DEV, {"azure": None}, "gangway:azure", "add gangway:azure: {subscription_id: "),
    "a subscription by its name": (
        DEV, {"azure": {"subscription_id": "Production"}}, "gangway:azure.subscription_id",
        "write the output of `az account show --query id --output tsv`",
    ),
    "a subscription in capitals": (
        DEV, {"azure": {"subscription_id": "AAAAAAAA-0000-0000-0000-111111111111"}}, "gangway:azure.subscription_id",
        "write subscription_id: ",
    ),
    "a day in words": (
        DEV, {"azure": {"budget_starts_on": "November"}}, "gangway:azure.budget_starts_on", "'2026-01-01'",
    ),
    "no directory beside a key": (
        DEV, {"encryption": "customer-key"}, "gangway:azure.tenant_id", "az account show --query tenantId",
    ),
    "no account of the data": (
        V5, {"azure": {"source_account_id": None}}, "gangway:azure.source_account_id", "az storage account show",
    ),
    "nobody who imports": (
        V5, {"azure": {"importer_principal_id": None}}, "gangway:azure.importer_principal_id",
        "az ad sp show --id 4392ab71-2ce2-4b0d-8770-b352745c73f5",
    ),
    "an account of no data": (
        V4, {"azure": {"importer_principal_id": "33333333-0000-0000-0000-333333333333"}},
        "gangway:azure.importer_principal_id", "or add storage.source",
    ),
    "a directory of no key": (
        V4, {"azure": {"tenant_id": "22222222-0000-0000-0000-222222222222"}}, "gangway:azure.tenant_id",
        "or add encryption: customer-key",
    ),
    "a watcher of no log": (
        V4, {"azure": {"network_watcher": "net-hub/nw-eastus"}, "network": {"flow_logs": False}},
        "gangway:azure.network_watcher", "or add network.flow_logs",
    ),
    "a firewall for names": (
        V4, {"network": {"dns_firewall": False}}, "gangway:network.dns_firewall", "leave dns_firewall out",
    ),
    "a registry of no image": (
        V4,
        {"azure": {"registry_id": "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/g/providers"
                   "/Microsoft.ContainerRegistry/registries/ourimages"}},
        "gangway:azure.registry_id", "or add image.prebuilt",
    ),
    "an AMI": (
        V4, {"cluster": {"image_id": "ami-0123456789abcdef0"}}, "gangway:cluster.image_id",
        "write image_id: microsoft-dsvm:ubuntu-hpc:2404:latest",
    ),
    "a topology": (V4, {"cluster": {"topology": "4x4x4"}}, "gangway:cluster.topology", "leave topology out"),
    "data in S3": (
        V4, {"storage": {"source": "s3://my-bucket/digits"}, "azure": {
            "source_account_id": "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/data/providers"
            "/Microsoft.Storage/storageAccounts/myaccount",
            "importer_principal_id": "33333333-0000-0000-0000-333333333333",
        }},
        "gangway:storage.source", "write source: az://account/container/folder",
    ),
    "a filestore": (
        V4, {"storage": {"kind": "filestore", "throughput_mbps_per_tib": None}}, "gangway:storage.kind",
        "set kind: lustre",
    ),
    "a tier": (V4, {"storage": {"tier": "zonal"}}, "gangway:storage.tier", "leave tier out"),
    "a tag to activate": (
        V4, {"budget": {"activate_tag": True}}, "gangway:budget.activate_tag", "leave activate_tag out",
    ),
    "a root device": (
        V4, {"cluster": {"image_id": "a:b:c:latest", "root_device_name": "/dev/sda1"}},
        "gangway:cluster.root_device_name", "leave root_device_name out",
    ),
    "a project": (
        V4, {"gcp": {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"}}, "gangway:gcp",
        "or set provider: gcp",
    ),
    "a number for a zone": (V4, {"cluster": {"zone": 1}}, "gangway:cluster.zone", "put it in quotes: zone: "),
    "a misspelt rung": (
        V4, {"cluster": {"capacity": [{"kind": "spt"}]}}, "gangway:cluster.capacity[0].kind", "did you mean 'spot'?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ON_AZURE)
def test_what_azure_does_not_have(azure_edited: GcpEdited, what: str) -> None:
    name, changes, place, fix = ON_AZURE[what]
    with pytest.raises(ExceptionGroup) as caught:
        azure_edited(name, **changes)
    mistakes = told(caught)
    assert list(mistakes) == [place]
    assert fix in mistakes[place].fix


@pytest.mark.parametrize(
    "image",
    [
        "microsoft-dsvm:ubuntu-hpc:2404",
        "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026010101",
        "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/my_(group)/providers/Microsoft.Compute"
        "/galleries/ours/images/hpc/versions/1.0.0",
        "/CommunityGalleries/ours-1a2b/Images/hpc/Versions/latest",
    ],
)
def test_images_of_azure(azure_edited: GcpEdited, image: str) -> None:
    assert azure_edited(V4, cluster={"image_id": image}).cluster.image_id == image


ON_AWS: dict[str, tuple[str, Any, str]] = {
    "gangway:gcp": (
        "gangway:gcp", {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"}, "or set provider: gcp",
    ),
    "gangway:storage.source": ("gangway:storage", {"source": "gs://my-bucket/x"}, "write source: s3://my-bucket/x"),
    "gangway:azure": (
        "gangway:azure",
        {"subscription_id": "11111111-0000-0000-0000-111111111111", "budget_starts_on": "2026-01-01"},
        "or set provider: azure",
    ),
    "gangway:storage.kind": ("gangway:storage", {"kind": "filestore"}, "set kind: lustre"),
    "gangway:cluster.topology": ("gangway:cluster", {"topology": "4x4x4"}, "leave topology out"),
    "gangway:cluster.image_id": (
        "gangway:cluster", {"image_id": "projects/p/global/images/i"}, "write image_id: ami-0123456789abcdef0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", ON_AWS)
def test_what_aws_does_not_have(edited: Edited, place: str) -> None:
    section, changes, fix = ON_AWS[place]
    with pytest.raises(ExceptionGroup) as caught:
        edited(lambda values: values.setdefault(section, {}).update(changes))
    mistakes = told(caught)
    assert fix in mistakes[place].fix


def test_a_key_of_another_section_names_that_section(gcp_edited: GcpEdited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, gcp={"zone": "us-central1-a", "kimg": 3})
    assert {place: mistake.fix for place, mistake in told(caught).items()} == {
        "gangway:gcp.zone": "write it in gangway:cluster",
        "gangway:gcp.kimg": "write it in gangway:job",
    }


def test_every_mistake_is_told_at_once(gcp_edited: GcpEdited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, gcp=None, budget={"activate_tag": True}, storage={"source": "s3://my-bucket/x"})
    assert set(told(caught)) == {"gangway:gcp", "gangway:budget.activate_tag", "gangway:storage.source"}


EXAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "a bucket that is none": ({"storage": {"source": "gs://b"}}, "gs://my-bucket/celeba"),
    "no region": ({"region": None}, "region: us-central1"),
    "no capacity": ({"cluster": {"capacity": []}}, "capacity: [{kind: spot}, {kind: on-demand}]"),
    "a number for a zone": ({"cluster": {"zone": ["a"]}}, "zone: us-central1-a"),
    "no name of an image": ({"cluster": {"image_id": "my-image"}}, "projects/my-project/global/images/my-image"),
}  # fmt: skip


@pytest.mark.parametrize("what", EXAMPLES)
def test_an_example_is_the_providers_own(gcp_edited: GcpEdited, what: str) -> None:
    changes, example = EXAMPLES[what]
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, **changes)
    (mistake,) = told(caught).values()
    assert example in mistake.fix


@pytest.mark.parametrize(("provider", "name"), [("gcp", TPU), ("azure", V4)])
def test_examples_of_a_provider_stand_beside_each_other_in_a_stack(
    gcp_edited: GcpEdited, provider: str, name: str
) -> None:
    """Who follows the fixes one by one ends with a file that is accepted."""
    examples = get_provider(provider).settings.examples
    assert len(examples) >= 10
    config = gcp_edited(name).model_dump()
    followed = {**config, **{section: examples[section] for section in ("region", "cluster", "storage")}}
    assert provider_mistakes(stack_model().model_validate(followed), "x.yaml") == []
