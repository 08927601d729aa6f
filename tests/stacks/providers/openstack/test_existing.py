"""Existing resources on OpenStack: mistakes in the stack file, the plan with them, and findings."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.existing import Facts, problems, provided
from gangway.stacks.providers.openstack.findings import findings
from gangway.stacks.providers.openstack.plan import plan
from gangway.stacks.recording import Recording

Edited = Callable[..., StackConfig]
ALL, GPU = "openstack-existing", "openstack-gpu"
NETWORK, SUBNET = "33333333-0000-4000-8000-333333333333", "44444444-0000-4000-8000-444444444444"
GROUP = "55555555-0000-4000-8000-555555555555"
HERE = {"network_id": NETWORK, "subnet_id": SUBNET, "machine_cidr": "10.20.8.0/28"}
CREDENTIAL = {"id": "0123456789abcdef" * 2}


def own(existing: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return {"openstack": {**keys, **({} if existing is None else {"existing": existing})}}


MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    (GPU, own(external_network_id=None), "openstack.external_network_id", "add external_network_id"),
    (ALL, own(external_network_id=NETWORK), "openstack.external_network_id", "leave external_network_id out"),
    (GPU, own({"network_id": NETWORK}), "openstack.existing.subnet_id", "add subnet_id"),
    (GPU, own({"machine_cidr": "10.20.8.0/28"}), "openstack.existing.network_id", "leave machine_cidr out"),
    (GPU, own({"security_groups": {"fabric": GROUP}}), "openstack.existing.security_groups", "name the network too"),
    (ALL, own(HERE), "openstack.existing.share_name", "share_network: true"),
    (ALL, own({"share_name": "gan"}) | {"storage": None}, "openstack.existing.share_name", "add gangway:storage"),
    (ALL, own({**HERE, "share_name": "gan"}, share_protocol="CEPHFS"), "openstack.share_protocol", "NFS"),
    (GPU, own({"application_credential": CREDENTIAL}), "application_credential.secret", "pulumi config set"),
    (
        GPU,
        own({"application_credential": {**CREDENTIAL, "secret": "plain"}}),
        "application_credential.secret",
        "pulumi config set --path --secret gangway:openstack.existing.application_credential.secret",
    ),
]


@pytest.mark.parametrize(("stack", "edits", "place", "fix"), MISTAKES)
def test_a_mistake_names_key_and_fix(gcp_edited: Edited, stack: str, edits: Any, place: str, fix: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(stack, **edits)
    found = [one for one in caught.value.exceptions if isinstance(one, InputError) and one.place.endswith(place)]
    assert [fix for one in found if fix in one.fix] == [fix], caught.value.exceptions
    assert "plain" not in [str(one.value) for one in found]


def test_addresses_are_counted_from_the_range(gcp_edited: Edited) -> None:
    planned = plan(gcp_edited(ALL))
    assert (planned.network.head, planned.network.worker(0), planned.network.worker(3)) == (
        "10.20.8.0",
        "10.20.8.1",
        "10.20.8.4",
    )
    small = gcp_edited(ALL, **own({**HERE, "machine_cidr": "10.20.8.0/30", "share_name": "gan"}))
    with pytest.raises(InputError, match="need 5"):
        plan(small)
    odd = gcp_edited(ALL, **own({**HERE, "machine_cidr": "10.20.8.1/28", "share_name": "gan"}))
    with pytest.raises(InputError, match="has host bits set"):
        plan(odd)


def test_groups_are_made_in_an_existing_network_without_them(
    gcp_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    made = recorded(gcp_edited(ALL, **own(HERE, share_network=True)))
    kinds = {one.type.rpartition(":")[2] for one in made.resources}
    assert kinds >= {"SecGroup", "SecGroupRule", "Share", "ShareAccess", "ShareNetwork"}
    assert not kinds & {"Network", "Subnet", "Router", "RouterInterface"}
    (access,) = (one for one in made.resources if one.type.endswith(":ShareAccess"))
    assert access.inputs["accessTo"] == "10.20.8.0/28"
    ports = [one.inputs for one in made.resources if one.type.endswith(":Port") and "fixedIps" in one.inputs]
    assert {port["networkId"] for port in ports} == {NETWORK}
    assert {port["fixedIps"][0]["subnetId"] for port in ports} == {SUBNET}


def test_the_plan_names_what_exists_and_what_it_must_allow(gcp_edited: Edited) -> None:
    credential = {**CREDENTIAL, "secret": {"secure": "v1:abc"}}
    config = gcp_edited(ALL, **own({**HERE, "share_name": "gan", "application_credential": credential}))
    assert set(provided(config).values()) == {NETWORK, SUBNET, "gan", CREDENTIAL["id"]}
    found = {one.code: one for one in findings(config, plan(config), None) if "existing." in one.code}
    assert "10.20.8.0/28 read and write" in found["existing.share-access"].message
    assert "PUT /v1/*/the run container/**" in found["existing.role-permissions"].message
    assert "existing.network-owner" not in found, "the stack makes the groups"
    whole = gcp_edited(ALL, network={"cidr": "10.50.0.0/16"})
    found = {one.code: one for one in findings(whole, plan(whole), None)}
    assert "tcp 29400 from fabric to head" in found["existing.network-owner"].message
    assert found["existing.ignored-setting"].severity is Severity.WARNING
    assert "storage.by-router" not in found


def test_unknown_facts_are_no_problem(gcp_edited: Edited) -> None:
    config = gcp_edited(ALL)
    assert list(problems(config, Facts())) == []
    (used,) = problems(config, Facts(foreign_addresses=("10.20.8.2",)))
    assert "in use: 10.20.8.2" in used.problem
    (down,) = problems(config, Facts(is_network_up=False))
    assert down.place == "gangway:openstack.existing.network_id"
