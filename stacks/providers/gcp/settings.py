"""The section gangway:gcp, and the common settings on Google Cloud."""

import re
from shlex import quote
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, model_validator

from gangway.components.core.fields import PositiveNumber, PositiveWhole, Whole
from gangway.stacks.config.provider_settings import Account, ImageForm, ObjectStore, OwnSection, ProviderSettings
from gangway.stacks.config.section import Section

_IMAGE = "projects/my-project/global/images/my-image"


Operator = Annotated[
    str,
    Field(
        pattern=r"^(user|serviceAccount):[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$",
        examples=["serviceAccount:deployer@my-project.iam.gserviceaccount.com"],
    ),
]
PolicyName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,49}$", examples=["corp_network"])]


class PerimeterConfig(Section):
    """A perimeter of VPC Service Controls around the project, made by the stack or existing.

    Attributes:
        access_policy: number of the organisation's policy, from `gcloud access-context-manager policies list`.
        mode: a dry run refuses nothing; Cloud Audit Logs show what it would have refused.
        operators: identities that may call from outside: those that run `up` or read records.
        access_levels: access levels of the policy from which they may call; from anywhere if omitted.
        reads_from: numbers of other projects from which machines read data or images.
        existing: name of an existing perimeter, which `up` only checks.
    """

    access_policy: PositiveWhole
    mode: Literal["dry-run", "enforced"] = "dry-run"
    operators: tuple[Operator, ...] = ()
    access_levels: tuple[PolicyName, ...] = ()
    reads_from: tuple[PositiveWhole, ...] = ()
    existing: PolicyName | None = None

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if self.existing is None and not self.operators:
            raise ValueError(
                "operators with it, as otherwise no one could run `up` again; add operators: [user:YOU@example.com], "
                "the identity that runs it"
            )
        rules = self.model_fields_set - {"access_policy", "existing"}
        if self.existing is not None and rules:
            raise ValueError(
                f"existing and access_policy only, as the owner of the perimeter sets its rules; remove {min(rules)}"
            )
        return self


_PROJECT = r"[a-z][a-z0-9-]{4,28}[a-z0-9]"
_NAME = r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Regions and zones: us-central1, us-central1-a.
_REGION = r"[a-z]+-[a-z]+[0-9]+"


def _path_field(*parts: str, example: str) -> Any:
    """A text with the form of a full resource name."""
    return Field(pattern=f"^projects/{_PROJECT}/{'/'.join(parts)}$", examples=[example])


NetworkPath = Annotated[
    str, _path_field("global", "networks", _NAME, example="projects/net-host/global/networks/shared")
]
SubnetworkPath = Annotated[
    str,
    _path_field(
        "regions", _REGION, "subnetworks", _NAME, example="projects/net-host/regions/us-central1/subnetworks/gpu"
    ),
]
FileSystemPath = Annotated[
    str,
    _path_field(
        "locations",
        f"{_REGION}-[a-z]",
        "instances",
        _NAME,
        example="projects/my-project/locations/us-central1-a/instances/data",
    ),
]
KeyPath = Annotated[
    str,
    _path_field(
        "locations",
        "[a-z0-9-]+",
        "keyRings",
        "[A-Za-z0-9_-]{1,63}",
        "cryptoKeys",
        "[A-Za-z0-9_-]{1,63}",
        example="projects/keys/locations/us-central1/keyRings/gpu/cryptoKeys/data",
    ),
]
RepositoryPath = Annotated[
    str,
    _path_field(
        "locations",
        "[a-z0-9-]+",
        "repositories",
        _NAME,
        example="projects/my-project/locations/us-central1/repositories/gan",
    ),
]
LogBucketPath = Annotated[
    str,
    _path_field(
        "locations",
        "[a-z0-9-]+",
        "buckets",
        "[A-Za-z0-9_-]{1,100}",
        example="projects/my-project/locations/us-central1/buckets/nodes",
    ),
]
BucketName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$", examples=["my-runs"])]
ResourceName = Annotated[str, Field(pattern=f"^{_NAME}$", examples=["gke-pods"])]
AccountEmail = Annotated[
    str,
    Field(
        pattern=rf"^[a-z][a-z0-9-]{{4,28}}[a-z0-9]@{_PROJECT}\.iam\.gserviceaccount\.com$",
        examples=["gpu-node@my-project.iam.gserviceaccount.com"],
    ),
]


class FabricSubnetworkConfig(Section):
    """An existing subnetwork for one GPU NIC.

    Attributes:
        network: its network: a separate one for each NIC, or the RDMA network for all MRDMA NICs.
        subnetwork: the subnetwork.
    """

    network: NetworkPath
    subnetwork: SubnetworkPath


class NetworkTagsConfig(Section):
    """Network tags to which existing firewall rules apply.

    Attributes:
        fabric: of the nodes.
        head: of the head node; the nodes' if omitted.
    """

    fabric: ResourceName
    head: ResourceName | None = None


class ServiceAccountsConfig(Section):
    """Existing service accounts of the machines, which get no role from Gangway; `gangway plan` lists those they need.

    Attributes:
        nodes: of the nodes.
        head: of the head node; the stack makes one if omitted.
    """

    nodes: AccountEmail
    head: AccountEmail | None = None


