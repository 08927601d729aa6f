"""Azure: scale sets and the head, Log Analytics, and Azure Bastion."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import open_session
from gangway.jobs.systemd.scaling.azure import API_URL, AzureScaler
from gangway.jobs.systemd.scaling.base import Rest
from gangway.live.nodes import HEAD, LogLine, Node, payload_text
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.settings import AzureConfig

LOGS_URL, LOGS_RESOURCE = "https://api.loganalytics.azure.com", "https://api.loganalytics.io"
TABLE = "Gangway_CL"
"""Copied from gangway.components.azure.alarms, which would load Pulumi's whole provider."""
_MOST_ROWS = 20_000
_NETWORK_VERSION = "2024-05-01"
_FIX = "az login, with the role Reader on the stack's resource group"
_NO_BASTION = "machines have no public address, and the stack has no Azure Bastion"


def list_nodes(config: StackConfig, outputs: Mapping[str, Any]) -> list[Node]:
    """Machines of the scale sets, and the head, whose state is not read."""
    own, group = config.section(AzureConfig), str(outputs["resource_group"])
    session = open_session(own.subscription_id)
    sets = AzureScaler(session, own.subscription_id, group, together=True, is_held=False, api_url=API_URL)
    found = [
        _node(row, str(name), f"{_place(own, group)}/Microsoft.Compute/virtualMachineScaleSets/{name}")
        for name in outputs.get("group_names") or ()
        for row in sets.machines(str(name))
    ]
    head = outputs.get("head_instance_id")
    return [*found, *([Node(str(head).rpartition("/")[2], str(head), HEAD, "unknown")] if head else [])]


def _place(own: AzureConfig, group: str) -> str:
    return f"/subscriptions/{own.subscription_id}/resourceGroups/{group}/providers"


def _node(row: Mapping[str, Any], rung: str, scale_set: str) -> Node:
    statuses = row["properties"].get("instanceView", {}).get("statuses", [])
    powers = [str(each["code"]).partition("/")[2] for each in statuses if each["code"].startswith("PowerState/")]
    state = powers[0] if powers else str(row["properties"].get("provisioningState", "unknown")).lower()
    name = str(row.get("name") or f"{rung}_{row['instanceId']}")
    return Node(name, str(row.get("id") or f"{scale_set}/virtualMachines/{row['instanceId']}"), rung, state)


def read_log(config: StackConfig, outputs: Mapping[str, Any], since: datetime) -> list[LogLine]:
    """The stack's table. Its lines are JSON: a text under `message`, or what the job printed under `printed`."""
    query = (
        f"{TABLE} | where TimeGenerated >= datetime({since.isoformat()}) | order by TimeGenerated asc "
        f"| take {_MOST_ROWS} | project TimeGenerated, Node, Line"
    )
    session = open_session(config.section(AzureConfig).subscription_id, LOGS_RESOURCE)
    workspace = str(outputs["log_group"])
    rest = Rest(session, LOGS_URL, "az login, with the role Log Analytics Reader")
    answer = rest.call(f"the table {TABLE} of {workspace}", "POST", f"/v1{workspace}/query", body={"query": query})
    return list(_lines(answer, workspace))


def _lines(answer: Mapping[str, Any], workspace: str) -> Iterator[LogLine]:
    for table in answer.get("tables", ()):
        names = [column["name"] for column in table["columns"]]
        for row in table["rows"]:
            fields = dict(zip(names, row, strict=True))
            text = payload_text(fields["Line"])
            at = datetime.fromisoformat(fields["TimeGenerated"])
            yield LogLine(at, str(fields["Node"]), text, f"{fields['TimeGenerated']} {fields['Node']} {text}")


def shell_argv(config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
    """Azure Bastion, if the stack has one."""
    own, group = config.section(AzureConfig), str(outputs["resource_group"])
    if not own.bastion:
        other = "az vm run-command invoke" if node.rung == HEAD else "az vmss run-command invoke"
        raise InputError(
            "gangway:azure.bastion", _NO_BASTION, value=False, allowed="bastion: true, which is billed by the hour",
            fix=f"set it and run `pulumi up`; or run single commands: {other} --ids {node.id} "
            "--command-id RunShellScript --scripts 'journalctl -u gangway-trainer -n 100'",
        )  # fmt: skip
    rest = Rest(open_session(own.subscription_id), API_URL, _FIX)
    path = f"{_place(own, group)}/Microsoft.Network/bastionHosts"
    hosts = rest.call(f"Azure Bastion in {group}", "GET", path, {"api-version": _NETWORK_VERSION}).get("value", [])
    if not hosts:
        raise InputError(f"resource group {group}", "has no Azure Bastion", fix="`pulumi up`, which creates it")
    argv = ["az", "network", "bastion", "ssh", "--subscription", own.subscription_id, "--resource-group", group]
    return [*argv, "--name", str(hosts[0]["name"]), "--target-resource-id", node.id, "--auth-type", "AAD"]
