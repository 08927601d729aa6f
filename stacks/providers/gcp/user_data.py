"""User data of the machines of a stack on Google Cloud: workers, TPU hosts and head node."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import pulumi

from gangway.components.core.job import JobSpec, Volume
from gangway.components.gcp.capacity import rung_zone
from gangway.components.gcp.fabric import NcclPlugin, SideContainer, nccl_plugin, plan_interfaces
from gangway.components.gcp.storage import import_request
from gangway.images.gcp import (
    CLOUD,
    DataSource,
    GcpHeadSpec,
    GcpNodeSpec,
    NcclSetup,
    TpuHostSpec,
    render_gcp_head,
    render_gcp_node,
    render_tpu_startup,
)
from gangway.images.machine_image import MachineImageSpec, render_machine_image
from gangway.images.render import base64gzip
from gangway.images.specs import FileSystem, exporter_ports
from gangway.stacks.base.shared import (
    container_labels,
    ended_key,
    has_exporters,
    head_settings,
    machine_settings,
    run_dir,
    worker_settings,
)
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.plan import MOUNT, GcpPlan, imports, queued_resource

FALLBACK_OBJECT = "fallback.json"
"""The object in the head's bucket with the groups to fill: the head is created before them and outlives them."""
REQUEST_OBJECT = "request.json"  # slices, for the workflow that repeats the request


class Names(NamedTuple):
    """Names that exist only once their resources do. `head_files`: bucket with files for the head, if any;
    `member_key`: None for a single machine; `signing_key`: None on TPUs, whose container runs as root.
    """

    job: JobSpec
    bucket: str
    log_id: str
    mount_source: str | None
    file_system_id: str | None
    head_files: str | None
    member_key: str | None
    signing_key: str | None


