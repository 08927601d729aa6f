"""The sections of a stack file that only one provider reads: whose account, which cloud, and what is called how
there.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from components.core.fields import PositiveNumber, Whole
from stacks.config.sections import Section

__all__ = ["ENCRYPTED", "HOST_KEY_EXAMPLE", "AzureConfig", "GcpConfig", "HostConfig", "HostsConfig", "OpenstackConfig"]


_GUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_RESOURCE = r"^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]{1,90}/providers/"
_GUID_EXAMPLES = [f"{digit * 8}-0000-0000-0000-{digit * 12}" for digit in "123"]
_RESOURCE_EXAMPLE = f"/subscriptions/{_GUID_EXAMPLES[0]}/resourceGroups/my-group/providers"


class GcpConfig(Section):
    """What a stack on Google Cloud says besides.

    Attributes:
        project: id of the project that everything is made in.
        billing_account: whose budget counts; whoever runs `up` is its Costs Manager.
        currency: of the billing account, where it is not kept in dollars: Google takes a budget in no other.
        monthly_amount: the budget in `currency`; the plan goes on comparing `monthly_usd` with its prices.
        tpu_api_url: where the TPU API answers, such as a Private Service Connect endpoint; Google's own when left out.
    """

    project: str = Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$", examples=["my-project"])
    billing_account: str = Field(pattern=r"^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", examples=["012345-6789AB-CDEF01"])
    currency: str | None = Field(default=None, pattern=r"^[A-Z]{3}$", examples=["EUR"])
    monthly_amount: PositiveNumber | None = None
    tpu_api_url: str | None = Field(
        default=None, pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?/?$", examples=["https://tpu-lab.p.googleapis.com"]
    )


class AzureConfig(Section):
    """What a stack on Azure says besides.

    Attributes:
        subscription_id: that everything is made in and billed to.
        tenant_id: the directory, whose identities a vault of the stack trusts; with encryption: customer-key.
        budget_starts_on: the first of the month in which the budget begins, in quotes. Pinned, for a computed day would
            change the stack each month.
        source_account_id: resource id of the storage account that `storage.source` is in.
        importer_principal_id: object id, in this directory, of the service principal by which Managed Lustre fetches
            what is in there: "HPC Cache Resource Provider".
        registry_id: resource id of the registry that `image.prebuilt` is in: an image's name does not say where its
            registry is.
        role_wait_sec: how long `up` waits after it has given somebody a role, before it relies on that.
        network_watcher: resource id, or GROUP/NAME, of the network watcher that writes the flow log; Azure's own of the
            region when left out.
        trusted_launch: whether machines start with a virtual TPM, and with Secure Boot where their image allows.
        secure_boot: whether nodes load signed modules alone; left out, where their image is taken to have no others.
        encryption_at_host: whether caches and local disks of machines are encrypted.
        proximity: whether nodes without InfiniBand are kept in one data centre.
        bastion: whether people may come in: Azure Bastion, and SSH with their Entra ID account.
    """

    subscription_id: str = Field(pattern=_GUID, examples=[_GUID_EXAMPLES[0]])
    tenant_id: str | None = Field(default=None, pattern=_GUID, examples=[_GUID_EXAMPLES[1]])
    budget_starts_on: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2026-01-01"])
    source_account_id: str | None = Field(
        default=None,
        pattern=_RESOURCE + r"Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.Storage/storageAccounts/myaccount"],
    )
    importer_principal_id: str | None = Field(default=None, pattern=_GUID, examples=[_GUID_EXAMPLES[2]])
    registry_id: str | None = Field(
        default=None,
        pattern=_RESOURCE + r"Microsoft\.ContainerRegistry/registries/[A-Za-z0-9]{5,50}$",
        examples=[f"{_RESOURCE_EXAMPLE}/Microsoft.ContainerRegistry/registries/myregistry"],
    )
    role_wait_sec: Whole = Field(default=300, ge=0, le=900)
    network_watcher: str | None = Field(default=None, min_length=3, examples=["NetworkWatcherRG/NetworkWatcher_eastus"])
    trusted_launch: StrictBool = True
    secure_boot: StrictBool | None = None
    encryption_at_host: StrictBool = True
    proximity: StrictBool = False
    bastion: StrictBool = False


ENCRYPTED = "[encrypted in the stack file]"
"""What stands for a secret that only the engine can decrypt."""
# What Pulumi's plugin can pin: it offers a server this one algorithm, and no server takes ssh-rsa any more.
_HOST_KEY = r"^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,}={0,2}$"
HOST_KEY_EXAMPLE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFDYWOCYXsx/YEGKrwzFq1h/QsJXCohAlanozKzQ9lRc"
"""Nobody's."""
_ADDRESS = r"^[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?$"
_FOLDER = r"^/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"


def _decryptable(value: Any) -> Any:
    """`{secure: ...}`, as Pulumi writes a secret into the stack file, as the word for it."""
    return ENCRYPTED if isinstance(value, dict) and set(value) == {"secure"} else value


