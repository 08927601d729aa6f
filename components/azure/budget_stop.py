"""The budget's end as an act: a workflow that looks at the costs each hour and empties the stack's scale sets.

Azure's budgets only tell. What they tell an action group could start a workflow too, over an address that whoever knows
it may call; this one asks for itself instead (Cost Management's query, what the budget counts), so nothing from outside
starts it, and it needs no code of ours in a container: a Logic App, whose definition is data. It halts the head first,
for it would fill the scale sets again, and then sets each to no machine. Nodes get the usual notice and save. To
go on, raise the budget by `up` and start the head, `az vm start`: it asks for the nodes again.

Not a hard limit: Azure brings costs up to date a few times a day, so the stop comes hours late.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi_azure_native import logic, managedidentity

from components.azure.grants import Grantee
from components.azure.names import RANDOM_DIGITS
from components.azure.policies import COST_READER, group_id, stop_actions
from components.names import shortened

__all__ = ["PARAMETERS", "StopPlan", "declare_stop", "stop_definition"]

API = "https://management.azure.com"
COSTS_VERSION, COMPUTE_VERSION = "2023-11-01", "2024-07-01"
# Unresolved: a copy of Microsoft's naming rules of 2020 says 80, 43 is recalled. A name that fits both.
MAX_WORKFLOW_NAME = 43
_SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
PARAMETERS: Mapping[str, str] = MappingProxyType(
    {"group": "String", "heads": "Array", "identity": "String", "limit": "Float", "sets": "Array"}
)
"""What the definition is told, and of which type: ids, and dollars."""


@dataclass(frozen=True)
class StopPlan:
    """What is stopped, and when.

    Attributes:
        limit_usd: of costs in a month, in the currency the budget counts in.
        tag_key: costs with this tag count.
        tag_value: its value.
        groups: resource ids of scale sets.
        heads: resource ids of machines that fill them.
    """

    limit_usd: float
    tag_key: str
    tag_value: str
    groups: pulumi.Input[list[str]]
    heads: pulumi.Input[list[str]]


def stop_definition(tag_key: str, tag_value: str) -> dict[str, Any]:
    """The workflow in the language of Logic Apps."""
    rows = "body('spent')['properties']['rows']"
    # No row, no costs. An `if` would look at what is not there all the same: it evaluates both of its sides.
    spent = f"@first(coalesce(first({rows}), createArray(0)))"
    return {
        "$schema": _SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {name: {"type": kind} for name, kind in PARAMETERS.items()},
        "triggers": {"hourly": {"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": 1}}},
        "actions": {
            "spent": _ask_costs(tag_key, tag_value),
            "used_up": {
                "type": "If",
                "runAfter": {"spent": ["Succeeded"]},
                "expression": {"greaterOrEquals": [spent, "@parameters('limit')"]},
                "actions": {
                    "halt_heads": _for_each("heads", {"halt": _call("POST", "@{item()}/deallocate")}),
                    # A head that cannot be halted is no reason to leave the nodes on.
                    "empty_sets": {
                        **_for_each("sets", _empty_set()),
                        "runAfter": {"halt_heads": ["Succeeded", "Failed", "TimedOut"]},
                    },
                },
                "else": {"actions": {}},
            },
        },
        "outputs": {},
    }


def _ask_costs(tag_key: str, tag_value: str) -> dict[str, Any]:
    """Costs of this month so far: one row, the sum its first column, or no row at all."""
    dataset = {
        "granularity": "None",
        "aggregation": {"total": {"name": "Cost", "function": "Sum"}},
        "filter": {"tags": {"name": tag_key, "operator": "In", "values": [tag_value]}},
    }
    address = "@{parameters('group')}/providers/Microsoft.CostManagement/query"
    body = {"type": "ActualCost", "timeframe": "MonthToDate", "dataset": dataset}
    return _call("POST", address, body=body, version=COSTS_VERSION)


def _empty_set() -> dict[str, Any]:
    """The scale set's sku as it is, with no machine: Azure wants all of it."""
    sku = "@setProperty(body('read')['sku'], 'capacity', 0)"
    return {
        "read": _call("GET", "@{item()}"),
        "empty": {**_call("PATCH", "@{item()}", body={"sku": sku}), "runAfter": {"read": ["Succeeded"]}},
    }


def _for_each(parameter: str, actions: dict[str, Any]) -> dict[str, Any]:
    """The actions for each item; one that fails leaves no other undone."""
    return {"type": "Foreach", "foreach": f"@parameters('{parameter}')", "actions": actions}


def _call(method: str, address: str, *, body: Any = None, version: str = COMPUTE_VERSION) -> dict[str, Any]:
    """A call to Azure's own API. What it only accepts is not waited for: that takes rights on the subscription."""
    inputs = {
        "method": method,
        "uri": f"{API}{address}?api-version={version}",
        "authentication": {
            "type": "ManagedServiceIdentity",
            "identity": "@parameters('identity')",
            "audience": f"{API}/",
        },
        "retryPolicy": {"type": "exponential", "count": 4, "interval": "PT20S"},
        **({} if body is None else {"body": body}),
    }
    return {"type": "Http", "inputs": inputs, "operationOptions": "DisableAsyncPattern"}


def declare_stop(
    name: str,
    plan: StopPlan,
    subscription_id: str,
    stack: str,
    resource_group_name: pulumi.Input[str],
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
    *,
    wait_sec: float = 0,
) -> logic.Workflow:
    """Declares the workflow, and the identity it acts as; `wait_sec` as of Grantee."""
    group = pulumi.Output.from_input(resource_group_name).apply(lambda known: group_id(subscription_id, known))
    identity = managedidentity.UserAssignedIdentity(
        f"{name}-stop", resource_group_name=resource_group_name, location=location, tags=tags, opts=opts
    )
    grantee = Grantee(name, "stop", identity.principal_id, subscription_id, stack, opts, wait_sec)
    grants = [
        grantee.may("costs", COST_READER, group),
        *grantee.may_do("empty", "empty scale sets at the budget's end", stop_actions(), resource_group_name),
    ]
    values: dict[str, Any] = {
        "group": group,
        "heads": plan.heads,
        "identity": identity.id,
        "limit": plan.limit_usd,
        "sets": plan.groups,
    }
    return logic.Workflow(
        shortened(f"{name}-stop", MAX_WORKFLOW_NAME - RANDOM_DIGITS),
        resource_group_name=resource_group_name,
        location=location,
        state=logic.WorkflowState.ENABLED,
        definition=stop_definition(plan.tag_key, plan.tag_value),
        parameters={key: logic.WorkflowParameterArgs(type=kind, value=values[key]) for key, kind in PARAMETERS.items()},
        identity=logic.ManagedServiceIdentityArgs(
            type=logic.ManagedServiceIdentityType.USER_ASSIGNED, user_assigned_identities=[identity.id]
        ),
        tags=tags,
        # Started before it may act, it would stop nothing.
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=grants)),
    )
