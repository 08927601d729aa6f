"""What a node runs, as text: the trainer's Dockerfile and the cloud-init of its nodes, from Jinja2 templates.

Every function is pure, so the same call serves the offline plan and `Output.apply`; nothing calls a cloud.
"""

from images.aws import render_head_init
from images.azure import AzureHeadSpec, AzureNodeSpec, FabricSetup, render_azure_head, render_azure_node
from images.gcp import (
    DataSource,
    GcpHeadSpec,
    GcpNodeSpec,
    NcclSetup,
    TpuHostSpec,
    render_gcp_head,
    render_gcp_node,
    render_tpu_startup,
)
from images.hosts import HostSpec, digest_of, render_host_installer
from images.openstack import (
    ObjectStore,
    OpenstackHeadSpec,
    OpenstackNodeSpec,
    render_openstack_head,
    render_openstack_node,
)
from images.render import USER_DATA_LIMIT_BYTES, base64gzip, render_cloud_init, render_dockerfile, user_data_base64gzip
from images.specs import (
    DOCKERFILE_FLAVOURS,
    DockerfileSpec,
    FileSystem,
    Flavour,
    HeadInitSpec,
    NodeInitSpec,
    RdmaSetup,
    job_key,
)

__all__ = [
    "DOCKERFILE_FLAVOURS",
    "USER_DATA_LIMIT_BYTES",
    "AzureHeadSpec",
    "AzureNodeSpec",
    "DataSource",
    "DockerfileSpec",
    "FabricSetup",
    "FileSystem",
    "Flavour",
    "GcpHeadSpec",
    "GcpNodeSpec",
    "HeadInitSpec",
    "HostSpec",
    "NcclSetup",
    "NodeInitSpec",
    "ObjectStore",
    "OpenstackHeadSpec",
    "OpenstackNodeSpec",
    "RdmaSetup",
    "TpuHostSpec",
    "base64gzip",
    "digest_of",
    "job_key",
    "render_azure_head",
    "render_azure_node",
    "render_cloud_init",
    "render_dockerfile",
    "render_gcp_head",
    "render_gcp_node",
    "render_head_init",
    "render_host_installer",
    "render_openstack_head",
    "render_openstack_node",
    "render_tpu_startup",
    "user_data_base64gzip",
]
