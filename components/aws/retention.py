"""AWS resource types by retention class."""

from gangway.components.core.retention import Retention, get_types

_IN_BUCKET = "a setting of the bucket, deleted with it; without it the objects are less protected"

RETENTION = Retention(
    data={"aws:s3:Bucket": "run records; S3 refuses to delete a bucket that is not empty"},
    protections=get_types(
        "aws",
        "s3: BucketLifecycleConfiguration BucketOwnershipControls BucketPolicy BucketPublicAccessBlock "
        "BucketServerSideEncryptionConfiguration BucketVersioning",
        _IN_BUCKET,
    ),
    keys={"aws:kms:Key": "objects under a deleted key cannot be read"},
    key_grants=get_types("aws", "kms: Alias KeyPolicy", "who may use the key, and under which name"),
    copies={"aws:fsx:LustreFileSystem": "runs are exported to the bucket before it is deleted"},
    disposable={
        **get_types("aws", "ecr: LifecyclePolicy Repository", "images can be built again from a commit and a lock"),
        **get_types("aws", "fsx: DataRepositoryAssociation", "the link between file system and bucket"),
        **get_types("aws", "cloudwatch: LogGroup", "kept for days while the stack is up; records are in the bucket"),
        **get_types("aws", "ssm: Parameter", "keys between the machines of one stack, created again by `up`"),
        **get_types(
            "aws",
            "autoscaling: Group LifecycleHook Policy Schedule ec2: CapacityBlockReservation Fleet Instance "
            "LaunchTemplate SpotFleetRequest eks: AccessEntry Addon Cluster NodeGroup PodIdentityAssociation "
            "lambda: Function Permission",
            "machines and what runs on them: their disks are scratch",
        ),
        **get_types(
            "aws",
            "ec2: DefaultSecurityGroup Eip FlowLog InternetGateway NatGateway PlacementGroup Route RouteTable "
            "RouteTableAssociation SecurityGroup Subnet Vpc VpcEndpoint route53: Record ResolverFirewallDomainList "
            "ResolverFirewallRule ResolverFirewallRuleGroup ResolverFirewallRuleGroupAssociation Zone "
            "vpc: SecurityGroupEgressRule SecurityGroupIngressRule",
            "the machines' network; buckets are outside of it",
        ),
        **get_types(
            "aws",
            "iam: InstanceProfile Role RolePolicy RolePolicyAttachment",
            "permissions of the stack's machines: without them fewer principals can read the data",
        ),
        **get_types(
            "aws",
            "budgets: Budget cloudwatch: CompositeAlarm Dashboard LogMetricFilter MetricAlarm "
            "costexplorer: CostAllocationTag sns: Topic TopicPolicy TopicSubscription",
            "budget, alarms and dashboards",
        ),
    },
)
