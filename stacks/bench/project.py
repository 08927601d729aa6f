"""The Pulumi project of one item: a stack of its own, with the suite's training in it, and this repository's program.

A suite never touches the stack whose file it names: that one may be somebody's cluster. It makes another, of another
name, from the same settings. Here are only files; the engine that reads them is `stacks.bench.cloud`'s.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from components.findings import InputError
from stacks.bench.names import run_id_of, stack_name
from stacks.bench.suite import Item, SuiteConfig
from stacks.settings.config import StackConfig
from stacks.settings.loader import from_file
from stacks.settings.stack_file import find_stack_file, read_settings, read_yaml

__all__ = ["project_dir", "read_project", "write_project"]

_PROGRAM = Path(__file__).resolve().parent.parent
# What a stack file holds beside `config:`, without which nobody can read its secrets.
_SECRETS = ("encryptedkey", "encryptionsalt", "secretsprovider")


def project_dir(run_dir: Path, item: Item) -> Path:
    """Where the item's project is."""
    return run_dir / "work" / item.name


def write_project(folder: Path, item: Item, suite: SuiteConfig, preset: str, stamp: str, stacks_dir: Path) -> None:
    """Writes Pulumi.yaml and the stack file.

    Args:
        folder: of the project; has to be new.
        item: the run.
        suite: its suite.
        preset: of the whole table.
        stamp: of this run of the suite.
        stacks_dir: where stacks are found by name.
    """
    folder.mkdir(parents=True)
    declared = yaml.safe_load((_PROGRAM.parent / "Pulumi.yaml").read_text("utf-8"))
    del declared["stackConfigDir"]
    declared["main"] = str(_PROGRAM)
    declared["runtime"]["options"]["virtualenv"] = sys.prefix
    _dump(declared, folder / "Pulumi.yaml")
    source = find_stack_file(item.stack.stack, stacks_dir)
    settings = read_settings(source)
    for path, value in item.stack.set.items():
        _set(settings, path, value)
    _set_job(settings, item, suite, preset, stamp)
    kept = {key: value for key, value in read_yaml(source).items() if key in _SECRETS}
    _dump({**kept, "config": settings}, folder / f"Pulumi.{stack_name(item, stamp)}.yaml")


def _set_job(settings: dict[str, Any], item: Item, suite: SuiteConfig, preset: str, stamp: str) -> None:
    hours = item.stack.deadline_hours or suite.deadline_hours
    every, provider = suite.checkpoint_kimg, settings.get("gangway:provider", "aws")
    own = settings.get("gangway:job")
    job = {
        # Should nobody be left to destroy the stack, its nodes go by themselves when the job has ended; the record is
        # put before. Machines of one's own would refuse it; where file or suite says something else, that counts.
        **({"terminate_when_done": True} if provider != "hosts" else {}),
        **(own if isinstance(own, dict) else {}),
        "preset": preset,
        "kimg": suite.kimg,
        "seed": item.seed,
        "settings": dict(item.settings),
        "run_id": run_id_of(item, stamp),
        "max_hours": hours,
        **({"checkpoint_kimg": every} if every else {}),
        # Records are copied before the stack goes; a bucket that is not empty would keep it from going.
        **({"keep_runs": False} if provider in ("aws", "gcp") else {}),
    }
    settings["gangway:job"] = job


def _set(settings: dict[str, Any], path: str, value: Any) -> None:
    """Sets `a.b.c` in the gangway namespace; null removes it."""
    first, *rest = path.split(".")
    *parents, last = (f"gangway:{first}", *rest)
    place: Any = settings
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InputError(f"set: {path}", f"{parent} is no mapping in the stack file", value=place,
                             fix="set the whole section instead")  # fmt: skip
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value


def _dump(data: Mapping[str, Any], path: Path) -> None:
    path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True), "utf-8")


def read_project(folder: Path, item: Item, place: str) -> StackConfig:
    """The item's stack as the program will read it.

    Args:
        folder: of the project.
        item: the run.
        place: the suite's file.

    Raises:
        ExceptionGroup: of InputError, one for each mistake.
    """
    (path,) = folder.glob("Pulumi.*.yaml")
    try:
        return from_file(path)
    except* InputError as mistakes:
        where = f"{place}: stack {item.stack.name}"
        own = [
            InputError(f"{where}: {m.place.removeprefix(f'{path}: ')}", m.problem, value=m.value,
                       allowed=m.allowed, fix=m.fix)
            for m in mistakes.exceptions if isinstance(m, InputError)
        ]  # fmt: skip
        raise ExceptionGroup(f"{where} is not valid", own) from None
