"""Google Cloud resource types by retention class."""

from gangway.components.core.retention import Retention, get_types

RETENTION = Retention(
    data={"gcp:storage:Bucket": "run records; not deleted unless empty. Its protections are inputs of the bucket"},
    keys={"gcp:kms:CryptoKey": "its deletion destroys every version, and objects encrypted with one become unreadable"},
    key_grants=get_types("gcp", {"lets a service agent use the key": "kms: CryptoKeyIAMMember"}),
    surroundings=get_types("gcp", {"holds the key": "kms: KeyRing"}),
    copies=get_types("gcp", {"machines put records in the bucket": "filestore: Instance lustre: Instance"}),
    disposable=get_types(
        "gcp",
        {
            "images can be built again from a commit and a lock": "artifactregistry: Repository RepositoryIamMember",
            "keys between the machines of one stack, created again by `up`": """
                secretmanager: Secret SecretIamMember SecretVersion
            """,
            "written by `up` for the head, which can write it again": "storage: BucketObject",
            "logs, kept for a week more": "logging: Metric ProjectBucketConfig ProjectSink",
            "machines: their disks are scratch": """
                compute: Instance InstanceGroupManager InstanceTemplate ResizeRequest ResourcePolicy container:
                Cluster NodePool tpu: V2Vm
            """,
            "a perimeter of the project": "accesscontextmanager: ServicePerimeter",
            "the machines' network; the bucket keeps its own public access prevention": """
                compute: Address Firewall GlobalAddress Network Route Router
                RouterNat Subnetwork dns: ManagedZone RecordSet servicenetworking: Connection
            """,
            "permissions of the stack's machines: without them fewer principals can read the data": """
                projects: IAMCustomRole IAMMember Service ServiceIdentity serviceaccount: Account IAMMember storage:
                BucketIAMMember tags: TagKey TagValue
            """,
            "budget, its stop, alarms and dashboards": """
                billing: Budget cloudscheduler: Job eventarc: Trigger monitoring: AlertPolicy Dashboard
                NotificationChannel pubsub: Topic workflows: Workflow
            """,
        },
    ),
)
