"""Exports the last statistics line to Prometheus, behind a flag, on rank 0, which has all workers' figures.

It opens the port before anything else, so that one in use costs no time.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from socketserver import ThreadingMixIn
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from trainer.core.errors import TrainerError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from trainer.distributed.world import World

_FLAG = "--metrics-port"
_LAST_PORT = 65535
_ALLOWED = f"a free port, 1 to {_LAST_PORT}"
_MOST_CONNECTIONS = 16
_SILENT_SEC = 5.0
_GAUGES: Mapping[str, str] = MappingProxyType(
    {
        "images": "images_total",
        "images_per_sec": "images_per_second",
        "step": "step",
        "loss_g": "loss_g",
        "loss_d": "loss_d",
        "r1": "r1_penalty",
        "grad_norm_g": "grad_norm_g",
        "grad_norm_d": "grad_norm_d",
        "energy_joules": "energy_joules",
        "rss_gib": "rss_gib",
        "gpu_gib": "gpu_gib",
        "host_memory_gib": "host_memory_gib",
        "cpu_utilisation": "cpu_utilisation",
        "gpu_utilisation": "gpu_utilisation",
        "mfu": "mfu",
        "loader_stall_sec": "loader_stall_seconds",
        "checkpoint_stall_sec": "checkpoint_stall_seconds",
        "telemetry_sec": "telemetry_seconds",
        "noise_scale_sec": "noise_scale_seconds",
        "controller_sec": "controller_seconds",
        "allreduce_wait_sec": "allreduce_wait_seconds",
        "world_size": "world_size",
        "nodes": "nodes",
        "nodes_wanted": "nodes_wanted",
        "cpu_wait_share": "cpu_wait_share",
        "neighbour_cores": "neighbour_cores",
        "host_memory_share": "host_memory_share",
        "gpu_memory_share": "gpu_memory_share",
        "read_bytes_per_sec": "read_bytes_per_second",
        "watts": "watts",
        "noise_scale": "noise_scale_images",
        "usd_per_hour": "usd_per_hour",
        "g_per_kwh": "grid_g_per_kwh",
    }
)
"""Keys of a statistics line and the gauges that show them."""


def check_port(port: int) -> None:
    """Raises TrainerError for a port out of range."""
    if not 1 <= port <= _LAST_PORT:
        raise TrainerError(
            place=_FLAG, problem="not a port", value=port, allowed=_ALLOWED, fix=f"{_FLAG} 9400, for example"
        )


@contextlib.contextmanager
def serving(world: "World", port: int | None) -> Iterator["MetricsEndpoint | None"]:
    """Yields the endpoint on rank 0, None on other ranks or without a port.

    Raises TrainerError on every rank: the port is in use.
    """
    endpoint = world.run_on_all(lambda: None if port is None or world.rank else MetricsEndpoint(port))
    try:
        yield endpoint
    finally:
        if endpoint is not None:
            endpoint.close()


class _Handler(WSGIRequestHandler):
    """One connection, closed when its peer is silent for a while."""

    timeout = _SILENT_SEC

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # silent, or gone
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Logs nothing: Prometheus scrapes several times a minute."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per connection up to a limit; further connections are closed at once."""

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


class _Gauges:
    """The gauges of a line; missing figures have no sample, which Prometheus treats as absent."""

    def __init__(self) -> None:
        self.line: Mapping[str, Any] = {}

    def collect(self) -> Iterator["Metric"]:
        from prometheus_client.core import GaugeMetricFamily

        line = self.line  # another one may come meanwhile
        for key, name in _GAUGES.items():
            yield GaugeMetricFamily(f"gangway_trainer_{name}", f"{key} of the last statistics line", line.get(key))
        of_phases = "phase_sec of the last statistics line: of one step, by phase"
        phases = GaugeMetricFamily("gangway_trainer_phase_seconds", of_phases, labels=["phase"])
        for phase, sec in line.get("phase_sec", {}).items():
            phases.add_metric([phase], sec)
        yield phases


class MetricsEndpoint:
    """The last statistics line as gauges `gangway_trainer_*` on http://<address>:<port>/metrics.

    Listens on all interfaces by default, as Prometheus scrapes from another machine. Raises TrainerError: port in use.
    """

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:
        from prometheus_client import CollectorRegistry, make_wsgi_app

        self._gauges, registry = _Gauges(), CollectorRegistry(auto_describe=True)
        registry.register(self._gauges)
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
        self._gauges.line = line

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
