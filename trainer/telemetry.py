"""What a run says while it runs: lines of stats.jsonl, and the same numbers for Prometheus behind a flag.

stats.jsonl is the run's diary and the only source of the record's times: lines are appended and flushed one by one,
so another process can follow them. Two kinds: statistics (no `event` key) and events (`event` is start, resume,
checkpoint, checkpoint-skipped, interrupt or done). Only rank 0 writes. Not a logger.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.errors import TrainerError

__all__ = ["MetricsEndpoint", "StatsWriter", "read_stats"]

_GAUGES = {
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
    "world_size": "world_size",
}
"""Keys of a statistics line and the gauges that show them."""


class StatsWriter:
    """Appends to stats.jsonl, opening it anew for each line: nothing to close, and other machines see it at once.

    Args:
        path: the file; its folder exists.

    Raises:
        TrainerError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            self._append("\n")  # a killed session left half a line; keep it apart from ours

    def write(self, line: Mapping[str, Any]) -> None:
        """Writes one line.

        Raises:
            TrainerError: the disk is full or the folder cannot be written.
        """
        self._append(json.dumps(line) + "\n")

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise TrainerError(
                place=str(self._path),
                problem=f"cannot be written: {error.strerror}",
                fix="free some space or choose another --run-dir, then start the same command again",
            ) from error

    def event(self, event: str, images: int, session: int, **details: object) -> None:
        """Writes an event line with the present time, seconds since 1970."""
        self.write({"event": event, "images": images, "time": time.time(), "session": session, **details})


def read_stats(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a stats.jsonl, none where there is no file; a line that a killed writer tore is left out."""
    if not path.exists():
        return
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


class MetricsEndpoint:
    """The last statistics line as gauges `gangway_trainer_*` on http://<address>:<port>/metrics.

    Args:
        port: 1..65535.
        address: to listen on; all interfaces, because Prometheus scrapes from another machine.

    Raises:
        TrainerError: the port is taken.
    """

    def __init__(self, port: int, address: str = "0.0.0.0") -> None:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server

        registry = CollectorRegistry()
        self._gauges = {
            key: Gauge(f"gangway_trainer_{name}", f"{key} of the last statistics line", registry=registry)
            for key, name in _GAUGES.items()
        }
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=registry)
        except OSError as error:
            raise TrainerError(
                place="--metrics-port",
                problem=f"cannot listen there: {error.strerror}",
                value=port,
                allowed="a free port from 1024 to 65535",
                fix=f"--metrics-port {port + 1}, or end the process that holds it (ss -ltnp 'sport = :{port}')",
            ) from error

    def show(self, line: Mapping[str, Any]) -> None:
        """Shows a statistics line."""
        for key, gauge in self._gauges.items():
            if line.get(key) is not None:
                gauge.set(line[key])

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
