"""Which files handle a value of a stack file, on its way to the nodes and back: real calls, in their order.

    python -m tools.value_walk job.settings.batch_size
    python -m tools.value_walk job.kimg
    python -m tools.value_walk cluster.accelerator

A copy of stacks/Pulumi.aws-demo.yaml gets an unusual value, is planned, and the trainer reads the document of the job.
A file handles the value if one of its functions has it as an argument, local variable or result, alone or in a string,
a list or a mapping; whole objects that carry it (StackConfig, JobSpec, a plan) do not count. The accelerator counts
only where it is alone, since every resource's tags hold it; the catalogue turns it into a machine, which plans pass on.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import yaml

from gangway.stacks.config.paths import ROOT
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan
from gangway.trainer.config.train_config import TrainConfig

PACKAGES = ("components", "gangway", "images", "stacks", "trainer")
STACK = ROOT / "stacks" / "Pulumi.aws-demo.yaml"
VALUES: Mapping[str, Any] = {"job.settings.batch_size": 4093, "job.kimg": 4093.5, "cluster.accelerator": "A100x8"}
"""Settings that can be followed, each with a value that nothing else in a plan has."""


class Walk:
    """Files and functions that handle a value, in the order in which they first do."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._paths: dict[CodeType, str | None] = {}
        self.handled: dict[str, dict[str, None]] = {}

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        """A profiling function of `sys.setprofile`."""
        if event not in ("call", "return") or (path := self._path(frame.f_code)) is None:
            return
        found = frame.f_locals.values() if event == "call" else (*frame.f_locals.values(), result)
        if any(self._holds(each) for each in found):
            self.handled.setdefault(path, {})[frame.f_code.co_qualname] = None

    def _path(self, code: CodeType) -> str | None:
        if code not in self._paths:
            path = Path(code.co_filename).resolve()  # through the links in gangway/
            is_ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            self._paths[code] = path.relative_to(ROOT).as_posix() if is_ours else None
        return self._paths[code]

    def _holds(self, found: Any, depth: int = 2) -> bool:
        if type(found) is type(self._value):
            return bool(found == self._value)
        if isinstance(self._value, str):
            return False
        if depth and isinstance(found, dict):
            return any(self._holds(each, depth - 1) for each in found.values())
        if depth and isinstance(found, list | tuple) and len(found) < 1000:
            return any(self._holds(each, depth - 1) for each in found)
        return False


def follow(setting: str) -> Walk:
    """Plan a stack with the setting, read its job's document as a node does, and record who handles the value."""
    walk = Walk(VALUES[setting])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STACK.name
        path.write_text(_changed(setting), "utf-8")
        job = _profiled(walk, lambda: make_plan(from_file(path)).job)
        document = Path(folder) / "train.json"
        document.write_text(json.dumps(job["training"]["config"]), "utf-8")
        _profiled(walk, lambda: TrainConfig.from_file(document))
    return walk


def _changed(setting: str) -> str:
    content = yaml.safe_load(STACK.read_text("utf-8"))
    *parents, last = setting.split(".")
    place = content["config"][f"gangway:{parents[0]}"]
    for parent in parents[1:]:
        place = place.setdefault(parent, {})
    place[last] = VALUES[setting]
    return yaml.safe_dump(content)


def _profiled(walk: Walk, run: Callable[[], Any]) -> Any:
    sys.setprofile(walk)
    try:
        return run()
    finally:
        sys.setprofile(None)


def lines(setting: str, walk: Walk) -> Iterator[str]:
    """What is printed: a line per file, with its functions."""
    yield f"{setting}: {len(walk.handled)} files"
    for number, (path, functions) in enumerate(walk.handled.items(), 1):
        names = list(functions)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{number:3} {path}: {', '.join(names[:3])}{more}"


def main() -> None:
    """Prints the walk of one setting."""
    parser = argparse.ArgumentParser(prog="python -m tools.value_walk", description=__doc__)
    parser.add_argument("setting", choices=list(VALUES))
    setting = parser.parse_args().setting
    print("\n".join(lines(setting, follow(setting))))


if __name__ == "__main__":
    main()
