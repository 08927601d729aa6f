"""Lists the AWS resources with a stack's tag (Resource Groups Tagging API) and adds details from EC2, FSx and KMS."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from gangway.components.core.findings import InputError
from gangway.finops.audit.classify_orphans import Billed, CloudResource, Listing
from gangway.finops.audit.state import StateResource
from gangway.stacks.config.stack_config import StackConfig

Client: TypeAlias = Any
"""A boto3 client: every service has its own type, and none is imported here."""
_MAX_FILTER_VALUES = 200
_LEAVING = ("terminated", "shutting-down", "deleting", "deleted", "failed")
Fields: TypeAlias = dict[str, Any]
"""Of CloudResource."""
TAG = "gangway:stack"
BY_REGION = True
"""Whether `regions` has an effect."""
GLOBAL_REGION = "us-east-1"
"""Where the API lists resources without a region, such as IAM's."""
_OWNER_TAGS = ("aws:autoscaling:groupName", "aws:ec2:fleet-id", "aws:ec2spot:fleet-request-id")
_CREATOR_TYPES = ("aws:autoscaling/group:Group", "aws:ec2/fleet:Fleet", "aws:ec2/spotFleetRequest:SpotFleetRequest")
"""Types whose instances refer to them by id."""
_BARE_NAME_KINDS = {"s3": "bucket", "sns": "topic", "sqs": "queue"}
"""The resource kind of services whose ARNs end with a bare name."""
_SHORT_ID = re.compile(r"[a-z]+(?:-[a-z]+)*-[0-9a-f]{8,17}")


class Detail(NamedTuple):
    """`service`: boto3's name; `look`: maps ARNs by short id to fields by short id; a missing id no longer exists."""

    service: str
    look: Callable[[Mapping[str, str], Client], dict[str, Fields]]


def _describe(client: Client, operation: str, key: str, filter_name: str, ids: Iterable[str]) -> Iterable[Any]:
    known = sorted(ids)
    for first in range(0, len(known), _MAX_FILTER_VALUES):
        filters = [{"Name": filter_name, "Values": known[first : first + _MAX_FILTER_VALUES]}]
        for page in client.get_paginator(operation).paginate(Filters=filters):
            yield from page[key]


