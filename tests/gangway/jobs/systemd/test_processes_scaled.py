"""A job whose deadline asks for one to four nodes while it trains: the decisions of `gangway job --scale` on a group in
small, whose nodes are launchers of this machine that join and leave a real rendezvous.
"""

import json
import re
import signal
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangway.jobs.systemd.autoscale_now import scale
from gangway.jobs.systemd.scaling.base import Change, GroupState
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import find_curve
from gangway.stacks.program import get_program
from gangway.trainer.config.presets import PRESETS
from tests.trainer.conftest import Command, digits_dir, start

__all__ = ["digits_dir", "start"]

MOST = 4
KIMG = 48.0
DEADLINE = datetime(2035, 2, 1, tzinfo=UTC)


class LauncherGroup:
    """A group whose nodes are processes; one that is to go hears of it by SIGTERM, the newest first."""

    def __init__(self, node: Callable[[int], Command]) -> None:
        self._node, self._begin, self.left = node, 0, list[Command]()
        self.nodes: list[Command] = []
        self.changes: list[Change] = []
        self._changed_at: datetime | None = None

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        here = sum(node.process.poll() is None for node in self.nodes)
        return [GroupState(names[0], most=MOST, asked=len(self.nodes), in_service=here, changed_at=self._changed_at)]

    def carry_out(self, change: Change, now: datetime) -> str:
        self.changes.append(change)
        self._changed_at = now
        self.become(change.nodes)
        return ""

    def become(self, nodes: int) -> None:
        while len(self.nodes) < nodes:
            self.nodes.append(self._node(self._begin))
            self._begin += 1
        while len(self.nodes) > nodes:
            going = self.nodes.pop()
            going.process.send_signal(signal.SIGTERM)
            self.left.append(going)


class Lines:
    """Of a run's statistics."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "stats.jsonl"

    def all(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def sizes(self) -> list[int]:
        """Processes at each start, in turn."""
        return [line["world_size"] for line in self.all() if line.get("event") in ("start", "resume")]

    def images(self) -> int:
        """As of the newest line."""
        return max((line["images"] for line in self.all() if "images" in line), default=0)

    def have_passed(self, images: int) -> bool:
        return self.images() > images or self.is_done()

    def is_done(self) -> bool:
        return any(line.get("event") == "done" for line in self.all())


def needs_four(values: dict[str, Any]) -> None:
    values["gangway:job"] = {
        "preset": "r3gan-imagenet64",
        "kimg": 20_000,
        "max_hours": 300,
        "settings": {"batch_size": 4096},
        "autoscale": {"deadline": DEADLINE.isoformat()},
    }
    values["gangway:cluster"]["nodes"] = {"min": 1, "max": MOST}
    values["gangway:estimate"] = {"images_per_second": 1000}  # known: with four nodes, and so about a quarter with one


def begins_at(config: StackConfig) -> datetime:
    """When three nodes are no longer expected to be enough, and four are."""
    curve = find_curve(config, get_program(config.provider).plan(config).machine)
    return DEADLINE - timedelta(seconds=config.training.kimg * 1000 / (0.95 * curve[3].mid))


@pytest.mark.slow
@pytest.mark.timeout(900)  # five meetings, and plans between them
def test_processes_join_and_leave_as_the_deadline_asks(
    start: Callable[..., Command],
    digits_dir: Path,
    edited: Callable[[Callable[[dict[str, Any]], object]], StackConfig],
    tmp_path: Path,
) -> None:
    stack, run_dir, config = edited(needs_four), tmp_path / "run", tmp_path / "config.json"
    tiny = {"z_dim": 8, "ngf": 4, "ndf": 4, "batch_size": 48, "kimg": KIMG, "r1_interval": 4}
    lines_of = {"stats_kimg": 0.96, "checkpoint_kimg": 24, "sample_kimg": 100, "metrics_samples": 32}
    config.write_text(PRESETS["dcgan-digits"].replace({**tiny, **lines_of}).to_json())
    store = start("-m", "gangway.trainer.launch.rendezvous", "--port", "0", "--health-sec", "1")
    store.wait_for(lambda: "serving on port" in store.printed())
    port = re.findall(r"serving on port (\d+)", store.printed())[0]

    def node(number: int) -> Command:
        own = ["--job-dir", str(tmp_path / "job"), "--node", f"node-{number}"]
        where = [f"--nnodes=1:{MOST}", "--rdzv-backend=gangway", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job"]
        where += ["--rdzv-conf=is_host=0,last_call_timeout=3,keep_alive_interval=3", "--nproc-per-node=1"]
        train = [
            "-m",
            "gangway.trainer",
            "train",
            "--config",
            str(config),
            "--backend",
            "gloo",
            "--run-dir",
            str(run_dir),
        ]
        return start(
            "-m", "gangway.trainer.launch", *own, *where, "--max-restarts=3", *train, "--data", str(digits_dir)
        )

    group, lines, now = LauncherGroup(node), Lines(run_dir), begins_at(stack)
    group.become(1)
    while not lines.is_done():
        # In front of each decision the job has what was asked for, and has got on with it.
        group.nodes[0].wait_for(lambda: lines.sizes()[-1:] == [len(group.nodes)] or lines.is_done())
        group.nodes[0].wait_for(partial(lines.have_passed, lines.images()))
        scale(stack, group, ["demo-0"], round(lines.images() / KIMG * stack.training.kimg), now)
        if lines.sizes()[-1:] != [len(group.nodes)]:
            now += timedelta(minutes=16)  # the next change may come
    asked = [change.nodes for change in group.changes]
    assert asked[0] == MOST, "out at once: too slow for its deadline"
    assert asked[-1] == 1, "in, as less and less is left"
    assert asked[1:] == sorted(asked[1:], reverse=True)
    is_late = lines.sizes()[-1] != asked[-1]  # the last node to leave was told so with the last images
    sizes = iter(lines.sizes())  # a node that is slow to begin may be missed by a first meeting
    assert all(number in sizes for number in [1, *asked[: -1 if is_late else None]]), (asked, lines.sizes())
    codes = [node.finish()[0] for node in group.left]
    assert codes == [75] * (MOST - 1) or (is_late and set(codes) == {0, 75}), codes
    assert [node.finish()[0] for node in group.nodes] == [0]
    images = [line["images"] for line in lines.all() if "loss_g" in line]
    assert images[-1] == KIMG * 1000
    assert images == sorted(set(images)), "no image is trained on twice"
