"""The plan of a stack on Azure, before any resource exists: machine, zone, fabric, file system, tags, image and job."""

import re
from dataclasses import dataclass, replace
from typing import Any, cast

import yaml

from gangway.components.azure.aks import MAX_PODS, SPOT_TAINT, pool_name
from gangway.components.azure.budget import check_starts_on, plan_budget_alarms
from gangway.components.azure.capacity import check_infiniband, check_ladder, check_proximity
from gangway.components.azure.fabric import FabricPlan, plan_fabric
from gangway.components.azure.file_system import LustrePlan, plan_lustre
from gangway.components.azure.head_node import HEAD_MACHINE_TYPE, head_address
from gangway.components.azure.launch import Image, Security, is_hpc_image, node_image, plan_image, plan_security
from gangway.components.azure.monitoring import check_budget_emails, check_retention
from gangway.components.azure.network import plan_network
from gangway.components.azure.policies import importable
from gangway.components.azure.storage import plan_watcher
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType, Region
from gangway.components.core.blob_url import BlobUrl, read_blob_url
from gangway.components.core.capacity import LADDER, preferred_zone
from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import DIGEST, REPOSITORY
from gangway.components.core.job import JobSpec
from gangway.components.kubernetes.charts import queue_manifests
from gangway.components.kubernetes.manifest import Manifest
from gangway.components.kubernetes.spec import GPU, JOBS, JOBS_ONLY, ClusterSpec, Flavor, aks_allocatable
from gangway.images.specs import Flavour
from gangway.stacks.base import shared
from gangway.stacks.base.cluster_queues import check_way_out, get_spec, get_version, gpu_node
from gangway.stacks.base.shared import check_head, named_zone, nodes_meet, tag_policy
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import training_job
from gangway.stacks.providers.azure.existing_settings import ExistingConfig, resource_name
from gangway.stacks.providers.azure.settings import AzureConfig

_IMAGE = re.compile(rf"(?P<host>[a-z0-9]{{5,50}}(-[a-z0-9]+)?)\.azurecr\.io/{REPOSITORY}@{DIGEST}")
ROOT_GIB = 256  # default root disk of nodes: Azure bills 200 GiB, the other clouds' default, as 256
RUNS = "runs"  # the folder of the file system for runs, which cannot hold data
MOUNT = "/shared"


@dataclass(frozen=True)
class AzurePlan:
    """The planned stack. `num_machines`: maximum; `zone`: of the cluster and its file system; `nodes_zone`: of scale
    sets by default (both empty if Azure chooses); `zone_reason`: empty if the user chose it; `registry_id`: of the
    prebuilt image; None if the stack builds it; `source`: its blobs appear in the file system; `head`: requests the
    nodes of all rungs, at `head_address`, and workers call it `head_host`; `meets`: it runs the job's rendezvous;
    `standing`: an AKS cluster with a queue.
    """

    machine: AzureMachineType
    image: Image
    security: Security
    num_machines: int
    fabric: FabricPlan
    region: Region
    zone: str
    nodes_zone: str
    zone_reason: str
    subscription_id: str
    registry_id: str | None
    lustre: LustrePlan | None
    source: BlobUrl | None
    root_volume_gib: int
    head: bool
    head_address: str
    head_host: str
    meets: bool
    standing: bool
    tags: dict[str, str]
    flavour: Flavour = "cuda"


