"""Sends our units' journal to Cloud Logging, with JSON lines as fields.

    python3 -m gangway.images.node.gcp.logs PROJECT LOG UNIT...

Docker's driver for Cloud Logging would send a line as one text field, which metrics cannot parse; Google's agent would
be one more package at boot. The journal's cursor is the entry's id, so an entry sent twice is stored once.
"""

import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gangway.images.node.gcp.api import GoogleApi, log_entry
from gangway.images.node.log_shipper import FLUSH_SEC, LogShipper, follow_journal, get_unit, journal_fields

# Cloud Logging takes 1000 entries and 10 MB at once.
MAX_BATCH = (500, 9_000_000)


def get_entry(project: str, log: str, line: dict[str, Any]) -> dict[str, Any]:
    """The log entry of a record of `journalctl --output json`."""
    moment = datetime.fromtimestamp(int(line["__REALTIME_TIMESTAMP"]) / 1e6, timezone.utc)  # noqa: UP017 - Python 3.10
    return {
        **log_entry(project, log, journal_fields(line)),
        "timestamp": moment.isoformat(),
        "insertId": _insert_id(line["__CURSOR"]),
        "labels": {"unit": get_unit(line)},
    }


def _insert_id(cursor: str) -> str:
    """Boot and position, unique on a machine; a whole cursor may be too long."""
    fields = dict(field.partition("=")[::2] for field in cursor.split(";"))
    return f"{fields.get('b', '')}-{fields.get('i', cursor)}"


def make_shipper(google: GoogleApi, project: str, cursor_file: Path, flush_sec: float = FLUSH_SEC) -> LogShipper:
    """A shipper to a project's logs."""
    return LogShipper(lambda entries: google.write_log(project, entries), cursor_file, MAX_BATCH, flush_sec)


def main(argv: Sequence[str]) -> int:
    """Follows the journal."""
    project, log, *units = argv
    cursor_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "cursor")
    shipper = make_shipper(GoogleApi.from_environment(), project, cursor_file)
    follow_journal(units, cursor_file, lambda lines: shipper.ship(lines, lambda line: get_entry(project, log, line)))
    # systemd restarts the unit.
    return 1


if __name__ == "__main__":
    # systemd stops journalctl too; send its last lines before exiting.
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(main(sys.argv[1:]))
