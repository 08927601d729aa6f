"""LustreFileSystem: what Azure is asked for, the container behind it, and who is let in."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.azure.file_system import LustreFileSystem
from gangway.components.azure.policies import BLOB_CONTRIBUTOR, STORAGE_CONTRIBUTOR
from gangway.components.core.findings import InputError

ACCOUNT = "/subscriptions/{}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mydata"


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {**place, "capacity_gib": 16384, "throughput_mbps_per_tib": 500, "subnet_id": "/subnet"}


@pytest.fixture
def linked(args: dict[str, Any]) -> dict[str, Any]:
    return {
        **args,
        "source": "az://mydata/images/celeba",
        "source_account_id": ACCOUNT.format(args["subscription_id"]),
        "importer_principal_id": "22222222-2222-2222-2222-222222222222",
        "export_runs": True,
    }


def test_the_file_system_alone(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(LustreFileSystem, args)
    assert arm_mistakes(made) == []
    system = made.one("AmlFilesystem").inputs
    assert system["sku"] == {"name": "AMLFS-Durable-Premium-500"}
    assert (system["storageCapacityTiB"], system["filesystemSubnet"], system["zones"]) == (16, "/subnet", ["1"])
    assert system["maintenanceWindow"] == {"dayOfWeek": "Sunday", "timeOfDayUTC": "03:00"}
    assert "hsm" not in system
    assert not made.of("RoleAssignment")
    assert "zones" not in make(LustreFileSystem, {**args, "zone": ""}).one("AmlFilesystem").inputs


def test_a_container_behind_it(
    make: Callable[..., Any], linked: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(LustreFileSystem, linked)
    assert arm_mistakes(made) == []
    account = linked["source_account_id"]
    system = made.one("AmlFilesystem")
    assert system.inputs["hsm"]["settings"] == {
        "container": f"{account}/blobServices/default/containers/images",
        "loggingContainer": f"{account}/blobServices/default/containers/demo-lustre-log",
        "importPrefix": "/celeba",
        "importPrefixesInitial": ["/celeba"],
    }
    log = made.one("BlobContainer")
    assert (log.inputs["accountName"], log.inputs["resourceGroupName"]) == ("mydata", "data")
    grants = made.of("RoleAssignment")
    assert {grant.inputs["roleDefinitionId"].rpartition("/")[2] for grant in grants} == {
        STORAGE_CONTRIBUTOR, BLOB_CONTRIBUTOR,
    }  # fmt: skip
    assert {grant.inputs["scope"] for grant in grants} == {account}
    assert {log.urn, *(grant.urn for grant in grants)} <= system.dependencies, "without them it fails"


def test_nothing_looks_into_the_container_before_azure_heeds_its_roles(
    make: Callable[..., Any], linked: dict[str, Any]
) -> None:
    """A file system that could not see its container stays, half made."""
    made = make(LustreFileSystem, {**linked, "role_wait_sec": 300})
    wait = made.one("Settling")
    assert (wait.inputs["what"], wait.inputs["seconds"]) == ("Azure heeds the roles of Managed Lustre", 300)
    assert {grant.urn for grant in made.of("RoleAssignment")} <= wait.dependencies
    assert wait.urn in made.one("AmlFilesystem").dependencies
    assert not make(LustreFileSystem, linked).of("Settling")


def test_the_log_of_imports_is_in_another_container(make: Callable[..., Any], linked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the container for the log of imports") as caught:
        make(LustreFileSystem, {**linked, "source": "az://mydata/demo-lustre-log/celeba"})
    assert (caught.value.place, caught.value.allowed) == (
        "gangway:storage.source", "any container but demo-lustre-log",
    )  # fmt: skip


def test_runs_go_back_into_it(make: Callable[..., Any], linked: dict[str, Any]) -> None:
    job = make(LustreFileSystem, linked).one("AutoExportJob").inputs
    assert (job["adminStatus"], job["autoExportPrefixes"]) == ("Enable", ["/runs"])
    assert job["amlFilesystemName"] == "${AmlFilesystem.demo-lustre.name}"
    assert not make(LustreFileSystem, {**linked, "export_runs": False}).of("AutoExportJob")


KEY = {
    "key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
    "identity_id": "/identity",
}  # fmt: skip


def test_a_key_of_ones_own(
    make: Callable[..., Any], args: dict[str, Any], arm_mistakes: Callable[[Any], list[str]]
) -> None:
    made = make(LustreFileSystem, {**args, "key": KEY})
    assert arm_mistakes(made) == []
    system = made.one("AmlFilesystem").inputs
    assert system["encryptionSettings"]["keyEncryptionKey"] == {
        "keyUrl": "https://v/keys/data/1", "sourceVault": {"id": "/vault"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"capacity_gib": 5000}, "storage.capacity_gib"),
        ({"efa": True}, "storage.efa"),
        ({"export_runs": True}, "storage.export_runs"),
        ({"maintenance_day": "Sonntag"}, "storage.maintenance_day"),
        ({"maintenance_time_utc": "24:00"}, "storage.maintenance_time_utc"),
        ({"source": "az://mydata/images"}, "azure.source_account_id"),
        (
            {"source": "az://mydata/images", "source_account_id": ACCOUNT.format("1" * 8 + "-" + "1" * 27)},
            "azure.source_account_id",
        ),
        (
            {
                "source": "az://mydata/images",
                "source_account_id": ACCOUNT.format("0" * 8 + "-0000" * 3 + "-" + "0" * 12),
            },
            "azure.importer_principal_id",
        ),
    ],
)
def test_what_cannot_be_is_said(
    make: Callable[..., Any], args: dict[str, Any], changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError) as caught:
        make(LustreFileSystem, {**args, **changes})
    assert caught.value.place == f"gangway:{where}"
    assert caught.value.fix
