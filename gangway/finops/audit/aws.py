"""What carries a stack's tag on AWS: Resource Groups Tagging API, and what EC2, FSx and KMS say of what it lists."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from components.core.findings import InputError
from gangway.finops.audit.classify_orphans import Billed, CloudResource, Listing
from gangway.finops.audit.state import StateResource

Client: TypeAlias = Any
"""A boto3 client: each service has a type of its own, and none is imported here."""
_MOST_IN_A_FILTER = 200
_LEAVING = ("terminated", "shutting-down", "deleting", "deleted", "failed")
More: TypeAlias = dict[str, Any]
"""Fields of CloudResource."""
TAG = "gangway:stack"
GLOBAL_REGION = "us-east-1"
"""Where the API lists what belongs to no region, such as IAM's."""
_OWNER_TAGS = ("aws:autoscaling:groupName", "aws:ec2:fleet-id", "aws:ec2spot:fleet-request-id")
_MAKERS = ("aws:autoscaling/group:Group", "aws:ec2/fleet:Fleet", "aws:ec2/spotFleetRequest:SpotFleetRequest")
"""Types whose instances name them by id."""
_LONE = {"s3": "bucket", "sns": "topic", "sqs": "queue"}
"""Services whose ARNs end with a mere name, and what it names."""
_SHORT_ID = re.compile(r"[a-z]+(?:-[a-z]+)*-[0-9a-f]{8,17}")


