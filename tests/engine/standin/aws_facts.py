"""Facts about AWS that its SDK does not say: how ids and ARNs look, and which inputs a living resource cannot change.

Kept by hand, for the types that the components declare; from the AWS provider's documentation ("Forces new resource").
"""

from collections.abc import Mapping

ID_PREFIXES: Mapping[str, str] = {
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": "cr",
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/fleet:Fleet": "fleet",
    "aws:ec2/flowLog:FlowLog": "fl",
    "aws:ec2/instance:Instance": "i",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/route:Route": "r-rtb",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/spotFleetRequest:SpotFleetRequest": "sfr",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dra",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": "rslvr-fdl",
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": "rslvr-frg",
    "aws:route53/resolverFirewallRuleGroupAssociation:ResolverFirewallRuleGroupAssociation": "rslvr-frgassoc",
    "aws:route53/zone:Zone": "Z",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "sgr",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "sgr",
}

# What is named within another resource, or is a part of it: its id is made of these inputs.
PERMISSION = "aws:lambda/permission:Permission"
ID_INPUTS: Mapping[str, tuple[str, ...]] = {
    "aws:autoscaling/lifecycleHook:LifecycleHook": ("autoscalingGroupName", "name"),
    "aws:autoscaling/policy:Policy": ("autoscalingGroupName", "name"),
    "aws:autoscaling/schedule:Schedule": ("autoscalingGroupName", "scheduledActionName"),
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": ("alarmName",),
    "aws:cloudwatch/dashboard:Dashboard": ("dashboardName",),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": ("logGroupName", "name"),
    "aws:costexplorer/costAllocationTag:CostAllocationTag": ("tagKey",),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": ("repository",),
    "aws:iam/rolePolicy:RolePolicy": ("role", "name"),
    "aws:kms/keyPolicy:KeyPolicy": ("keyId",),
    PERMISSION: ("function", "statementId"),
    "aws:route53/record:Record": ("zoneId", "name", "type"),
    "aws:route53/resolverFirewallRule:ResolverFirewallRule": ("firewallRuleGroupId", "firewallDomainListId"),
    "aws:sns/topicPolicy:TopicPolicy": ("arn",),
    "aws:sns/topicSubscription:TopicSubscription": ("topic", "protocol", "endpoint"),
}

GLOBAL_SERVICES = frozenset({"iam", "route53", "s3"})

# After `arn:aws:service:region:account:`; `kind/id` where nothing stands here.
ARN_PATHS: Mapping[str, str] = {
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": "alarm:{}",
    "aws:cloudwatch/logGroup:LogGroup": "log-group:{}",
    "aws:cloudwatch/metricAlarm:MetricAlarm": "alarm:{}",
    "aws:iam/instanceProfile:InstanceProfile": "instance-profile/{}",
    "aws:lambda/function:Function": "function:{}",
    "aws:s3/bucket:Bucket": "{}",
    "aws:sns/topic:Topic": "{}",
}

_BUCKET = frozenset({"bucket"})
_NAME = frozenset({"name"})