def _instances(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for reservation in _describe(client, "describe_instances", "Reservations", "instance-id", arns):
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


def _volumes(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    return {
        row["VolumeId"]: {
            "gone": row["State"] if row["State"] in _LEAVING else "",
            "owners": frozenset(each["InstanceId"] for each in row.get("Attachments", ())),
            "billed": (Billed(f"ebs-{row['VolumeType']}", row["Size"]),),
        }
        for row in _describe(client, "describe_volumes", "Volumes", "volume-id", arns)
    }


def _interfaces(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    rows = _describe(client, "describe_network_interfaces", "NetworkInterfaces", "network-interface-id", arns)
    holders = {row["NetworkInterfaceId"]: row.get("Attachment", {}).get("InstanceId", "") for row in rows}
    return {interface: {"owners": frozenset({holder} - {""})} for interface, holder in holders.items()}


def _nat_gateways(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    # This filter has another name than all the others.
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


def _endpoints(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    # Lists the whole region: there are few.
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


def _file_systems(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
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


def _keys(arns: Mapping[str, str], client: Client) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for short, arn in arns.items():
        try:
            state = client.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"]
        except client.exceptions.NotFoundException:
            continue  # KMS has no filter by id; the deletion period is over
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


Clients: TypeAlias = Callable[[str, str], Client]
"""Makes a boto3 client from a service and a region."""
_FREE = frozenset(
    {
        *("ec2:dhcp-options", "ec2:fleet", "ec2:internet-gateway", "ec2:key-pair", "ec2:launch-template"),
        *("ec2:network-acl", "ec2:network-interface", "ec2:placement-group", "ec2:route-table", "ec2:security-group"),
        *("ec2:security-group-rule", "ec2:spot-fleet-request", "ec2:spot-instances-request", "ec2:subnet", "ec2:vpc"),
        *("iam:instance-profile", "iam:policy", "iam:role"),
    }
)
"""Kinds without a price."""


def list_resources(config: StackConfig, regions: str | None) -> Listing:
    """The resources with the stack's tag; `regions`: a list, `all`, or None for its own. InputError: AWS refuses."""
    import boto3

    def client(service: str, region: str) -> Any:
        return boto3.client(service, region_name=region)  # type: ignore[call-overload]  # one overload a service

    return list_aws(client, config.stack, get_regions(client, regions, config.region))


def list_aws(clients: Clients, stack: str, regions: Sequence[str]) -> Listing:
    """List resources with the stack's tag. InputError: no credentials, no permission or no such region."""
    found: dict[str, CloudResource] = {}
    for region in regions:
        for resource in _call_aws(lambda: _list_region(clients, stack, region), region):  # noqa: B023 - called at once
            found[resource.id] = resource
    notes = ("only tagged resources in these regions are listed; --regions all searches all regions",)
    return Listing(tuple(found.values()), f"regions {', '.join(regions)}", notes)


def get_regions(clients: Clients, words: str | None, own: str) -> list[str]:
    """The regions of `words`, all for `all`, else the stack's own and `GLOBAL_REGION`. InputError: none is named."""
    if words is None:
        return list(dict.fromkeys([own, GLOBAL_REGION]))
    if words.strip() != "all":
        names = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
        if not names:
            raise InputError(
                "--regions",
                "names no region",
                value=words,
                allowed="AWS regions separated by commas, or all",
                fix=f"write --regions {own}, or remove --regions",
            )
        return names
    answer = _call_aws(lambda: clients("ec2", own).describe_regions(), own)
    return sorted(row["RegionName"] for row in answer["Regions"])


def price_region(location: str) -> str:
    """The region whose prices apply at a resource's location."""
    return location


def state_keys(resource: StateResource) -> set[str]:
    """Keys of a state resource in the listing or among `owners`: its ARN, short id or group name."""
    if resource.type in _CREATOR_TYPES:
        return {resource.id}
    names = (resource.id, resource.outputs.get("arn"))
    texts = (name for name in names if isinstance(name, str))
    return {_plain(name) for name in texts if name.startswith("arn:") or _SHORT_ID.fullmatch(name)}


def _list_region(clients: Clients, stack: str, region: str) -> list[CloudResource]:
    tagging = clients("resourcegroupstaggingapi", region)
    filters = [{"Key": TAG, "Values": [stack]}]
    pages = tagging.get_paginator("get_resources").paginate(TagFilters=filters)
    rows = [row for page in pages for row in page["ResourceTagMappingList"]]
    resources = [*(_resource(row, region, stack) for row in rows), *_groups(clients, stack, region)]
    for kind, detail in DETAILS.items():
        if chosen := [each for each in resources if each.kind == kind]:
            others = [each for each in resources if each.kind != kind]
            resources = [*others, *_add_details(clients, region, chosen, detail)]
    return resources


def _groups(clients: Clients, stack: str, region: str) -> list[CloudResource]:
    """Auto Scaling groups: a leftover one creates nodes forever."""
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


def _add_details(clients: Clients, region: str, chosen: Sequence[CloudResource], detail: Detail) -> list[CloudResource]:
    answers = detail.look({_last(each.id): each.id for each in chosen}, clients(detail.service, region))
    return [
        replace(each, gone="no longer exists")
        if (more := answers.get(_last(each.id))) is None
        else replace(each, **{**more, "owners": each.owners | more.get("owners", frozenset())})
        for each in chosen
    ]


def _resource(row: Mapping[str, Any], region: str, stack: str) -> CloudResource:
    arn = row["ResourceARN"]
    tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}
    _, _, service, arn_region, _, rest = arn.split(":", 5)
    kind = f"{service}:{_BARE_NAME_KINDS.get(service) or re.split('[/:]', rest)[0]}"
    last = _last(arn)
    return CloudResource(
        id=arn,
        keys=frozenset({_plain(arn), *([last] if _SHORT_ID.fullmatch(last) else [])}),
        kind=kind,
        name=tags.get("Name", last),
        region=arn_region or ("" if service == "iam" else region),
        owners=frozenset(tags[key] for key in _OWNER_TAGS if key in tags),
        kept=_retention_reason(kind, last, stack),
        billed=() if kind in _FREE else None,
    )


def _retention_reason(kind: str, name: str, stack: str) -> str:
    if kind == "s3:bucket" and name.startswith(f"{stack}-runs"):
        return "the run bucket: outlives its stack"
    if kind == "ec2:capacity-reservation":
        return "a purchased block: not refundable"
    return ""


def _plain(arn: str) -> str:
    """Only one of the two APIs ends log groups with :*."""
    return arn.removesuffix(":*")


def _last(arn: str) -> str:
    return re.split("[/:]", _plain(arn))[-1]


def _call_aws(call: Callable[[], Any], region: str) -> Any:
    """Turn AWS errors into InputError. Create clients inside `call`: an unknown profile or region fails there."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return call()
    except (BotoCoreError, ClientError) as problem:
        raise InputError(
            f"AWS, {region}",
            "request failed",
            value=str(problem),
            allowed="credentials with tag:GetResources, autoscaling:DescribeAutoScalingGroups, ec2:Describe*, "
            "fsx:DescribeFileSystems and kms:DescribeKey, and an enabled region",
            fix="sign in (aws sso login, or AWS_PROFILE), or name other --regions",
        ) from None
