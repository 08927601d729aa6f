"""Which of Google Cloud's resources hold data that outlives a `destroy`, and what protects and decrypts it."""

from components.core.retention import Retention, types_of

__all__ = ["RETENTION"]

RETENTION = Retention(
    data={"gcp:storage:Bucket": "run records; refused while not empty. What guards it is part of the bucket itself"},
    keys={"gcp:kms:CryptoKey": "its deletion destroys every version, and objects under one cannot be read any more"},
    key_grants=types_of("gcp", "kms: CryptoKeyIAMMember", "lets a service agent decrypt what is under the key"),
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
            "keys between the machines of one stack, made anew",
        ),
        **types_of("gcp", "storage: BucketObject", "what `up` wrote for the head, and can write again"),
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
            "the machines' network, and a perimeter of the whole project: the bucket's own access prevention stays",
        ),
        **types_of(
            "gcp",
            "projects: IAMCustomRole IAMMember Service ServiceIdentity serviceaccount: Account IAMMember "
            "storage: BucketIAMMember tags: TagKey TagValue",
            "rights of the stack's machines: without them fewer can read the data; APIs and agents stay",
        ),
        **types_of(
            "gcp",
            "billing: Budget cloudscheduler: Job eventarc: Trigger monitoring: AlertPolicy Dashboard "
            "NotificationChannel pubsub: Topic workflows: Workflow",
            "budget, its stop, alarms and dashboards",
        ),
    },
)
