"""Google Cloud resource types by retention class."""

from gangway.components.core.retention import Retention, get_types

RETENTION = Retention(
    data={"gcp:storage:Bucket": "run records; not deleted unless empty. Its protections are inputs of the bucket"},
    keys={"gcp:kms:CryptoKey": "its deletion destroys every version, and objects encrypted with one become unreadable"},
    key_grants=get_types("gcp", "kms: CryptoKeyIAMMember", "lets a service agent use the key"),
    surroundings=get_types("gcp", "kms: KeyRing", "holds the key"),
    copies=get_types("gcp", "filestore: Instance lustre: Instance", "machines put records in the bucket"),
    disposable={
        **get_types(
            "gcp",
            "artifactregistry: Repository RepositoryIamMember",
            "images can be built again from a commit and a lock",
        ),
        **get_types(
            "gcp",
            "secretmanager: Secret SecretIamMember SecretVersion",
            "keys between the machines of one stack, created again by `up`",
        ),
        **get_types("gcp", "storage: BucketObject", "written by `up` for the head, which can write it again"),
        **get_types("gcp", "logging: Metric ProjectBucketConfig ProjectSink", "logs, kept for a week more"),
        **get_types(
            "gcp",
            "compute: Instance InstanceGroupManager InstanceTemplate ResizeRequest ResourcePolicy container: Cluster "
            "NodePool tpu: V2Vm",
            "machines: their disks are scratch",
        ),
        **get_types(
            "gcp",
            "accesscontextmanager: ServicePerimeter compute: Address Firewall GlobalAddress Network Route Router "
            "RouterNat Subnetwork dns: ManagedZone RecordSet servicenetworking: Connection",
            "the machines' network, and a perimeter of the project; the bucket keeps its own public access prevention",
        ),
        **get_types(
            "gcp",
            "projects: IAMCustomRole IAMMember Service ServiceIdentity serviceaccount: Account IAMMember "
            "storage: BucketIAMMember tags: TagKey TagValue",
            "permissions of the stack's machines: without them fewer principals can read the data",
        ),
        **get_types(
            "gcp",
            "billing: Budget cloudscheduler: Job eventarc: Trigger monitoring: AlertPolicy Dashboard "
            "NotificationChannel pubsub: Topic workflows: Workflow",
            "budget, its stop, alarms and dashboards",
        ),
    },
)
