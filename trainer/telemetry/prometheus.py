"""Exports the last statistics line to Prometheus, behind a flag, on rank 0, which has all workers' figures."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from socketserver import ThreadingMixIn
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gangway.trainer.core.errors import TrainerError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from gangway.trainer.distributed.world import World

_FLAG = "--metrics-port"
_LAST_PORT = 65535
_ALLOWED = f"a free port, 1 to {_LAST_PORT}"
_MOST_CONNECTIONS = 16
_SILENT_SEC = 5.0
PREFIX = "gangway_trainer_"


class Gauge(NamedTuple):
    """A gauge `gangway_trainer_<name>` and its help text."""

    name: str
    help: str


GAUGES: Mapping[str, Gauge] = MappingProxyType(
    {
        "images": Gauge("images_total", "real images shown since the run began"),
        "images_per_sec": Gauge("images_per_second", "throughput of all workers since the previous line"),
        "step": Gauge("step", "optimiser steps since the run began"),
        "loss_g": Gauge("loss_g", "generator loss"),
        "loss_d": Gauge("loss_d", "discriminator loss"),
        "r1": Gauge("r1_penalty", "R1 penalty"),
        "grad_norm_g": Gauge("grad_norm_g", "gradient norm of the generator"),
        "grad_norm_d": Gauge("grad_norm_d", "gradient norm of the discriminator"),
        "energy_joules": Gauge("energy_joules", "energy of all devices since the session began"),
        "rss_gib": Gauge("rss_gib", "peak resident memory of all workers"),
        "gpu_gib": Gauge("gpu_gib", "peak allocated GPU memory of all workers since the previous line"),
        "host_memory_gib": Gauge("host_memory_gib", "memory in use on all nodes, by any process"),
        "cpu_utilisation": Gauge("cpu_utilisation", "CPU time of the workers over that of their cores, 0 to 1"),
        "gpu_utilisation": Gauge("gpu_utilisation", "mean share of time in which a GPU ran a kernel, 0 to 1"),
        "mfu": Gauge("mfu", "model FLOPs utilisation, 0 to 1"),
        "loader_stall_sec": Gauge("loader_stall_seconds", "time that steps waited for images, this session"),
        "checkpoint_stall_sec": Gauge("checkpoint_stall_seconds", "time that steps waited for saves, this session"),
        "telemetry_sec": Gauge("telemetry_seconds", "time that steps waited for statistics and grids, this session"),
        "noise_scale_sec": Gauge("noise_scale_seconds", "time spent on the gradient noise scale, this session"),
        "controller_sec": Gauge("controller_seconds", "time that steps waited for the controller, this session"),
        "allreduce_wait_sec": Gauge("allreduce_wait_seconds", "time that steps waited for gradients, this session"),
        "world_size": Gauge("world_size", "workers"),
        "nodes": Gauge("nodes", "nodes of this session"),
        "nodes_wanted": Gauge("nodes_wanted", "nodes that the launcher requested"),
        "cpu_wait_share": Gauge("cpu_wait_share", "share of time in which ready threads had no core, 0 to 1"),
        "neighbour_cores": Gauge("neighbour_cores", "cores that processes of others kept busy"),
        "host_memory_share": Gauge("host_memory_share", "memory in use on the fullest node, 0 to 1"),
        "gpu_memory_share": Gauge("gpu_memory_share", "memory in use on the fullest GPU, 0 to 1"),
        "read_bytes_per_sec": Gauge("read_bytes_per_second", "bytes per second read from disks"),
        "watts": Gauge("watts", "power of all devices since the previous line"),
        "noise_scale": Gauge("noise_scale_images", "gradient noise scale, images"),
        "usd_per_hour": Gauge("usd_per_hour", "price of all nodes, US dollars per hour"),
        "g_per_kwh": Gauge("grid_g_per_kwh", "carbon intensity of the grid, gCO2e per kWh"),
    }
)
"""By key of a statistics line."""
PHASE_GAUGE = Gauge("phase_seconds", "time of one step on the slowest worker, by phase")  # Has the label `phase`


def check_port(port: int) -> None:
    """Raises TrainerError for a port out of range."""
    if not 1 <= port <= _LAST_PORT:
        raise TrainerError(
            place=_FLAG, problem="not a port", value=port, allowed=_ALLOWED, fix=f"{_FLAG} 9400, for example"
        )


@contextlib.contextmanager
def serving(world: "World", port: int | None) -> Iterator["MetricsEndpoint | None"]:
    """Yields the endpoint on rank 0, None on others or without a port (TrainerError on every rank: port in use)."""
    endpoint = world.run_on_all(lambda: None if port is None or world.rank else MetricsEndpoint(port))
    try:
        yield endpoint
    finally:
        if endpoint is not None:
            endpoint.close()


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_SEC

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # silent, or gone
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Logs nothing: Prometheus scrapes several times a minute."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class MetricsEndpoint:
    """The last line as gauges `gangway_trainer_*` on http://<address>:<port>/metrics (TrainerError: port in use)."""

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:
        from prometheus_client import CollectorRegistry, make_wsgi_app

        self._line: Mapping[str, Any] = {}
        registry = CollectorRegistry(auto_describe=True)
        registry.register(self)
        try:
            self._server = _Server((address, port))
        except OSError as error:
            other = port + 1 if port < _LAST_PORT else port - 1
            raise TrainerError(
                place=_FLAG,
                problem=f"cannot listen there: {error.strerror}",
                value=port,
                allowed=_ALLOWED,
                fix=f"{_FLAG} {other}, or end the process that holds it (ss -ltnp 'sport = :{port}')",
            ) from error
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="gangway-metrics", daemon=True)
        self._thread.start()

    def show(self, line: Mapping[str, Any]) -> None:
        """Shows a statistics line."""
        self._line = line

    def collect(self) -> Iterator["Metric"]:
        """Yields the gauges; missing figures have no sample, which Prometheus treats as absent."""
        from prometheus_client.core import GaugeMetricFamily

        line = self._line  # another one may come meanwhile
        for key, gauge in GAUGES.items():
            yield GaugeMetricFamily(f"{PREFIX}{gauge.name}", gauge.help, line.get(key))
        phases = GaugeMetricFamily(f"{PREFIX}{PHASE_GAUGE.name}", PHASE_GAUGE.help, labels=["phase"])
        for phase, sec in line.get("phase_sec", {}).items():
            phases.add_metric([phase], sec)
        yield phases

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
