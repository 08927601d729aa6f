"""What EC2, FSx and KMS say of resources that a list by tag holds: whether they are there, whose, how large.

By filter and never by id alone: one that is gone must not make the answer for all others an error.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from stacks.audit.model import Billed

__all__ = ["DETAILS", "Client", "Detail"]

Client: TypeAlias = Any
"""A boto3 client: each service has a type of its own, and none is imported here."""
_MOST_IN_A_FILTER = 200
_LEAVING = ("terminated", "shutting-down", "deleting", "deleted", "failed")
More: TypeAlias = dict[str, Any]
"""Fields of CloudResource."""


class Detail(NamedTuple):
    """How to ask about one kind of resource.

    Attributes:
        service: boto3's name.
        look: ARNs by short id, and a client -> by short id what is there; what is missing is gone.
    """

    service: str
    look: Callable[[Mapping[str, str], Client], dict[str, More]]


def _described(client: Client, operation: str, key: str, filter_name: str, ids: Iterable[str]) -> Iterable[Any]:
    """Rows of a Describe call of EC2, asked by filter."""
    known = sorted(ids)
    for first in range(0, len(known), _MOST_IN_A_FILTER):
        filters = [{"Name": filter_name, "Values": known[first : first + _MOST_IN_A_FILTER]}]
        for page in client.get_paginator(operation).paginate(Filters=filters):
            yield from page[key]


def _instances(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    found: dict[str, More] = {}
    for reservation in _described(client, "describe_instances", "Reservations", "instance-id", arns):
        for row in reservation["Instances"]:
            state = row["State"]["Name"]
            lifecycle = row.get("InstanceLifecycle")
            spot, block = lifecycle == "spot", lifecycle == "capacity-block"
            machine = Billed(row["InstanceType"], kind="machine", market="spot" if spot else "on-demand")
            found[row["InstanceId"]] = {
                "gone": state if state in _LEAVING else "",
                # Stopped, only its volumes cost; a block's hours were paid when it was bought.
                "billed": () if block or state in ("stopped", "stopping") else (machine,),
            }
    return found


def _volumes(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    return {
        row["VolumeId"]: {
            "gone": row["State"] if row["State"] in _LEAVING else "",
            "owners": frozenset(each["InstanceId"] for each in row.get("Attachments", ())),
            "billed": (Billed(f"ebs-{row['VolumeType']}", row["Size"]),),
        }
        for row in _described(client, "describe_volumes", "Volumes", "volume-id", arns)
    }


def _interfaces(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    rows = _described(client, "describe_network_interfaces", "NetworkInterfaces", "network-interface-id", arns)
    return {row["NetworkInterfaceId"]: {"owners": frozenset({_holder(row)} - {""})} for row in rows}


def _holder(interface: Mapping[str, Any]) -> str:
    holder: str = interface.get("Attachment", {}).get("InstanceId", "")
    return holder


def _nat_gateways(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    # Its filter has another name than everybody else's.
    pages = client.get_paginator("describe_nat_gateways").paginate(
        Filter=[{"Name": "nat-gateway-id", "Values": sorted(arns)}]
    )
    return {
        row["NatGatewayId"]: {
            "gone": row["State"] if row["State"] in _LEAVING else "",
            "billed": (Billed("nat-gateway"),),
        }
        for page in pages
        for row in page["NatGateways"]
    }


def _endpoints(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    # All of the region's, which are few.
    rows = (row for page in client.get_paginator("describe_vpc_endpoints").paginate() for row in page["VpcEndpoints"])
    return {
        row["VpcEndpointId"]: {
            "gone": row["State"].lower() if row["State"].lower() in _LEAVING else "",
            "billed": (Billed("interface-endpoint", len(row.get("SubnetIds", ()))),)
            if row["VpcEndpointType"] == "Interface"
            else (),
        }
        for row in rows
        if row["VpcEndpointId"] in arns
    }


def _file_systems(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    rows = (row for page in client.get_paginator("describe_file_systems").paginate() for row in page["FileSystems"])
    return {
        row["FileSystemId"]: {
            "gone": "deleting" if row.get("Lifecycle") == "DELETING" else "",
            "billed": _lustre(row),
        }
        for row in rows
        if row["FileSystemId"] in arns
    }


def _lustre(row: Mapping[str, Any]) -> tuple[Billed, ...] | None:
    own = row.get("LustreConfiguration")
    if own is None:
        return None
    tier = own.get("PerUnitStorageThroughput")
    service = "lustre-scratch-2" if own.get("DeploymentType") == "SCRATCH_2" else f"lustre-persistent-2-{tier}"
    iops = (own.get("MetadataConfiguration") or {}).get("Iops")
    more = (Billed("lustre-metadata-iops", iops),) if iops else ()
    return (Billed(service, row["StorageCapacity"]), *more)


def _keys(arns: Mapping[str, str], client: Client) -> dict[str, More]:
    found: dict[str, More] = {}
    for short, arn in arns.items():
        try:
            state = client.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"]
        except client.exceptions.NotFoundException:
            continue  # KMS knows no filter by id; its waiting time is over
        found[short] = {
            "gone": "scheduled for deletion" if state == "PendingDeletion" else "",
            "billed": (Billed("kms-key"),),
        }
    return found


DETAILS: Mapping[str, Detail] = MappingProxyType(
    {
        "ec2:instance": Detail("ec2", _instances),
        "ec2:volume": Detail("ec2", _volumes),
        "ec2:network-interface": Detail("ec2", _interfaces),
        "ec2:natgateway": Detail("ec2", _nat_gateways),
        "ec2:vpc-endpoint": Detail("ec2", _endpoints),
        "fsx:file-system": Detail("fsx", _file_systems),
        "kms:key": Detail("kms", _keys),
    }
)
"""By kind of resource."""
