"""Sandbox handlers: VPC, subnets, routes, endpoints, NAT, security groups, flow logs, private DNS, DNS firewall."""

from collections.abc import Callable, Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Handler, Wire, expected, find, one, put, tag_specifications, validated
from gangway.sandbox.rows import Applied


def _describe_groups(aws: Aws, group_id: str) -> Mapping[str, Any]:
    return one(aws.read("ec2", "DescribeSecurityGroups", {"GroupIds": [group_id]})["SecurityGroups"])


def _security_group(aws: Aws, wire: Wire) -> Applied:
    parameters = {
        **aws.request("ec2", "CreateSecurityGroup", {"groupName": wire.physical_name(), **wire.rest()}),
        **tag_specifications("security-group", wire),
    }
    id_ = aws.call("ec2", "CreateSecurityGroup", parameters)["GroupId"]
    default_egress = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    aws.call("ec2", "RevokeSecurityGroupEgress", {"GroupId": id_, "IpPermissions": [default_egress]})
    outputs = wire.outputs(name=parameters["GroupName"])
    return Applied(id_, outputs, expected(parameters, wire), lambda: _describe_groups(aws, id_))


def _default_security_group(aws: Aws, wire: Wire) -> Applied:
    vpc_id = wire.take_value("vpcId")
    filters = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "group-name", "Values": ["default"]}]
    group = one(aws.read("ec2", "DescribeSecurityGroups", {"Filters": filters})["SecurityGroups"])
    id_ = group["GroupId"]
    for direction, key in (("Ingress", "IpPermissions"), ("Egress", "IpPermissionsEgress")):
        if group[key]:
            aws.call("ec2", f"RevokeSecurityGroup{direction}", {"GroupId": id_, "IpPermissions": group[key]})
    tags = wire.tags()
    if tags:
        aws.call("ec2", "CreateTags", {"Resources": [id_], **tags})
    declared = {"VpcId": vpc_id, "IpPermissions": [], "IpPermissionsEgress": [], **tags}
    return Applied(id_, wire.outputs(), declared, lambda: _describe_groups(aws, id_))


