"""The resources of a stack with `engine: kubernetes` on AWS: an EKS cluster with a queue, which scales the workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes

from gangway.components.aws.eks import EksCluster
from gangway.components.aws.eks_nodes import (
    ROOT_DEVICE,
    cluster_charts,
    group_pattern,
    group_tags,
    join_script,
    lustre_volume,
    node_labels,
)
from gangway.components.aws.node_pool import EfaNodePool, RungNodesArgs
from gangway.components.core.capacity import RungPlan, plan_ladder
from gangway.components.core.lookup import pinned, record_choice
from gangway.components.kubernetes.charts import queue_manifests
from gangway.components.kubernetes.namespaces import fabric_config, namespace_manifests
from gangway.components.kubernetes.resources import ClusterCharts, ClusterManifests
from gangway.components.kubernetes.spec import EFA, GPU
from gangway.stacks.base.ownership import check_unclaimed
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.component_factory import ComponentFactory, FileSystem, Key, Network, component_options
from gangway.stacks.providers.aws.existing_lookups import check_existing, record_existing
from gangway.stacks.providers.aws.lookups import look_up_all, owner_lookups
from gangway.stacks.providers.aws.plan import AwsPlan, EksPlan

__all__ = ["build_eks"]


def build_eks(
    config: StackConfig, planned: AwsPlan, eks: EksPlan, newest: Mapping[str, str]
) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports. `newest`: SSM parameters of images."""
    provider = aws.Provider(config.stack, region=config.region)
    check_unclaimed(config, *owner_lookups(config, provider))
    check_existing(config, planned, provider)
    opts = component_options(config, provider)
    found = look_up_all(config, provider, newest, builds=False)
    record_choice(config.stack, config.encryption)
    record_existing(config, planned)
    stack = _Factory(config, planned, opts, found, eks)
    key = stack.key()
    runs = stack.runs(key)
    network = stack.network(runs, None, key)
    lustre = stack.lustre(network, runs, key)
    cluster = stack.cluster(network, key)
    images = stack.images()
    pool = stack.workers(network, cluster, images, key)
    stack.inside(cluster, lustre)
    budget = stack.budget(key)
    return {
        "machine_images": images,
        "run_bucket": runs.bucket_name,
        "group_names": pool.group_names,
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "cluster_name": cluster.name,
        "kubeconfig": cluster.kubeconfig,
        "queues": [team.name for team in eks.spec.queues],
        "budget_topic_arn": budget.topic_arn,
    }


@dataclass(frozen=True)
class _Factory(ComponentFactory):
    """With the components that only EKS clusters have."""

    eks: EksPlan

    @cached_property
    def rungs(self) -> Sequence[RungPlan]:
        """The ladder."""
        return plan_ladder(self.config.cluster.capacity)

    def cluster(self, network: Network, key: Key) -> EksCluster:
        """The control plane and its machines."""
        args = {
            "stack": self.config.stack,
            "version": self.eks.version,
            "region": self.config.region,
            "subnet_ids": network.private_subnet_ids,
            "service_cidr": self.eks.service_cidr,
            "api_cidrs": list(self.eks.api_cidrs),
            "kms_key_arn": key,
            "log_days": self.config.observe.log_days,
            "tags": self.planned.tags,
        }
        return self.declare(EksCluster, args)

    def images(self) -> pulumi.Output[dict[str, str]]:
        """The workers' image: from the stack file, or the newest at the first `up`."""
        cluster = self.config.cluster
        if cluster.image_id is not None:
            return pulumi.Output.from_input({"nodes": cluster.image_id})
        # One per version: nodes must not be much older than the control plane.
        name = f"{self.config.stack}-images-{self.eks.version.replace('.', '-')}"
        return pinned(name, self.found.images, cluster.image_refresh)

    def workers(
        self, network: Network, cluster: EksCluster, images: pulumi.Output[dict[str, str]], key: Key
    ) -> EfaNodePool:
        """One group per rung, which the autoscaler sizes."""
        own, name = self.config.cluster, self.config.stack
        args = {
            "machine_type": self.planned.machine.name,
            **self.node_args,
            "subnet_ids": network.private_subnet_ids,
            "zones": list(self.planned.zones),
            # The first lets nodes reach each other, the second lets the control plane reach them.
            "security_group_ids": [network.fabric_security_group_id, cluster.security_group_id],
            "image_id": images["nodes"],
            "instance_profile_arn": cluster.instance_profile_arn,
            "user_data": "",
            "rungs": [self._rung_nodes(cluster, position, rung) for position, rung in enumerate(self.rungs)],
            "sized_by_queue": True,
            "root_volume_gib": own.root_volume_gib,
            "root_device_name": ROOT_DEVICE if own.image_id is None else own.root_device_name,
            "kms_key_arn": key,
            # With the last tag EKS recognises the cluster's machines.
            "tags": {**self.planned.tags, f"kubernetes.io/cluster/{name}": "owned"},
        }
        return self.declare(EfaNodePool, args)

    def _rung_nodes(self, cluster: EksCluster, position: int, rung: RungPlan) -> RungNodesArgs:
        machine, own = self.planned.machine, self.config.cluster
        label = f"{position}-{rung.kind}"
        labels = node_labels(machine, label)
        return {
            "user_data": cluster.join().apply(lambda join: join_script(join, labels, machine.memory_gib.value)),
            "group_tags": group_tags(self.config.stack, machine, label, own.root_volume_gib),
        }

    def inside(self, cluster: EksCluster, lustre: FileSystem | None) -> ClusterManifests:
        """The workloads of the cluster and its queues."""
        name, spec = self.config.stack, self.eks.spec
        inner = kubernetes.Provider(name, kubeconfig=cluster.kubeconfig)
        opts = pulumi.ResourceOptions(providers={"kubernetes": inner})
        charts = cluster_charts(
            spec,
            cluster=name,
            region=self.config.region,
            groups=[group_pattern(name, position, rung) for position, rung in enumerate(self.rungs)],
            idle_minutes=self.eks.idle_minutes,
            lustre=lustre is not None,
            hardware_metrics=self.config.observe.hardware,
        )
        releases = ClusterCharts(name, {"charts": charts}, opts).releases
        storage = self.config.storage
        volume = None if lustre is None else lustre_volume(lustre.dns_name, lustre.mount_name)
        manifests = [
            *queue_manifests(spec),
            *namespace_manifests(spec, volume, storage.capacity_gib if storage else 0),
        ]
        if self.eks.fabric:
            gpus = spec.node.devices[GPU]
            manifests += [fabric_config(team.name, gpus, self.eks.fabric, needs=[EFA]) for team in spec.queues]
        return ClusterManifests(name, {"manifests": manifests, "after": releases}, opts)
