"""Many run folders in the real format: a recorded run with other names, times and figures; some still run."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from gangway.trainer.records.digest import with_digest
from tests.conftest import REPO

RECORDED = REPO / "tests" / "gangway" / "report" / "comparison" / "recorded"
PRESETS = ("dcgan-digits", "dcgan-cifar10", "r3gan-cifar10")
BEGAN = 1_790_000_000
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


@cache
def recorded() -> tuple[str, tuple[dict[str, Any], ...]]:
    record = (RECORDED / "run.json").read_text("utf-8")
    return record, tuple(json.loads(line) for line in (RECORDED / "stats.jsonl").read_text("utf-8").splitlines())


def write_run(folder: Path, number: int, *, status: str = "done") -> Path:
    """The run of that number. status: done, interrupted, or running (without a record)."""
    text, lines = recorded()
    shift = BEGAN + 600 * number - lines[0]["time"]
    run_id = f"run-{number:05d}"
    folder.mkdir(parents=True)
    own = [{**line, "time": line["time"] + shift, "usd_per_hour": 1.5, "watts": 50.0 + number} for line in lines]
    own[0] = {**own[0], "run_id": run_id}
    kept = own if status == "done" else [line for line in own[:-6] if line.get("event") != "done"]
    if status == "interrupted":
        end = {"time": own[-1]["time"], "event": "interrupt", "images": 4032, "session": 0, "cause": "SIGTERM"}
        kept = [*kept, end]
    (folder / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")
    values = json.loads(text)
    values["config"] |= {"preset": PRESETS[number % 3], "seed": number}
    (folder / "config.json").write_text(json.dumps(values["config"]), "utf-8")
    if status != "running":
        values |= {"id": run_id, "status": status, "stack": f"stack-{number % 7}"}
        values["images_per_sec"]["value"] = 50.0 + number % 97
        values["cost"]["total_usd"] = {
            "value": number / 100,
            "unit": "USD",
            "provenance": "list-price",
            "source": "list",
        }
        moment = "2026-09-21T{:02d}:{:02d}:00+00:00"
        for session in values["sessions"]:
            session |= {"start": moment.format(number % 24, 0), "end": moment.format(number % 24, 59)}
        (folder / "run.json").write_text(json.dumps(with_digest(values), indent=2), "utf-8")
    (folder / "samples.png").write_bytes(PNG)
    return folder


def write_runs(folder: Path, count: int) -> None:
    """Every fifth was interrupted, and every ninth still runs."""
    for number in range(count):
        status = "interrupted" if number % 5 == 4 else "running" if number % 9 == 3 else "done"
        write_run(folder / f"run-{number:05d}", number, status=status)


if __name__ == "__main__":
    write_runs(Path(sys.argv[1]), int(sys.argv[2]))
