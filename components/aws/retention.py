"""AWS resource types by retention class."""

from gangway.components.core.retention import Retention, get_types

RETENTION = Retention(
    data={"aws:s3:Bucket": "run records; S3 refuses to delete a bucket that is not empty"},
    protections=get_types(
        "aws",
        {
            "a setting of the bucket, deleted with it; without it the objects are less protected": """
                s3: BucketLifecycleConfiguration BucketOwnershipControls BucketPolicy BucketPublicAccessBlock
                BucketServerSideEncryptionConfiguration BucketVersioning
            """
        },
    ),
    keys={"aws:kms:Key": "objects under a deleted key cannot be read"},
    key_grants=get_types("aws", {"who may use the key, and under which name": "kms: Alias KeyPolicy"}),
    copies={"aws:fsx:LustreFileSystem": "runs are exported to the bucket before it is deleted"},
    disposable=get_types(
        "aws",
        {
            "images can be built again from a commit and a lock": """
                ecr: LifecyclePolicy Repository imagebuilder: Component DistributionConfiguration
                Image ImageRecipe InfrastructureConfiguration
            """,
            "the link between file system and bucket": "fsx: DataRepositoryAssociation",
            "kept for days while the stack is up; records are in the bucket": "cloudwatch: LogGroup",
            "builds images, and keeps none": "codebuild: Project",
            "keys between the machines of one stack, created again by `up`": "ssm: Parameter",
            "machines and what runs on them: their disks are scratch": """
                autoscaling: Group LifecycleHook Policy Schedule ec2: CapacityBlockReservation Fleet Instance
                LaunchTemplate SpotFleetRequest eks: AccessEntry Addon Cluster NodeGroup PodIdentityAssociation
                lambda: Function Permission
            """,
            "the machines' network; buckets are outside of it": """
                ec2: DefaultSecurityGroup Eip FlowLog InternetGateway NatGateway PlacementGroup Route RouteTable
                RouteTableAssociation SecurityGroup Subnet Vpc VpcEndpoint route53: Record ResolverFirewallDomainList
                ResolverFirewallRule ResolverFirewallRuleGroup ResolverFirewallRuleGroupAssociation Zone vpc:
                SecurityGroupEgressRule SecurityGroupIngressRule
            """,
            "permissions of the stack's machines: without them fewer principals can read the data": """
                iam: InstanceProfile Role RolePolicy RolePolicyAttachment
            """,
            "budget, alarms and dashboards": """
                budgets: Budget cloudwatch: CompositeAlarm Dashboard LogMetricFilter MetricAlarm costexplorer:
                CostAllocationTag sns: Topic TopicPolicy TopicSubscription
            """,
        },
    ),
)
