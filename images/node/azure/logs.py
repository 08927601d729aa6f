"""Sends our units' journal to the stack's table in Log Analytics, with JSON lines as fields.

    python3 -m gangway.images.node.azure.logs INGESTION_URL ROLE UNIT...

Azure's agent would be one more package at boot, and sends a line as one text field. After a lost answer, rows are sent
and stored twice: the Logs Ingestion API has no ids.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangway.images.node.azure.api import AzureApi, log_row
from gangway.images.node.log_shipper import FLUSH_SEC, LogShipper, follow_journal, get_unit, journal_fields

# The Logs Ingestion API takes 1 MB at once and cuts a field at 64 KB (Azure Monitor service limits).
MAX_BATCH = (500, 900_000)
MAX_MESSAGE_CHARS = 16_000


def get_row(node: str, role: str, line: dict[str, Any]) -> dict[str, Any]:
    """The row of a record of `journalctl --output json`."""
    fields = journal_fields(line)
    if isinstance(fields.get("message"), str):
        fields["message"] = fields["message"][:MAX_MESSAGE_CHARS]
    return log_row(node, role, get_unit(line), fields, int(line["__REALTIME_TIMESTAMP"]) / 1e6)


def main(argv: Sequence[str]) -> int:
    """Follows the journal."""
    ingestion_url, role, *units = argv
    azure = AzureApi.from_environment()
    cursor_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "cursor")
    flush_sec = float(os.environ.get("GANGWAY_FLUSH_SEC", str(FLUSH_SEC)))
    shipper = LogShipper(lambda rows: azure.write_rows(ingestion_url, rows), cursor_file, MAX_BATCH, flush_sec)
    try:
        node = azure.name()
    except OSError as error:
        print(f"gangway: cannot read this machine's name: {error}", file=sys.stderr, flush=True)
        return 1
    follow_journal(units, cursor_file, lambda lines: shipper.ship(lines, lambda line: get_row(node, role, line)))
    # systemd restarts the unit.
    return 1


if __name__ == "__main__":
    # systemd stops journalctl too; send its last lines before exiting.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(main(sys.argv[1:]))
