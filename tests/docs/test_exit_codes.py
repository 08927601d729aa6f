"""The page on interruptions has every exit code of the launcher, and what follows from each."""

import re
from pathlib import Path

from gangway.trainer.core.errors import EXIT_CODES, EXIT_ENDED_FOR_ALL, EXIT_HOURS_OVER, EXIT_PEERS_LOST, EXIT_UNFIT

PAGE = Path(__file__).parents[2] / "docs/interruptions.md"


def test_every_exit_code_has_its_row() -> None:
    rows = re.findall(r"^\| (\d+)[^|]* \|[^|]+\|[^|]+\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [int(code) for code in rows] == [*sorted(EXIT_CODES), 137]
    assert {EXIT_UNFIT, EXIT_ENDED_FOR_ALL, EXIT_HOURS_OVER} <= set(EXIT_CODES)
    assert EXIT_PEERS_LOST not in EXIT_CODES, "a worker's alone"
    assert f"{EXIT_PEERS_LOST}: it failed only because its peers were lost" in PAGE.read_text("utf-8")