REPLACING_INPUTS: Mapping[str, frozenset[str]] = {
    "aws:autoscaling/group:Group": frozenset({"name"}),
    "aws:autoscaling/lifecycleHook:LifecycleHook": frozenset({"name"}),
    "aws:autoscaling/policy:Policy": frozenset({"name", "autoscalingGroupName"}),
    "aws:autoscaling/schedule:Schedule": frozenset({"scheduledActionName", "autoscalingGroupName"}),
    "aws:budgets/budget:Budget": frozenset({"name"}),
    "aws:cloudwatch/compositeAlarm:CompositeAlarm": frozenset({"alarmName"}),
    "aws:cloudwatch/dashboard:Dashboard": frozenset({"dashboardName"}),
    "aws:cloudwatch/logGroup:LogGroup": frozenset({"name", "logGroupClass"}),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": frozenset({"name", "logGroupName"}),
    "aws:cloudwatch/metricAlarm:MetricAlarm": frozenset({"name"}),
    "aws:codebuild/project:Project": _NAME,
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": frozenset(
        {"capacityBlockOfferingId", "instancePlatform"}
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": frozenset({"vpcId"}),
    "aws:ec2/fleet:Fleet": frozenset({"onDemandOptions", "replaceUnhealthyInstances", "spotOptions", "type"}),
    "aws:ec2/flowLog:FlowLog": frozenset(
        {"iamRoleArn", "logDestination", "logFormat", "maxAggregationInterval", "trafficType", "vpcId"}
    ),
    # User data only with userDataReplaceOnChange, which HeadNode sets.
    "aws:ec2/instance:Instance": frozenset(
        {"ami", "availabilityZone", "keyName", "launchTemplate", "subnetId", "userData", "userDataBase64"}
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": frozenset({"name"}),
    "aws:ec2/natGateway:NatGateway": frozenset({"allocationId", "subnetId"}),
    "aws:ec2/placementGroup:PlacementGroup": frozenset({"name", "strategy"}),
    "aws:ec2/route:Route": frozenset({"destinationCidrBlock", "routeTableId"}),
    "aws:ec2/routeTable:RouteTable": frozenset({"vpcId"}),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": frozenset({"subnetId"}),
    "aws:ec2/securityGroup:SecurityGroup": frozenset({"name", "description", "vpcId"}),
    "aws:ec2/spotFleetRequest:SpotFleetRequest": frozenset(
        {"allocationStrategy", "fleetType", "iamFleetRole", "launchTemplateConfigs", "replaceUnhealthyInstances"}
    ),
    "aws:ec2/subnet:Subnet": frozenset({"availabilityZone", "cidrBlock", "vpcId"}),
    "aws:ec2/vpc:Vpc": frozenset({"cidrBlock", "instanceTenancy"}),
    "aws:ec2/vpcEndpoint:VpcEndpoint": frozenset({"serviceName", "vpcEndpointType", "vpcId"}),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": frozenset({"policy", "repository"}),
    "aws:ecr/repository:Repository": frozenset({"name", "encryptionConfigurations"}),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": frozenset(
        {"dataRepositoryPath", "fileSystemId", "fileSystemPath"}
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": frozenset(
        {"deploymentType", "efaEnabled", "kmsKeyId", "securityGroupIds", "storageType", "subnetIds"}
    ),
    "aws:iam/instanceProfile:InstanceProfile": frozenset({"name", "path"}),
    "aws:iam/role:Role": frozenset({"name", "path"}),
    "aws:iam/rolePolicy:RolePolicy": frozenset({"name", "role"}),
    "aws:imagebuilder/component:Component": frozenset({"data", "description", "name", "platform", "version"}),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": _NAME,
    "aws:imagebuilder/image:Image": frozenset(
        {"distributionConfigurationArn", "imageRecipeArn", "imageTestsConfiguration", "infrastructureConfigurationArn"}
    ),
    "aws:imagebuilder/imageRecipe:ImageRecipe": frozenset(
        {"blockDeviceMappings", "components", "description", "name", "parentImage", "version"}
    ),
    "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration": _NAME,
    "aws:kms/alias:Alias": frozenset({"name"}),
    "aws:kms/key:Key": frozenset({"customerMasterKeySpec", "keyUsage", "multiRegion"}),
    "aws:lambda/function:Function": frozenset({"name", "packageType"}),
    PERMISSION: frozenset({"action", "function", "principal", "sourceArn", "statementId"}),
    "aws:route53/record:Record": frozenset({"name", "zoneId"}),
    "aws:route53/resolverFirewallDomainList:ResolverFirewallDomainList": frozenset({"name"}),
    "aws:route53/resolverFirewallRule:ResolverFirewallRule": frozenset({"firewallDomainListId", "firewallRuleGroupId"}),
    "aws:route53/resolverFirewallRuleGroup:ResolverFirewallRuleGroup": frozenset({"name"}),
    "aws:route53/resolverFirewallRuleGroupAssociation:ResolverFirewallRuleGroupAssociation": frozenset(
        {"firewallRuleGroupId", "vpcId"}
    ),
    "aws:route53/zone:Zone": frozenset({"name"}),
    "aws:s3/bucket:Bucket": _BUCKET,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _BUCKET,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _BUCKET,
    "aws:s3/bucketPolicy:BucketPolicy": _BUCKET,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _BUCKET,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _BUCKET,
    "aws:s3/bucketVersioning:BucketVersioning": _BUCKET,
    "aws:sns/topic:Topic": frozenset({"name"}),
    "aws:sns/topicPolicy:TopicPolicy": frozenset({"arn"}),
    "aws:sns/topicSubscription:TopicSubscription": frozenset({"endpoint", "protocol", "topic"}),
}

