"""Sandbox handlers: EKS clusters, system nodes, add-ons, and access entries."""

from collections.abc import Mapping
from typing import Any

from gangway.sandbox.aws import Aws, Wire
from gangway.sandbox.network import Handler
from gangway.sandbox.rows import Applied


def _cluster(aws: Aws, wire: Wire) -> Applied:
    name, kinds = wire.physical_name(), wire.take("enabledClusterLogTypes").get("enabledClusterLogTypes", [])
    encryption = wire.take("encryptionConfig").get("encryptionConfig")
    inputs = {
        "name": name,
        "tags": wire.take("tags").get("tags", {}),
        **({"logging": {"clusterLogging": [{"types": kinds, "enabled": True}]}} if kinds else {}),
        **({"encryptionConfig": [encryption]} if encryption else {}),
        **wire.rest(),
    }
    parameters = aws.request("eks", "CreateCluster", inputs, vpcConfig="resourcesVpcConfig")
    made = aws.call("eks", "CreateCluster", parameters)["cluster"]

    def read_back() -> Mapping[str, Any]:
        cluster: Mapping[str, Any] = aws.read("eks", "DescribeCluster", {"name": name})["cluster"]
        return cluster

    computed = {
        "name": name,
        "arn": made["arn"],
        "endpoint": made["endpoint"],
        "certificateAuthority": {"data": made["certificateAuthority"]["data"]},
        "vpcConfig": {**wire.inputs.get("vpcConfig", {}), "clusterSecurityGroupId": "sg-0123456789abcdef0"},
    }
    unkept = (
        "accessConfig.authenticationMode",
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
        "kubernetesNetworkConfig.serviceIpv4Cidr",
        "resourcesVpcConfig.endpointPrivateAccess",
        "resourcesVpcConfig.endpointPublicAccess",
        "resourcesVpcConfig.publicAccessCidrs",
        "resourcesVpcConfig.subnetIds",
        "upgradePolicy.supportType",
    )
    return Applied(name, wire.outputs(**computed), parameters, read_back, unkept)


def _node_group(aws: Aws, wire: Wire) -> Applied:
    name = wire.physical_name("nodeGroupName")
    inputs = {"nodegroupName": name, "tags": wire.take("tags").get("tags", {}), **wire.rest()}
    renames = {"nodeRoleArn": "nodeRole", "subnetIds": "subnets"}
    parameters = aws.request("eks", "CreateNodegroup", inputs, **renames)
    aws.call("eks", "CreateNodegroup", parameters)
    cluster = parameters["clusterName"]

    def read_back() -> Mapping[str, Any]:
        key = {"clusterName": cluster, "nodegroupName": name}
        group: Mapping[str, Any] = aws.read("eks", "DescribeNodegroup", key)["nodegroup"]
        return group

    return Applied(f"{cluster}:{name}", wire.outputs(), parameters, read_back, ("updateConfig.maxUnavailable",))


def _validate_only(operation: str, **renames: str) -> Handler:
    """The handler for operations that moto lacks."""

    def handle(aws: Aws, wire: Wire) -> Applied:
        # Conflict handling has two inputs on the wire, one in the API.
        wire.skip("resolveConflictsOnUpdate")
        inputs = {"tags": wire.take("tags").get("tags", {}), **wire.rest()}
        aws.validate("eks", operation, aws.request("eks", operation, inputs, **renames))
        note = f"moto has no {operation}: botocore checked and serialized the request"
        return Applied(f"eks-{wire.name}", wire.outputs(), note=note)

    return handle


def _attachment(aws: Aws, wire: Wire) -> Applied:
    parameters = aws.request("iam", "AttachRolePolicy", wire.rest(), role="RoleName")
    aws.call("iam", "AttachRolePolicy", parameters)
    role, arn = parameters["RoleName"], parameters["PolicyArn"]

    def read_back() -> Mapping[str, Any]:
        found = aws.read("iam", "ListAttachedRolePolicies", {"RoleName": role})["AttachedPolicies"]
        return {"RoleName": role, "PolicyArn": arn if arn in {one["PolicyArn"] for one in found} else None}

    return Applied(f"{role}/{arn}", wire.outputs(), parameters, read_back)


KUBERNETES_HANDLERS: Mapping[str, Handler] = {
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:eks/addon:Addon": _validate_only("CreateAddon", resolveConflictsOnCreate="resolveConflicts"),
    "aws:eks/accessEntry:AccessEntry": _validate_only("CreateAccessEntry"),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _validate_only("CreatePodIdentityAssociation"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _attachment,
}
