"""Azure's list by tag: answers of Resource Graph, hand-made in the shape of its REST reference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from typer.testing import CliRunner

from gangway.cli.costs.bills import run_audit
from gangway.cli.main import app
from gangway.components.azure import storage
from gangway.components.core.findings import InputError
from gangway.components.core.http_session import open_session
from gangway.finops.audit import azure
from gangway.finops.audit.azure import list_azure, state_keys
from gangway.finops.audit.classify_orphans import Billed
from gangway.finops.audit.state import State, StateResource

SUBSCRIPTION, STACK = "11111111-0000-0000-0000-111111111111", "azure-ndv5-spot"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{STACK}-gangway1234"


def row(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{GROUP}/providers/{kind}/{name}",
        "name": name,
        "type": kind.lower(),
        "location": "eastus",
        "sku": None,
        "properties": {"provisioningState": "Succeeded"},
        "managedBy": "",
        **more,
    }


VM = row(
    "Microsoft.Compute/virtualMachines",
    "by-hand",
    properties={"hardwareProfile": {"vmSize": "Standard_ND96isr_H100_v5"}, "priority": "Spot"},
)
DISK = row(
    "Microsoft.Compute/disks",
    "by-hand_OsDisk",
    sku={"name": "Premium_LRS", "tier": "Premium"},
    properties={"diskSizeGB": 200},
    managedBy=VM["id"].upper(),
)
INTERFACE = row("Microsoft.Network/networkInterfaces", "by-hand", properties={"virtualMachine": {"id": VM["id"]}})


def page(*rows: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    answer = {"totalRecords": 3, "count": len(rows), "data": list(rows), "facets": [], "resultTruncated": "false"}
    return answer if token is None else {**answer, "$skipToken": token}


@pytest.fixture
def session() -> Any:
    plain = requests.Session()
    plain.trust_env = False
    yield plain
    plain.close()


@pytest.fixture
def listing(rest: Any, session: Any) -> Callable[..., Any]:
    def ask(*pages: dict[str, Any]) -> Any:
        rest.pages = list(pages)
        return list_azure(session, SUBSCRIPTION, STACK, rest.url)

    return ask


def test_every_page_is_read(rest: Any, listing: Callable[..., Any]) -> None:
    found = listing(page(VM, DISK, token="t0ken"), page(INTERFACE))
    assert [each.name for each in found.resources] == ["by-hand", "by-hand_OsDisk", "by-hand"]
    first, second = rest.asked
    assert (first["method"], first["path"]) == ("POST", "/providers/Microsoft.ResourceGraph/resources")
    assert first["params"] == {"api-version": "2024-04-01"}
    assert first["body"]["subscriptions"] == [SUBSCRIPTION]
    assert f'tags["gangway-stack"] =~ "{STACK}"' in first["body"]["query"]
    assert first["body"]["options"] == {"resultFormat": "objectArray", "$top": 1000}
    assert second["body"]["options"]["$skipToken"] == "t0ken"


def test_a_machine_outside_the_state_is_an_orphan_with_what_it_holds(listing: Callable[..., Any]) -> None:
    outcome = run_audit(STACK, "azure", State((), "test"), listing(page(VM, DISK, INTERFACE)))
    machine, disk, interface = outcome.orphans
    assert machine.hourly_usd == pytest.approx(18.17)
    assert disk.bill[0].name == "by-hand_OsDisk: premium-ssd-p15"
    assert disk.hourly_usd == pytest.approx(38.012142 / 730)
    assert interface.hourly_usd == 0.0


def test_ids_are_the_same_in_any_case_and_what_the_state_holds_keeps_its_parts(listing: Callable[..., Any]) -> None:
    known = State(
        (StateResource("azure-native:compute:VirtualMachine", VM["id"].replace("by-hand", "BY-HAND"), {}),), "t"
    )
    outcome = run_audit(STACK, "azure", known, listing(page(VM, DISK, INTERFACE)))
    assert outcome.counts == {"in-state": 1, "belongs": 2}
    assert state_keys(StateResource("t", "/A/b", {})) == {"/a/b"}


def test_machines_of_a_flexible_scale_set_belong_to_it(listing: Callable[..., Any]) -> None:
    scale_set = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/nodes"
    machine = {**VM, "properties": {**VM["properties"], "virtualMachineScaleSet": {"id": scale_set}}}
    known = State((StateResource("azure-native:compute:VirtualMachineScaleSet", scale_set, {}),), "test")
    assert run_audit(STACK, "azure", known, listing(page(machine))).counts == {"belongs": 1}


def test_a_flexible_scale_set_and_its_machines_are_billed_once(listing: Callable[..., Any]) -> None:
    kind = "Microsoft.Compute/virtualMachineScaleSets"
    flexible = row(kind, "nodes", sku={"name": "Standard_ND96isr_H100_v5", "capacity": 1})
    uniform = row(kind, "others", sku={"name": "Standard_ND96isr_H100_v5", "capacity": 1})
    properties = {**VM["properties"], "priority": "Regular", "virtualMachineScaleSet": {"id": flexible["id"]}}
    found = listing(page(flexible, uniform, {**VM, "properties": properties}))
    outcome = run_audit(STACK, "azure", State((), "test"), found)
    assert {row.judged.resource.name: row.hourly_usd for row in outcome.orphans} == {
        "by-hand": pytest.approx(98.32),
        "others": pytest.approx(98.32),
        "nodes": 0.0,
    }


@pytest.mark.parametrize(("code", "usd"), [("PowerState/deallocated", 0.0), ("PowerState/stopped", 18.17)])
def test_a_deallocated_machine_costs_nothing_and_a_stopped_one_all(
    listing: Callable[..., Any], code: str, usd: float
) -> None:
    extended = {"instanceView": {"powerState": {"code": code}}}
    found = listing(page({**VM, "properties": {**VM["properties"], "extended": extended}}))
    (machine,) = run_audit(STACK, "azure", State((), "test"), found).orphans
    assert machine.hourly_usd == pytest.approx(usd)


@pytest.mark.parametrize(
    ("made", "billed"),
    [
        (
            row(
                "Microsoft.Compute/virtualMachineScaleSets",
                "nodes",
                sku={"name": "Standard_ND96isr_H100_v5", "capacity": 4},
                properties={"virtualMachineProfile": {"priority": "Regular"}},
            ),
            (Billed("Standard_ND96isr_H100_v5", 4, kind="machine"),),
        ),
        (
            row(
                "Microsoft.StorageCache/amlFilesystems",
                "lustre",
                sku={"name": "AMLFS-Durable-Premium-250"},
                properties={"storageCapacityTiB": 8},
            ),
            (Billed("managed-lustre-250", 8192),),
        ),
        (row("Microsoft.Network/natGateways", "nat"), (Billed("nat-gateway"),)),
        (row("Microsoft.Network/bastionHosts", "b", sku={"name": "Standard"}), (Billed("bastion-standard"),)),
        (row("Microsoft.ContainerRegistry/registries", "r", sku={"name": "Premium"}), (Billed("acr-premium"),)),
        (row("Microsoft.Network/virtualNetworks", "v"), ()),
        (row("Microsoft.Compute/disks", "d", sku={"name": "StandardSSD_LRS"}), None),
        (row("Microsoft.Insights/actionGroups", "a"), None),
    ],
)
def test_what_is_billed_as_what(listing: Callable[..., Any], made: dict[str, Any], billed: Any) -> None:
    assert listing(page(made)).resources[0].billed == billed


def test_what_the_components_retain_is_expected_to_stay(listing: Callable[..., Any]) -> None:
    group = {
        "id": GROUP,
        "name": f"{STACK}-gangway1234",
        "type": "microsoft.resources/subscriptions/resourcegroups",
        "location": "eastus",
        "properties": None,
    }
    found = listing(
        page(
            group,
            row("Microsoft.Storage/storageAccounts", "azurendv5spot1a2b3c4d"),
            row("Microsoft.Storage/storageAccounts", "azurendv5spotflows1a2b3c4d"),
            row("Microsoft.KeyVault/vaults", f"{STACK}-key1a2b"),
            row("Microsoft.ManagedIdentity/userAssignedIdentities", f"{STACK}-key1a2b"),
            row("Microsoft.ManagedIdentity/userAssignedIdentities", f"{STACK}-node1a2b"),
            row("Microsoft.Network/natGateways", "nat", properties={"provisioningState": "Deleting"}),
        )
    )
    outcome = run_audit(STACK, "azure", State((), "test"), found)
    assert [each.resource.name for each in outcome.judged if each.verdict == "orphan"] == [
        "azurendv5spotflows1a2b3c4d",
        f"{STACK}-node1a2b",
    ]
    assert outcome.counts == {"kept": 4, "orphan": 2, "gone": 1}


def test_names_are_those_that_the_components_give() -> None:
    assert azure.MAX_ACCOUNT_NAME == storage.MAX_ACCOUNT_NAME
    assert azure.FLOW_LOGS == storage.ENDING


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (403, {"error": {"code": "AuthorizationFailed", "message": "no right"}}),
        (200, "no JSON"),
        (200, {"error": "something"}),
    ],
)
def test_a_refusal_names_the_way_in(rest: Any, session: Any, status: int, answer: Any) -> None:
    rest.status, rest.pages = status, [answer]
    with pytest.raises(InputError, match="request failed") as caught:
        list_azure(session, SUBSCRIPTION, STACK, rest.url)
    assert "az login, and the role Reader" in caught.value.fix


def _az(folder: Path, script: str) -> None:
    """An `az` that does what the script says."""
    command = folder / "az"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def test_the_token_is_azs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _az(tmp_path, f"""echo "$@" > {tmp_path}/asked; echo '{{"accessToken": "t0ken", "tokenType": "Bearer"}}'""")
    with open_session(SUBSCRIPTION) as made:  # type: ignore[attr-defined]  # a session of requests, told as less
        assert made.headers["Authorization"] == "Bearer t0ken"
    asked = (tmp_path / "asked").read_text()
    assert asked == f"account get-access-token --subscription {SUBSCRIPTION} --output json\n"
    for script, why in (("echo 'Please run az login' >&2; exit 1", "Please run az login"), ("echo {}", "KeyError")):
        _az(tmp_path, script)
        with pytest.raises(InputError, match=why):
            open_session(SUBSCRIPTION)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="az is not installed"):
        open_session(SUBSCRIPTION)


def test_the_command_asks_azure_for_an_azure_stack(
    rest: Any, session: Any, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    rest.pages = [page(VM)]
    monkeypatch.setattr(azure, "open_session", lambda _: session)
    monkeypatch.setattr(azure.list_azure, "__defaults__", (rest.url,))
    path = str(repo / "stacks" / "Pulumi.azure-ndv5-spot.yaml")
    shown = CliRunner().invoke(app, ["audit", path, "--no-state", "--json", "--regions", "eastus"])
    assert shown.exit_code == 1, shown.output
    assert json.loads(shown.stdout)["orphans"][0]["name"] == "by-hand"
    assert "--regions is ignored" in shown.stderr
