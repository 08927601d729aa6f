"""Google Cloud resource types by retention class: which hold data that outlives a `destroy`, and which decrypt it."""

from components.core.retention import Retention, types_of

__all__ = ["RETENTION"]

RETENTION = Retention(
    data={"gcp:storage:Bucket": "run records; not deleted unless empty. Its protections are inputs of the bucket"},
    keys={"gcp:kms:CryptoKey": "its deletion destroys every version, and objects encrypted with one become unreadable"},
    key_grants=types_of("gcp", "kms: CryptoKeyIAMMember", "lets a service agent use the key"),
    surroundings=types_of("gcp", "kms: KeyRing", "holds the key"),
    copies=types_of("gcp", "filestore: Instance lustre: Instance", "machines put records in the bucket"),
    disposable={
        **types_of(
            "gcp",
            "artifactregistry: Repository RepositoryIamMember",
            "images can be built again from a commit and a lock",
        ),
        **types_of(
            "gcp",
            "secretmanager: Secret SecretIamMember SecretVersion",
            "keys between the machines of one stack, created again by `up`",
        ),
        **types_of("gcp", "storage: BucketObject", "written by `up` for the head, which can write it again"),
        **types_of("gcp", "logging: Metric ProjectBucketConfig ProjectSink", "logs, kept for a week more"),
        **types_of(
            "gcp",
            "compute: Instance InstanceGroupManager InstanceTemplate ResizeRequest ResourcePolicy container: Cluster "
            "NodePool tpu: V2Vm",
            "machines: their disks are scratch",
        ),
        **types_of(
            "gcp",
            "accesscontextmanager: ServicePerimeter compute: Address Firewall GlobalAddress Network Route Router "
            "RouterNat Subnetwork dns: ManagedZone RecordSet servicenetworking: Connection",
            "the machines' network, and a perimeter of the project; the bucket keeps its own public access prevention",
        ),
        **types_of(
            "gcp",
            "projects: IAMCustomRole IAMMember Service ServiceIdentity serviceaccount: Account IAMMember "
            "storage: BucketIAMMember tags: TagKey TagValue",
            "permissions of the stack's machines: without them fewer principals can read the data",
        ),
        **types_of(
            "gcp",
            "billing: Budget cloudscheduler: Job eventarc: Trigger monitoring: AlertPolicy Dashboard "
            "NotificationChannel pubsub: Topic workflows: Workflow",
            "budget, its stop, alarms and dashboards",
        ),
    },
)