def plan(config: StackConfig) -> AzurePlan:
    """Plans and checks the stack without declaring a resource. InputError: an unknown machine, accelerator, region or
    zone; a size or a rung that Azure does not offer; a wrong tag.
    """
    own, cluster = _section(config), config.cluster
    region = load_provider("azure").region(config.region, "azure", "gangway:region")
    machine = cast("AzureMachineType", shared.find_machine(config, load_provider("azure")))
    # First, since no other id would fix such a reservation.
    check_infiniband(machine, cluster.capacity, cluster.nodes.max, LADDER, "gangway:cluster.nodes.max")
    check_ladder(cluster.capacity)
    check_proximity(machine, own.proximity, "gangway:azure.proximity")
    _check_name(config)
    image = node_image(machine, cluster.image_id, "gangway:cluster.image_id")
    if own.head_image is not None:
        plan_image(own.head_image, "gangway:azure.head_image")
    plan_watcher(own.network_watcher, region.name, own.subscription_id)
    zone, reason = _zone(config, region)
    standing = config.engine.has_queue
    if standing:
        check_cluster(config, machine)
    lustre = plan_lustre(**shared.lustre_args(config)) if config.storage else None
    network = plan_network(config.network.cidr, None if lustre is None else lustre.subnet_prefix_length)
    check_head("azure", head_type(config))
    plan_budget_alarms(list(config.budget.alert_percent), config.budget.stop_at_percent)
    if own.budget_starts_on is not None:
        check_starts_on(own.budget_starts_on)
    check_budget_emails(config.budget.emails)
    check_retention(config.observe.log_days, "gangway:observe.log_days")
    return AzurePlan(
        machine=machine,
        image=image,
        security=_security(own, machine, cluster.image_id, lustre is not None),
        num_machines=cluster.nodes.max,
        fabric=plan_fabric(machine, own_image=not is_hpc_image(cluster.image_id)),
        region=region,
        zone=zone,
        # Azure may refuse a zone with a single placement group and one fault domain: only on request.
        nodes_zone="" if machine.infiniband is not None and cluster.zone is None else zone,
        zone_reason=reason,
        subscription_id=own.subscription_id,
        registry_id=_registry_id(config),
        lustre=lustre,
        source=_source(config),
        root_volume_gib=cluster.root_volume_gib if "root_volume_gib" in cluster.model_fields_set else ROOT_GIB,
        head=not standing,
        head_address=own.existing.head_private_ip or head_address(network.private_cidr),
        head_host=_head_host(config, own.existing),
        meets=not standing and nodes_meet(config),
        standing=standing,
        tags=tag_policy(config, machine, region).azure(),
    )


def _section(config: StackConfig) -> AzureConfig:
    return config.section(AzureConfig)


def _head_host(config: StackConfig, existing: ExistingConfig) -> str:
    """A name in the given zone, or the address itself: only the stack's own network has a zone of the stack."""
    if existing.private_dns_zone_id is not None:
        return f"head-{config.stack}.{resource_name(existing.private_dns_zone_id)}"
    return existing.head_private_ip or shared.head_host(config)


def _check_name(config: StackConfig) -> None:
    """InputError: two dashes in a row in the stack's name, and thus in the name of a container or vault."""
    imports = config.storage is not None and config.storage.source is not None
    if "--" in config.stack and (imports or config.encryption == "customer-key"):
        raise InputError(
            "gangway:stack",
            "containers and vaults are named after the stack, and Azure allows no two dashes in a row there",
            value=config.stack,
            allowed="single dashes with storage.source or encryption: customer-key",
            fix=f"rename the stack, for example to {re.sub('--+', '-', config.stack)}",
        )


def _security(own: AzureConfig, machine: AzureMachineType, image_id: str | None, lustre: bool) -> Security:
    """What machine type and image support, less what the stack file or a Lustre client turns off."""
    allowed = plan_security(
        machine,
        own_image=not is_hpc_image(image_id),
        trusted_launch=None if own.trusted_launch else False,
        secure_boot=own.secure_boot,
        encryption_at_host=None if own.encryption_at_host else False,
        place="gangway:azure.",
    )
    # With secure_boot: true the image must contain a signed client.
    if not lustre or not allowed.secure_boot or own.secure_boot:
        return allowed
    why = "if Microsoft has no Lustre client for the kernel, the node builds one, which is unsigned"
    return replace(allowed, secure_boot=False, why_no_secure_boot=why)


