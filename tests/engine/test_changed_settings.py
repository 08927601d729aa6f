"""What a change of each setting does to a stack that is up, by the real Pulumi engine: docs/changing-settings.md.

    GANGWAY_UPDATE_SETTINGS=1 pytest -m "engine and slow" tests/engine/test_changed_settings.py    # writes the table

The clouds are stand-ins, which know by hand-kept lists what a living resource cannot change.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.planning.rules.rule import kind
from stacks.providers.registry import provider_of

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "docs/changing-settings.md"
BASES = {
    "aws": "aws-demo",
    "gcp": "gcp-a3-spot",
    "azure": "azure-ndv5-spot",
    "openstack": "openstack-gpu",
    "hosts": "hosts-lab",
}
UNTRIED = "?"
SECTION = """
## Each setting, changed once

Found by the real Pulumi engine with stand-ins for the clouds. The stacks: {stacks}.
"""
NO_TABLE = "the page has no table yet: write it as the module's head says"
# A machine of its own, or the job on it; the nodes of the other providers are their groups' to replace.
MACHINES = re.compile(
    r"aws:ec2:Instance|gcp:compute:Instance|.*:QueuedTpuRequest|.*:VirtualMachine|openstack:compute:Instance"
)
TEMPLATES = re.compile(r".*:(LaunchTemplate|InstanceTemplate|VirtualMachineScaleSet)")


@pytest.fixture(scope="module")
def changes_module(load_module: Callable[[Path], Any]) -> Any:
    return load_module(Path(__file__).with_name("setting_changes.py"))


class Table:
    """The table in the page: setting -> provider -> what happens."""

    def __init__(self) -> None:
        self._head, table, rest = TABLE.read_text("utf-8").partition("| setting |")
        if not table:
            self._head += SECTION.format(stacks=", ".join(f"`{stack}`" for stack in BASES.values()))
        lines = rest.splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:] if line.startswith("|")]
        self.cells = {row[0].strip("`"): dict(zip(BASES, row[1:], strict=True)) for row in rows}
        self._tail = "\n".join(line for line in lines[2:] if not line.startswith("|")).strip("\n")

    def write(self, names: list[str]) -> None:
        """Rows of these settings, in this order."""
        lines = [f"| setting | {' | '.join(BASES)} |", f"|---|{'---|' * len(BASES)}"]
        for name in names:
            row = self.cells.get(name, {})
            lines.append(f"| `{name}` | {' | '.join(row.get(provider, UNTRIED) for provider in BASES)} |")
        TABLE.write_text("\n".join([self._head.rstrip("\n"), "", *lines, "", self._tail]).rstrip("\n") + "\n", "utf-8")


def test_every_setting_has_a_row(changes_module: Any) -> None:
    if not (rows := Table().cells):
        pytest.skip(NO_TABLE)
    assert list(rows) == list(changes_module.every_setting()), "write it as the module's head says"


@pytest.fixture
def engine(
    request: pytest.FixtureRequest,
    make_engine: Callable[[str], Any],
    running_plugin: Callable[..., AbstractContextManager[Any]],
) -> Iterator[Any]:
    """A stack with data; its plugins run all the while, for to read their SDK takes longer than all else."""
    provider = request.param
    made = make_engine(BASES[provider])
    packages = [provider_of(provider).sdk.removeprefix("pulumi-"), "docker-build"]
    with ExitStack() as running:
        plugins = {
            one: running.enter_context(running_plugin(one, made.cloud, made.project / "stacks")) for one in packages
        }
        made.env["PULUMI_DEBUG_PROVIDERS"] = ",".join(f"{one}:{plugin.port}" for one, plugin in plugins.items())
        yield made


def happens(preview: Any, data_types: frozenset[str]) -> str:
    """A cell of the table, from what a preview shows."""
    if preview.status != 0:
        lost = sorted(set(re.findall(r"gangway:allow_replace: (\S+): this change would (\w+)", preview.text)))
        if lost:
            return "**refused, loses data**: " + ", ".join(f"{verb}s {name}" for name, verb in lost)
        return "refused"
    steps = [event["resourcePreEvent"]["metadata"] for event in preview.events if "resourcePreEvent" in event]
    by_operation: dict[str, set[str]] = {}
    for step in steps:
        by_operation.setdefault(step["op"], set()).add(kind(step["type"]))
    gone = by_operation.get("replace", set()) | by_operation.get("delete", set())
    assert not gone & data_types, f"loses data and is not refused: {gone & data_types}"
    replaced, updated = by_operation.get("replace", set()), by_operation.get("update", set())
    words = []
    if any(MACHINES.fullmatch(one) for one in replaced) or "command:remote:Command" in replaced | updated:
        words.append("**restarts nodes**")
    if any(TEMPLATES.fullmatch(one) for one in replaced | updated):
        words.append("new nodes")
    if shown := sorted({one.rpartition(":")[2] for one in replaced if not TEMPLATES.fullmatch(one)}):
        words.append("replaces " + ", ".join(shown))
    if removed := sorted({one.rpartition(":")[2] for one in by_operation.get("delete", set())}):
        words.append("removes " + ", ".join(removed))
    if updated or by_operation.get("create"):
        words.append("in place")
    return "; ".join(words) or "-"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("engine", sorted(BASES), indirect=True)
def test_each_setting_changed_once(engine: Any, changes_module: Any, tmp_path: Path) -> None:
    if not Table().cells and not os.environ.get("GANGWAY_UPDATE_SETTINGS"):
        pytest.skip(NO_TABLE)
    provider = next(name for name, stack in BASES.items() if stack == engine.stack)
    data_types = provider_of(provider).retention.guarded
    engine.applied("up")
    file = engine.project / "stacks" / f"Pulumi.{engine.stack}.yaml"
    before = yaml.safe_load(file.read_text("utf-8"))
    (work := tmp_path / "work").mkdir()
    changes = changes_module.Changes(engine.stack, before["config"], work)
    names, table = list(changes_module.every_setting()), Table()
    found: dict[str, str] = {}
    seen: dict[str, str] = {}
    for name, setting in changes_module.every_setting().items():
        found[name] = outcome(engine, file, before, changes, setting, seen, data_types)
        if os.environ.get("GANGWAY_UPDATE_SETTINGS"):
            table.cells.setdefault(name, {})[provider] = found[name]
            table.write(names)
    untried = [name for name, what in found.items() if what == UNTRIED]
    assert not untried, "no other value is known: add one to OTHERS in setting_changes.py"
    assert found == {name: Table().cells[name][provider] for name in names}


def outcome(
    engine: Any,
    file: Path,
    before: Mapping[str, Any],
    changes: Any,
    setting: Any,
    seen: dict[str, str],
    data_types: frozenset[str],
) -> str:
    if not changes.reads(setting):
        return "not read"
    change = changes.of(setting)
    if change is None:
        return UNTRIED
    if change.refusal:
        return "refused"
    if change.signature == "[]":
        return "-"
    if change.signature not in seen:
        file.write_text(yaml.safe_dump({**before, "config": change.settings}), "utf-8")
        seen[change.signature] = happens(engine.run("preview"), data_types)
    return seen[change.signature]
