"""Required tags: whoever reads the bill can tell whose each line is; and which types of resources take tags at all."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from components.core.findings import Severity
from components.estimate.cost import Declared
from components.openstack.tags import header_tags
from stacks.planning.rules.rule import Limits, ResourceRule, is_unknown, items, kind, named

__all__ = ["REQUIRED_TAGS", "tags_field", "types_with_tags"]


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


CONTAINER = "openstack:objectstorage:Container"
LAUNCHED = ("instance", "volume")
"""What a launch template starts, and what is billed: an Auto Scaling group's own tags never reach a volume."""


def _untagged(resource: Declared, limits: Limits) -> Iterable[str]:
    field = tags_field(resource.type)
    if field is None:
        return
    inputs = resource.inputs
    what = kind(resource.type)
    # Tags that a provider adds to each of its resources stand in tagsAll; an instance of OpenStack may have words, too.
    words = inputs.get("tags") if field == "metadata" else None
    given = [inputs.get(field), inputs.get("tagsAll"), words]
    yield from _missing(named(resource), given, limits, _in_headers if what == CONTAINER else str)
    if what == "aws:ec2:Instance" and not inputs.get("launchTemplate"):
        roots = [one.get("tags") for one in items(inputs.get("rootBlockDevice"))]
        yield from _missing(f"{named(resource)}: its volumes", [inputs.get("volumeTags"), *roots], limits)
    # One that names no type starts nothing by itself: an instance does, and says it.
    if what == "aws:ec2:LaunchTemplate" and "instanceType" in inputs:
        specifications = inputs.get("tagSpecifications")
        for launched in LAUNCHED:
            given = [one.get("tags") for one in items(specifications) if one.get("resourceType") == launched]
            known = [specifications] if is_unknown(specifications) else given
            yield from _missing(f"{named(resource)}: each {launched} it starts", known, limits)


def _missing(whose: str, given: Sequence[Any], limits: Limits, spelled: Callable[[str], str] = str) -> Iterable[str]:
    """A breach where tags lack a required key, which some services spell their own way."""
    if any(is_unknown(tags) for tags in given):
        return
    carried = {key for tags in given for key, value in _pairs(tags).items() if value}
    if missing := [key for key in limits.required_tags if not carried & {key, spelled(key)}]:
        yield f"{whose}: no {' and no '.join(missing)} among the tags"


def _in_headers(key: str) -> str:
    """A key as metadata of a container of OpenStack has it."""
    return next(iter(header_tags({key: ""})))


def _pairs(tags: Any) -> Mapping[str, Any]:
    """Tags as a mapping; an Auto Scaling group has a list of keys and values, OpenStack words such as `team=ml`."""
    if isinstance(tags, Mapping):
        return tags
    if isinstance(tags, Sequence) and not isinstance(tags, str):
        words = [word.partition("=") for word in tags if isinstance(word, str)]
        if words:
            return {key: value for key, _, value in words}
    return {str(one["key"]): one.get("value") for one in items(tags) if "key" in one}


REQUIRED_TAGS = ResourceRule(
    code="tags.missing",
    severity=Severity.ERROR,
    holds="Every resource that takes tags carries the required ones",
    path="gangway:tags",
    fix="add the tags; Gangway's components put their `tags` on everything they declare",
    check=_untagged,
    limits=("required_tags",),
)