class ExistingConfig(Section):
    """Existing resources that the stack uses, but neither creates, labels nor deletes.

    Attributes:
        network: VPC network, also of a Shared VPC's host project; needs `subnetwork`.
        subnetwork: subnetwork of the machines.
        fabric_subnetworks: subnetworks of the GPU NICs, in the order of the NICs.
        pods_range: secondary range of the subnetwork for pods, with `engine.kind: kubernetes`.
        services_range: secondary range of the subnetwork for Kubernetes' services.
        network_tags: network tags of existing firewall rules. Without them the stack makes rules in a network of its
            project; in a host project, rules must apply to the tags STACK-fabric and STACK-head.
        services_cidr: address range of private services access, from which Managed Lustre's servers call back.
        file_system: Managed Lustre or Filestore instance; `gangway:storage` describes its kind and size.
        kms_key: Cloud KMS key for all data, with `encryption: customer-key`.
        service_accounts: service accounts of the machines.
        repository: Artifact Registry repository into which `up` pushes the trainer's image.
        run_bucket: bucket for run records and checkpoints.
        log_bucket: log bucket for the nodes' lines.
    """

    network: NetworkPath | None = None
    subnetwork: SubnetworkPath | None = None
    fabric_subnetworks: tuple[FabricSubnetworkConfig, ...] = ()
    pods_range: ResourceName | None = None
    services_range: ResourceName | None = None
    network_tags: NetworkTagsConfig | None = None
    services_cidr: str | None = Field(
        default=None, pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$", examples=["10.60.0.0/20"]
    )
    file_system: FileSystemPath | None = None
    kms_key: KeyPath | None = None
    service_accounts: ServiceAccountsConfig | None = None
    repository: RepositoryPath | None = None
    run_bucket: BucketName | None = None
    log_bucket: LogBucketPath | None = None

    @property
    def makes_rules(self) -> bool:
        """Whether the stack makes firewall rules in the network, for which its project has to be `host_project`."""
        return self.network is not None and self.network_tags is None

    @property
    def accounts(self) -> dict[str, str]:
        """The service accounts, by their keys."""
        accounts = self.service_accounts
        emails = {} if accounts is None else {"nodes": accounts.nodes, "head": accounts.head}
        return {key: email for key, email in emails.items() if email is not None}

    @property
    def host_project(self) -> str:
        """The network's project; empty without a network."""
        return "" if self.network is None else self.network.split("/")[1]


class GcpConfig(Section):
    """Settings of a stack on Google Cloud.

    Attributes:
        project: id of the project for all resources.
        billing_account: billing account of the budget; `up` needs the role Costs Manager on it.
        currency: currency of the billing account if not US dollars: Google accepts no other for the budget.
        monthly_amount: the budget in `currency`; the plan still compares `monthly_usd` with its prices.
        grant_wait_sec: how long `up` waits for a new permission or service agent to take effect.
        tpu_boot_key: whether to encrypt boot disks of TPU slices with the stack's key too. Set false if `up` is
            refused: the API documents the field, but `gcloud` sends it to a preview version only.
        service_perimeter: perimeter of VPC Service Controls around the project; none if omitted.
        tpu_api_url: address of the TPU API, such as a Private Service Connect endpoint; Google's if omitted.
        existing: existing resources to use, such as a Shared VPC.
    """

    project: str = Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$", examples=["my-project"])
    billing_account: str = Field(
        pattern=r"^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$",
        examples=["012345-6789AB-CDEF01"],
        json_schema_extra={"value_source": "`gcloud billing accounts list`"},
    )
    currency: str | None = Field(default=None, pattern=r"^[A-Z]{3}$", examples=["EUR"])
    monthly_amount: PositiveNumber | None = None
    grant_wait_sec: Whole = Field(default=120, ge=0, le=900)
    service_perimeter: PerimeterConfig | None = None
    tpu_boot_key: StrictBool = True
    tpu_api_url: str | None = Field(
        default=None, pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?/?$", examples=["https://tpu-lab.p.googleapis.com"]
    )
    existing: ExistingConfig = ExistingConfig()


SETTINGS = ProviderSettings(
    own=OwnSection(
        "gcp",
        GcpConfig,
        holds="project and billing_account",
        example="{project: my-project, billing_account: 012345-6789AB-CDEF01}",
    ),
    examples={
        "region": "us-central1",
        "cluster": {"accelerator": "v5p-64", "nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "on-demand"}]},
        "cluster.accelerator": "v5p-64",
        "cluster.machine_type": "a3-megagpu-8g",
        "cluster.capacity": [{"kind": "spot"}, {"kind": "on-demand"}],
        "cluster.zone": "us-central1-a",
        "cluster.image_id": _IMAGE,
        "storage": {"kind": "lustre", "capacity_gib": 18000, "throughput_mbps_per_tib": 500},
        "storage.source": "gs://my-bucket/celeba",
        "image.prebuilt": f"us-central1-docker.pkg.dev/my-project/gan/trainer@sha256:{'0123456789abcdef' * 4}",
        "head.machine_type": "e2-medium",
    },
    unsupported={
        "network.dns_firewall": "stacks on Google Cloud have no DNS firewall",
        "storage.efa_setup_sha256": "only AWS has EFA",
    },
    lacking={
        "cluster.root_device_name": "Google Cloud detects an image's boot disk",
        "budget.activate_tag": "Google Cloud's labels count from the hour they are set and need no activation",
    },
    image=ImageForm(re.compile(r"projects/.+"), _IMAGE),
    store=ObjectStore(
        "gs", "gs://bucket/prefix", lambda folder, url: f"gcloud storage rsync --recursive {quote(folder)} {quote(url)}"
    ),
    storage_kinds=("lustre", "filestore"),
    account=Account(
        "gcp",
        "Google Cloud",
        "region",
        "name the project in gangway:gcp, and the account by GOOGLE_APPLICATION_CREDENTIALS",
    ),
    has_slices=True,
    queues=("kubernetes",),
    deletes_runs=True,
    runs_commands=True,
    joins_commands=True,
)
