"""Says that this machine lives: to the stack's log once a minute, and to Azure's health probe whenever it asks.

    python3 -m images.node.azure.heartbeat ROLE [INGESTION_URL]

Scale sets tell no log how many machines they hold, so each says so itself. The Application Health extension asks
`GET /health` on the loopback address; a machine that has given itself up says Unhealthy, by a file of its scripts. Each
minute it also asks for scheduled events, so that Azure has them turned on before the trainer needs them, and does not
turn them off after a day without questions. Acts on nothing.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from images.node.azure.api import AzureApi, log_row

PORT = 9401
PERIOD_SEC = 60.0
# The very first answer takes up to two minutes.
FIRST_EVENTS_SEC = 130.0


def health(given_up: Path) -> dict[str, str]:
    """What the probe is told: `components.azure.launch.HEALTH_PATH` says how."""
    return {"ApplicationHealthState": "Unhealthy" if given_up.exists() else "Healthy"}


def serve(given_up: Path, port: int) -> ThreadingHTTPServer:
    """Answers the probe, from a thread of its own."""

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
            """Twice a minute nothing happens: no line for it."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="gangway-health", daemon=True).start()
    return server


def send_heartbeat(azure: AzureApi, role: str, ingestion_url: str, events_sec: float) -> None:
    """Once: to the log, where there is one, and to the service of scheduled events. What fails is said, no more."""
    try:
        if ingestion_url:
            azure.write_rows(ingestion_url, [log_row(azure.name(), role, "gangway-alive", {"event": "alive"})])
        azure.events(events_sec)
    except OSError as error:
        print(f"gangway: alive, but cannot tell: {error}", file=sys.stderr, flush=True)


def main(argv: Sequence[str], ended: threading.Event | None = None) -> int:
    """Until it is stopped, or `ended` is set."""
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
