"""The run container, and the share in its three ways."""

from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.openstack.storage import ManilaShare, RunBucket, check_share, export_path
from tests.components.fixture_types import Make


def test_the_run_container_is_private_and_kept(make: Make, tags: dict[str, str]) -> None:
    container = make(RunBucket, {"tags": tags}).one("Container")
    assert container.inputs["metadata"] == {"team": "ml", "gangway-stack": "demo", "cost-center": "4711"}
    assert container.inputs["forceDestroy"] is False
    assert not {"containerRead", "containerWrite"} & set(container.inputs)


def share(**changes: Any) -> dict[str, Any]:
    return {"capacity_gib": 1024, "protocol": "NFS", "zone": "", "clients": "203.0.113.4", "tags": {}, **changes}


def test_a_server_outside_sees_the_router(make: Make) -> None:
    made = make(ManilaShare, share())
    files, access = made.one("Share"), made.one("ShareAccess").inputs
    assert (files.inputs["shareProto"], files.inputs["size"], files.inputs["isPublic"]) == ("NFS", 1024, False)
    assert not {"shareNetworkId", "availabilityZone", "shareType"} & set(files.inputs)
    assert (access["accessType"], access["accessTo"], access["accessLevel"]) == ("ip", "203.0.113.4", "rw")
    assert access["shareId"] == files.id


def test_a_server_in_the_stacks_network(make: Make) -> None:
    made = make(ManilaShare, share(share_network=True, network_id="n", subnet_ids=["s"], clients="10.42.0.0/16"))
    network = made.one("ShareNetwork")
    assert (network.inputs["neutronNetId"], network.inputs["neutronSubnetId"]) == ("n", "s")
    assert made.one("Share").inputs["shareNetworkId"] == network.id
    assert made.one("ShareAccess").inputs["accessTo"] == "10.42.0.0/16"


def test_native_cephfs_knows_a_user(make: Make) -> None:
    access = make(ManilaShare, share(protocol="CEPHFS")).one("ShareAccess").inputs
    assert (access["accessType"], access["accessTo"]) == ("cephx", "gangway-demo")


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"protocol": "CIFS"}, "gangway:openstack.share_protocol", "NFS, CEPHFS"),
        ({"capacity_gib": 0}, "gangway:storage.capacity_gib", "at least 1"),
        ({"protocol": "CEPHFS", "share_network": True}, "gangway:openstack.share_network", "share_protocol: NFS"),
    ],
)
def test_what_manila_would_refuse(changes: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        check_share(**{"capacity_gib": 1, "protocol": "NFS", "share_network": False, **changes})
    assert caught.value.place == place
    assert said in caught.value.allowed


@pytest.mark.parametrize(
    ("locations", "path"),
    [
        ([{"path": "a:/x"}], "a:/x"),
        ([{"path": "a:/x", "preferred": "false"}, {"path": "b:/x", "preferred": "True"}], "b:/x"),
        ([{"path": "a:/x", "preferred": "False"}, {"path": "b:/x", "preferred": "False"}], "a:/x"),
        ([], ""),
    ],
)
def test_where_a_share_is_mounted_from(locations: list[dict[str, str]], path: str) -> None:
    assert export_path(locations) == path
