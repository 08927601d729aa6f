"""The real trainer on a machine that its cloud tells to go, by the file in which the machine keeps notices: it saves,
says why, leaves with 75 and later ends with the very bits of a run that nobody interrupted.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.checkpoint import store
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.records.summary import SAVE_BUDGET_SEC

SPOT = json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
REBALANCE = json.dumps({"noticeTime": "2026-11-21T08:00:00Z"})

Lines = Callable[[Path], list[dict[str, Any]]]


class Aws:
    """Rebalance recommendation, then a spot interruption."""

    pause, end = "rebalance", "spot-interruption"

    def __init__(self, service: Any) -> None:
        self.service, self.env = service, {"GANGWAY_IMDS_URL": service.url}

    def say_pause(self) -> None:
        self.service.items["events/recommendations/rebalance"] = REBALANCE

    def say_end(self) -> None:
        self.service.items["spot/instance-action"] = SPOT

    def quiet(self) -> None:
        """As on the machine that takes over."""
        for item in ("events/recommendations/rebalance", "spot/instance-action"):
            del self.service.items[item]


class Gcp:
    """A host's maintenance, then a preemption."""

    pause, end = "host-maintenance", "spot-interruption"

    def __init__(self, service: Any) -> None:
        self.service, self.env = service, {"GANGWAY_METADATA_URL": service.url}

    def say_pause(self) -> None:
        self.service.items["instance/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"

    def say_end(self) -> None:
        self.service.items["instance/preempted"] = "TRUE"

    def quiet(self) -> None:
        """As on the machine that takes over."""
        self.service.items.update({"instance/maintenance-event": "NONE", "instance/preempted": "FALSE"})


class Azure:
    """A freeze, then a preemption."""

    pause, end = "host-maintenance", "spot-interruption"

    def __init__(self, service: Any) -> None:
        self.service, self.env = service, {"GANGWAY_METADATA_URL": service.url}

    def say_pause(self) -> None:
        self.service.schedule("Freeze", duration_sec=9)

    def say_end(self) -> None:
        self.service.schedule("Preempt")

    def quiet(self) -> None:
        """As on the machine that takes over."""
        self.service.events.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cloud", "service", "named"),
    [
        (Aws, "imds", "aws"),
        # The same path from the launcher on: what differs is the poller, which test_watch*.py and
        # interruptions/ ask for every notice.
        pytest.param(Gcp, "gce", "gcp", marks=pytest.mark.slow),
        pytest.param(Azure, "azure_vm", "azure", marks=pytest.mark.slow),
    ],
)
def test_a_notice_stops_the_run_with_its_state_on_disk(
    held: Callable[..., Any],
    torchrun: Callable[..., Any],
    start: Callable[..., Any],
    lines_of: Lines,
    uninterrupted: Any,
    digits_dir: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    cloud: type[Aws | Gcp | Azure],
    service: str,
    named: str,
) -> None:
    told = cloud(request.getfixturevalue(service))
    run_dir, path = tmp_path / "run", tmp_path / "config.json"
    path.write_text(uninterrupted.config.to_json())
    argv = ["train", "--config", str(path), "--run-dir", str(run_dir), "--data", str(digits_dir)]
    kept = tmp_path / "held"
    watched: dict[str, Any] = {"launcher": ("--watch", str(kept))}
    start("-m", f"gangway.images.node.{named}.notices", str(kept), GANGWAY_POLL_SEC="0.1", **told.env)

    run = held(*argv, holds="2x320:SAVE,2x640:STOP", **watched)
    run.wait_for(lambda: any(line["images"] == 320 for line in lines_of(run_dir)))
    told.say_pause()
    run.wait_for(lambda: any(line["images"] == 640 for line in lines_of(run_dir)))
    saves = [line for line in lines_of(run_dir) if line.get("event") == "checkpoint"]
    assert [(line["why"], line["images"]) for line in saves] == [(told.pause, 336)], "once, and the run goes on"

    told.say_end()
    code, text = run.finish()
    assert code == 75, text
    record = RunRecord.read(run_dir / "run.json")
    (stop,) = record.interruptions
    last = lines_of(run_dir)[-1]
    assert (last["event"], last["cause"], stop.cause) == ("interrupt", told.end, told.end)
    assert store.newest(run_dir / "checkpoints") == run_dir / f"checkpoints/{stop.images:012d}.pt"
    assert last["images"] == stop.images == record.images == 656
    assert stop.save_sec.value is not None
    assert stop.stop_sec.value is not None
    assert 0 < stop.save_sec.value < stop.stop_sec.value < SAVE_BUDGET_SEC

    if named == "azure":
        # Azure waits for a word before it takes the machine: the node's own script gives it, now that all is on disk.
        assert told.service.started == []
        code, text = start("-m", "gangway.images.node.azure.api", "let-go", **told.env).finish()
        assert code == 0, text
        assert told.service.started == ["event-1"]

    told.quiet()
    path.write_text(uninterrupted.config.replace({"kimg": 1.12}).to_json())
    code, text = torchrun("-m", "gangway.trainer", *argv, **watched).finish()
    assert code == 0, text
    found = RunRecord.read(run_dir / "run.json")
    assert [(s.images_from, s.world_size) for s in found.sessions] == [(0, 2), (stop.images, 2)]
    assert found.state_sha256 == uninterrupted.digests[1120]
