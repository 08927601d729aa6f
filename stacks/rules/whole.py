"""Rules that no single resource keeps or breaks: a budget beside the machines, an end for each capacity block. Pure."""

from collections.abc import Iterable, Sequence

from components.cost import Declared
from components.findings import Severity
from stacks.rules.inputs import below, is_unknown, items, kind
from stacks.rules.rule import StackRule

__all__ = ["BLOCK_ENDS", "BUDGET_PRESENT"]

# What is billed by the hour as long as it stands, and what counts it.
MACHINES = frozenset(
    {
        "aws:autoscaling:Group",
        "aws:ec2:Fleet",
        "aws:ec2:Instance",
        "aws:ec2:SpotFleetRequest",
        "azure-native:compute:VirtualMachine",
        "azure-native:compute:VirtualMachineScaleSet",
        "gcp:compute:Instance",
        "gcp:compute:InstanceGroupManager",
        "gcp:compute:RegionInstanceGroupManager",
        "gcp:tpu:V2Vm",
        "pulumi-python:dynamic:QueuedTpuRequest",
    }
)
BUDGETS = frozenset(
    {
        "aws:budgets:Budget",
        "azure-native:consumption:Budget",
        "azure-native:costmanagement:Budget",
        "gcp:billing:Budget",
    }
)


def _no_budget(resources: Sequence[Declared]) -> Iterable[str]:
    kinds = [kind(resource.type) for resource in resources]
    machines = sum(one in MACHINES for one in kinds)
    if machines and not any(one in BUDGETS for one in kinds):
        yield f"{machines} resources that are or start machines, and no budget that counts them"


def _no_end(resources: Sequence[Declared]) -> Iterable[str]:
    """A block's nodes are paid for until its end, and ended by EC2 without notice where nobody stops them."""
    blocks = [resource.name for resource in resources if _in_block(resource)]
    schedules = [resource.inputs for resource in resources if kind(resource.type) == "aws:autoscaling:Schedule"]
    # Which group a schedule ends is known only once that group stands: they are counted.
    ends = sum(is_unknown(inputs.get("maxSize")) or inputs.get("maxSize") == 0 for inputs in schedules)
    if len(blocks) > ends:
        yield (
            f"{', '.join(sorted(blocks))}: {len(blocks)} launch templates for capacity blocks, and {ends} scheduled "
            "actions that stop nodes before the block's end"
        )


def _in_block(resource: Declared) -> bool:
    markets = items(below(resource.inputs, "instanceMarketOptions"))
    is_template = kind(resource.type) == "aws:ec2:LaunchTemplate"
    return is_template and any(one.get("marketType") == "capacity-block" for one in markets)


BUDGET_PRESENT = StackRule(
    code="budget.missing",
    severity=Severity.ERROR,
    holds="A stack with machines has a budget",
    path="gangway:budget",
    fix="add a budget: the components aws.Budget, gcp.Budget and azure.Budget alarm and can stop nodes",
    check=_no_budget,
)
BLOCK_ENDS = StackRule(
    code="capacity.block-end",
    severity=Severity.WARNING,
    holds="Nodes from a capacity block are stopped before it ends",
    path="gangway:cluster.capacity",
    fix="set ends_at: of the block, from which Gangway makes the scheduled action",
    check=_no_end,
)