# Functions that find one resource: its type, and the argument that names it. They answer with its outputs.
FINDING: Mapping[str, tuple[str, str]] = {
    "aws:cloudwatch/getLogGroup:getLogGroup": ("aws:cloudwatch/logGroup:LogGroup", "name"),
    "aws:ec2/getRouteTable:getRouteTable": ("aws:ec2/routeTable:RouteTable", "subnetId"),
    "aws:ec2/getSecurityGroup:getSecurityGroup": ("aws:ec2/securityGroup:SecurityGroup", "id"),
    "aws:ec2/getSubnet:getSubnet": ("aws:ec2/subnet:Subnet", "id"),
    "aws:ec2/getVpc:getVpc": ("aws:ec2/vpc:Vpc", "id"),
    "aws:ecr/getRepository:getRepository": ("aws:ecr/repository:Repository", "name"),
    "aws:iam/getInstanceProfile:getInstanceProfile": ("aws:iam/instanceProfile:InstanceProfile", "name"),
    "aws:iam/getPolicy:getPolicy": ("aws:iam/policy:Policy", "arn"),
    "aws:iam/getRole:getRole": ("aws:iam/role:Role", "name"),
    "aws:kms/getKey:getKey": ("aws:kms/key:Key", "keyId"),
    "aws:route53/getZone:getZone": ("aws:route53/zone:Zone", "zoneId"),
    "aws:s3/getBucket:getBucket": ("aws:s3/bucket:Bucket", "bucket"),
    "aws:vpc/getSecurityGroupRule:getSecurityGroupRule": ("rule", "securityGroupRuleId"),
}

# What AWS refuses to make of the id of what it does not have: type -> inputs, possibly a list's, and their types.
NEEDED: Mapping[str, Mapping[str, str]] = {
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": {"logGroupName": "aws:cloudwatch/logGroup:LogGroup"},
    "aws:ec2/instance:Instance": {
        "subnetId": "aws:ec2/subnet:Subnet",
        "vpcSecurityGroupIds": "aws:ec2/securityGroup:SecurityGroup",
    },
    "aws:iam/role:Role": {"permissionsBoundary": "aws:iam/policy:Policy"},
    "aws:route53/record:Record": {"zoneId": "aws:route53/zone:Zone"},
    "aws:s3/bucketPolicy:BucketPolicy": {"bucket": "aws:s3/bucket:Bucket"},
}

# What AWS does not delete while something else names it (DependencyViolation and the like), and who may name it still.
HELD_BY_USERS = frozenset(
    {
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/placementGroup:PlacementGroup",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/subnet:Subnet",
        "aws:ec2/vpc:Vpc",
        # ResourceDependencyException.
        "aws:imagebuilder/component:Component",
        "aws:imagebuilder/distributionConfiguration:DistributionConfiguration",
        "aws:imagebuilder/imageRecipe:ImageRecipe",
        "aws:imagebuilder/infrastructureConfiguration:InfrastructureConfiguration",
    }
)
LOOSE_USERS = frozenset({"aws:ec2/launchTemplate:LaunchTemplate"})

# Part of a bucket, a key or a repository: to set one that is there is no mistake.
SETTINGS = frozenset(
    {
        "aws:ecr/lifecyclePolicy:LifecyclePolicy",
        "aws:kms/keyPolicy:KeyPolicy",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketVersioning:BucketVersioning",
        "aws:sns/topicPolicy:TopicPolicy",
    }
)
