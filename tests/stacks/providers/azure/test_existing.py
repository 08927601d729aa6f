"""Existing resources on Azure: mistakes in the stack file, what is wrong with them, and what the plan tells."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.live.permissions.needs import DEFAULT, make_needs
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.providers.azure.existing import Problem, is_open, problems
from gangway.stacks.providers.azure.existing_facts import SubnetFacts, read_facts
from gangway.stacks.providers.azure.findings import findings
from gangway.stacks.providers.azure.plan import plan
from gangway.stacks.providers.azure.settings import get_existing
from gangway.stacks.recording import Recording
from tests.azure_existing import (
    IDS,
    KEY,
    MISTAKES,
    NETWORK,
    ONLY_NEW,
    OWN,
    ROLES,
    RULES,
    STACK,
    SUBNET,
    Answers,
    Spoil,
    answers,
    at,
    changed,
    refused,
    rule,
    subnet,
    without,
)

Edited = Callable[..., StackConfig]
ALL, DEV, AKS = "azure-existing", "azure-nc-dev", "aks-ndv5"
CONFIG = from_file(STACK)
OTHER = "/subscriptions/22222222-0000-0000-0000-222222222222/resourceGroups/g/providers"
LUSTRE = {"storage": {"kind": "lustre", "capacity_gib": 16384, "throughput_mbps_per_tib": 250}}
assert KEY is not None
KEY_SETTINGS = KEY.model_dump()
IN_SUBNET = {"subnet_id": SUBNET, "head_private_ip": "10.20.0.10"}


def existing(**keys: Any) -> dict[str, Any]:
    return {"azure": {"existing": keys}}


def all_but(**keys: Any) -> dict[str, Any]:
    """Of the shipped file, with other keys; None removes."""
    own = {**OWN.model_dump(exclude_none=True), **keys}
    return existing(**{key: value for key, value in own.items() if value is not None})


BAD_FILES: list[tuple[str, dict[str, Any], str, str]] = [
    (DEV, existing(subnet_id="training"), "existing.subnet_id", "virtualNetworks/spoke/subnets/training"),
    (
        DEV,
        existing(log_workspace_id=f"{OTHER}/Microsoft.OperationalInsights/workspaces/logs"),
        "existing.log_workspace_id",
        "copy an id that begins with /subscriptions/11111111-0000-0000-0000-111111111111/",
    ),
    (DEV, existing(subnet_id=SUBNET), "existing.head_private_ip", "add head_private_ip: 10.20.0.10"),
    (DEV, existing(head_private_ip="10.20.0.10"), "existing.head_private_ip", "leave head_private_ip out"),
    (DEV, existing(**IN_SUBNET | {"head_private_ip": "head"}), "existing.head_private_ip", "10.20.0.10"),
    (DEV, existing(**IN_SUBNET) | LUSTRE, "existing.lustre_subnet_id", f"add lustre_subnet_id: {NETWORK}/subnets/"),
    (
        DEV,
        existing(**IN_SUBNET, lustre_subnet_id=f"{NETWORK}/subnets/l"),
        "existing.lustre_subnet_id",
        "leave lustre_subnet_id out",
    ),
    (
        DEV,
        {"azure": {"existing": IN_SUBNET, "bastion": True}},
        "gangway:azure.bastion",
        "leave bastion out, and use the Bastion of the hub",
    ),
    (
        DEV,
        existing(**IN_SUBNET, file_system_id=IDS["file_system_id"]),
        "gangway:storage",
        "add gangway:storage: {kind: lustre",
    ),
    (DEV, existing(data_folder="images"), "existing.data_folder", "leave data_folder out"),
    (DEV, existing(key=KEY_SETTINGS), "existing.key", "set gangway:encryption: customer-key"),
    (
        ALL,
        all_but(file_system_id=None, lustre_subnet_id=f"{NETWORK}/subnets/l"),
        "existing.key.vault_id",
        "name a key there, or bring an existing file system in file_system_id",
    ),
    (
        ALL,
        existing(key={**KEY_SETTINGS, "key_url": f"https://o-1.vault.azure.net/keys/k/{'0' * 32}"}),
        "existing.key.key_url",
        "az keyvault key show --vault-name platform-keys",
    ),
    (
        DEV,
        existing(node_identity_id=IDS["node_identity_id"]),
        "existing.node_identity_id",
        "create a group for this stack",
    ),
    (AKS, existing(**IN_SUBNET), "existing.subnet_id", "leave subnet_id out"),
    (ALL, {"storage": {**LUSTRE["storage"], "export_runs": True}}, "gangway:storage.export_runs", "data_folder"),
]


@pytest.mark.parametrize(("stack", "edits", "place", "fix"), BAD_FILES)
def test_a_mistake_names_key_and_fix(
    azure_edited: Edited, stack: str, edits: dict[str, Any], place: str, fix: str
) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        azure_edited(stack, **edits)
    errors = [one for one in caught.value.exceptions if isinstance(one, InputError) and one.place.endswith(place)]
    assert [one for one in errors if fix in f"{one.fix} {one.allowed} {one.problem}"], caught.value.exceptions


def found(spoil: Spoil, config: StackConfig = CONFIG) -> list[Problem]:
    known: Answers = answers()
    spoil(known)
    facts = read_facts(get_existing(config), lambda path, _version, _query=None: known.get(path))
    return list(problems(config, plan(config), facts))


def test_all_in_good_order() -> None:
    assert found(lambda _: None) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_does_not_fit(mistake: str) -> None:
    spoil, setting, words = MISTAKES[mistake]
    problem = next(one for one in found(spoil) if one.setting == setting)
    error = problem.to_error(OWN)
    assert error.place == f"gangway:azure.existing.{setting}"
    assert [one for one in words if one not in f"{error.problem} {error.allowed} {error.fix}"] == [], error
    assert error.value == OWN.values[setting]
    assert problem.only_new == (mistake in ONLY_NEW)


def test_exporters_need_their_ports_too(azure_edited: Edited) -> None:
    config = azure_edited(ALL, observe={"hardware": True})
    denied = rule(100, "Deny", "*", "*")
    denied["properties"]["destinationPortRange"] = "9401-9402"
    closed = changed(RULES, securityRules=[denied])
    (problem,) = found(closed, config)
    assert "from the head to nodes on port 9402" in problem.found
    assert found(closed) == []


def behind_a_gateway(known: Answers) -> None:
    subnet(routeTable=None)(known)
    changed(NETWORK, virtualNetworkPeerings=[{"properties": {"useRemoteGateways": True}}])(known)


FINE: list[Spoil] = [
    subnet(routeTable=None, natGateway={"id": "x"}),
    subnet(routeTable=None, defaultOutboundAccess=None),
    behind_a_gateway,
    without(f"{NETWORK}/usages"),
    at(f"{NETWORK}/usages", value=[{"id": SUBNET, "currentValue": -1, "limit": 251}]),
    without(f"{IDS['registry_id']}{ROLES}"),
    subnet(networkSecurityGroup=None),
    at(NETWORK, location="East US"),
    lambda known: known[IDS["key.vault_id"]]["properties"].pop("enableRbacAuthorization"),
]


@pytest.mark.parametrize("spoil", FINE)
def test_what_fits_or_is_unknown_is_no_problem(spoil: Spoil) -> None:
    assert found(spoil) == []


def test_servers_of_a_new_file_system_need_room_and_ports(azure_edited: Edited) -> None:
    config = azure_edited(
        DEV, **existing(**IN_SUBNET, lustre_subnet_id=f"{NETWORK}/subnets/lustre"), **LUSTRE, network={"egress": "nat"}
    )

    def add(known: Answers) -> None:
        row = {"name": "lustre", "properties": {"addressPrefix": "10.20.4.0/26", "networkSecurityGroup": {"id": RULES}}}
        known[NETWORK]["properties"]["subnets"].append(row)
        known[f"{NETWORK}/usages"]["value"].append({"id": f"{NETWORK}/subnets/lustre", "currentValue": 0, "limit": 11})
        known[RULES]["properties"]["securityRules"] = [rule(100, "Deny", "10.20.0.0/24", "10.20.4.0/26")]

    full, closed = (one for one in found(add, config) if one.setting == "lustre_subnet_id")
    assert full.only_new
    assert "11 free addresses" in full.found
    assert "from nodes to its servers on port 988" in closed.found


def test_several_nodes_connect_to_each_other_and_to_the_head(azure_edited: Edited) -> None:
    config = azure_edited(ALL, cluster={"nodes": {"min": 2, "max": 2}})
    (problem,) = found(refused("10.20.0.0/24", "10.20.0.0/24"), config)
    assert "between nodes (such as port 50000, for NCCL); from nodes to the head on port 29400; from" in problem.found


FABRIC, HEAD = ("/g/applicationSecurityGroups/nodes", "/g/applicationSecurityGroups/head")


def of_groups(source: str, target: str) -> dict[str, Any]:
    held = rule(100, "Allow", "", "")["properties"]
    groups = {
        "sourceApplicationSecurityGroups": [{"id": source}],
        "destinationApplicationSecurityGroups": [{"id": target}],
    }
    return {**held, **groups}


@pytest.mark.parametrize(
    ("changes", "allows"),
    [
        ({}, True),
        ({"direction": "Outbound"}, False),
        ({"protocol": "Udp"}, False),
        ({"protocol": "TCP", "destinationPortRange": "29000-30000"}, True),
        ({"destinationPortRange": "", "destinationPortRanges": ["22", "29401-29500"]}, False),
        ({"destinationPortRange": "", "destinationPortRanges": ["22", "29400"]}, True),
        ({"access": "Deny"}, False),
        ({"sourceApplicationSecurityGroups": [{"id": HEAD}]}, False),
        ({"sourceApplicationSecurityGroups": [], "sourceAddressPrefixes": ["10.20.0.0/24"]}, True),
        ({"sourceApplicationSecurityGroups": [], "sourceAddressPrefix": "VirtualNetwork"}, True),
        ({"sourceApplicationSecurityGroups": [], "sourceAddressPrefix": "AzureLoadBalancer"}, False),
    ],
)
def test_the_first_rule_that_applies_decides(changes: dict[str, Any], allows: bool) -> None:
    last = rule(65500, "Deny", "*", "*")["properties"]
    rules = ({**of_groups(FABRIC.upper(), HEAD), **changes}, last)
    network = {"properties": {"addressSpace": {"addressPrefixes": ["10.20.0.0/16"]}}}
    facts = SubnetFacts(network, {}, rules=rules)
    assert is_open(facts, "Inbound", {"10.20.0.4", FABRIC}, {"10.20.0.10", HEAD}, 29400) is allows


def test_the_plan_names_what_exists_and_what_it_must_allow(azure_edited: Edited) -> None:
    assert get_provider("azure").existing(CONFIG) == {f"gangway:azure.existing.{key}": id_ for key, id_ in IDS.items()}
    codes = {one.code: one for one in findings(CONFIG, plan(CONFIG), None)}
    assert IDS["registry_id"] in codes["existing.provided"].message
    assert "29400 from nodes to the head" in codes["existing.network-owner"].message
    assert "Microsoft.Compute/virtualMachineScaleSets/write" in codes["existing.role-permissions"].message
    assert "Key Vault Crypto Service Encryption User" in codes["existing.key-policy"].message
    assert not {"encryption.key-kept", "storage.key-stays", "existing.policies"} & codes.keys()
    config = azure_edited(ALL, network={"cidr": "10.50.0.0/16"}, **all_but(node_identity_id=None))
    codes = {one.code: one for one in findings(config, plan(config), None)}
    assert codes["existing.ignored-setting"].severity is Severity.WARNING
    assert "registry_id and run_container_id get a role assignment" in codes["existing.policies"].message


def test_without_a_zone_nodes_use_the_address_of_the_head(azure_edited: Edited) -> None:
    assert plan(CONFIG).head_host == "head-azure-existing.training.example.internal"
    planned = plan(azure_edited(ALL, **all_but(private_dns_zone_id=None)))
    assert (planned.head_host, planned.head_address) == ("10.20.0.10", "10.20.0.10")


def test_own_identities_may_use_what_exists(azure_edited: Edited, recorded: Callable[[StackConfig], Recording]) -> None:
    made = recorded(azure_edited(ALL, **all_but(node_identity_id=None, head_identity_id=None))).resources
    scopes = {one.inputs["scope"] for one in made if one.type.endswith(":RoleAssignment")}
    assert {IDS["registry_id"], IDS["run_container_id"]} <= scopes
    roles = [one.inputs for one in made if one.type.endswith(":RoleDefinition") and "-runs" in one.name]
    data = IDS["run_container_id"].partition("/providers/")[0]
    assert {tuple(role["assignableScopes"]) for role in roles} == {(IDS["resource_group_id"], data)}
    names = [one.inputs["roleName"] for one in made if one.type.endswith(":RoleDefinition")]
    assert all(name.startswith("Gangway azure-existing in training (11111111): ") for name in names), "unique"


def test_a_cluster_of_kubernetes_uses_group_key_logs_registry_and_container(
    azure_edited: Edited, recorded: Callable[[StackConfig], Recording]
) -> None:
    names = ("resource_group_id", "log_workspace_id", "registry_id", "run_container_id")
    keys = {name: IDS[name] for name in names} | {"key": KEY_SETTINGS}
    made = recorded(azure_edited(AKS, azure={"existing": keys, "tenant_id": None})).resources
    kinds = {one.type.rpartition(":")[2] for one in made}
    assert not kinds & {"ResourceGroup", "Workspace", "Registry", "BlobContainer", "DiskEncryptionSet", "Key"}


def test_permissions_name_the_roles_on_what_exists() -> None:
    notes = make_needs("azure", lambda: make_plan(CONFIG), DEFAULT).notes
    groups = {id_.partition("/providers/")[0] for id_ in IDS.values()}
    assert all(group in notes[0] for group in groups)
    assert notes[1].endswith(f"AcrPush on {IDS['registry_id']}")