def _zone(config: StackConfig, region: Region) -> tuple[str, str]:
    """The cluster's zone and the reason; empty if Azure may choose."""
    if config.cluster.zone is not None:
        return named_zone(config.cluster.zone, region.zones, region.name), ""
    if tied := preferred_zone(config.cluster.capacity):
        return tied
    # A file system is in one zone, and its clients should be there too.
    if config.storage is None or not region.zones:
        return "", ""
    return region.zones[0], f"the first of {region.name}"


def _source(config: StackConfig) -> BlobUrl | None:
    """The folder whose blobs appear in the file system. InputError: invalid, in the runs' folder, or not importable."""
    own, storage = _section(config), config.storage
    if storage is None or storage.source is None:
        return None
    source = read_blob_url(storage.source)
    if not source.prefix or source.prefix.split("/")[0] == RUNS:
        raise InputError(
            "gangway:storage.source",
            f"blobs appear in the file system under their path, where {RUNS} is reserved for the trainer",
            value=storage.source,
            allowed=f"a folder of the container outside {RUNS}, such as az://{source.account}/images/celeba",
            fix=(
                "copy the data to a folder of the container, and set source: "
                f"az://{source.account}/{source.container}/data"
            ),
        )
    importable(own.source_account_id or "", source, own.subscription_id, config.stack)
    return source


def head_type(config: StackConfig) -> str:
    """The head node's machine type."""
    return config.head.machine_type or HEAD_MACHINE_TYPE


def _registry_id(config: StackConfig) -> str | None:
    image, place = config.ready_image, shared.image_place(config)
    if image is None:
        return None
    match, registry_id = _IMAGE.fullmatch(image), _section(config).registry_id
    if match is None:
        allowed = "<registry>.azurecr.io/<repository>@sha256:<digest>"
        raise shared.refused_image(config, allowed, "Azure Container Registry")
    host, show = match["host"], f"copy it from `az acr show --name {match['host'].partition('-')[0]} --query id`"
    if registry_id is None:
        raise InputError(
            "gangway:azure.registry_id",
            "missing: nodes need permission to pull from the registry, and the image's name does not contain its "
            "resource id",
            allowed=f"the resource id of {host}",
            fix=show,
        )
    name = registry_id.rpartition("/")[2].lower()
    # The host name of a registry with a domain name label is its name and a hash.
    if host.partition("-")[0] != name:
        raise InputError(
            "gangway:azure.registry_id",
            f"not the registry of {place}, {host}",
            value=registry_id,
            allowed=f"the resource id of {host}",
            fix=show,
        )
    return registry_id


def job_spec(config: StackConfig, planned: AzurePlan, image: str) -> JobSpec:
    """The job of the nodes. On machines with InfiniBand NCCL uses nothing else; topology and /etc/nccl.conf come from
    the node's image, mounted into the container.
    """
    at, fabric = shared.rendezvous(config, at_head=planned.meets, host=planned.head_host), planned.fabric
    if config.own_command is not None:
        return shared.command_job_on(
            planned.machine,
            config,
            config.own_command,
            image,
            MOUNT,
            at=at,
            volumes=fabric.volumes,
            env=fabric.nccl_env,
        )
    return training_job(
        config,
        planned.machine,
        planned.region,
        load_provider("azure").get_prices(planned.machine.name),
        image,
        state=shared.state_root(config, MOUNT),
        run_dir=shared.run_dir(config, MOUNT),
        data_dir=data_dir(config, planned) or "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
        at=at,
        volumes=fabric.volumes,
        env=fabric.nccl_env,
    )


def data_dir(config: StackConfig, planned: AzurePlan) -> str | None:
    """The folder on a node with the source's blobs, or of an existing file system with data; None without either."""
    if (folder := _section(config).existing.data_folder) is not None:
        return f"{MOUNT}/{folder}"
    return None if planned.source is None else f"{MOUNT}/{planned.source.prefix}"


def fabric_min_gbps(config: StackConfig, planned: AzurePlan) -> float | None:
    """The minimum bus bandwidth for the job to start; None if there is no fabric to test."""
    return shared.least_bus_gbps(config, planned.machine, planned.fabric.gbps) if planned.fabric.num_hcas else None


