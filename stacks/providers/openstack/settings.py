"""The section gangway:openstack, and the common settings without effect on OpenStack."""

from typing import Literal

from pydantic import Field, StrictBool

from gangway.stacks.config.provider_settings import Encrypted, OwnSection, ProviderSettings
from gangway.stacks.config.section import Section
from gangway.stacks.config.stack_config import StackConfig

_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_UUID_EXAMPLES = [f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "12"]
_NO_LOGS = "there is no log service: logs stay in the machines' journals"
_CONTAINER_FOLDER = r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"


class SecurityGroupsConfig(Section):
    """Existing security groups.

    Attributes:
        fabric: of the nodes.
        head: of the head node; the nodes' if omitted.
    """

    fabric: str = Field(pattern=_UUID, examples=_UUID_EXAMPLES[:1])
    head: str | None = Field(default=None, pattern=_UUID, examples=_UUID_EXAMPLES[1:])


class CredentialConfig(Section):
    """An existing application credential, with which machines upload their runs.

    Attributes:
        id: its id.
        secret: its secret, a secret of the stack.
    """

    id: str = Field(pattern=r"^[0-9a-f]{32}$", examples=["0123456789abcdef0123456789abcdef"])
    secret: Encrypted = None


class ExistingConfig(Section):
    """Existing resources that the stack uses, but neither creates, tags nor deletes.

    Attributes:
        network_id: network, with or without a router; needs `subnet_id` and `machine_cidr`.
        subnet_id: subnet of the machines.
        machine_cidr: free addresses of the subnet for the head and the nodes, in this order.
        security_groups: security groups of the machines; the stack makes them if omitted.
        share_name: NFS share, whose access rules let the machines in; `gangway:storage` describes its size.
        application_credential: credential of the machines.
        run_container: container for run records and checkpoints.
    """

    network_id: str | None = Field(default=None, pattern=_UUID, examples=_UUID_EXAMPLES[:1])
    subnet_id: str | None = Field(default=None, pattern=_UUID, examples=_UUID_EXAMPLES[1:])
    machine_cidr: str | None = Field(
        default=None, pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$", examples=["10.20.8.0/26"]
    )
    security_groups: SecurityGroupsConfig | None = None
    share_name: str | None = Field(default=None, min_length=1, max_length=255, examples=["gan-share"])
    application_credential: CredentialConfig | None = None
    run_container: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,255}$", examples=["gan-runs"])