def _rule(direction: str) -> Handler:
    def handle(aws: Aws, wire: Wire) -> Applied:
        group_id = wire.take_value("securityGroupId")
        cidr, peer = map(wire.take_value, ("cidrIpv4", "referencedSecurityGroupId"))
        rule = {
            **wire.rest(),
            "ipRanges": [{"cidrIp": cidr}] if cidr else [],
            "userIdGroupPairs": [{"groupId": peer}] if peer else [],
        }
        permissions = aws.request("ec2", f"AuthorizeSecurityGroup{direction}", {"ipPermissions": rule})
        parameters = {"GroupId": group_id, **permissions, **tag_specifications("security-group-rule", wire)}
        (made,) = aws.call("ec2", f"AuthorizeSecurityGroup{direction}", parameters)["SecurityGroupRules"]
        id_ = made["SecurityGroupRuleId"]
        (permission,) = permissions["IpPermissions"]
        declared = {
            "GroupId": group_id,
            "IsEgress": direction == "Egress",
            **{key: permission[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in permission},
            **({"CidrIpv4": cidr} if cidr else {}),
            **({"ReferencedGroupInfo": {"GroupId": peer}} if peer else {}),
            **wire.tags(),
        }

        def read_back() -> Mapping[str, Any]:
            question = {"Filters": [{"Name": "group-id", "Values": [group_id]}]}
            rules = aws.read("ec2", "DescribeSecurityGroupRules", question)["SecurityGroupRules"]
            return find(rules, SecurityGroupRuleId=id_)

        return Applied(id_, wire.outputs(), declared, read_back)

    return handle


def _create(aws: Aws, wire: Wire, noun: str, tag_type: str, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """EC2's naming scheme: CreateVpc returns {Vpc: {VpcId}}. Returns the id and the request's parameters."""
    parameters = {**aws.request("ec2", f"Create{noun}", inputs), **tag_specifications(tag_type, wire)}
    answer = aws.call("ec2", f"Create{noun}", parameters)
    return answer[noun][f"{noun}Id"], parameters


def _describe(aws: Aws, noun: str, id_: str) -> Mapping[str, Any]:
    """Likewise DescribeVpcs takes VpcIds and returns {Vpcs: [...]}."""
    return one(aws.read("ec2", f"Describe{noun}s", {f"{noun}Ids": [id_]})[f"{noun}s"])


def _vpc(aws: Aws, wire: Wire) -> Applied:
    switches = aws.request("ec2", "ModifyVpcAttribute", wire.take("enableDnsSupport", "enableDnsHostnames"))
    id_, parameters = _create(aws, wire, "Vpc", "vpc", wire.rest())
    # EC2 takes one of these attributes per request, wrapped in {Value: ...}.
    for attribute, value in switches.items():
        aws.call("ec2", "ModifyVpcAttribute", {"VpcId": id_, attribute: {"Value": value}})

    def read_back() -> Mapping[str, Any]:
        return {
            **_describe(aws, "Vpc", id_),
            **{
                attribute: aws.read(
                    "ec2", "DescribeVpcAttribute", {"VpcId": id_, "Attribute": attribute[0].lower() + attribute[1:]}
                )[attribute]["Value"]
                for attribute in switches
            },
        }

    outputs = wire.outputs(arn=f"arn:aws:ec2:{aws.region}:{aws.account}:vpc/{id_}")
    return Applied(id_, outputs, {**expected(parameters, wire), **switches}, read_back)


def _subnet(aws: Aws, wire: Wire) -> Applied:
    public = wire.take_value("mapPublicIpOnLaunch", False)
    id_, parameters = _create(aws, wire, "Subnet", "subnet", wire.rest())
    if public:
        aws.call("ec2", "ModifySubnetAttribute", {"SubnetId": id_, "MapPublicIpOnLaunch": {"Value": True}})
    declared = {**expected(parameters, wire), "MapPublicIpOnLaunch": public}
    return Applied(id_, wire.outputs(), declared, lambda: _describe(aws, "Subnet", id_))


def _ec2(noun: str, tag_type: str, fields: Callable[[Mapping[str, Any]], Mapping[str, Any]], **renames: str) -> Handler:
    """A resource that follows this scheme. `fields`: those to compare, of its description."""
    return put(
        "ec2",
        f"Create{noun}",
        f"{{made[{noun}][{noun}Id]}}",
        lambda aws, _, id_: fields(_describe(aws, noun, id_)),
        tag_type=tag_type,
        policy="PolicyDocument",
    )


def _read_flow_log(aws: Aws, _: Mapping[str, Any], id_: str) -> Mapping[str, Any]:
    log = one(aws.read("ec2", "DescribeFlowLogs", {"FlowLogIds": [id_]})["FlowLogs"])
    return {**log, "ResourceIds": [log.get("ResourceId")], "ResourceType": "VPC"}


def _internet_gateway(aws: Aws, wire: Wire) -> Applied:
    vpc_id = wire.take_value("vpcId")
    id_, parameters = _create(aws, wire, "InternetGateway", "internet-gateway", wire.rest())
    aws.call("ec2", "AttachInternetGateway", {"InternetGatewayId": id_, "VpcId": vpc_id})

    def read_back() -> Mapping[str, Any]:
        gateway = _describe(aws, "InternetGateway", id_)
        return {**gateway, "VpcId": one(gateway["Attachments"]).get("VpcId")}

    return Applied(id_, wire.outputs(), {**expected(parameters, wire), "VpcId": vpc_id}, read_back)


def _zone(aws: Aws, wire: Wire) -> Applied:
    """A zone with a VPC is private; Route 53 takes one VPC at creation, and ours has one."""
    (vpc,) = wire.take_value("vpcs")
    wire.skip("forceDestroy")
    inputs = {
        "vpc": vpc,
        "hostedZoneConfig": {"comment": wire.take_value("comment"), "privateZone": True},
        "callerReference": wire.name,
        **wire.rest(),
    }
    parameters, made = aws.create("route53", "CreateHostedZone", inputs)
    id_ = made["HostedZone"]["Id"].rpartition("/")[2]
    labels = {"ResourceType": "hostedzone", "ResourceId": id_}
    tags = wire.tags("AddTags")
    if tags:
        aws.call("route53", "ChangeTagsForResource", {**labels, **tags})

    def read_back() -> Mapping[str, Any]:
        answer = aws.read("route53", "GetHostedZone", {"Id": id_})
        found = aws.read("route53", "ListTagsForResource", labels)["ResourceTagSet"]["Tags"]
        zone = answer["HostedZone"]
        return {
            "Name": zone["Name"].rstrip("."),
            "HostedZoneConfig": zone["Config"],
            "VPC": one(answer["VPCs"]),
            "CallerReference": zone["CallerReference"],
            "AddTags": found,
        }

    return Applied(id_, wire.outputs(), {**parameters, **tags}, read_back)


def _resolver(operation: str) -> Handler:
    def handle(aws: Aws, wire: Wire) -> Applied:
        name, domains = wire.physical_name(), wire.take_value("domains")
        inputs = {"creatorRequestId": wire.name, "name": name, **wire.rest()}
        parameters = {**aws.request("route53resolver", operation, inputs), **wire.tags()}
        id_ = f"rslvr-{wire.name}"
        applied = validated(aws, wire, "route53resolver", operation, parameters, id_, name=name)
        if domains:
            update = {"firewallDomainListId": id_, "operation": "REPLACE", "domains": domains}
            filling = aws.request("route53resolver", "UpdateFirewallDomains", update)
            aws.validate("route53resolver", "UpdateFirewallDomains", filling)
        return applied

    return handle


HANDLERS: Mapping[str, Handler] = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:ec2/routeTable:RouteTable": _ec2("RouteTable", "route-table", lambda found: found),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": put(
        "ec2",
        "AssociateRouteTable",
        "{made[AssociationId]}",
        lambda aws, sent, id_: find(
            _describe(aws, "RouteTable", sent["RouteTableId"])["Associations"], RouteTableAssociationId=id_
        ),
    ),
    "aws:ec2/route:Route": put(
        "ec2",
        "CreateRoute",
        "{RouteTableId}_{DestinationCidrBlock}",
        lambda aws, sent, _: find(
            _describe(aws, "RouteTable", sent["RouteTableId"])["Routes"],
            DestinationCidrBlock=sent["DestinationCidrBlock"],
        ),
        uncompared=("RouteTableId",),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _ec2(
        "VpcEndpoint",
        "vpc-endpoint",
        lambda found: {**found, "SecurityGroupIds": [group["GroupId"] for group in found["Groups"]]},
    ),
    "aws:ec2/internetGateway:InternetGateway": _internet_gateway,
    "aws:ec2/eip:Eip": put(
        "ec2",
        "AllocateAddress",
        "{made[AllocationId]}",
        lambda aws, _, id_: one(aws.read("ec2", "DescribeAddresses", {"AllocationIds": [id_]})["Addresses"]),
        tag_type="elastic-ip",
        outputs={"allocationId": "{made[AllocationId]}", "publicIp": "{made[PublicIp]}"},
    ),
    "aws:ec2/natGateway:NatGateway": _ec2(
        "NatGateway",
        "natgateway",
        lambda found: {**found, "AllocationId": one(found["NatGatewayAddresses"]).get("AllocationId")},
    ),
    "aws:ec2/flowLog:FlowLog": put(
        "ec2",
        "CreateFlowLogs",
        "{made[FlowLogIds][0]}",
        _read_flow_log,
        tag_type="vpc-flow-log",
        fixed={"resourceType": "VPC"},
        vpcId="ResourceIds",
        iamRoleArn="DeliverLogsPermissionArn",
    ),
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": _resolver("CreateFirewallDomainList"),
    "aws:route53/resolverFirewallRule:ResolverFirewallRule": _resolver("CreateFirewallRule"),
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": _resolver("CreateFirewallRuleGroup"),
    "aws:route53/resolverFirewallRuleGroupAssociation:ResolverFirewallRuleGroupAssociation": _resolver(
        "AssociateFirewallRuleGroup"
    ),
    "aws:route53/zone:Zone": _zone,
    "aws:ec2/securityGroup:SecurityGroup": _security_group,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _default_security_group,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("Ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("Egress"),
}
