"""The components of a stack on OpenStack, one method each; arguments are what a component needs of the others."""

import time
from dataclasses import dataclass
from typing import Any

import pulumi

from gangway.components.core.keys import member_key
from gangway.components.openstack.launch import HEAD_ROOT_GIB, HeadNode
from gangway.components.openstack.machine_secrets import (
    MachineSecrets,
    NodeIdentity,
    get_period,
    url_key,
)
from gangway.components.openstack.network import TrainingNetwork
from gangway.components.openstack.node_pool import NodePool
from gangway.components.openstack.storage import ManilaShare, RunBucket
from gangway.stacks.base.factory import Factory
from gangway.stacks.base.kept import keep_text
from gangway.stacks.providers.openstack.plan import OpenstackPlan, get_section
from gangway.stacks.providers.openstack.settings import OpenstackConfig
from gangway.stacks.providers.openstack.user_data import Names, head_user_data, node_user_data, secrets_content


@dataclass(frozen=True)
class ComponentFactory(Factory[OpenstackPlan]):
    """One method per component; `build` connects them."""

    @property
    def _own(self) -> OpenstackConfig:
        return get_section(self.config)

    def runs(self) -> RunBucket:
        """The container of run records, which outlive the nodes."""
        return RunBucket(self.config.stack, {"tags": self.planned.tags}, self.opts)

    def network(self) -> TrainingNetwork:
        """The network, the way out and the firewall."""
        args = {
            "cidr": self.config.network.cidr,
            "egress": self.config.network.egress,
            "external_network_id": self._own.external_network_id,
            "service_cidrs": list(self._own.service_cidrs),
            "dns_nameservers": list(self._own.dns_nameservers),
            "head": self.head_ports() if self.planned.head else None,
            "tags": self.planned.tags,
        }
        return self.declare(TrainingNetwork, args)

    def storage(self, network: TrainingNetwork) -> ManilaShare | None:
        """The share, if any."""
        storage, own = self.config.storage, self._own
        if storage is None:
            return None
        args = {
            "capacity_gib": storage.capacity_gib,
            "protocol": own.share_protocol,
            "share_type": own.share_type,
            # Manila's zones differ from Nova's.
            "zone": "",
            "clients": self.planned.network.cidr if own.share_network else network.egress_ip,
            "share_network": own.share_network,
            "network_id": network.vpc_id,
            "subnet_ids": network.private_subnet_ids,
            "tags": self.planned.tags,
        }
        return self.declare(ManilaShare, args)

    def node_identity(self, runs: RunBucket) -> NodeIdentity:
        """The identity of the machines."""
        args = {"run_bucket": runs.bucket_name, "role": self._own.object_role, "access_rules": self._own.access_rules}
        return self.declare(NodeIdentity, args)

    def secrets(
        self, identity: NodeIdentity, storage: ManilaShare | None, signing: pulumi.Output[str]
    ) -> MachineSecrets:
        """The secrets that machines fetch at boot."""
        name, own = self.config.stack, self._own
        credential = (identity.credential_id, identity.credential_secret)
        members = member_key(name, self.config.work.member_key_refresh) if self.planned.member_key else None
        mount_key = storage.access_key if storage else ""
        args = {
            "content": secrets_content(self.config, credential, members, signing, mount_key),
            "url_key": url_key(name) if own.temp_url_key is None else own.temp_url_key,
            "of_account": own.temp_url_key is not None,
            "period": get_period(time.time()),
            "tags": self.planned.tags,
        }
        return self.declare(MachineSecrets, args)

    def _machine(
        self, network: TrainingNetwork, image: str, boot_volume_gib: int | None, secrets: MachineSecrets
    ) -> dict[str, Any]:
        return {
            "secrets_place": secrets.place,
            "secrets_signature": secrets.signature,
            "zone": self.planned.zone,
            "image": image,
            "boot_volume_gib": boot_volume_gib,
            "volume_type": self._own.volume_type,
            "network_id": network.vpc_id,
            "tags": self.planned.tags,
        }

    def head(self, network: TrainingNetwork, names: pulumi.Output[Names], secrets: MachineSecrets) -> HeadNode | None:
        """The head node; None for a single node."""
        if not self.planned.head:
            return None
        own = self._own
        volume = None if self.planned.boot_volume_gib is None else HEAD_ROOT_GIB
        args = {
            **self._machine(network, own.head_image or own.image, volume, secrets),
            "machine_type": self.config.head.machine_type,
            "subnet_id": network.private_subnet_ids[0],
            "private_ip": self.planned.network.head,
            "security_group_ids": [network.head_security_group_id],
            "user_data": keep_text(self.config, "head", head_user_data(self.config, self.planned, names), names),
        }
        return self.declare(HeadNode, args)

    def pool(
        self,
        network: TrainingNetwork,
        names: pulumi.Output[Names],
        secrets: MachineSecrets,
        head: HeadNode | None,
    ) -> NodePool:
        """The workers, which are destroyed before the head."""
        cluster, own = self.config.cluster, self._own
        args = {
            **self._machine(network, own.image, self.planned.boot_volume_gib, secrets),
            "machine_type": cluster.machine_type,
            "num_nodes_max": cluster.nodes.max,
            "capacity": [
                rung.model_dump(mode="json", include={"kind", "id"}, exclude_none=True) for rung in cluster.capacity
            ],
            "placement": own.placement,
            "cidr": self.config.network.cidr,
            "subnet_ids": network.private_subnet_ids,
            "security_group_ids": [network.fabric_security_group_id],
            "rdma_network_id": own.rdma_network_id,
            "rdma_ports": self.planned.rdma_ports,
            "rdma_vnic_type": own.rdma_vnic_type,
            "head_host": head.host if head else None,
            "user_data": keep_text(self.config, "nodes", node_user_data(self.config, self.planned, names), names),
        }
        return self.declare(NodePool, args)