class OpenstackConfig(Section):
    """Settings of a stack on OpenStack. Credentials come from clouds.yaml or `OS_*` variables.

    Attributes:
        auth_url: address of the Keystone API, version 3, as the machines reach it.
        cloud: cloud in clouds.yaml; `OS_*` variables if omitted.
        image: id or name of the nodes' image, with NVIDIA's driver and container toolkit.
        head_image: image of the head node; the nodes' if omitted.
        external_network_id: network to which the stack's router connects; required without `existing.network_id`.
        service_cidrs: addresses of the cloud's services: all that machines reach with network.egress: endpoints.
        dns_nameservers: DNS servers of the machines; the network's if omitted.
        placement: policy of the nodes' server group: one host for all (affinity) or one each (anti-affinity); soft is
            best effort.
        boot: boot from the flavour's disk, or from a volume of cluster.root_volume_gib.
        volume_type: type of that volume, such as an encrypted one; the cloud's default if omitted.
        share_protocol: protocol of the share: NFS, or CEPHFS for native CephFS.
        share_type: type of the share; the cloud's default if omitted.
        share_network: whether the share's server is in the stack's network, for share types whose driver handles
            servers.
        data_dir: folder of the share with the training data.
        rdma_network_id: network of SR-IOV ports, one per adapter of gangway:site.fabric; if omitted, the flavour brings
            the adapters.
        rdma_vnic_type: type of those ports.
        object_role: role that the object store requires to write.
        access_rules: whether the machines' credential opens only the run container.
        temp_url_key: Temp-URL-Key of the account, a secret, for object stores behind Ceph's gateway; if omitted, the
            stack makes a key for its container.
        existing: existing resources to use.
    """

    auth_url: str = Field(
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?/v3/?$", examples=["https://cloud.example.com:5000/v3"]
    )
    cloud: str | None = Field(default=None, min_length=1, examples=["lab"])
    image: str = Field(min_length=1, max_length=255, examples=["ubuntu-24.04-nvidia-580"])
    head_image: str | None = Field(default=None, min_length=1, max_length=255, examples=["ubuntu-24.04"])
    external_network_id: str | None = Field(default=None, pattern=_UUID, examples=_UUID_EXAMPLES[:1])
    service_cidrs: tuple[str, ...] = Field(default=(), max_length=20, examples=[["192.0.2.0/24"]])
    dns_nameservers: tuple[str, ...] = Field(default=(), max_length=5, examples=[["192.0.2.53"]])
    placement: Literal["soft-affinity", "affinity", "anti-affinity", "soft-anti-affinity"] = "soft-affinity"
    boot: Literal["flavour", "volume"] = "flavour"
    volume_type: str | None = Field(default=None, min_length=1, examples=["luks"])
    share_protocol: Literal["NFS", "CEPHFS"] = "NFS"
    share_type: str | None = Field(default=None, min_length=1, examples=["cephfsnfstype"])
    share_network: StrictBool = False
    data_dir: str | None = Field(default=None, pattern=_CONTAINER_FOLDER, examples=["celeba"])
    rdma_network_id: str | None = Field(default=None, pattern=_UUID, examples=_UUID_EXAMPLES[1:])
    rdma_vnic_type: Literal["direct", "direct-physical"] = "direct"
    object_role: str = Field(default="member", pattern=r"^[A-Za-z0-9_.-]{1,255}$", examples=["swiftoperator"])
    access_rules: StrictBool = True
    temp_url_key: Encrypted = None
    existing: ExistingConfig = ExistingConfig()


SETTINGS = ProviderSettings(
    own=OwnSection(
        "openstack",
        OpenstackConfig,
        holds="auth_url, image and external_network_id",
        example="{auth_url: https://cloud.example.com:5000/v3, image: ubuntu-24.04-nvidia-580, "
        "external_network_id: 11111111-0000-4000-8000-111111111111}",
    ),
    reads_site=True,
    examples={
        "region": "RegionOne",
        "cluster": {
            "machine_type": "gpu.h100x8",
            "nodes": {"min": 2, "max": 4},
            "capacity": [{"kind": "on-demand"}],
        },
        "cluster.machine_type": "gpu.h100x8",
        "cluster.capacity": [{"kind": "on-demand"}],
        "cluster.zone": "nova",
        "storage": {"kind": "manila", "capacity_gib": 4096},
        "image.prebuilt": f"registry.example.com/gan/trainer@sha256:{'0123456789abcdef' * 4}",
        "head.machine_type": "m1.medium",
    },
    unsupported={
        "network.dns_firewall": "stacks on OpenStack have no DNS firewall",
        "network.flow_logs": "OpenStack has no flow logs",
        "cluster.image_id": "gangway:openstack.image sets the image, by id or name",
        "cluster.image_refresh": "gangway:openstack.image sets the image, by id or name",
        "cluster.root_device_name": "OpenStack detects an image's boot disk",
        "cluster.breaker": "only `up` replaces a machine that failed to start",
        "cluster.idle_stop": "a machine cannot delete itself, and one that is shut down stays allocated",
        "cluster.machine_image": "gangway:openstack.image sets the image, by id or name",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and there are no alarms",
        "budget.stop_at_percent": "OpenStack has no budgets that could stop machines",
        "budget.activate_tag": "there is no bill by tags, so no tag to activate",
    },
    storage_kinds=("manila",),
    runs_commands=True,
    joins_commands=True,
)


def storage_cloud(config: StackConfig) -> str:
    """The name in clouds.yaml of the cloud that holds a stack's buckets; empty for other providers."""
    section = config.find_section(OpenstackConfig)
    return (section.cloud or "") if section else ""
