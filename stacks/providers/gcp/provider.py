"""The provider Google Cloud: facts that need no SDK."""

from collections.abc import Iterator
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gangway.components.catalog.loader import bundled_folder
from gangway.components.catalog.tables import taken_per_month
from gangway.components.estimate.cost import Declared
from gangway.components.gcp.retention import RETENTION
from gangway.stacks.base.provider import NodeTypes, Program, Provider, Start, TagRules
from gangway.stacks.base.rule import is_unknown, kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import mistakes, provided
from gangway.stacks.providers.gcp.settings import SETTINGS, GcpConfig

if TYPE_CHECKING:
    from gangway.stacks.providers.gcp.plan import GcpPlan

# One line per module of the package: `module: Class Class`.
_TAGGABLE = """
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
# Inputs that are not called `labels`.
_OTHER_INPUTS = {
    "gcp:container:Cluster": "resourceLabels",
    "gcp:monitoring:AlertPolicy": "userLabels",
    "gcp:monitoring:NotificationChannel": "userLabels",
}
# A node pool has them in its machines' settings.
_POOL = "gcp:container:NodePool"
# Gangway's dynamic resource.
_QUEUED_TPU = "pulumi-python:dynamic:QueuedTpuRequest"


def _program() -> "Program[GcpPlan]":
    from gangway.stacks.providers.gcp import program

    return program


def _dynamic(config: StackConfig, planned: "GcpPlan") -> str:
    if planned.tpu is not None:
        return "TPUs need"
    section = config.section(GcpConfig)
    makes_key = config.encryption == "customer-key" and section.existing.kms_key is None
    relies = makes_key or config.budget.stop_at_percent is not None
    waits = section.grant_wait_sec > 0
    return "gangway:gcp.grant_wait_sec: the wait needs" if relies and waits else ""


def _started(resource: Declared) -> Iterator[tuple[str, list[Any]]]:
    """Machines of node pools, which have separate labels."""
    if kind(resource.type) == _POOL:
        node = resource.inputs.get("nodeConfig")
        yield "the machines it starts", [node if is_unknown(node) else (node or {}).get("resourceLabels")]


_MACHINES = frozenset(
    {
        "gcp:compute:Instance",
        "gcp:compute:InstanceGroupManager",
        "gcp:compute:RegionInstanceGroupManager",
        _POOL,
        "gcp:tpu:V2Vm",
        _QUEUED_TPU,
    }
)
PROVIDER = Provider(
    name="gcp",
    sdk="pulumi-gcp",
    program=_program,
    home_region="us-central1",
    start=Start(
        "us-central1",
        "g2-standard-8",
        sections={
            "gcp": {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"},
            "network": {"egress": "nat"},
        },
        questions={"gcp.project": "Project", "gcp.billing_account": "Billing account"},
        shared={"storage": {"kind": "filestore", "capacity_gib": 2560}},
    ),
    adapters={
        "audit": "gangway.finops.audit.gcp",
        "image-build": "gangway.live.image_build.gcp",
        "live": "gangway.live.clouds.gcp",
        "permissions": "gangway.live.permissions.gcp",
        "preflight": "gangway.live.preflight.gcp",
        "prices": "gangway.finops.prices.gcp",
        "scaling": "gangway.jobs.systemd.scaling.gcp",
    },
    has_tpus=True,
    packages=("google",),
    settings=SETTINGS,
    mistakes=mistakes,
    existing=provided,
    catalog=bundled_folder("gcp"),
    bucket_service=lambda _resources: "gcs-standard",
    spot_taken=partial(taken_per_month, "gcp"),
    retention=RETENTION,
    tags=TagRules(
        package="gcp",
        types=_TAGGABLE,
        input_name="labels",
        other_inputs=MappingProxyType(_OTHER_INPUTS),
        more_types={_QUEUED_TPU: "labels"},
        started=_started,
        started_inputs=frozenset({"allInstancesConfig.labels"}),
    ),
    machine_types=_MACHINES,
    nodes=NodeTypes(
        machines=_MACHINES,
        templates=frozenset({"gcp:compute:InstanceTemplate"}),
        # Compute Engine stops an instance for these (allow_stopping_for_update); GKE recreates the pool's nodes.
        restarting={
            "gcp:compute:Instance": (
                "machineType",
                "minCpuPlatform",
                "networkInterfaces",
                "serviceAccount",
                "shieldedInstanceConfig",
            ),
            _POOL: (
                "nodeConfig.diskSizeGb",
                "nodeConfig.diskType",
                "nodeConfig.imageType",
                "nodeConfig.machineType",
                "version",
            ),
        },
    ),
    budget_types=frozenset({"gcp:billing:Budget"}),
    region_inputs={"pulumi:providers:gcp": "region"},
    dynamic=_dynamic,
)
