"""LustreFileSystem: what Azure is asked for, the container behind it, and who is let in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.file_system import LustreFileSystem, plan_lustre
from gangway.components.azure.policies import BLOB_CONTRIBUTOR, STORAGE_CONTRIBUTOR
from gangway.components.catalog.loader import load_amlfs_subnets, load_amlfs_tiers
from gangway.components.core.fields import LustreDeployment
from gangway.components.core.findings import InputError
from gangway.components.estimate.storage_sizes import GIB_PER_TIB
from tests.components.fixture_types import Make, Mistakes

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


def test_the_file_system_alone(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(LustreFileSystem, args)
    assert arm_mistakes(made) == []
    system = made.one("AmlFilesystem").inputs
    assert system["sku"] == {"name": "AMLFS-Durable-Premium-500"}
    assert (system["storageCapacityTiB"], system["filesystemSubnet"], system["zones"]) == (16, "/subnet", ["1"])
    assert system["maintenanceWindow"] == {"dayOfWeek": "Sunday", "timeOfDayUTC": "03:00"}
    assert "hsm" not in system
    assert not made.of("RoleAssignment")
    assert "zones" not in make(LustreFileSystem, {**args, "zone": ""}).one("AmlFilesystem").inputs


def test_a_container_behind_it(make: Make, linked: dict[str, Any], arm_mistakes: Mistakes) -> None:
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


def test_nothing_looks_into_the_container_before_azure_heeds_its_roles(make: Make, linked: dict[str, Any]) -> None:
    """A file system that could not see its container stays, half made."""
    made = make(LustreFileSystem, {**linked, "role_wait_sec": 300})
    wait = made.one("Settling")
    assert (wait.inputs["what"], wait.inputs["seconds"]) == ("Azure heeds the roles of Managed Lustre", 300)
    assert {grant.urn for grant in made.of("RoleAssignment")} <= wait.dependencies
    assert wait.urn in made.one("AmlFilesystem").dependencies
    assert not make(LustreFileSystem, linked).of("Settling")


def test_the_log_of_imports_is_in_another_container(make: Make, linked: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the container for the log of imports") as caught:
        make(LustreFileSystem, {**linked, "source": "az://mydata/demo-lustre-log/celeba"})
    assert (caught.value.place, caught.value.allowed) == (
        "gangway:storage.source", "any container but demo-lustre-log",
    )  # fmt: skip


def test_runs_go_back_into_it(make: Make, linked: dict[str, Any]) -> None:
    job = make(LustreFileSystem, linked).one("AutoExportJob").inputs
    assert (job["adminStatus"], job["autoExportPrefixes"]) == ("Enable", ["/runs"])
    assert job["amlFilesystemName"] == "${AmlFilesystem.demo-lustre.name}"
    assert not make(LustreFileSystem, {**linked, "export_runs": False}).of("AutoExportJob")


KEY = {
    "key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
    "identity_id": "/identity",
}  # fmt: skip


def test_a_key_of_ones_own(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
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
def test_what_cannot_be_is_said(make: Make, args: dict[str, Any], changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        make(LustreFileSystem, {**args, **changes})
    assert caught.value.place == f"gangway:{where}"
    assert caught.value.fix


TIERS = sorted(load_amlfs_tiers())


@pytest.mark.parametrize(
    ("tib", "tier", "sku", "prefix"),
    [
        (4, 500, "AMLFS-Durable-Premium-500", 27),
        (16, 125, "AMLFS-Durable-Premium-125", 27),
        (24, 250, "AMLFS-Durable-Premium-250", 26),
        (40, 500, "AMLFS-Durable-Premium-500", 26),
        (48, 40, "AMLFS-Durable-Premium-40", 25),
        (128, 250, "AMLFS-Durable-Premium-250", 24),
        (384, 40, "AMLFS-Durable-Premium-40", 23),
    ],
)
def test_a_file_system_and_its_subnet(tib: int, tier: int, sku: str, prefix: int) -> None:
    planned = plan_lustre(tib * GIB_PER_TIB, tier)
    assert (planned.sku, planned.capacity_tib, planned.subnet_prefix_length) == (sku, tib, prefix)
    assert (planned.capacity_gib, planned.throughput_mbps_per_tib) == (tib * GIB_PER_TIB, tier)


@pytest.mark.parametrize(
    ("size", "tier", "nearest", "fix"),
    [
        (1200, 500, "4096 (4 TiB)", 4096),
        (9600, 500, "8192 (8 TiB) and 12288 (12 TiB)", 8192),
        (10240, 500, "8192 (8 TiB) and 12288 (12 TiB)", 12288),
        (16385, 125, "16384 (16 TiB) and 32768 (32 TiB)", 16384),
        (200_000, 250, "131072 (128 TiB)", 131072),
        (442_368, 40, "393216 (384 TiB)", 393216),
    ],
)
def test_a_wrong_size_names_those_around_it(size: int, tier: int, nearest: str, fix: int) -> None:
    with pytest.raises(InputError, match=f"not a size Azure Managed Lustre offers at {tier} MB/s per TiB") as caught:
        plan_lustre(size, tier)
    assert (caught.value.place, caught.value.value) == ("gangway:storage.capacity_gib", size)
    assert caught.value.allowed.endswith(f"nearest: {nearest}")
    assert caught.value.fix.partition(" (")[0] == f"set capacity_gib: {fix}"


@given(st.sampled_from(TIERS), st.integers(1, 2_000_000))
def test_the_fix_is_always_a_size_that_is_taken(tier: int, size: int) -> None:
    try:
        planned = plan_lustre(size, tier)
    except InputError as error:
        fix = int(error.fix.partition(" (")[0].rpartition(" ")[2])
        planned = plan_lustre(fix, tier)
        step = load_amlfs_tiers()[tier].step_tib.value * GIB_PER_TIB
        assert fix != size
        assert abs(fix - size) <= step or fix == step or size > fix, "nothing nearer was passed over"
    else:
        assert planned.capacity_gib == size
    assert planned.throughput_mbps_per_tib == tier
    assert planned.capacity_tib <= load_amlfs_tiers()[tier].largest_tib.value


@given(st.sampled_from(TIERS), st.integers(1, 100), st.integers(1, 100))
def test_a_larger_file_system_never_fits_a_smaller_subnet(tier: int, first: int, second: int) -> None:
    row = load_amlfs_tiers()[tier]
    most = plan_lustre(_largest(tier), tier).capacity_tib // row.step_tib.value
    small, large = sorted(min(count, most) * row.step_tib.value * GIB_PER_TIB for count in (first, second))
    assert plan_lustre(small, tier).subnet_prefix_length >= plan_lustre(large, tier).subnet_prefix_length


def _largest(tier: int) -> int:
    with pytest.raises(InputError) as caught:
        plan_lustre(10**9, tier)
    return int(caught.value.fix.partition(" (")[0].rpartition(" ")[2])


@pytest.mark.parametrize(("tier", "nearest"), [(None, 40), (100, 125), (1000, 500), (200, 250), (50, 40)])
def test_a_wrong_tier_names_the_nearest(tier: int | None, nearest: int) -> None:
    with pytest.raises(InputError, match="not a throughput tier of Azure Managed Lustre") as caught:
        plan_lustre(16384, tier, "here")
    assert (caught.value.place, caught.value.fix) == (
        "here.throughput_mbps_per_tib",
        f"set throughput_mbps_per_tib: {nearest}",
    )
    assert caught.value.allowed == "40, 125, 250, 500"


@pytest.mark.parametrize(
    ("setting", "value"), [("deployment", LustreDeployment.SCRATCH), ("efa", True), ("metadata_iops", 12000)]
)
def test_what_only_fsx_has_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(InputError, match="not a setting of Azure Managed Lustre") as caught:
        plan_lustre(16384, 500, "here", **{setting: value})  # type: ignore[arg-type]  # one of them
    assert (caught.value.place, caught.value.fix) == (f"here.{setting}", f"leave {setting} out")
    assert "<" not in str(caught.value), "a value as it is written, no object of ours"


def test_where_a_tier_ends_is_said_and_why() -> None:
    with pytest.raises(InputError) as caught:
        plan_lustre(491520, 40)
    assert "up to 393216 (the tier goes on to 768 TiB, for which Azure documents no size of subnet)" in (
        caught.value.allowed
    )
    with pytest.raises(InputError) as caught:
        plan_lustre(491520, 500)
    assert "up to 131072 (Microsoft's support makes larger ones)" in caught.value.allowed


def test_subnets_are_listed_from_the_smallest_file_system_on() -> None:
    rules = load_amlfs_subnets()
    assert [rule.up_to_tib for rule in rules] == [16, 40, 92, 196, 400]
    assert [rule.prefix_length.value for rule in rules] == [27, 26, 25, 24, 23]
