"""No duration is measured with the wall clock, which somebody may set: every place that reads it is listed here."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WALL = re.compile(
    r"date \+%s|date -d"
    r"|\bSECONDS(?! STACK)\b|EPOCH(?:SECONDS|REALTIME)|stat -c %\.?\d*[XYZW]|find .*-[acm](?:min|time)\b|-newer"
    r"|\btime\.time(?:_ns)?\(|datetime\.now\(|datetime\.utcnow\(|st_[acm]time"
)
STAMP = "a date that people read, or part of a name"
OTHERS = "compared with the date of another machine, whose clock is no other"
ALLOWED = {
    "images/node/gcp/api.py": (1, STAMP),
    "images/node/azure/api.py": (1, STAMP),
    "images/node/gcp/fallback.py": (1, STAMP),
    "images/node/run_folder.py": (1, "whether a file has changed"),
    "images/templates/aws/cloud.sh": (1, STAMP),
    "images/templates/job/own-job.sh": (1, STAMP),
    "images/templates/job/own-node.sh": (4, STAMP),
    "images/templates/job/slurm-batch.sh": (3, "two dates, and the length of a stretch as its script has kept it"),
    "images/templates/node/common.sh": (1, OTHERS),
    "gangway/jobs/kubernetes/engine.py": (3, OTHERS),
    "gangway/jobs/kubernetes/start_objects.py": (1, OTHERS),
}
PLACES = ("images/templates", "images/node", "gangway/jobs/kubernetes", "gangway/jobs/systemd")


def readings(text: str) -> list[str]:
    """The lines that read the wall clock, without comments."""
    return [line.strip() for line in text.splitlines() if WALL.search(re.sub(r"(^|\s)#.*", "", line))]


def test_every_reading_of_the_wall_clock_is_a_date_and_no_duration() -> None:
    files = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".sh", ".j2", ".py")]
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): lines for path in files if (lines := readings(path.read_text("utf-8")))}
    assert {
        name: (len(lines), lines) for name, lines in found.items() if len(lines) != ALLOWED.get(name, (0,))[0]
    } == {}
    assert found.keys() == ALLOWED.keys()