class Detail(NamedTuple):
    """How to ask about one kind of resource. `service`: boto3's name; `look`: ARNs by short id, and a client -> by
    short id what is there; what is missing is gone.
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


Clients: TypeAlias = Callable[[str, str], Client]
"""Makes a boto3 client from the names of a service and a region."""
_FREE = frozenset(
    {
        *("ec2:dhcp-options", "ec2:fleet", "ec2:internet-gateway", "ec2:key-pair", "ec2:launch-template"),
        *("ec2:network-acl", "ec2:network-interface", "ec2:placement-group", "ec2:route-table", "ec2:security-group"),
        *("ec2:security-group-rule", "ec2:spot-fleet-request", "ec2:spot-instances-request", "ec2:subnet", "ec2:vpc"),
        *("iam:instance-profile", "iam:policy", "iam:role"),
    }
)
"""Kinds that cost nothing by themselves."""


def list_aws(clients: Clients, stack: str, regions: Sequence[str]) -> Listing:
    """Everything with the stack's tag in these regions. InputError: no credentials, a right that is missing, a region
    that does not answer.
    """
    found: dict[str, CloudResource] = {}
    for region in regions:
        for resource in _asked(lambda: _of_region(clients, stack, region), region):  # noqa: B023 - called at once
            found[resource.id] = resource
    notes = ("only what carries the tag is seen, and only in these regions; --regions all asks everywhere",)
    return Listing(tuple(found.values()), f"regions {', '.join(regions)}", notes)


def get_regions(clients: Clients, words: str | None, own: str) -> list[str]:
    """The regions to ask: those named, all of the account's for `all`, else the stack's own and that of global things.
    InputError: no region is named, and nothing asked would read as nothing left over; else as `list_aws`.
    """
    if words is None:
        return list(dict.fromkeys([own, GLOBAL_REGION]))
    if words.strip() != "all":
        named = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
        if not named:
            raise InputError(
                "--regions",
                "names no region, so nothing would be asked",
                value=words,
                allowed="regions of AWS, with commas between them, or all",
                fix=f"write --regions {own}, or leave it out",
            )
        return named
    answer = _asked(lambda: clients("ec2", own).describe_regions(), own)
    return sorted(row["RegionName"] for row in answer["Regions"])


def state_keys(resource: StateResource) -> set[str]:
    """What a resource of the state is called in the list, or as somebody's owner: ARN, short id, a group's name."""
    if resource.type in _MAKERS:
        return {resource.id}
    names = (resource.id, resource.outputs.get("arn"))
    return {_plain(name) for name in names if isinstance(name, str) and _is_key(name)}


def _of_region(clients: Clients, stack: str, region: str) -> list[CloudResource]:
    tagging = clients("resourcegroupstaggingapi", region)
    filters = [{"Key": TAG, "Values": [stack]}]
    pages = tagging.get_paginator("get_resources").paginate(TagFilters=filters)
    rows = [row for page in pages for row in page["ResourceTagMappingList"]]
    resources = [*(_resource(row, region, stack) for row in rows), *_groups(clients, stack, region)]
    for kind, detail in DETAILS.items():
        if chosen := [each for each in resources if each.kind == kind]:
            others = [each for each in resources if each.kind != kind]
            resources = [*others, *_detailed(clients, region, chosen, detail)]
    return resources


def _groups(clients: Clients, stack: str, region: str) -> list[CloudResource]:
    """Auto Scaling groups: one that is left over makes nodes for ever."""
    filters = [{"Name": f"tag:{TAG}", "Values": [stack]}]
    pages = clients("autoscaling", region).get_paginator("describe_auto_scaling_groups").paginate
    rows = [row for page in pages(Filters=filters) for row in page["AutoScalingGroups"]]
    return [
        CloudResource(
            id=row["AutoScalingGroupARN"],
            keys=frozenset({row["AutoScalingGroupARN"], row["AutoScalingGroupName"]}),
            kind="autoscaling:group",
            name=row["AutoScalingGroupName"],
            region=region,
            gone="deleting" if row.get("Status") else "",
            billed=(),
        )
        for row in rows
    ]


def _detailed(clients: Clients, region: str, chosen: Sequence[CloudResource], detail: Detail) -> list[CloudResource]:
    """The same resources, with what their own service says of them."""
    client = clients(detail.service, region)
    answers = detail.look({_last(each.id): each.id for each in chosen}, client)
    return [
        replace(each, gone="no longer there") if (more := answers.get(_last(each.id))) is None else _merged(each, more)
        for each in chosen
    ]


def _merged(resource: CloudResource, more: Mapping[str, Any]) -> CloudResource:
    return replace(resource, **{**more, "owners": resource.owners | more.get("owners", frozenset())})


def _resource(row: Mapping[str, Any], region: str, stack: str) -> CloudResource:
    arn = row["ResourceARN"]
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    _, _, service, placed, _, rest = arn.split(":", 5)
    kind = f"{service}:{_LONE.get(service) or re.split('[/:]', rest)[0]}"
    last = _last(arn)
    return CloudResource(
        id=arn,
        keys=frozenset({_plain(arn), *([last] if _SHORT_ID.fullmatch(last) else [])}),
        kind=kind,
        name=tags.get("Name", last),
        region=placed or ("" if service == "iam" else region),
        owners=frozenset(tags[key] for key in _OWNER_TAGS if key in tags),
        kept=_kept(kind, last, stack),
        billed=() if kind in _FREE else None,
    )


def _kept(kind: str, name: str, stack: str) -> str:
    """Why it stays when its stack goes; empty for what should not."""
    if kind == "s3:bucket" and name.startswith(f"{stack}-runs"):
        return "the run bucket: what a stack's runs leave outlives it"
    if kind == "ec2:capacity-reservation":
        return "a bought block: nothing gives its price back"
    return ""


def _plain(arn: str) -> str:
    """Log groups end with :* in one place and not in the other."""
    return arn.removesuffix(":*")


def _last(arn: str) -> str:
    return re.split("[/:]", _plain(arn))[-1]


def _is_key(name: str) -> bool:
    return name.startswith("arn:") or _SHORT_ID.fullmatch(name) is not None


def _asked(question: Callable[[], Any], region: str) -> Any:
    """An answer of AWS, or the reason why there is none in words.

    Making a client belongs to the question: a profile that is not there and a region that is none show there.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return question()
    except (BotoCoreError, ClientError) as problem:
        raise InputError(
            f"AWS, {region}",
            "cannot be asked",
            value=str(problem),
            allowed="credentials with tag:GetResources, autoscaling:DescribeAutoScalingGroups, ec2:Describe*, "
            "fsx:DescribeFileSystems and kms:DescribeKey, and a region that the account has",
            fix="sign in (aws sso login, or AWS_PROFILE), or name other --regions",
        ) from None
