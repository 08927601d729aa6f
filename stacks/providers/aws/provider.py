"""The provider AWS: facts that need no SDK."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gangway.components.aws.retention import RETENTION
from gangway.components.catalog.loader import bundled_folder
from gangway.components.catalog.tables import taken_per_month
from gangway.components.estimate.cost import Declared
from gangway.stacks.base.provider import NodeTypes, Program, Provider, Start, TagRules
from gangway.stacks.base.rule import is_unknown, items, kind
from gangway.stacks.providers.aws.settings import EXISTING, SETTINGS, existing_mistakes, get_existing

if TYPE_CHECKING:
    from gangway.stacks.providers.aws.plan import AwsPlan

# One line per module of the package: `module: Class Class`.
_TAGGABLE = """
    autoscaling: Group
    batch: ComputeEnvironment
    budgets: Budget
    cloudwatch: CompositeAlarm LogGroup MetricAlarm
    codebuild: Project
    dynamodb: Table
    ebs: Volume
    ec2: CapacityBlockReservation CapacityReservation DefaultSecurityGroup Eip Fleet FlowLog Instance
        InternetGateway LaunchTemplate NatGateway NetworkInterface PlacementGroup RouteTable SecurityGroup
        SpotFleetRequest SpotInstanceRequest Subnet Vpc VpcEndpoint
    ecr: Repository
    ecs: Cluster
    efs: FileSystem
    eks: AccessEntry Addon Cluster NodeGroup PodIdentityAssociation
    fsx: DataRepositoryAssociation LustreFileSystem
    iam: InstanceProfile Role
    imagebuilder: Component DistributionConfiguration Image ImageRecipe InfrastructureConfiguration
    kms: Key
    lambda: Function
    lb: LoadBalancer
    rds: Instance
    route53: ResolverFirewallDomainList ResolverFirewallRuleGroup ResolverFirewallRuleGroupAssociation Zone
    s3: Bucket BucketV2
    secretsmanager: Secret
    sns: Topic
    sqs: Queue
    ssm: Parameter
    vpc: SecurityGroupEgressRule SecurityGroupIngressRule
"""
_LAUNCHED = ("instance", "volume")
"""What a launch template starts and AWS bills: the tags of an Auto Scaling group do not reach volumes."""


def _program() -> "Program[AwsPlan]":
    from gangway.stacks.providers.aws import program

    return program


def _started(resource: Declared) -> Iterator[tuple[str, list[Any]]]:
    what, inputs = kind(resource.type), resource.inputs
    if what == "aws:ec2:Instance" and not inputs.get("launchTemplate"):
        roots = [one.get("tags") for one in items(inputs.get("rootBlockDevice"))]
        yield "its volumes", [inputs.get("volumeTags"), *roots]
    # A template without a type starts nothing by itself: an instance uses it.
    if what == "aws:ec2:LaunchTemplate" and "instanceType" in inputs:
        specifications = inputs.get("tagSpecifications")
        for launched in _LAUNCHED:
            given = [one.get("tags") for one in items(specifications) if one.get("resourceType") == launched]
            yield f"each {launched} it starts", [specifications] if is_unknown(specifications) else given


PROVIDER = Provider(
    name="aws",
    sdk="pulumi-aws",
    program=_program,
    home_region="us-east-1",
    has_regional_buckets=True,
    start=Start(
        "us-east-1",
        "g5.xlarge",
        shared={
            "storage": {"kind": "lustre", "capacity_gib": 2400, "throughput_mbps_per_tib": 250},
            "network": {"egress": "nat"},
        },
    ),
    adapters={
        "audit": "gangway.finops.audit.aws",
        "image-build": "gangway.live.image_build.aws",
        "live": "gangway.live.clouds.aws",
        "permissions": "gangway.live.permissions.aws",
        "preflight": "gangway.live.preflight.aws",
        "prices": "gangway.finops.prices.aws",
        "scaling": "gangway.jobs.systemd.scaling.aws",
    },
    packages=("boto3", "botocore"),
    settings=SETTINGS,
    mistakes=existing_mistakes,
    existing=lambda config: {f"{EXISTING}.{key}": id_ for key, id_ in get_existing(config).provided().items()},
    catalog=bundled_folder("aws"),
    bucket_service=lambda _resources: "s3-standard",
    spot_taken=partial(taken_per_month, "aws"),
    caps_spot=True,
    retention=RETENTION,
    tags=TagRules(
        package="aws", types=_TAGGABLE, started=_started, started_inputs=frozenset({"tagSpecifications", "volumeTags"})
    ),
    machine_types=frozenset(
        {
            "aws:autoscaling:Group",
            "aws:ec2:Fleet",
            "aws:ec2:Instance",
            "aws:ec2:SpotFleetRequest",
            "aws:eks:Cluster",
            "aws:eks:NodeGroup",
        }
    ),
    nodes=NodeTypes(
        machines=frozenset(
            {
                "aws:autoscaling:Group",
                "aws:ec2:Fleet",
                "aws:ec2:Instance",
                "aws:ec2:SpotFleetRequest",
                "aws:eks:NodeGroup",
            }
        ),
        templates=frozenset({"aws:ec2:LaunchTemplate"}),
        # EC2 stops an instance for these; EKS rolls over a managed group's nodes.
        restarting={
            "aws:ec2:Instance": ("instanceType", "userData", "userDataBase64", "ebsOptimized"),
            "aws:eks:NodeGroup": ("launchTemplate", "releaseVersion", "version"),
        },
    ),
    budget_types=frozenset({"aws:budgets:Budget"}),
    region_inputs={"pulumi:providers:aws": "region"},
)
