"""The nearest size of a provider's file system is one that its planner takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.storage import plan_lustre as plan_fsx
from gangway.components.azure.file_system import plan_lustre as plan_amlfs
from gangway.components.core.fields import LustreDeployment
from gangway.components.estimate.storage_sizes import nearest_size
from gangway.components.gcp.storage import plan_filestore
from gangway.components.gcp.storage import plan_lustre as plan_managed

WANTED = st.integers(1, 3_000_000)


@given(WANTED, st.sampled_from([125, 250, 500, 1000]), st.booleans())
def test_on_aws(wanted: int, tier: int, efa: bool) -> None:
    size = nearest_size("aws", {"kind": "lustre", "throughput_mbps_per_tib": tier, "efa": efa}, wanted)
    assert plan_fsx(size, tier, efa=efa).capacity_gib == size
    scratch = nearest_size("aws", {"kind": "lustre", "deployment": "scratch"}, wanted)
    assert plan_fsx(scratch, None, deployment=LustreDeployment.SCRATCH).capacity_gib == scratch


@given(WANTED, st.sampled_from([125, 250, 500, 1000]), st.sampled_from(["basic-hdd", "basic-ssd", "zonal"]))
def test_on_google_cloud(wanted: int, tier: int, name: str) -> None:
    size = nearest_size("gcp", {"kind": "lustre", "throughput_mbps_per_tib": tier}, wanted)
    assert plan_managed(size, tier, stack="demo").capacity_gib == size
    share = nearest_size("gcp", {"kind": "filestore", "tier": name}, wanted)
    assert plan_filestore(share, name).capacity_gib == share


@given(WANTED, st.sampled_from([40, 125, 250, 500]))
def test_on_azure(wanted: int, tier: int) -> None:
    size = nearest_size("azure", {"kind": "lustre", "throughput_mbps_per_tib": tier}, wanted)
    assert plan_amlfs(size, tier).capacity_gib == size


@pytest.mark.parametrize(
    ("provider", "storage"),
    [("aws", {"kind": "lustre"}), ("openstack", {"kind": "manila"}), ("gcp", {"kind": "filestore", "tier": "gold"})],
)
def test_what_is_not_listed_stays(provider: str, storage: dict[str, object]) -> None:
    assert nearest_size(provider, storage, 9830) == 9830
