"""What each changed setting does to a running stack, by the real Pulumi engine: docs/reference/changing-settings.md.

    GANGWAY_UPDATE_GOLDEN=1 pytest -m "engine and slow" tests/engine/test_changed_settings.py    # writes the table

The clouds are stand-ins, which know by hand-kept lists what a living resource cannot change.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.retention import Retention
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from tests.settings_table import COLUMNS, NOT_HERE, PAGE, UNTRIED, SettingsTable

# Machines, and groups with which their machines go.
MACHINES = re.compile(
    r"(aws:ec2|gcp:compute|openstack:compute):Instance|.*:(QueuedTpuRequest|VirtualMachine|VirtualMachineScaleSet)|"
    r"aws:autoscaling:Group|aws:eks:NodeGroup|gcp:compute:(Region)?InstanceGroupManager|.*:(NodePool|AgentPool)"
)
MEANINGS = ("**restarts nodes**", "**replaces the head**", "new nodes")
# Clouds stop a machine to give it another size, and OpenStack rebuilds it with another image.
STOPPING = {"imageId", "imageName", "instanceType", "machineType", "hardwareProfile", "vmSize", "flavorName"}
TAGS = {"tags", "labels", "tagsAll", "pulumiLabels", "effectiveLabels", "terraformLabels"}
TEMPLATES = re.compile(r".*:(LaunchTemplate|InstanceTemplate|VirtualMachineScaleSet)")


@pytest.fixture(scope="module")
def changes_module(load_module: Callable[[Path], Any]) -> Any:
    return load_module(Path(__file__).with_name("setting_changes.py"))


def test_every_setting_has_a_row(changes_module: Any) -> None:
    table, names = SettingsTable(), list(changes_module.every_setting())
    assert set(table.cells) == set(names), "write it as the module's head says"
    assert table.rendered(names) == PAGE.read_text("utf-8"), "write it as the module's head says"


@pytest.fixture
def engine(
    request: pytest.FixtureRequest,
    make_engine: Callable[[str], Any],
    running_plugin: Callable[..., AbstractContextManager[Any]],
    standin: Any,
) -> Iterator[Any]:
    """A stack; its plugins run all the while, because reading their SDK takes longer than all else."""
    made = make_engine(COLUMNS[request.param])
    if request.param == "TPU":
        made.change(lambda config: config["gangway:gcp"].update(tpu_api_url=standin.url))
    config = yaml.safe_load(made.file.read_text("utf-8"))["config"]
    own = get_provider(config["gangway:provider"]).sdk.removeprefix("pulumi-")
    packages = [own, "kubernetes" if request.param == "Kubernetes" else "docker-build"]
    with ExitStack() as running:
        plugins = {
            one: running.enter_context(running_plugin(one, made.cloud, made.project / "stacks")) for one in packages
        }
        made.env["PULUMI_DEBUG_PROVIDERS"] = ",".join(f"{one}:{plugin.port}" for one, plugin in plugins.items())
        yield made


def happens(preview: Any, retention: Retention) -> str:
    """A cell of the table, from what a preview shows."""
    if preview.status != 0:
        refused = sorted(set(re.findall(r"gangway:allow_replace: (\S+): this change would (\w+)", preview.text)))
        if refused:
            return "**refused, loses data**: " + ", ".join(f"{verb}s {name}" for name, verb in refused)
        return "refused"
    steps = [event["resourcePreEvent"]["metadata"] for event in preview.events if "resourcePreEvent" in event]
    steps = [step for step in steps if step["op"] in ("create", "update", "replace", "delete")]
    # A text that stacks/base/kept.py makes anew, from which nothing differs if no machine does.
    steps = [step for step in steps if (step["op"], kind(step["type"])) != ("replace", "pulumi:index:Stash")]
    assert not list(lost(steps, retention)), "loses data and is not refused"
    found = {means(step) for step in steps}
    return "; ".join(word for word in MEANINGS if word in found) or ("in place" if steps else "-")


def means(step: dict[str, Any]) -> str:
    """What one step means to the nodes; empty where it means nothing to them."""
    type_, name = kind(step["type"]), step["urn"].rpartition("::")[2]
    gone = step["op"] in ("replace", "delete")
    changed = step["op"] == "update" and set(step.get("diffs") or ())
    if MACHINES.fullmatch(type_) and (gone or (changed and changed & STOPPING)):
        return "**replaces the head**" if "head" in name else "**restarts nodes**"
    if type_ == "command:remote:Command" and (gone or changed):
        return "**restarts nodes**"
    if TEMPLATES.fullmatch(type_) and (step["op"] == "replace" or (changed and changed - TAGS)):
        return "new nodes"
    return ""


def lost(steps: list[dict[str, Any]], retention: Retention) -> Iterator[str]:
    """URNs of resources with data that a change would replace or remove."""
    for step in steps:
        guarded = step["op"] in ("replace", "delete") and kind(step["type"]) in retention.guarded
        if guarded and not retention.is_disposable(step["urn"], (step.get("old") or {}).get("outputs") or {}):
            yield step["urn"]


@pytest.mark.engine
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("engine", "column"), [(column, column) for column in COLUMNS], indirect=["engine"])
def test_each_setting_changed_once(engine: Any, column: str, changes_module: Any, tmp_path: Path) -> None:
    table, settings = SettingsTable(), changes_module.every_setting()
    writes = bool(os.environ.get("GANGWAY_UPDATE_GOLDEN"))
    engine.applied("up")
    before = yaml.safe_load(engine.file.read_text("utf-8"))
    retention = get_provider(before["config"]["gangway:provider"]).retention
    (work := tmp_path / "work").mkdir()
    changes = changes_module.Changes(engine.stack, before["config"], work)
    previews: dict[str, str] = {}

    def what_happens(change: Any) -> str:
        """By a preview; by one alone for changes that declare the same."""
        if change.signature not in previews:
            engine.file.write_text(yaml.safe_dump({**before, "config": change.settings}), "utf-8")
            previews[change.signature] = happens(engine.run("preview"), retention)
        return previews[change.signature]

    found = {name: cell_of(setting, changes, what_happens) for name, setting in settings.items()}
    if writes:
        table = SettingsTable()
        for name, cell in found.items():
            table.cells.setdefault(name, {})[column] = cell
        PAGE.write_text(table.rendered(list(settings)), "utf-8")
    untried = [name for name, what in found.items() if what == UNTRIED]
    assert not untried, "no other value is known: add one to OTHERS in setting_changes.py"
    assert found == {name: table.cells[name][column] for name in settings}


def cell_of(setting: Any, changes: Any, what_happens: Callable[[Any], str]) -> str:
    if not changes.reads(setting):
        return NOT_HERE
    change = changes.of(setting)
    if change is None:
        return UNTRIED
    if change.refusal:
        return NOT_HERE
    return "-" if change.signature == "[]" else what_happens(change)
