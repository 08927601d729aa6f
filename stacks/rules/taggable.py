"""Which types of resources take tags, and in which input: what Gangway declares, and what else costs most. A table.

Not a list of all: the SDKs know some thousand types. A type that is missing here is not judged.
"""

from collections.abc import Iterator
from functools import cache

from stacks.rules.inputs import kind

__all__ = ["tags_field", "types_with_tags"]

# A line for each module of the package: `module: Class Class`.
_AWS = """
    autoscaling: Group
    batch: ComputeEnvironment
    budgets: Budget
    cloudwatch: CompositeAlarm LogGroup MetricAlarm
    dynamodb: Table
    ebs: Volume
    ec2: CapacityBlockReservation CapacityReservation DefaultSecurityGroup Eip Fleet FlowLog Instance
        InternetGateway LaunchTemplate NatGateway NetworkInterface PlacementGroup RouteTable SecurityGroup
        SpotFleetRequest SpotInstanceRequest Subnet Vpc VpcEndpoint
    ecr: Repository
    ecs: Cluster
    efs: FileSystem
    eks: Cluster NodeGroup
    fsx: DataRepositoryAssociation LustreFileSystem
    iam: InstanceProfile Role
    kms: Key
    lambda: Function
    lb: LoadBalancer
    rds: Instance
    route53: Zone
    s3: Bucket BucketV2
    secretsmanager: Secret
    sns: Topic
    sqs: Queue
    vpc: SecurityGroupEgressRule SecurityGroupIngressRule
"""
_GCP = """
    artifactregistry: Repository
    bigquery: Dataset
    cloudrunv2: Job
    compute: Address Disk ForwardingRule GlobalAddress GlobalForwardingRule Image Instance InstanceTemplate
        RegionInstanceTemplate Snapshot
    container: Cluster
    dns: ManagedZone
    eventarc: Trigger
    filestore: Instance
    kms: CryptoKey
    lustre: Instance
    monitoring: AlertPolicy NotificationChannel
    pubsub: Topic
    redis: Instance
    secretmanager: Secret
    storage: Bucket
    tpu: V2Vm
    workbench: Instance
    workflows: Workflow
"""
_AZURE = """
    applicationinsights: Workbook
    cognitiveservices: Account
    compute: CapacityReservation CapacityReservationGroup Disk DiskEncryptionSet Image ProximityPlacementGroup
        SshPublicKey VirtualMachine VirtualMachineScaleSet
    containerregistry: Registry
    containerservice: ManagedCluster
    keyvault: Key Vault
    logic: Workflow
    machinelearningservices: Workspace
    managedidentity: UserAssignedIdentity
    monitor: ActionGroup DataCollectionEndpoint DataCollectionRule ScheduledQueryRule
    network: ApplicationSecurityGroup BastionHost FlowLog LoadBalancer NatGateway NetworkInterface
        NetworkSecurityGroup PrivateEndpoint PublicIPAddress RouteTable VirtualNetwork
    operationalinsights: Workspace
    privatedns: PrivateZone VirtualNetworkLink
    resources: ResourceGroup
    sql: Server
    storage: StorageAccount
    storagecache: AmlFilesystem
"""
_OPENSTACK = """
    blockstorage: Volume
    compute: Instance
    images: Image
    loadbalancer: LoadBalancer
    networking: FloatingIp Network Port Router SecGroup Subnet
    objectstorage: Container
    sharedfilesystem: Share
"""
# Google Cloud's own word is `labels`, OpenStack's `tags`; these have another.
_OTHER_WORDS = {
    "gcp:container:Cluster": "resourceLabels",
    "gcp:monitoring:AlertPolicy": "userLabels",
    "gcp:monitoring:NotificationChannel": "userLabels",
    "openstack:blockstorage:Volume": "metadata",
    "openstack:compute:Instance": "metadata",
    "openstack:objectstorage:Container": "metadata",
    "openstack:sharedfilesystem:Share": "metadata",
}
# A dynamic resource of Gangway's.
_QUEUED_TPU = "pulumi-python:dynamic:QueuedTpuRequest"


def _entries(package: str, table: str, field: str) -> Iterator[tuple[str, str]]:
    module = ""
    for word in table.split():
        if word.endswith(":"):
            module = word
        else:
            of_type = f"{package}:{module}{word}"
            yield of_type, _OTHER_WORDS.get(of_type, field)


@cache
def types_with_tags() -> dict[str, str]:
    """By package, module and class (`aws:ec2:LaunchTemplate`), the input that holds the tags."""
    return {
        **dict(_entries("aws", _AWS, "tags")),
        **dict(_entries("gcp", _GCP, "labels")),
        **dict(_entries("azure-native", _AZURE, "tags")),
        **dict(_entries("openstack", _OPENSTACK, "tags")),
        _QUEUED_TPU: "labels",
    }


def tags_field(type_token: str) -> str | None:
    """The input in which resources of a type carry their tags; None where they take none, or nobody has said."""
    return types_with_tags().get(kind(type_token))
