"""Sandbox handlers: security groups and their rules, each rule a resource of its own.

As Pulumi's provider does: a new group loses EC2's default egress rule, and a VPC's default group is adopted and
emptied. Inline rules are not taken: a group with them would be at odds with the separate ones.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stacks.sandbox.aws import Aws, expected, one, tag_specifications
from stacks.sandbox.rows import Applied
from stacks.sandbox.wire import Wire

__all__ = ["HANDLERS"]

Handler = Callable[[Aws, Wire], Applied]


def _describe(aws: Aws, group_id: str) -> Mapping[str, Any]:
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
    return Applied(id_, outputs, expected(parameters, wire), lambda: _describe(aws, id_))


def _default_security_group(aws: Aws, wire: Wire) -> Applied:
    vpc_id = wire.take("vpcId")["vpcId"]
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
    return Applied(id_, wire.outputs(), declared, lambda: _describe(aws, id_))


def _rule(direction: str) -> Handler:
    """The handler of one direction; EC2 wraps the rule in a permission and answers the rule with an id."""

    def handle(aws: Aws, wire: Wire) -> Applied:
        group_id = wire.take("securityGroupId")["securityGroupId"]
        cidr, peer = (wire.take(key).get(key) for key in ("cidrIpv4", "referencedSecurityGroupId"))
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

        def held() -> Mapping[str, Any]:
            question = {"Filters": [{"Name": "group-id", "Values": [group_id]}]}
            rules = aws.read("ec2", "DescribeSecurityGroupRules", question)["SecurityGroupRules"]
            return one([item for item in rules if item["SecurityGroupRuleId"] == id_])

        return Applied(id_, wire.outputs(), declared, held)

    return handle


HANDLERS = {
    "aws:ec2/securityGroup:SecurityGroup": _security_group,
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _default_security_group,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("Ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("Egress"),
}
