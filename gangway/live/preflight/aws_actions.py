"""Main IAM actions of a stack on AWS, by its planned resources, and the service-linked roles they use."""

from collections.abc import Mapping

from gangway.stacks.base.rule import kind
from gangway.stacks.plan.plan import Plan

# One line per service of IAM: `service: Class=Action`, or Class where the action is CreateClass. The class is that of
# the resource's type, with its module where two modules have the same class.
_TABLE = """
    autoscaling: Group=CreateAutoScalingGroup autoscaling:Policy=PutScalingPolicy Schedule=PutScheduledUpdateGroupAction
    budgets: Budget=ModifyBudget
    cloudwatch: CompositeAlarm=PutCompositeAlarm Dashboard=PutDashboard MetricAlarm=PutMetricAlarm
    ec2: CapacityBlockReservation=PurchaseCapacityBlock DefaultSecurityGroup=RevokeSecurityGroupIngress
        Eip=AllocateAddress Fleet FlowLog=CreateFlowLogs Instance=RunInstances InternetGateway LaunchTemplate NatGateway
        PlacementGroup Route RouteTable RouteTableAssociation=AssociateRouteTable SecurityGroup
        SpotFleetRequest=RequestSpotFleet Subnet Vpc VpcEndpoint SecurityGroupEgressRule=AuthorizeSecurityGroupEgress
        SecurityGroupIngressRule=AuthorizeSecurityGroupIngress
    ecr: ecr:LifecyclePolicy=PutLifecyclePolicy Repository
    eks: AccessEntry Addon eks:Cluster NodeGroup=CreateNodegroup PodIdentityAssociation
    fsx: DataRepositoryAssociation LustreFileSystem=CreateFileSystem
    iam: InstanceProfile Role RolePolicy=PutRolePolicy RolePolicyAttachment=AttachRolePolicy
    kms: Alias Key KeyPolicy=PutKeyPolicy
    lambda: Function lambda:Permission=AddPermission
    logs: LogGroup LogMetricFilter=PutMetricFilter
    route53: Record=ChangeResourceRecordSets Zone=CreateHostedZone
    route53resolver: ResolverFirewallDomainList=CreateFirewallDomainList ResolverFirewallRule=CreateFirewallRule
        ResolverFirewallRuleGroup=CreateFirewallRuleGroup
        ResolverFirewallRuleGroupAssociation=AssociateFirewallRuleGroup
    s3: Bucket BucketLifecycleConfiguration=PutLifecycleConfiguration
        BucketOwnershipControls=PutBucketOwnershipControls BucketPolicy=PutBucketPolicy
        BucketPublicAccessBlock=PutBucketPublicAccessBlock
        BucketServerSideEncryptionConfiguration=PutEncryptionConfiguration BucketVersioning=PutBucketVersioning
    sns: Topic TopicPolicy=SetTopicAttributes TopicSubscription=Subscribe
    ssm: Parameter=PutParameter
"""
_ALSO = {"aws:iam:Role": ("iam:PassRole",), "aws:ec2:LaunchTemplate": ("ec2:RunInstances", "ec2:CreateTags")}
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


def _actions() -> dict[str, str]:
    found: dict[str, str] = {}
    service = ""
    for word in _TABLE.split():
        if word.endswith(":"):
            service = word[:-1]
            continue
        name, _, action = word.partition("=")
        found[name] = f"{service}:{action or 'Create' + name.rpartition(':')[2]}"
    return found


ACTIONS = _actions()
"""By class, or `module:Class`: the action that creates it."""


def find_action(resource_kind: str) -> str | None:
    """The action that creates a kind of resource such as `aws:ec2:Vpc`; None for other kinds."""
    package, _, name = resource_kind.partition(":")
    if package != "aws":
        return None
    return ACTIONS.get(name) or ACTIONS.get(name.rpartition(":")[2])


def planned_actions(plan: Plan) -> tuple[str, ...]:
    """What `up` must be allowed to do, as far as its resources' types tell: their creation, not reading or tagging."""
    kinds = {kind(resource.type) for resource in plan.resources}
    found = {action for each in kinds if (action := find_action(each)) is not None}
    return tuple(sorted(found.union(*(_ALSO.get(each, ()) for each in kinds))))


def service_roles(plan: Plan) -> dict[str, str]:
    """The service-linked roles that the stack's resources use, with their services."""
    kinds = {kind(resource.type) for resource in plan.resources}
    found = {name: service for each in kinds for name, service in SERVICE_ROLES.get(each, {}).items()}
    has_spot = any(rung.kind == "spot" for rung in plan.config.cluster.capacity)
    return dict(sorted({**found, **(dict([SPOT_ROLE]) if has_spot else {})}.items()))