class HostConfig(Section):
    """One machine that is there.

    Attributes:
        name: of its resources; made of the address when left out.
        address: where its SSH server answers.
        port: of its SSH server.
        user: root, or somebody whose sudo asks for no password; the section's own when left out.
        host_key: the server's public key, as `ssh-keyscan -t ed25519 ADDRESS` prints it behind the address.
        accept_unknown_host_key: connects to whoever answers; in place of host_key.
        cluster_address: by which the other machines reach it; the address when left out.
    """

    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]{0,29}$", examples=["node-1"])
    address: str = Field(pattern=_ADDRESS, examples=["10.20.0.11"])
    port: Whole = Field(default=22, ge=1, le=65535)
    user: str | None = Field(default=None, pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", examples=["gangway"])
    host_key: str | None = Field(default=None, pattern=_HOST_KEY, examples=[HOST_KEY_EXAMPLE])
    accept_unknown_host_key: StrictBool = False
    cluster_address: str | None = Field(default=None, pattern=_ADDRESS, examples=["10.30.0.11"])

    @model_validator(mode="after")
    def _known_or_accepted(self) -> Self:
        if self.host_key is None and not self.accept_unknown_host_key:
            raise ValueError(
                "host_key, by which the right machine is told from another; write what `ssh-keyscan -t ed25519 "
                f"{self.address}` prints behind the address, or accept_unknown_host_key: true"
            )
        if self.host_key is not None and self.accept_unknown_host_key:
            raise ValueError("host_key or accept_unknown_host_key, not both; remove accept_unknown_host_key")
        return self

    @property
    def label(self) -> str:
        """What its resources are called after."""
        return self.name or self.address.lower().replace(".", "-").replace(":", "-")

    @property
    def reached_at(self) -> str:
        """Its address among the machines."""
        return self.cluster_address or self.address


class HostsConfig(Section):
    """Machines that are there already, reached over SSH.

    Attributes:
        machines: the first also holds the store in which the others meet.
        user: of those that name none.
        private_key: of the SSH user, a secret of the stack; the agent's keys (SSH_AUTH_SOCK) when left out.
        container_engine: what runs the trainer's image there.
        run_store: where records outlive a run: a bucket, for which the machines have credentials of their own, or a
            folder that they see.
        shared_dir: a file system that all machines have mounted; checkpoints are in it.
        data_dir: what the job trains on, as every machine sees it; only read.
    """

    machines: tuple[HostConfig, ...] = Field(
        min_length=1,
        max_length=512,
        examples=[[{"address": "10.20.0.11", "host_key": HOST_KEY_EXAMPLE}]],
    )
    user: str = Field(default="root", pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", examples=["gangway"])
    private_key: Annotated[str | None, BeforeValidator(_decryptable)] = None
    container_engine: Literal["docker", "podman"] = "docker"
    run_store: str = Field(
        pattern=r"^((s3|gs)://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]|az://[a-z0-9]{3,24}/[a-z0-9-]{3,63}|/[A-Za-z0-9._-]+)"
        r"(/[A-Za-z0-9._-]+)*$",
        examples=["s3://my-bucket/runs", "/shared/gangway/results"],
    )
    shared_dir: str | None = Field(default=None, pattern=_FOLDER, examples=["/shared/gangway"])
    data_dir: str | None = Field(default=None, pattern=_FOLDER, examples=["/shared/data/celeba"])

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for what in ("label", "address", "reached_at"):
            values = [getattr(machine, what) for machine in self.machines]
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"each machine once; remove the second {twice}")
        return self


_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_UUID_EXAMPLES = [f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "12"]
_CONTAINER_FOLDER = r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$"


class OpenstackConfig(Section):
    """What a stack on OpenStack says besides. Who logs in, clouds.yaml says or OS_* in the environment.

    Attributes:
        auth_url: of Keystone's API, version 3, as the machines reach it.
        cloud: of clouds.yaml; OS_* in the environment when left out.
        image: of the nodes, id or name, with NVIDIA's driver and container toolkit.
        head_image: of the head node; the nodes' when left out.
        external_network_id: by which the stack's router goes out.
        service_cidrs: where the cloud's own services are: all that machines reach with network.egress: endpoints.
        dns_nameservers: told to the machines; they ask the network's own when left out.
        placement: of the nodes' server group: one host for all (affinity) or one for each (anti-affinity), the soft
            ones as a wish.
        boot: from the flavour's own disk, or from a volume of cluster.root_volume_gib.
        volume_type: of such a volume, such as one that is encrypted; the cloud's usual one when left out.
        share_protocol: of the share: NFS, or CEPHFS for native CephFS.
        share_type: of the share; the cloud's usual one when left out.
        share_network: has the share's server in the stack's network, for share types whose driver handles servers.
        data_dir: a folder of the share that the job trains on.
        rdma_network_id: of SR-IOV ports, one for each adapter of gangway:site.fabric; when left out the flavour brings
            the adapters.
        rdma_vnic_type: of those ports.
        object_role: what the object store asks of who writes.
        access_rules: has the machines' credential open the run container and nothing else.
    """

    auth_url: str = Field(
        pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?/v3/?$", examples=["https://cloud.example.com:5000/v3"]
    )
    cloud: str | None = Field(default=None, min_length=1, examples=["lab"])
    image: str = Field(min_length=1, max_length=255, examples=["ubuntu-24.04-nvidia-580"])
    head_image: str | None = Field(default=None, min_length=1, max_length=255, examples=["ubuntu-24.04"])
    external_network_id: str = Field(pattern=_UUID, examples=_UUID_EXAMPLES[:1])
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
