"""What a worker runs so that Prometheus on the head sees its hardware: dcgm-exporter, node_exporter, more counters."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangway.components.core.hardware_alerts import GPU_JOB, NODE_JOB
from gangway.images import render
from gangway.images.specs import EXPORTER_IMAGES, pinned_image

_COUNTERS = "gangway-counters"


class Exporters(NamedTuple):
    """`units`: to enable; `files`: with those units."""

    units: list[str]
    files: list[render.NodeFile]


def render_exporters(
    cloud: str, exporters: Mapping[str, int], gpus: Sequence[str] = ("--gpus", "all"), *, image_has_docker: bool = False
) -> Exporters:
    """Nothing without `exporters`, ports by scrape job. `gpus`: the container engine's arguments for all GPUs."""
    if not exporters:
        return Exporters([], [])
    arguments = {GPU_JOB: _gpu_argv, NODE_JOB: _node_argv}
    files = []
    for job, port in exporters.items():
        values = {"name": job, "argv": arguments[job](port, gpus), "image_has_docker": image_has_docker}
        files.append(render.unit(cloud, f"{job}.service", values, "exporter.service"))
    nothing: Mapping[str, object] = {}
    counters = [render.unit(cloud, f"{_COUNTERS}.{kind}", nothing) for kind in ("service", "timer")]
    script = render.scripts(cloud, ["write-counters.sh"])
    units = [*(f"{job}.service" for job in exporters), f"{_COUNTERS}.timer"]
    return Exporters(units, [*files, *counters, *script])


def _gpu_argv(port: int, gpus: Sequence[str]) -> list[str]:
    """As root with SYS_ADMIN, for profiling counters. DCGM writes to its image's folders."""
    return ["--cap-add", "SYS_ADMIN", *gpus, pinned_image(EXPORTER_IMAGES[GPU_JOB]), "--address", f":{port}"]


def _node_argv(port: int, _: Sequence[str]) -> list[str]:
    """Not as root, with the machine's files and processes to read: it asks each mount point for its size."""
    return [
        *("--user", "65534:65534", "--read-only", "--pid", "host"),
        *("--mount", "type=bind,source=/,target=/host,readonly,bind-propagation=rslave"),
        *(pinned_image(EXPORTER_IMAGES[NODE_JOB]), f"--web.listen-address=:{port}", "--path.rootfs=/host"),
        *("--collector.mountstats", f"--collector.textfile.directory=/host/run/{_COUNTERS}"),
    ]
