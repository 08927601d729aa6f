"""Sends a heartbeat to the stack's log each minute, and answers Azure's health probe.

    python3 -m gangway.images.node.azure.heartbeat ROLE [INGESTION_URL]

Scale sets log no machine counts, hence the heartbeat. The Application Health extension requests `GET /health` on the
loopback address; a machine whose scripts gave up answers Unhealthy. Each minute it also requests scheduled events: the
first request enables them, and Azure disables them after a day without one. It does not act on them.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gangway.images.node.azure.api import AzureApi, log_row

PORT = 9401
PERIOD_SEC = 60.0
# The first answer takes up to two minutes.
FIRST_EVENTS_SEC = 130.0


def health(given_up: Path) -> dict[str, str]:
    """The answer to the probe of `gangway.components.azure.launch.HEALTH_PATH`."""
    return {"ApplicationHealthState": "Unhealthy" if given_up.exists() else "Healthy"}


def serve(given_up: Path, port: int) -> ThreadingHTTPServer:
    """Answers the probe, in its own thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path.partition("?")[0] == "/health"
            content = json.dumps(health(given_up) if known else {}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Does not log the probe's requests."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="gangway-health", daemon=True).start()
    return server


def send_heartbeat(azure: AzureApi, role: str, ingestion_url: str, events_sec: float) -> None:
    """Sends one heartbeat and requests scheduled events. Only logs errors."""
    try:
        if ingestion_url:
            azure.write_rows(ingestion_url, [log_row(azure.name(), role, "gangway-alive", {"event": "alive"})])
        azure.events(events_sec)
    except OSError as error:
        print(f"gangway: cannot send the heartbeat: {error}", file=sys.stderr, flush=True)


def main(argv: Sequence[str], ended: threading.Event | None = None) -> int:
    """Runs until `ended` is set."""
    role, ingestion_url = argv[0], "".join(argv[1:2])
    azure, over = AzureApi.from_environment(), ended or threading.Event()
    given_up = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "given-up")
    server = serve(given_up, int(os.environ.get("GANGWAY_HEALTH_PORT", str(PORT))))
    period_sec = float(os.environ.get("GANGWAY_ALIVE_SEC", str(PERIOD_SEC)))
    events_sec = FIRST_EVENTS_SEC
    while not over.is_set():
        send_heartbeat(azure, role, ingestion_url, events_sec)
        events_sec = period_sec
        over.wait(period_sec)
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
