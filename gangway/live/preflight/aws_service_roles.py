"""The service-linked roles that a stack on AWS uses."""

from collections.abc import Mapping

from gangway.stacks.base.rule import kind
from gangway.stacks.plan.plan import Plan

SERVICE_ROLES: Mapping[str, Mapping[str, str]] = {
    "aws:autoscaling:Group": {"AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com"},
    "aws:ec2:Fleet": {"AWSServiceRoleForEC2Fleet": "ec2fleet.amazonaws.com"},
    "aws:ec2:SpotFleetRequest": {"AWSServiceRoleForEC2SpotFleet": "spotfleet.amazonaws.com"},
    "aws:eks:Cluster": {"AWSServiceRoleForAmazonEKS": "eks.amazonaws.com"},
    "aws:eks:NodeGroup": {"AWSServiceRoleForAmazonEKSNodegroup": "eks-nodegroup.amazonaws.com"},
    "aws:fsx:LustreFileSystem": {"AWSServiceRoleForAmazonFSx": "fsx.amazonaws.com"},
}
"""By kind of resource: service-linked roles and their services. AWS creates them on demand."""
SPOT_ROLE = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")


def service_roles(plan: Plan) -> dict[str, str]:
    """The service-linked roles that the stack's resources use, with their services."""
    kinds = {kind(resource.type) for resource in plan.resources}
    found = {name: service for each in kinds for name, service in SERVICE_ROLES.get(each, {}).items()}
    has_spot = any(rung.kind == "spot" for rung in plan.config.cluster.capacity)
    return dict(sorted({**found, **(dict([SPOT_ROLE]) if has_spot else {})}.items()))