def node_user_data(config: StackConfig, planned: GcpPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The cloud-init file of a GPU worker, base64 of gzip."""
    return names.apply(lambda known: base64gzip(render_gcp_node(_node(config, planned, known))))


def tpu_startup_script(config: StackConfig, planned: GcpPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The script that hosts of slices run at each boot."""
    return names.apply(lambda known: render_tpu_startup(_tpu_host(config, planned, known)))


def ended_uri(config: StackConfig, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The `gs://` URL of the object that exists once the job has ended."""
    return names.apply(lambda known: f"gs://{known.bucket}/{config.stack}/{ended_key(config, known.job)}")


def image_script(config: StackConfig, planned: GcpPlan, container: str) -> str:
    """The script of the nodes' machine image. `container`: the job's, by digest."""
    spec = MachineImageSpec(
        cloud=CLOUD,
        docker=True,
        lustre=config.storage is not None and config.storage.kind == "lustre",
        container=container,
        registry=container.partition("/")[0],
        exporters=tuple(exporter_ports(gpus=True)) if has_exporters(config) else (),
        settings={"PROJECT": planned.project, "REGION": config.region},
    )
    return render_machine_image(spec)


def fallback_text(parts: Sequence[str]) -> str:
    """The head's file: of a pool's `fallback_config` and the mark of the job's end."""
    groups, ended = parts
    return json.dumps({**json.loads(groups), "ended_uri": ended})


def head_user_data(config: StackConfig, planned: GcpPlan, names: pulumi.Output[Names]) -> pulumi.Output[str]:
    """The head node's cloud-init file, base64 of gzip."""
    return names.apply(lambda known: base64gzip(render_gcp_head(_head(config, planned, known))))


def _common(config: StackConfig, planned: GcpPlan, names: Names) -> dict[str, Any]:
    return {
        **machine_settings(config, names.job, f"gs://{names.bucket}", MOUNT),
        "project": planned.project,
        "region": config.region,
        "log_id": names.log_id,
        "file_system": _file_system(config, planned, names),
        "member_key": names.member_key,
        "signing_key": names.signing_key,
    }


def _file_system(config: StackConfig, planned: GcpPlan, names: Names) -> FileSystem | None:
    if config.storage is not None:
        assert names.mount_source is not None, "every file system has a resource"
        return FileSystem("lustre" if config.storage.kind == "lustre" else "nfs", names.mount_source, MOUNT)
    if planned.tpu is None:
        return None
    # Hosts of a slice must see the same checkpoints, also after the slice was recreated.
    runs = run_dir(config, MOUNT).rpartition("/")[0]
    return FileSystem("bucket", f"{names.bucket}/{config.stack}/shared", runs)


def _node(config: StackConfig, planned: GcpPlan, names: Names) -> GcpNodeSpec:
    machine = planned.gpu_machine
    # The plug-in may not work with a command's image: its nodes use TCP.
    plugin = nccl_plugin(machine, own_image=config.cluster.image_id is not None) if config.trains else None
    nics = [interface.nic_type for interface in plan_interfaces(machine)]
    return GcpNodeSpec(
        **_common(config, planned, names),
        data=_worker_data(config, planned),
        nccl=None if plugin is None else nccl_setup(plugin),
        gvnics_planned=nics.count("GVNIC"),
        rdma_nics_planned=nics.count("MRDMA"),
        data_dir=names.job.data_dir,
        **worker_settings(config, machine, planned.tags),
    )


def _tpu_host(config: StackConfig, planned: GcpPlan, names: Names) -> TpuHostSpec:
    return TpuHostSpec(
        **_common(config, planned, names),
        data=_worker_data(config, planned),
        num_slices=config.cluster.nodes.max,
        queued_resource=queued_resource(config, planned) if config.work.terminate_when_done else None,
        data_dir=names.job.data_dir,
        labels=container_labels(config, planned.tags),
    )


def _head(config: StackConfig, planned: GcpPlan, names: Names) -> GcpHeadSpec:
    several = len(config.cluster.capacity) > 1
    return GcpHeadSpec(
        **_common(config, planned, names),
        data=_head_data(config, planned, names),
        zones=tuple(sorted({rung_zone(rung, planned.zone) for rung in config.cluster.capacity})),
        **head_settings(config),
        fallback_uri=f"gs://{names.head_files}/{FALLBACK_OBJECT}" if several else None,
    )


def _worker_data(config: StackConfig, planned: GcpPlan) -> DataSource | None:
    if config.storage is None or config.storage.source is None:
        return None
    return DataSource(config.storage.source, "head" if imports(config, planned) else "copy")


def _head_data(config: StackConfig, planned: GcpPlan, names: Names) -> DataSource | None:
    if not imports(config, planned):
        return None
    assert config.storage is not None, "imports checks it"
    assert config.storage.source is not None, "imports checks it"
    assert names.file_system_id is not None, "every file system has a resource"
    source = config.storage.source
    return DataSource(source, "import", asdict(import_request(names.file_system_id, source)))


def nccl_setup(plugin: NcclPlugin) -> NcclSetup:
    """The settings of a plug-in for the node's script; its variables and volumes are in the JobSpec."""
    host, side = plugin.host, plugin.side
    return NcclSetup(
        install_argv=("run", "--rm", *_host_access_args(plugin.install_volumes), plugin.image, *plugin.install_args),
        devices=plugin.devices,
        env_script=plugin.env_script,
        kernel_modules=host.kernel_modules,
        aperture_device=host.aperture_device,
        side_name=side.name if side else "",
        side_argv=_side_argv(side) if side else (),
        side_ready=side.ready_text if side else "",
    )


def _side_argv(side: SideContainer) -> tuple[str, ...]:
    """Docker restarts it when it ends, and at boot."""
    return (
        *("run", "--detach", "--restart", "unless-stopped", "--name", side.name),
        *_host_access_args(side.volumes),
        *(word for device in side.devices for word in ("--device", device)),
        *(word for name, value in sorted(side.env.items()) for word in ("--env", f"{name}={value}")),
        *(("--entrypoint", side.entrypoint) if side.entrypoint else ()),
        side.image,
        *side.args,
    )


def _host_access_args(volumes: tuple[Volume, ...]) -> tuple[str, ...]:
    """Arguments of a privileged container with the host's network and GPUs, as in Google's documentation."""
    # --volume creates a missing folder; --mount would fail.
    mounts = (word for volume in volumes for word in ("--volume", f"{volume.source}:{volume.target}"))
    return ("--privileged", "--network", "host", "--gpus", "all", *mounts)
