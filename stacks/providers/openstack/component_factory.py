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
from gangway.components.openstack.network import ExistingNetwork, TrainingNetwork
from gangway.components.openstack.node_pool import NodePool
from gangway.components.openstack.storage import ManilaShare, RunBucket
from gangway.stacks.base.factory import Factory
from gangway.stacks.base.kept import keep_text
from gangway.stacks.providers.openstack.plan import OpenstackPlan, get_section
from gangway.stacks.providers.openstack.settings import OpenstackConfig
from gangway.stacks.providers.openstack.user_data import Names, head_user_data, node_user_data, secrets_content


@dataclass(frozen=True)
class GivenNetwork:
    """An existing network with existing security groups: as TrainingNetwork, without `egress_ip`."""

    private_subnet_ids: pulumi.Output[list[str]]
    vpc_id: pulumi.Output[str]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]


@dataclass(frozen=True)
class ExistingShare:
    """As ManilaShare, for NFS."""

    mount_source: pulumi.Output[str]
    access_user: str = ""
    access_key: str = ""


@dataclass(frozen=True)
class ExistingCredential:
    """As NodeIdentity."""

    credential_id: pulumi.Output[str]
    credential_secret: pulumi.Output[str]


@dataclass(frozen=True)
class ExistingContainer:
    """As RunBucket."""

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]


Network = TrainingNetwork | ExistingNetwork | GivenNetwork
Runs = RunBucket | ExistingContainer
Share = ManilaShare | ExistingShare


@dataclass(frozen=True)
class ComponentFactory(Factory[OpenstackPlan]):
    """One method per component; `build` connects them. `mount_source`: of the existing share, if any."""

    mount_source: str | None

    @property
    def _own(self) -> OpenstackConfig:
        return get_section(self.config)

    def runs(self) -> Runs:
        """The container of run records, which outlive the nodes."""
        if (existing := self._own.existing.run_container) is not None:
            return ExistingContainer(
                pulumi.Output.from_input(existing), pulumi.Output.from_input(f"swift://{existing}")
            )
        return RunBucket(self.config.stack, {"tags": self.planned.tags}, self.opts)

    def network(self) -> Network:
        """The network, the way out and the firewall."""
        if self._own.existing.network_id is not None:
            return self._existing_network()
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

    def _existing_network(self) -> Network:
        existing = self._own.existing
        assert existing.network_id is not None, "only with an existing network"
        assert existing.subnet_id is not None, "mistakes requires it with the network"
        if (groups := existing.security_groups) is not None:
            ids = (existing.network_id, groups.fabric, groups.head or groups.fabric)
            return GivenNetwork(pulumi.Output.all(existing.subnet_id), *map(pulumi.Output.from_input, ids))
        args = {
            "network_id": existing.network_id,
            "subnet_id": existing.subnet_id,
            "cidr": existing.machine_cidr,
            "egress": self.config.network.egress,
            "service_cidrs": list(self._own.service_cidrs),
            "dns_nameservers": list(self._own.dns_nameservers),
            "head": self.head_ports() if self.planned.head else None,
            "tags": self.planned.tags,
        }
        return self.declare(ExistingNetwork, args)

    def storage(self, network: Network) -> Share | None:
        """The share, if any."""
        storage, own = self.config.storage, self._own
        if storage is None:
            return None
        if own.existing.share_name is not None:
            assert self.mount_source is not None, "look_up_existing returns it for a share"
            return ExistingShare(pulumi.Output.from_input(self.mount_source))
        args = {
            "capacity_gib": storage.capacity_gib,
            "protocol": own.share_protocol,
            "share_type": own.share_type,
            # Manila's zones differ from Nova's.
            "zone": "",
            "clients": network.egress_ip
            if isinstance(network, TrainingNetwork) and not own.share_network
            else self.planned.network.cidr,
            "share_network": own.share_network,
            "network_id": network.vpc_id,
            "subnet_ids": network.private_subnet_ids,
            "tags": self.planned.tags,
        }
        return self.declare(ManilaShare, args)

    def node_identity(self, runs: Runs) -> NodeIdentity | ExistingCredential:
        """The identity of the machines."""
        if (existing := self._own.existing.application_credential) is not None:
            return ExistingCredential(
                pulumi.Output.from_input(existing.id), pulumi.Output.secret(existing.secret or "")
            )
        args = {"run_bucket": runs.bucket_name, "role": self._own.object_role, "access_rules": self._own.access_rules}
        return self.declare(NodeIdentity, args)

    def secrets(
        self, identity: NodeIdentity | ExistingCredential, storage: Share | None, signing: pulumi.Output[str]
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
        self, network: Network, image: str, boot_volume_gib: int | None, secrets: MachineSecrets
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

    def head(self, network: Network, names: pulumi.Output[Names], secrets: MachineSecrets) -> HeadNode | None:
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

    @property
    def _addresses(self) -> list[str] | None:
        """Of the nodes in an existing subnet; otherwise NodePool counts them from the network's."""
        if self._own.existing.machine_cidr is None:
            return None
        return [self.planned.network.worker(index) for index in range(self.planned.num_machines)]

    def pool(
        self,
        network: Network,
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
            "addresses": self._addresses,
            "subnet_ids": network.private_subnet_ids,
            "security_group_ids": [network.fabric_security_group_id],
            "rdma_network_id": own.rdma_network_id,
            "rdma_ports": self.planned.rdma_ports,
            "rdma_vnic_type": own.rdma_vnic_type,
            "head_host": head.host if head else None,
            "user_data": keep_text(self.config, "nodes", node_user_data(self.config, self.planned, names), names),
        }
        return self.declare(NodePool, args)
