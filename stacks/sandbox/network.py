"""Sandbox handlers: VPC, subnets, routes, security groups, endpoints and the NAT gateway, as EC2 requests.

One function a resource type. Each follows what Pulumi's provider does with the same inputs, also where that is more
than one request (a new security group loses EC2's default egress rule).
"""

from collections.abc import Mapping
from typing import Any

from stacks.sandbox.aws import Aws, expected, one, tag_specifications
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]


def _create(aws: Aws, wire: Wire, noun: str, tag_type: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """EC2 names its requests alike: CreateVpc answers {Vpc: {VpcId}}. Returns the id and the request's parameters."""
    parameters = {**aws.request("ec2", f"Create{noun}", inputs), **tag_specifications(tag_type, wire)}
    answer = aws.call("ec2", f"Create{noun}", parameters)
    return answer[noun][f"{noun}Id"], parameters


def _describe(aws: Aws, noun: str, id_: str) -> Mapping[str, Any]:
    """The counterpart: DescribeVpcs takes VpcIds and answers {Vpcs: [...]}."""
    return one(aws.read("ec2", f"Describe{noun}s", {f"{noun}Ids": [id_]})[f"{noun}s"])


def _vpc(aws: Aws, wire: Wire) -> Applied:
    switches = aws.request("ec2", "ModifyVpcAttribute", wire.take("enableDnsSupport", "enableDnsHostnames"))
    id_, parameters = _create(aws, wire, "Vpc", "vpc", wire.rest())
    # EC2 takes one of these attributes a request, each wrapped in {Value: ...}.
    for attribute, value in switches.items():
        aws.call("ec2", "ModifyVpcAttribute", {"VpcId": id_, attribute: {"Value": value}})

    def held() -> Mapping[str, Any]:
        return {
            **_describe(aws, "Vpc", id_),
            **{
                attribute: aws.read(
                    "ec2", "DescribeVpcAttribute", {"VpcId": id_, "Attribute": attribute[0].lower() + attribute[1:]}
                )[attribute]["Value"]
                for attribute in switches
            },
        }

    return Applied(id_, wire.outputs(), {**expected(parameters, wire), **switches}, held)


def _subnet(aws: Aws, wire: Wire) -> Applied:
    public = wire.take("mapPublicIpOnLaunch").get("mapPublicIpOnLaunch", False)
    id_, parameters = _create(aws, wire, "Subnet", "subnet", wire.rest())
    if public:
        aws.call("ec2", "ModifySubnetAttribute", {"SubnetId": id_, "MapPublicIpOnLaunch": {"Value": True}})
    declared = {**expected(parameters, wire), "MapPublicIpOnLaunch": public}
    return Applied(id_, wire.outputs(), declared, lambda: _describe(aws, "Subnet", id_))


def _route_table(aws: Aws, wire: Wire) -> Applied:
    id_, parameters = _create(aws, wire, "RouteTable", "route-table", wire.rest())
    return Applied(id_, wire.outputs(), expected(parameters, wire), lambda: _describe(aws, "RouteTable", id_))


def _route_table_association(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("ec2", "AssociateRouteTable", wire.rest())
    id_ = aws.call("ec2", "AssociateRouteTable", parameters)["AssociationId"]

    def held() -> Mapping[str, Any]:
        table = _describe(aws, "RouteTable", parameters["RouteTableId"])
        return one([item for item in table["Associations"] if item["RouteTableAssociationId"] == id_])

    return Applied(id_, wire.outputs(), parameters, held)


def _route(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("ec2", "CreateRoute", wire.rest())
    aws.call("ec2", "CreateRoute", parameters)
    table, destination = parameters["RouteTableId"], parameters["DestinationCidrBlock"]

    def held() -> Mapping[str, Any]:
        routes = _describe(aws, "RouteTable", table)["Routes"]
        return one([item for item in routes if item.get("DestinationCidrBlock") == destination])

    declared = {key: value for key, value in parameters.items() if key != "RouteTableId"}
    return Applied(f"{table}_{destination}", wire.outputs(), declared, held)


_Permission = dict[str, Any]


def _permissions(rules: list[dict[str, Any]], group_id: str) -> list[_Permission]:
    """Pulumi's rules as EC2's permissions. Protocol -1 means every port, so EC2 takes no ports with it."""
    permissions = []
    for rule in rules:
        ports = {} if rule["protocol"] == "-1" else {"FromPort": int(rule["fromPort"]), "ToPort": int(rule["toPort"])}
        groups = [*rule.get("securityGroups", []), *([group_id] if rule.get("self") else [])]
        permissions.append(
            {
                "IpProtocol": rule["protocol"],
                **ports,
                "IpRanges": [{"CidrIp": cidr} for cidr in rule.get("cidrBlocks", [])],
                "UserIdGroupPairs": [{"GroupId": group} for group in groups],
            }
        )
    return permissions


def _sentences(permissions: list[_Permission]) -> list[str]:
    """Permissions one peer a line, because EC2 merges and splits them at will."""
    lines = []
    for permission in permissions:
        ports = f"{permission.get('FromPort', 'all')}-{permission.get('ToPort', 'all')}"
        peers = [item["CidrIp"] for item in permission["IpRanges"]]
        peers += [item["GroupId"] for item in permission["UserIdGroupPairs"]]
        lines += [f"protocol {permission['IpProtocol']} ports {ports} {peer}" for peer in peers]
    return lines


def _security_group(aws: Aws, wire: Wire) -> Applied:
    rules = wire.take("ingress", "egress")
    inputs = {"groupName": wire.physical_name(), **wire.take("description", "vpcId")}
    parameters = {
        **aws.request("ec2", "CreateSecurityGroup", inputs),
        **tag_specifications("security-group", wire),
    }
    id_ = aws.call("ec2", "CreateSecurityGroup", parameters)["GroupId"]
    default_egress = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    aws.call("ec2", "RevokeSecurityGroupEgress", {"GroupId": id_, "IpPermissions": [default_egress]})
    ingress, egress = (_permissions(rules.get(key, []), id_) for key in ("ingress", "egress"))
    for direction, permissions in (("Ingress", ingress), ("Egress", egress)):
        if permissions:
            aws.call("ec2", f"AuthorizeSecurityGroup{direction}", {"GroupId": id_, "IpPermissions": permissions})

    def held() -> Mapping[str, Any]:
        group = one(aws.read("ec2", "DescribeSecurityGroups", {"GroupIds": [id_]})["SecurityGroups"])
        return {
            **group,
            "IpPermissions": _sentences(group["IpPermissions"]),
            "IpPermissionsEgress": _sentences(group["IpPermissionsEgress"]),
        }

    declared = {
        **expected(parameters, wire),
        "IpPermissions": _sentences(ingress),
        "IpPermissionsEgress": _sentences(egress),
    }
    return Applied(id_, wire.outputs(name=parameters["GroupName"]), declared, held)


def _vpc_endpoint(aws: Aws, wire: Wire) -> Applied:
    id_, parameters = _create(aws, wire, "VpcEndpoint", "vpc-endpoint", wire.rest())

    def held() -> Mapping[str, Any]:
        endpoint = _describe(aws, "VpcEndpoint", id_)
        return {**endpoint, "SecurityGroupIds": [group["GroupId"] for group in endpoint["Groups"]]}

    return Applied(id_, wire.outputs(), expected(parameters, wire), held)


def _internet_gateway(aws: Aws, wire: Wire) -> Applied:
    vpc_id = wire.take("vpcId")["vpcId"]
    id_, parameters = _create(aws, wire, "InternetGateway", "internet-gateway", wire.rest())
    aws.call("ec2", "AttachInternetGateway", {"InternetGatewayId": id_, "VpcId": vpc_id})

    def held() -> Mapping[str, Any]:
        gateway = _describe(aws, "InternetGateway", id_)
        return {**gateway, "VpcId": one(gateway["Attachments"]).get("VpcId")}

    return Applied(id_, wire.outputs(), {**expected(parameters, wire), "VpcId": vpc_id}, held)


def _eip(aws: Aws, wire: Wire) -> Applied:
    parameters = {
        **aws.request("ec2", "AllocateAddress", wire.take("domain")),
        **tag_specifications("elastic-ip", wire),
    }
    answer = aws.call("ec2", "AllocateAddress", parameters)
    id_ = answer["AllocationId"]

    def held() -> Mapping[str, Any]:
        return one(aws.read("ec2", "DescribeAddresses", {"AllocationIds": [id_]})["Addresses"])

    outputs = wire.outputs(allocationId=id_, publicIp=answer["PublicIp"])
    return Applied(id_, outputs, expected(parameters, wire), held)


def _nat_gateway(aws: Aws, wire: Wire) -> Applied:
    id_, parameters = _create(aws, wire, "NatGateway", "natgateway", wire.rest())

    def held() -> Mapping[str, Any]:
        gateway = _describe(aws, "NatGateway", id_)
        return {**gateway, "AllocationId": one(gateway["NatGatewayAddresses"]).get("AllocationId")}

    return Applied(id_, wire.outputs(), expected(parameters, wire), held)


HANDLERS = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:ec2/routeTable:RouteTable": _route_table,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _route_table_association,
    "aws:ec2/route:Route": _route,
    "aws:ec2/securityGroup:SecurityGroup": _security_group,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _vpc_endpoint,
    "aws:ec2/internetGateway:InternetGateway": _internet_gateway,
    "aws:ec2/eip:Eip": _eip,
    "aws:ec2/natGateway:NatGateway": _nat_gateway,
}