SPOT_KEY = SPOT_TAINT.partition("=")[0]
PRIORITIES = "cluster-autoscaler-priority-expander"  # the name of the ConfigMap that the autoscaler reads


def taint() -> str:
    """The taint that keeps system pods off nodes for jobs, in AKS's spelling."""
    return f"{JOBS_ONLY}=true:NoSchedule"


def node_labels(config: StackConfig) -> list[dict[str, str]]:
    """Labels of the nodes of each rung. The GPU plugin selects nodes by the second one."""
    return [{**JOBS, f"{GPU}.present": "true"} for _ in config.cluster.capacity]


def cluster_spec(config: StackConfig, machine: AzureMachineType) -> ClusterSpec:
    """The queues. All rungs are one flavor: Kueue counts quotas, not capacity; the autoscaler goes down the ladder."""
    left = aks_allocatable(machine.vcpus.value, machine.memory_gib.value, config.cluster.root_volume_gib, MAX_PODS)
    node = gpu_node(machine, left, infiniband=has_infiniband(config, machine))
    return get_spec(config, node, Flavor(flavor_name(machine), dict(JOBS)))


def has_infiniband(config: StackConfig, machine: AzureMachineType) -> bool:
    """Whether pods get InfiniBand adapters, which a single node does not need."""
    return machine.infiniband is not None and config.cluster.nodes.max > 1


def flavor_name(machine: AzureMachineType) -> str:
    """The machine type as a Kubernetes name."""
    return machine.name.lower().replace("_", "-")


def queues(spec: ClusterSpec) -> list[Manifest]:
    """The queues' manifests, with tolerations for spot nodes, which AKS taints."""
    found = []
    for manifest in queue_manifests(spec):
        if manifest["kind"] == "ResourceFlavor":
            own = manifest["spec"]
            manifest = {**manifest, "spec": {**own, "tolerations": [*own["tolerations"], *spot_tolerations()]}}
        found.append(manifest)
    return found


def spot_tolerations() -> list[dict[str, str]]:
    """Tolerations of the taint of spot nodes."""
    return [{"key": SPOT_KEY, "operator": "Exists"}]


def add_spot_tolerations(values: Any) -> dict[str, Any]:
    """The values of a chart, with tolerations for spot nodes."""
    return {**values, "tolerations": [*values["tolerations"], *spot_tolerations()]}


def priorities(config: StackConfig) -> dict[str, str]:
    """The data of PRIORITIES: patterns of node names by priority. YAML, since the autoscaler ignores quoted numbers, as
    JSON's keys are.
    """
    kinds = [rung.kind for rung in config.cluster.capacity]
    ladder = {len(kinds) - at: [f".*-{pool_name(at, kind)}-.*"] for at, kind in enumerate(kinds)}
    return {"priorities": yaml.safe_dump(ladder)}


def check_cluster(config: StackConfig, machine: AzureMachineType) -> None:
    """Checks the settings. InputError: a version, teams, an egress, a file system, an image or a placement that AKS or
    the queue does not support.
    """
    get_version(config)
    check_way_out(config)
    cluster_spec(config, machine)
    own = config.section(AzureConfig)
    refused = {
        "gangway:storage": (config.storage is not None, "AKS has no driver for Managed Lustre"),
        "gangway:cluster.image_id": (config.cluster.image_id is not None, "AKS chooses the nodes' image"),
        "gangway:azure.proximity": (own.proximity, "AKS places its pools"),
        "gangway:azure.private_endpoints": (own.private_endpoints, "the queue's images come from other registries"),
        "gangway:azure.head_image": (own.head_image is not None, "there is no head node"),
    }
    for place, (written, why) in refused.items():
        if written:
            raise InputError(
                place, why, allowed="left out with engine: kubernetes", fix=f"leave {place.rpartition('.')[2]} out"
            )
