"""What a worker runs so that Prometheus on the head sees its hardware: dcgm-exporter, node_exporter, more counters."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB
from gangway.images import render, shell
from gangway.images.specs import EXPORTER_IMAGES, MachineSpec, pinned_image

_COUNTERS = "gangway-counters"
_FOLDER = f"/run/{_COUNTERS}"
_COLLECTORS = ("filesystem", "infiniband", "mountstats", "textfile")


class Exporters(NamedTuple):
    """`units`: to enable; `files`: with those units."""

    units: list[str]
    files: list[render.NodeFile]


def render_exporters(
    cloud: str, spec: MachineSpec, gpus: Sequence[str] = ("--gpus", "all"), *, image_has_docker: bool = False
) -> Exporters:
    """Nothing if the stack has no hardware metrics. `gpus`: the container engine's arguments for all GPUs."""
    if not spec.exporters:
        return Exporters([], [])
    arguments = {GPU_JOB: _gpu_argv(spec, gpus), NODE_JOB: _node_argv(spec)}
    containers = {job: [*shell.NO_LOG, *arguments[job]] for job in spec.exporters}
    files = [
        render.unit(
            cloud,
            f"{job}.service",
            {"name": job, "argv": argv, "image_has_docker": image_has_docker},
            "exporter.service",
        )
        for job, argv in containers.items()
    ]
    nothing: Mapping[str, object] = {}
    counters = [render.unit(cloud, f"{_COUNTERS}.{kind}", nothing) for kind in ("service", "timer")]
    script = render.scripts(cloud, ["write-counters.sh"])
    return Exporters([*(f"{job}.service" for job in containers), f"{_COUNTERS}.timer"], [*files, *counters, *script])


def _gpu_argv(spec: MachineSpec, gpus: Sequence[str]) -> list[str]:
    """Profiling counters need root and SYS_ADMIN; DCGM writes to its image's folders."""
    return [
        *("--cap-drop", "ALL", "--cap-add", "SYS_ADMIN", "--security-opt", "no-new-privileges"),
        *("--pids-limit", "1024", "--memory", "1g", *gpus, pinned_image(EXPORTER_IMAGES[GPU_JOB])),
        *("--address", f":{spec.exporters.get(GPU_JOB)}"),
    ]


def _node_argv(spec: MachineSpec) -> list[str]:
    """Not as root, with the machine's files to read: it asks each mount point for its size."""
    return [
        *(*shell.CONTAINED, "--user", "65534:65534", "--pids-limit", "256", "--memory", "256m"),
        *("--mount", "type=bind,source=/,target=/host,readonly,bind-propagation=rslave"),
        *(pinned_image(EXPORTER_IMAGES[NODE_JOB]), f"--web.listen-address=:{spec.exporters[NODE_JOB]}"),
        *("--path.rootfs=/host", "--path.procfs=/host/proc", "--path.sysfs=/host/sys"),
        *("--collector.disable-defaults", *(f"--collector.{name}" for name in _COLLECTORS)),
        f"--collector.textfile.directory=/host{_FOLDER}",
    ]
