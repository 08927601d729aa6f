"""A stack on OpenStack that uses what exists, under the real Pulumi engine: it leaves all of that as it was."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.openstack.existing import get_existing
from tests.engine.existing_resources import Cloud, Mistake, changed, check_refused, put, without

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], None]
EXISTING = get_existing(from_file(Path(__file__).parents[2] / "stacks" / "Pulumi.openstack-existing.yaml"))
NETWORK, SUBNET = "openstack:networking/network:Network", "openstack:networking/subnet:Subnet"
GROUP, SHARE = "openstack:networking/secGroup:SecGroup", "openstack:sharedfilesystem/share:Share"
CONTAINER, PORT = "openstack:objectstorage/container:Container", "openstack:networking/port:Port"
CREDENTIAL = "openstack:identity/applicationCredential:ApplicationCredential"


def existing_cloud() -> Cloud:
    """All that the shipped stack file names, in good order."""
    groups = EXISTING.security_groups
    assert groups is not None
    subnet = {"networkId": EXISTING.network_id, "cidr": "10.20.0.0/20", "gatewayIp": "10.20.0.1", "allTags": ["theirs"]}
    export = {"path": "10.30.0.4:/volumes/gan", "preferred": "True"}
    share = {"size": 4096, "shareProto": "NFS", "status": "available", "exportLocations": [export]}
    return {
        (NETWORK, str(EXISTING.network_id)): {"adminStateUp": "true", "allTags": ["theirs"]},
        (SUBNET, str(EXISTING.subnet_id)): subnet,
        (GROUP, groups.fabric): {"name": "nodes"},
        (GROUP, str(groups.head)): {"name": "head"},
        (SHARE, str(EXISTING.share_name)): share,
        (CONTAINER, str(EXISTING.run_container)): {"name": EXISTING.run_container},
    }


@pytest.fixture
def engine(make_engine: Any, running_plugin: Any) -> Iterator[Any]:
    made = make_engine("openstack-existing")
    with running_plugin("openstack", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"openstack:{plugin.port}"
        yield made


def made_types(engine: Any) -> set[str]:
    return {one["type"] for one in engine.resources() if one["urn"]}


def test_a_stack_leaves_what_exists_as_it_was(engine: Any) -> None:
    before = put(engine, existing_cloud())
    put_by_others = engine.put("gan-runs", "others/record.json")
    engine.applied("up")
    made = [one for one in engine.resources() if one["urn"]]
    assert not made_types(engine) & {NETWORK, SUBNET, GROUP, SHARE}
    assert not [one for one in made if "router" in one["type"].lower() or "shareAccess" in one["type"]]
    assert [one["id"] for one in made if one["type"] == CONTAINER] != ["gan-runs"], "only that of the secrets"
    ports = [one["inputs"] for one in made if one["type"] == PORT and one["inputs"].get("fixedIps")]
    addresses = {port["fixedIps"][0]["ipAddress"] for port in ports}
    assert addresses == {f"10.20.8.{number}" for number in range(5)}
    assert set(engine.applied("up", "--expect-no-changes").changes) == {"same"}
    engine.applied("destroy")
    assert {file: file.read_text("utf-8") for file in before} == before
    assert put_by_others.exists()
    assert made_types(engine) == set()


def test_an_existing_credential_is_used_and_no_other_made(engine: Any) -> None:
    put(engine, existing_cloud())
    place = "gangway:openstack.existing.application_credential"
    id_, secret = "0123456789abcdef" * 2, "their-secret-0123456789"
    engine.plain("config", "set", "--stack", engine.stack, "--path", f"{place}.id", id_)
    engine.plain("config", "set", "--stack", engine.stack, "--path", "--secret", f"{place}.secret", secret)
    engine.applied("up")
    assert CREDENTIAL not in made_types(engine)
    (stored,) = (one for one in engine.resources() if one["type"].endswith(":ContainerObject"))
    assert id_ in stored["inputs"]["content"]
    assert secret in stored["inputs"]["content"]
    assert secret not in engine.plain("stack", "export", "--stack", engine.stack)
    engine.applied("destroy")


MISTAKES: dict[str, Mistake] = {
    "no such network": (
        without(NETWORK),
        {},
        ["gangway:openstack.existing.network_id: cannot look up", "404", "openstack network show"],
    ),
    "another network": (
        changed(SUBNET, networkId="99999999-0000-4000-8000-999999999999"),
        {},
        ["gangway:openstack.existing.subnet_id: in the network 99999999-", "name a subnet of that network"],
    ),
    "no gateway": (changed(SUBNET, gatewayIp=""), {}, ["gangway:openstack.existing.subnet_id: it has no gateway"]),
    "addresses elsewhere": (
        None,
        {"machine_cidr": "10.99.0.0/28"},
        ["gangway:openstack.existing.machine_cidr: outside the subnet, 10.20.0.0/20", "'10.99.0.0/28'"],
    ),
    "the gateway's address": (
        None,
        {"machine_cidr": "10.20.0.0/28"},
        ["gangway:openstack.existing.machine_cidr: 10.20.0.0, 10.20.0.1 is the gateway"],
    ),
    "too few addresses": (
        None,
        {"machine_cidr": "10.20.8.0/30"},
        ["gangway:openstack.existing.machine_cidr: 4 addresses", "4 nodes need 5", "set a smaller"],
    ),
    "no such group": (without(GROUP), {}, ["gangway:openstack.existing.security_groups.fabric: cannot look up"]),
    "a share of another size": (
        changed(SHARE, size=2048),
        {},
        ["gangway:storage.capacity_gib: not that of the existing share", "set capacity_gib: 2048"],
    ),
    "a broken share": (changed(SHARE, status="error"), {}, ["share_name: its state is error", "available"]),
    "a share of CephFS": (changed(SHARE, shareProto="CEPHFS"), {}, ["share_name: its protocol is CEPHFS"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit_is_one_message_and_no_resource(
    engine: Any, set_value: Callable[..., Edit], mistake: str
) -> None:
    check_refused(engine, set_value, "openstack", existing_cloud(), MISTAKES[mistake])
